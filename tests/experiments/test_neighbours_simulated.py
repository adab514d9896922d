"""Error bars from neighbours against fields of the prior, by the functions of the experiments."""

import json

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp

from .scripts import printed_rows, script

module = script("neighbour_calibration")
PRIOR = cagp.Prior(cagp.Matern32(0.6), 0.2, mean=0.0)
SIZES = module.Sizes(observed=400, predicted=40, places=80, fields=100)


@pytest.fixture(scope="module")
def fields():
    return module.Fields.draw(SIZES, PRIOR, np.random.default_rng(1))


def is_right(judged):
    """Within four standard errors, and no Kolmogorov-Smirnov test in ten thousand."""
    return abs(judged.joint_std - 1.0) < 4.0 / np.sqrt(2.0 * judged.count) and judged.ks_pvalue > 1e-4


@pytest.mark.parametrize("solver", [cagp.Neighbours(5, group=1), cagp.Neighbours(10, coarse=8)])
def test_errors_at_points_and_of_areas_are_as_stated(fields, solver):
    assert is_right(module.at_targets(fields, PRIOR, solver))
    assert is_right(module.over_areas(fields, PRIOR, solver))


def test_samples_have_the_stated_covariance(fields):
    solver = cagp.Neighbours(10)
    assert is_right(module.of_samples(fields, PRIOR, solver, np.random.default_rng(2), 200))


def test_an_error_bar_that_leaves_out_what_was_not_used_would_be_seen(fields):
    """The mean from three neighbours with the covariance of the exact posterior."""
    given = PRIOR, fields.X, fields.y, fields.targets
    mean = cagp.condition(*given, solver=cagp.Neighbours(3, group=1)).mean
    exact = cagp.condition(*given, solver=cagp.Cholesky(), covariance="full").covariance
    judged = module.Judged.of(mean - fields.truth, exact)
    assert judged.joint_std > 1.0 + 8.0 / np.sqrt(2.0 * judged.count)


@pytest.mark.exhaustive
def test_stated_deviations_are_no_smaller_than_exact_ones(tmp_path, capsys, monkeypatch):
    ratios = script("neighbour_ratios")
    monkeypatch.setattr(ratios, "LENGTHSCALES", (0.3, 1.0))
    ratios.main(["--quick", "--output", str(tmp_path)])
    rows = json.loads((tmp_path / "neighbour-ratios.json").read_text())
    assert len(rows) == 6 * len(ratios.SOLVERS)
    assert all(1.0 - 1e-9 < row["median"] <= row["high"] <= row["largest"] for row in rows)
    assert all(row["median"] < 1.02 for row in rows if row["solver"] == "auto")
    assert len(printed_rows(capsys.readouterr().out)) == 1 + 6 + 1 + len(ratios.SOLVERS)


@pytest.mark.exhaustive
def test_held_out_cells_of_a_satellite_are_scored_as_observations(tmp_path, capsys):
    """A made grid of the same layout: intervals hold what the noise adds, too."""
    satellite, rng = script("satellite"), np.random.default_rng(0)
    axes = {"latitude": 36.0 + 0.1 * np.arange(18), "longitude": -95.0 + 0.1 * np.arange(28)}
    where = np.sin(3.0 * axes["latitude"])[:, None] + np.cos(2.0 * axes["longitude"])
    truth = xr.DataArray(where + 0.3 * rng.standard_normal(where.shape), axes, name="TrueTemp")
    masked = truth.where(rng.random(where.shape) < 0.7).rename("MaskTemp")
    truth[5, 5] = np.nan  # neither seen nor scored
    masked[5, 5] = np.nan
    masked.to_netcdf(tmp_path / "satellite_train.nc")
    truth.to_netcdf(tmp_path / "satellite_true.nc")
    satellite.main(["--data", str(tmp_path), "--output", str(tmp_path), "--kernel", "default"])
    (found,) = json.loads((tmp_path / "satellite.json").read_text())
    assert 0.9 < found["coverage"] < 0.99
    assert 0.27 < found["rmse"] < 0.36
    head, ours, *published = printed_rows(capsys.readouterr().out)
    assert len(head) == len(ours) == 9
    assert len(published) == len(satellite.PUBLISHED)
