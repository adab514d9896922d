"""From answers to lines of a table: every answer checked, then scored in one way."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

from cagp_dist.calibration.verification.scores import scores
from pipelines.benchmarks.peers import reference
from pipelines.benchmarks.peers.adapters.harness import Array, Fit, Prediction, Problem
from pipelines.benchmarks.peers.catalogue import Method, Peer
from pipelines.benchmarks.peers.environments import AbsentError, interpreter
from pipelines.benchmarks.peers.problems import check_fit_problem, check_problem
from pipelines.benchmarks.peers.running import Answer, RunError, run

LEVEL = 0.95
MEMORY_SHARE = 0.8
"""Of the free memory, what a run may be expected to take."""


@dataclass(frozen=True)
class Line:
    """One method in one case.

    Attributes
    ----------
    case, peer, label : str
        What was run.
    outcome : str
        ``"ok"``, or why there are no figures.
    figures : dict
        Seconds in all, by phase and of all processors, peak memory, and scores, or for a fit what it found.
    """

    case: str
    peer: str
    label: str
    outcome: str
    figures: dict[str, float]


@dataclass(frozen=True)
class Settings:
    """Where environments lie and how long a run may take."""

    environments: Path
    time_limit_seconds: float


def predict(
    case: str, problem: Problem, held_out: Array, *, peer: Peer, method: Method, settings: Settings
) -> Line:
    """Run a method on a problem, check it on the small one and score it at the points held out.

    Returns
    -------
    Line
        Never raises for what a peer does: the outcome says it.
    """
    check = check_problem(threads=problem.threads)

    def figures(answer: Answer) -> dict[str, float]:
        small = Prediction(**_arrays(answer.check, "mean", "std"))
        error = reference.difference(check, method, small)
        if not error <= method.tolerance:
            raise RunError(
                f"not compared: differs by {error:.1e} from the dense formula, allowed {method.tolerance:.0e}"
            )
        found = _arrays(answer.result, "mean", "std")
        if not all(np.isfinite(values).all() for values in found.values()) or not (found["std"] > 0.0).all():
            raise RunError("mean or standard deviation is not finite, or not above zero")
        scored = scores(found["mean"], found["std"], held_out, levels=(LEVEL,))
        return {
            "check_difference": error,
            "rmse": scored.rmse,
            "nll": scored.nll,
            "crps": scored.crps,
            "coverage": float(scored.coverage[0]),
        }

    return _line(case, peer, method, check=check, problem=problem, settings=settings, figures=figures)


def fit(case: str, problem: Problem, *, peer: Peer, method: Method, settings: Settings) -> Line:
    """Run a peer's estimate of the hyperparameters and evaluate the exact likelihood of what it found."""

    def figures(answer: Answer) -> dict[str, float]:
        names = ("lengthscale", "variance", "noise_variance", "evaluations")
        values = {name: float(array) for name, array in _arrays(answer.result, *names).items()}
        found = Fit(**{**values, "evaluations": int(values["evaluations"])})
        return {**asdict(found), "log_likelihood": reference.log_likelihood(problem, found)}

    check = check_fit_problem(threads=problem.threads)
    return _line(case, peer, method, check=check, problem=problem, settings=settings, figures=figures)


def _line(
    case: str,
    peer: Peer,
    method: Method,
    *,
    check: Problem,
    problem: Problem,
    settings: Settings,
    figures: Callable[[Answer], dict[str, float]],
) -> Line:
    """Run, or say why not."""
    try:
        _check_memory(method, len(problem.X))
        answer = run(
            interpreter(peer, settings.environments),
            peer.adapter,
            method.name,
            check=check,
            problem=problem,
            cache=settings.environments / "compiled",
            time_limit_seconds=settings.time_limit_seconds,
        )
        values = figures(answer)
    except AbsentError as absent:
        return Line(case, peer.name, method.label, f"absent: {absent}", {})
    except RunError as error:
        return Line(case, peer.name, method.label, str(error), {})
    seconds = {f"{phase}_seconds": float(value) for phase, value in dict(answer.result["seconds"]).items()}
    measured = {
        "seconds": sum(seconds.values()),
        **seconds,
        "processor_seconds": float(answer.result["processor_seconds"]),  # type: ignore[arg-type]
        "peak_mebibytes": answer.peak_mebibytes,
    }
    return Line(case, peer.name, method.label, "ok", {**measured, **values})


def _check_memory(method: Method, n: int) -> None:
    needed, free = method.matrices * 8.0 * n**2, psutil.virtual_memory().available
    if needed > MEMORY_SHARE * free:
        raise RunError(
            f"not tried: about {needed / 2**30:.0f} GiB of matrices, {free / 2**30:.0f} GiB are free"
        )


def _arrays(fields: dict[str, object], *names: str) -> dict[str, Array]:
    return {name: np.asarray(fields[name], dtype=np.float64) for name in names}
