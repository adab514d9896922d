"""Jobs whose observations have depths: what the call answers, whole profiles held out, and checks."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import CagpError, ConfigurationError
from cagp_dist.export import export_run
from cagp_dist.geometry import unit_sphere
from cagp_dist.report import write_report
from cagp_dist.report.published import read_run
from cagp_dist.service.job_fit import prior_table
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import load_job
from cagp_dist.service.run import fit_job
from cagp_dist.service.verification import solve_again, verify_run

KERNEL = cagp.Matern32(0.08, 4.0) * cagp.Matern32(60.0, axis="depth")
DEPTHS, MAPS = np.array([10.0, 40.0, 90.0]), [20.0, 70.0]
CALL = {
    "value": "t",
    "units": "degC",
    "columns": {"depth": "pressure"},
    "kernel": "matern32",
    "progress": False,
}


@pytest.fixture(scope="module")
def floats(tmp_path_factory):
    """40 profiles of three depths, and a job that maps two others."""
    root, generator = tmp_path_factory.mktemp("floats"), np.random.default_rng(5)
    places, n = generator.uniform([40.0, 0.0], [50.0, 15.0], (40, 2)), 120
    north, east = np.repeat(places, DEPTHS.size, axis=0).T.round(6)
    X = np.column_stack([unit_sphere(north, east), np.tile(DEPTHS, 40)])
    field = 10.0 + np.linalg.cholesky(KERNEL(X, X) + 0.09 * np.eye(n)) @ generator.normal(size=n)
    table = pd.DataFrame({"lat": north, "lon": east, "pressure (dbar)": X[:, 3], "t": field})
    table.to_csv(root / "floats.csv", index=False)
    pd.DataFrame({"lat": [44.0, 45.0], "lon": [3.0, 4.0], "depth": [20.0, 55.0]}).to_csv(
        root / "to.csv", index=False
    )
    job = f"""
[observations]
source = "table:{root}/floats.csv"
variable = "t"
units = "degC"
columns = {{ depth = "pressure" }}
[design]
test = {{ kind = "random", count = 7, seed = 3 }}
map = {{ kind = "grid", resolution_degrees = 5.0, depths = {MAPS} }}
targets = "table:{root}/to.csv"
[prior]
kernel = "matern32"
[output]
root = "{root}/out"
"""
    (root / "job.toml").write_text(job)
    return root, job, table


@pytest.fixture(scope="module")
def run(floats):
    """The run of the job."""
    return cagp.run(floats[0] / "job.toml").path


def test_a_job_and_a_call_give_the_same_maps_at_depths(floats, run):
    root, _, table = floats
    groups = xr.open_datatree(run, engine="zarr", consolidated=False)
    observed, held, maps = groups["observations"], groups["posterior"], groups["map"]
    # whole profiles are held out
    assert held["depth"].size == 21
    assert not np.isin(held["latitude"], observed["latitude"]).any()
    kept = table[np.isin(table["lat"], observed["latitude"])]
    assert len(kept) == 99
    model = cagp.Kriging(**CALL).fit(kept)
    grid = maps.to_dataset()[["latitude", "longitude", "depth"]]
    assert maps["t_mean"].dims == ("depth", "latitude", "longitude")
    assert {"units": "dbar", "positive": "down", "axis": "Z"}.items() <= maps["depth"].attrs.items()
    at = pd.DataFrame({name: held[name] for name in ("latitude", "longitude", "depth")})
    for to, group in ((grid, maps), (at, held), (str(root / "to.csv"), groups["targets"])):
        found = model.predict(to)
        np.testing.assert_allclose(group["t_mean"].values, found["mean"].values + 273.15, atol=1e-8)
        np.testing.assert_allclose(group["t_std"].values, found["std"].values, atol=1e-8)
    assert groups["targets"]["depth"].values.tolist() == [20.0, 55.0]
    said = json.loads(groups.attrs["prior"])
    assert said["depth_lengthscale"] == pytest.approx(float(found.attrs["lengthscale_depth"]))
    assert groups["map"].attrs["spatial:dimensions"] == ["latitude", "longitude"]
    assert groups.attrs["geospatial_vertical_positive"] == "down"


@pytest.mark.exhaustive
def test_an_object_with_a_dimension_of_depths_is_as_its_table(floats, run, tmp_path):
    _, job, table = floats
    places = table.iloc[:: DEPTHS.size]
    profiles = xr.Dataset(
        {"t": (("profile", "pressure"), table["t"].to_numpy().reshape(-1, DEPTHS.size), {"units": "degC"})},
        {"latitude": ("profile", places["lat"]), "longitude": ("profile", places["lon"])}
        | {"pressure": ("pressure", DEPTHS, {"units": "dbar"})},
    )
    text = job.replace(job.split('"')[1], "file:of-memory.nc").replace("/out", "/object")
    text = text.replace("[design]", '[design]\ntrain = { kind = "all" }')
    (tmp_path / "job.toml").write_text(text)
    found = cagp.run(tmp_path / "job.toml", observations=profiles).path
    ours, theirs = (xr.open_zarr(path, group="map") for path in (found, run))
    np.testing.assert_allclose(ours["t_mean"], theirs["t_mean"], rtol=1e-10)
    assert ours["depth"].attrs["units"] == "dbar"


def test_a_run_at_depths_is_checked_reported_exported_and_solved_again(floats, run, tmp_path):
    root, *_ = floats
    verify_run(run)
    assert solve_again(run, points=5) < 1e-9
    page = write_report(run, tmp_path)
    assert 'href="70-dbar/report.html"' in page.read_text()
    assert 'href="../report.html"' in (tmp_path / "70-dbar" / "report.html").read_text()
    second = read_run(run, depth=1)
    np.testing.assert_array_equal(second.grid.mean, xr.open_zarr(run, group="map")["t_mean"][1])
    (path, *_) = export_run(run, to="csv", groups=["map"], output=tmp_path / "csv")
    assert {"t_mean_at_20", "t_mean_at_70"} <= {*pd.read_csv(path).columns}
    plan = plan_job(load_job(root / "job.toml"))
    assert "12 map cells" in plan.size.line()
    assert "2 depths" in plan.size.line()


def test_numbers_that_were_fitted_are_numbers_of_a_job(floats):
    root, job, _ = floats
    settings = load_job(root / "job.toml")
    text = prior_table(settings.prior, fit_job(settings))
    folds = job.replace('{ kind = "random", count = 7, seed = 3 }', '{ kind = "folds", count = 4 }')
    start, end = folds.index("[prior]"), folds.index("[output]")
    (root / "given.toml").write_text(folds[:start] + text + "\n" + folds[end:])
    path = cagp.run(root / "given.toml").path
    held = xr.open_zarr(path, group="posterior")
    assert held.sizes["point"] == 120
    assert json.loads(xr.open_zarr(path).attrs["prior"])["depth_kernel"] in ("matern12", "matern32", "metric")


@pytest.mark.exhaustive
def test_a_run_says_to_what_the_numbers_of_its_folds_were_fitted(floats):
    """Few places have a fit of their own in each fold, but for kernels with many numbers."""
    root, job, _ = floats
    folds = job.replace('{ kind = "random", count = 7, seed = 3 }', '{ kind = "folds", count = 4 }')
    (root / "folds.toml").write_text(folds.replace("/out", "/folds"))
    said = xr.open_zarr(cagp.run(root / "folds.toml").path).attrs["cross_validation"]
    assert said.endswith(", kernel and noise to the half of all folds without its own.")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (", depths = [20.0, 70.0]", "", "depths = "),
        ("[20.0, 70.0]", "[70.0, 20.0]", "ascend"),
        ("[20.0, 70.0]", "[-5.0]", "depths"),
        ('columns = { depth = "pressure" }', "", "names no column of depths"),
        ('kind = "grid"', 'kind = "cells"', "cells"),
        ("[output]", 'time_kernel = "auto"\n[output]', "time_kernel"),
        ("[output]", "depth_lengthscale = 10.0\n[output]", "depth_lengthscale"),
        ("[output]", "lengthscale = 0.1\nvariance = 4.0\nnoise_variance = 0.2\n[output]", "depth_kernel"),
        ("[output]", '[recalibration]\nmethod = "local-scale"\n[output]', "depths"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_depths_is_refused_by_name(floats, old, new, named):
    root, job, _ = floats
    assert old in job
    (root / "refused.toml").write_text(job.replace(old, new))
    with pytest.raises(ConfigurationError, match=named):
        load_job(root / "refused.toml")


@pytest.mark.parametrize(
    ("key", "depths", "targets"),
    [
        ("depth-sign", lambda own: -own, None),
        ("depth-of-targets", lambda own: 0.0 * own + 40.0, None),
        ("depth-units", None, {"lat": [44.0], "lon": [3.0], "depth (m)": [20.0]}),
        ("depth-of-targets", None, {"lat": [44.0], "lon": [3.0]}),
    ],
)
def test_depths_that_are_none_or_of_other_units_are_refused_by_name(floats, key, depths, targets, tmp_path):
    root, job, table = floats
    if depths is not None:
        own = table.assign(**{"pressure (dbar)": depths(table["pressure (dbar)"])})
        own.to_csv(tmp_path / "floats.csv", index=False)
        job = job.replace(f"{root}/floats.csv", f"{tmp_path}/floats.csv")
    if targets is not None:
        pd.DataFrame(targets).to_csv(tmp_path / "to.csv", index=False)
        job = job.replace(f"{root}/to.csv", f"{tmp_path}/to.csv")
    (tmp_path / "job.toml").write_text(job)
    with pytest.raises(CagpError) as refused:
        cagp.run(tmp_path / "job.toml")
    assert refused.value.key == key
