"""A month of daily jobs that are killed at random moments is the month that nobody disturbed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from cagp_dist.service import run as running
from cagp_dist.store import manifest, series
from pipelines import daily

from ..jobs import job_text, map_grid, random_points

DAYS = 30


def write_job(folder: Path, *, times: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "job.toml").write_text(
        job_text(
            observations={"source": "zarr:field.zarr", "times": times},
            design={
                "train": random_points(60),
                "test": random_points(30, seed=1),
                "map": map_grid(60.0),
                "regions": [{"name": "north", "south": 30, "north": 80, "west": 0, "east": 180}],
                "regions_resolution_degrees": 20.0,
            },
            solver={"name": "block-gauss-seidel", "iterations": 2, "block_size": 30},
            output={"root": "out", "keep_weights": True},
        )
    )


def chunks(store: Path) -> dict[str, str]:
    """Digests of all values of a store, but for wall times; its attributes say when, and differ."""
    of_files = manifest.digests_of(store).items()
    return {name: digest for name, digest in of_files if "/c/" in name and "trace/seconds/" not in name}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_month_of_jobs_that_are_killed_is_the_month_of_jobs_that_are_not(tmp_path, monkeypatch, capsys):
    """30 days, up to three SIGKILLs each: every day once in the series, with the bits of the other month."""
    for name in ("warm", "whole", "killed"):
        write_job(tmp_path / name, times="latest")
    done = subprocess.run(
        [sys.executable, "-m", "tests.service.month_of_kills", tmp_path, "11", str(DAYS)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    counted = json.loads(done.stdout.splitlines()[-1])
    assert counted["kills"] >= counted["hits"] >= DAYS // 3, counted
    found = {}
    for name in ("whole", "killed"):
        version = series.verify(tmp_path / name / "out")
        assert version.name == f"{DAYS:06d}.zarr"
        scores = xr.open_zarr(version, group=series.SCORES).load()
        assert (scores.time.values == np.datetime64("2020-06-01") + np.arange(DAYS)).all()
        keys = scores.run_key.values.tolist()
        runs = {path.stem: path for path in (tmp_path / name / "out/runs").glob("*.zarr")}
        assert sorted(runs) == sorted(keys)
        found[name] = keys, chunks(version), [chunks(runs[key]) for key in keys]
        assert np.diff(scores.version.values).tolist() == [1] * (DAYS - 1)
    assert found["whole"] == found["killed"]
    solved = []
    monkeypatch.setattr(running, "solve_task", lambda *arguments, **settings: solved.append(arguments))
    monkeypatch.chdir(tmp_path / "killed")
    write_job(Path(), times="2020-06")
    assert daily.main(["job.toml"]) == 0
    assert capsys.readouterr().out.count("in the series already") == DAYS
    assert not solved
    assert series.verify(tmp_path / "killed/out").name == f"{DAYS:06d}.zarr"
