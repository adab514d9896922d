"""A job that is asked to end keeps what it has, says so, and goes on when it is started again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer

from cagp_dist.cli.display import reported_errors
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.solvers.engine.tiles import TileSystem
from cagp_dist.store.zarr_arrays import read_group
from cagp_dist.termination import TerminationError, orderly_termination

from ..jobs import job_text, random_points

OBSERVED = {"source": "synthetic", "grid_degrees": 15.0, "times": ["2020-01-01"]}


def job(root, *, test=None, **runtime):
    return parse_job(
        job_text(
            observations=OBSERVED,
            design={"train": random_points(220), "test": test or random_points(20, seed=1)},
            solver={"name": "block-gauss-seidel", "iterations": 4, "block_size": 50},
            runtime=runtime,
            output={"root": root},
        )
    )


def assert_same_posterior(path: Path, expected: Path) -> None:
    """Means and error bars of two runs agree to the last bit."""
    for name in ("t2m_mean", "t2m_std"):
        np.testing.assert_array_equal(
            read_group(path, "posterior")[name], read_group(expected, "posterior")[name]
        )


def test_a_terminated_job_keeps_its_iteration_and_goes_on_from_there(tmp_path, monkeypatch):
    read, swept = [TileSystem.read], []

    def terminated_in_the_third(system, works):
        swept.append("read")
        if len(swept) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return read[0](system, works)

    monkeypatch.setattr(TileSystem, "read", terminated_in_the_third)
    monkeypatch.setattr("cagp_dist.termination.GRACE_SECONDS", 60.0)  # on a busy machine
    with pytest.raises(TerminationError), orderly_termination():
        run(job(tmp_path / "cut"))
    kept = list((tmp_path / "cut" / ".checkpoints").rglob("manifest.json"))
    assert len(kept) == 1
    assert not (tmp_path / "cut" / "CURRENT").exists()
    notes = []
    again = run(job(tmp_path / "cut"), observe=lambda event: notes.append(event.text))
    assert "continues from iteration 3 of 4, which a checkpoint has" in notes
    assert len(swept) == 4, "the third iteration ended within the grace and was kept"
    assert_same_posterior(again.path, run(job(tmp_path / "whole")).path)
    assert not (tmp_path / "cut" / ".checkpoints" / again.path.stem).exists(), "a published run needs none"
    (tmp_path / "cut" / ".checkpoints" / again.path.stem / ("0" * 64)).mkdir(parents=True)
    assert run(job(tmp_path / "cut")).already_done
    assert not (tmp_path / "cut" / ".checkpoints" / again.path.stem).exists(), (
        "left by a kill after publication"
    )


@pytest.mark.exhaustive
def test_a_job_of_several_solves_goes_on_within_the_second(tmp_path, monkeypatch):
    """The first fold is done, and is not done again; the second goes on after its second iteration."""
    read, swept = TileSystem.read, []

    def terminated_in_the_sixth(system, works):
        swept.append("read")
        if len(swept) == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        return read(system, works)

    def of_folds(root):
        return job(root, test={"kind": "folds", "count": 2}, checkpoint_seconds=0.0)

    monkeypatch.setattr(TileSystem, "read", terminated_in_the_sixth)
    monkeypatch.setattr("cagp_dist.termination.GRACE_SECONDS", 60.0)  # on a busy machine
    with pytest.raises(TerminationError), orderly_termination():
        run(of_folds(tmp_path / "cut"))
    assert len(list((tmp_path / "cut" / ".checkpoints").glob("*/*"))) == 2  # a key for each fold
    again = run(of_folds(tmp_path / "cut"))
    assert len(swept) == 8, "two folds of four iterations, none of them twice"
    assert_same_posterior(again.path, run(of_folds(tmp_path / "whole")).path)


@pytest.mark.exhaustive
def test_a_terminated_fit_keeps_its_evaluations_and_goes_on_from_there(tmp_path, monkeypatch):
    evaluate, evaluated = DenseLikelihood.evaluate, []

    def terminated_in_the_third(likelihood, *numbers):
        evaluated.append(numbers)
        if len(evaluated) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(likelihood, *numbers)

    def to_fit(folder):
        text = job_text(
            **{
                "observations": {"source": "synthetic", "grid_degrees": 10.0, "times": ["2020-01-01"]},
                "observations.synthetic": {"lengthscale": 0.3, "noise_variance": 1.0, "seed": 5},
            },
            design={
                "train": random_points(250, weight="equal"),
                "test": random_points(20, seed=1, weight="equal"),
            },
            prior={"kernel": "matern32", "mean": "harmonic-latitude"},
            output={"root": tmp_path / folder},
        )
        return parse_job(text)

    monkeypatch.setattr(DenseLikelihood, "evaluate", terminated_in_the_third)
    with pytest.raises(TerminationError), orderly_termination():
        run(to_fit("cut"))
    assert len(list((tmp_path / "cut" / ".checkpoints").rglob("manifest.json"))) == 1
    again = run(to_fit("cut"))
    way = list(evaluated)
    evaluated[:] = [()] * 3
    whole = run(to_fit("whole"))
    assert evaluated[3:] == way, "the three that were kept were not worked out again"
    assert_same_posterior(again.path, whole.path)


def test_what_takes_longer_than_the_grace_is_cut_off(monkeypatch, capsys):
    monkeypatch.setattr("cagp_dist.termination.GRACE_SECONDS", 0.1)
    before, began = signal.getsignal(signal.SIGTERM), time.monotonic()

    def work_on():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(300.0)

    with pytest.raises(typer.Exit) as ended, reported_errors(debug=False):
        work_on()
    assert time.monotonic() - began < 150.0
    assert ended.value.exit_code == 143
    assert "Terminated. Earlier results are unchanged" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before


WAITING = """
import sys, time
from cagp_dist.cli import main
from cagp_dist.solvers.engine.tiles import TileSystem

read, swept = TileSystem.read, []

def read_or_wait(system, works):
    swept.append("read")
    while len(swept) > 6:
        time.sleep(0.1)
    return read(system, works)

TileSystem.read = read_or_wait
sys.argv = ["cagp", "run", "job.toml"]
sys.exit(main())
"""
"""The command, which after six iterations waits to be ended, where that comes late on a busy machine."""


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
def test_the_same_command_goes_on_after_a_signal(number, tmp_path):
    """A process of its own, ended twice at iterations that nobody chose; the third time it is left alone."""
    text = job_text(
        design={"train": random_points(2000), "test": random_points(300, seed=1)},
        prior={"lengthscale": 0.05, "variance": 22.0, "noise_variance": 0.5},
        solver={"name": "block-gauss-seidel", "iterations": 15, "block_size": 256},
        cluster=None,
        runtime={"checkpoint_seconds": 0.0},
        output={"root": "out"},
    )
    for folder in ("cut", "whole"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "job.toml").write_text(text)
    command = [Path(sys.executable).with_name("cagp"), "run", "job.toml"]
    wanted = 0
    for _ in range(2):
        waiting = [sys.executable, "-c", WAITING]
        with subprocess.Popen(waiting, cwd=tmp_path / "cut", stderr=subprocess.PIPE, text=True) as process:
            wanted, until = wanted + 3, time.monotonic() + 600.0
            while newest(tmp_path / "cut") < wanted:
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.02)
            process.send_signal(number)
            _, errors = process.communicate(timeout=300)
        assert process.returncode == (143 if number == signal.SIGTERM else -signal.SIGKILL), errors
        wanted = newest(tmp_path / "cut")
    for folder in ("cut", "whole"):
        subprocess.run(command, cwd=tmp_path / folder, check=True, capture_output=True, timeout=600)
    runs = [next((tmp_path / folder / "out" / "runs").glob("*.zarr")) for folder in ("cut", "whole")]
    assert_same_posterior(*runs)


def newest(folder: Path) -> int:
    """Number of the newest checkpoint; 0 where there is none."""
    found = (folder / "out" / ".checkpoints").glob("*/*/0*")
    return max((int(path.name) for path in found), default=0)
