"""Run a method of another program on a problem, in a process of its own environment."""

import subprocess
from pathlib import Path

import numpy as np
import psutil

from cagp_dist.predictive import Gaussian
from pipelines.benchmarks.peers.catalogue import PEERS
from pipelines.benchmarks.peers.environments import AbsentError, asked
from pipelines.proof.problems import Answer, Drawn, Peer, Problem

ADAPTERS = Path(__file__).parent / "adapters"
SCRIPTS = {
    "pykrige": "by_pykrige.py",
    "gstools": "by_gstools.py",
    "scikit-learn": "by_sklearn.py",
    "gpboost": "by_gpboost.py",
}


class UnavailableError(Exception):
    """A program gave no answer; the text says why."""


def answer_of(peer: Peer, problem: Problem, environments: Path, *, limit_seconds: float) -> Answer:
    """Let a program predict, with one thread.

    Raises
    ------
    UnavailableError
        If it is not to be installed, would not fit into memory, ends with an error, or takes too long.
    """
    needed = 8.0 * float(problem.observed.sum(axis=1).max()) ** 2 * peer.matrices
    if needed > psutil.virtual_memory().total:
        raise UnavailableError(f"would need {needed / 2**30:,.0f} GiB")
    try:
        found = asked(
            PEERS[peer.program],
            ADAPTERS / SCRIPTS[peer.program],
            peer.method,
            folder=environments,
            limit_seconds=limit_seconds,
            X=problem.rows[[*problem.axes]].to_numpy(dtype=np.float64),
            y=problem.rows[problem.value].fillna(0.0).to_numpy(dtype=np.float64),
            U=problem.rows[[*peer.covariates]].to_numpy(dtype=np.float64),
            observed=problem.observed,
            wanted=problem.wanted,
            geographic=problem.geographic,
        )
    except AbsentError as error:
        raise UnavailableError(f"not installed: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"not done after {limit_seconds:,.0f} s") from error
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if line.strip()]
        raise UnavailableError(lines[-1] if lines else f"ended with {error.returncode}") from error
    mean, draws = found["mean"], found.get("draws")
    return Answer(
        Gaussian(mean, np.maximum(found["std"], 1e-12)) if draws is None else Drawn(draws),
        mean,
        mean if draws is None else np.median(draws, axis=1),
        float(found["seconds"]),
        float(found["processor_seconds"]),
        float(found["peak_mebibytes"]),
    )
