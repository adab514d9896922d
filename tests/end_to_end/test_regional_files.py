"""The main job on regional files: own map area, many times in one solve."""

import numpy as np
import pytest
import xarray as xr

from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run

from ..jobs import job_text, map_grid, random_points
from ..regional import EUROPE, day


def job(path, root, *, train, resolution, mean, lengthscale, noise, **observations):
    text = job_text(
        observations={"source": f"file:{path}", **observations},
        design={
            "train": random_points(train),
            "test": random_points(100, seed=1),
            "map": map_grid(resolution),
        },
        prior={"mean": mean, "lengthscale": lengthscale, "variance": 22.0, "noise_variance": noise},
        solver={"name": "block-gauss-seidel", "iterations": 3, "block_size": 256},
        cluster=None,
        output={"root": root},
    )
    return parse_job(text)


@pytest.mark.exhaustive
def test_europe(tmp_path):
    europe = job(
        EUROPE,
        tmp_path / "out",
        train=2000,
        resolution=2.5,
        mean="quadratic-latitude",
        lengthscale=0.05,
        noise=3.0,  # mountains and coasts that 0.75 degrees do not resolve
    )
    outcome = run(europe)
    grid = xr.open_zarr(outcome.path, group="map").load()
    assert grid.latitude.values[[0, -1]].tolist() == [31.25, 58.75]
    # 49.5 degrees in 20 columns, across Greenwich, without a jump
    np.testing.assert_allclose(grid.longitude.values, -9.75 + 2.475 * (np.arange(20) + 0.5))
    assert outcome.status.ok
    error = float(outcome.calibration.rmse)
    assert error < 2.5  # a point sees its neighbours 0.75 degrees away; the field itself varies by 8 K
    # one field, correlated errors and mountains the prior knows nothing of: far from 100 independent draws
    assert 0.7 < float(outcome.calibration.coverage.sel(level=0.9)) <= 1.0


@pytest.mark.exhaustive
def test_a_day_in_one_solve(tmp_path):
    (tmp_path / "day.grib").write_bytes(day("2019-03-01"))
    hours = [f"2019-03-01T{hour:02d}:00" for hour in range(24)]
    one_day = job(
        tmp_path / "day.grib",
        tmp_path / "out",
        times=hours,
        train=1000,
        resolution=1.0,
        mean="constant",
        lengthscale=0.02,
        noise=0.1,
    )
    outcome = run(one_day)
    test = xr.open_zarr(outcome.path, group="posterior").load()
    assert test.t2m_mean.shape == (24, 100)
    assert (test.t2m_std.values == test.t2m_std.values[0]).all()  # one solve: one variance for all hours
    assert np.array_equal(test.time.values, np.array(hours, dtype="datetime64[ns]"))
    hourly = np.sqrt(((test.t2m_mean - test.t2m) ** 2).mean("point"))
    spread = test.t2m.std("point")
    assert (hourly < 0.5 * spread).all()
    with xr.open_zarr(outcome.path, group="map") as grid:
        assert grid.t2m_mean.sizes["time"] == 24
