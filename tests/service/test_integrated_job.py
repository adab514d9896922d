"""Jobs of few stations: numbers that are integrated over, in each fold, as `krige` does with the others."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.special import ndtri

import cagp_dist as cagp
from cagp_dist.calibration.verification.spatial_folds import block_folds
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run

from ..jobs import job_text, map_grid


@pytest.fixture(scope="module")
def stations(tmp_path_factory):
    """Thirty stations; the noise of each, where it is asked for."""
    folder, generator = tmp_path_factory.mktemp("stations"), np.random.default_rng(6)
    latitude, longitude = generator.uniform(40.0, 52.0, 30), generator.uniform(0.0, 12.0, 30)
    X = cagp.unit_sphere(latitude, longitude)
    noise = generator.uniform(0.2, 0.6, 30)
    covariance = cagp.Matern32(0.06, 4.0)(X, X) + np.diag(noise**2)
    value = np.linalg.cholesky(covariance) @ generator.standard_normal(30) + 10.0
    table = pd.DataFrame(
        {
            "name": [f"S{k}" for k in range(30)],
            "lat": latitude,
            "lon": longitude,
            "TAVG (degC)": value,
            "err": noise,
        }
    ).assign(date="2020-06-01")
    table.to_csv(folder / "stations.csv", index=False)
    pd.DataFrame({"name": ["here"], "lat": [46.0], "lon": [6.0]}).to_csv(folder / "places.csv", index=False)
    return folder, table


def _job(folder, root, *, noise=True, test=None, **prior):
    observations = {"source": f"table:{folder / 'stations.csv'}", "variable": "TAVG"}
    return parse_job(
        job_text(
            observations=observations | ({"noise_std": "err"} if noise else {}),
            design={
                "train": {"kind": "all"},
                "test": test or {"kind": "folds", "count": 3, "blocks_degrees": 1.0},
                "map": map_grid(3.0) | {"area": [52.0, 0.0, 40.0, 12.0]},
                "targets": f"table:{folder / 'places.csv'}",
            },
            prior={"mean": "constant", **prior},
            solver={"name": "cholesky"},
            cluster={"scheduler": "serial"},
            recalibration={"method": "none"},
            output={"root": root},
        )
    )


@pytest.mark.exhaustive  # test_two_doors compares a job and krige in every run
@pytest.mark.parametrize("noise", [True, False])
def test_a_job_of_few_stations_integrates_as_krige_does_and_anew_in_each_fold(stations, tmp_path, noise):
    folder, table = stations
    outcome = run(_job(folder, tmp_path / "out", noise=noise))
    groups = {
        name: xr.open_zarr(outcome.path, group=name).load()
        for name in ("posterior", "map", "targets", "calibration")
    }
    attributes = xr.open_zarr(outcome.path).attrs
    fit = json.loads(attributes["fit"])
    assert fit["hyperparameters"].startswith("integrated over because there are no more than 30 observations")
    low, high = fit["integrated_intervals"]["lengthscale"]
    assert low < json.loads(attributes["prior"])["lengthscale"] < high
    table = table.rename(columns={"TAVG (degC)": "TAVG", "err": "noise_std"}).drop(columns=["date", "name"])
    table = table if noise else table.drop(columns="noise_std")
    settings = {"mean": "constant", "nugget_std": None} if noise else {"mean": "constant"}
    # map and place are those of krige with all stations, and each fold with those of the others
    everywhere = cagp.Kriging(**settings).fit(table)
    maps, posterior = (groups[name].isel(time=0) for name in ("map", "posterior"))
    cells = [axis.values.ravel() for axis in xr.broadcast(maps.latitude, maps.longitude)]
    expected = everywhere.predict(dict(zip(("lat", "lon"), cells, strict=True)))
    np.testing.assert_allclose(maps.TAVG_mean.values.ravel(), expected["mean"], atol=1e-4)
    np.testing.assert_allclose(maps.TAVG_std.values.ravel(), expected["std"], rtol=1e-4)
    place = everywhere.predict({"lat": [46.0], "lon": [6.0]})
    np.testing.assert_allclose(groups["targets"].TAVG_std.values.ravel(), place["std"], rtol=1e-4)
    latitude, longitude = posterior.latitude.values, posterior.longitude.values
    folds = block_folds(latitude, longitude, count=3, blocks=1.0, generator=np.random.default_rng(0))
    left = folds == 1
    others = cagp.Kriging(**settings).fit(table[~np.isin(table["lat"].round(6), latitude[left].round(6))])
    expected = others.predict({"lat": latitude[left], "lon": longitude[left]})
    np.testing.assert_allclose(posterior.TAVG_mean[left], expected["mean"], atol=1e-4)
    np.testing.assert_allclose(posterior.TAVG_std[left], expected["std"], rtol=1e-4)
    for name in ("map", "posterior", "targets"):
        group = groups[name]
        there = posterior if name == "posterior" else group
        assert (there.TAVG_predictive_std > there.TAVG_std).all()
        quantiles = group.TAVG_quantile.transpose("quantile_level", ...)
        assert (quantiles.diff("quantile_level") > 0.0).all()
    inside = groups["calibration"].pit.values
    assert 0.0 < inside.min() < inside.max() < 1.0
    # tails of a mixture are longer than those of the normal distribution of its moments
    normal = posterior.TAVG_mean + ndtri(0.975) * posterior.TAVG_predictive_std
    assert not np.allclose(posterior.TAVG_quantile.isel(quantile_level=-1), normal, rtol=1e-4)
    noise_variance = posterior.TAVG_predictive_std**2 - posterior.TAVG_std**2
    if noise:  # in the order of the table, with the mean nugget of the fold
        beside = noise_variance.values[left] - table["noise_std"].values[left] ** 2
        np.testing.assert_allclose(beside, beside.mean(), atol=1e-3)
    else:
        assert np.ptp(noise_variance.values[left]) < 1e-4 * noise_variance.max()


@pytest.mark.exhaustive
def test_the_job_decides(stations, tmp_path):
    folder, _ = stations
    plugged = run(_job(folder, tmp_path / "out", hyperparameters="plug-in"))
    fit = json.loads(xr.open_zarr(plugged.path).attrs["fit"])
    assert fit["hyperparameters"] == "plugged in, as asked for"
    assert "TAVG_quantile" not in xr.open_zarr(plugged.path, group="posterior")
    sums = _job(folder, tmp_path / "out", kernel="matern32 + matern32", hyperparameters="integrated")
    assert sums.prior.hyperparameters == "integrate"  # one word, so that it is one run
    with pytest.raises(ArgumentError) as refusal:
        run(sums)
    assert refusal.value.key == "not-integrated"
    with pytest.raises(ConfigurationError) as refusal:
        _job(folder, tmp_path, hyperparameters="integrate", lengthscale=0.1, variance=1.0, noise_variance=1.0)
    assert refusal.value.key == "prior"
