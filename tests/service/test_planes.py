"""Jobs in a plane of x and y: the numbers of `krige`, groups on y and x, and what is of the globe alone."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from typer.testing import CliRunner

import cagp_dist as cagp
from cagp_dist.cli import app
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.export import export_run
from cagp_dist.fields.axes import located
from cagp_dist.remedies import Setting
from cagp_dist.report import write_report
from cagp_dist.report.published import read_run
from cagp_dist.report.report_tables import prior_rows
from cagp_dist.report.thumbnails import picture_of
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.service.verification import solve_again, verify_run
from cagp_dist.space import Plane
from cagp_dist.store.zarr_arrays import read_group
from cagp_dist.view.site_files import description

from ..jobs import job_text

EAST, NORTH, SIDE = 412_000.0, 5_331_000.0, 6_000.0  # of UTM zone 32, near Munich
NUMBERS = {"lengthscale": 1500.0, "variance": 1.0, "noise_variance": 0.01}


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """A table of samples of two days, and one of places."""
    folder = tmp_path_factory.mktemp("plane")
    rng = np.random.default_rng(2)
    x, y = EAST + SIDE * rng.uniform(size=150), NORTH + SIDE * rng.uniform(size=150)
    lead = 10.0 + np.sin((x - EAST) / 900.0) + np.cos((y - NORTH) / 1100.0) + 0.1 * rng.standard_normal(150)
    days = [
        pd.DataFrame({"easting": x, "northing": y, "day": day, "lead": lead + shift})
        for day, shift in (("2020-06-01", 0.0), ("2020-06-02", 1.0))
    ]
    pd.concat(days).to_csv(folder / "samples.csv", index=False)
    pd.DataFrame({"easting": [EAST + 900.0], "northing": [NORTH + 2000.0]}).to_csv(
        folder / "places.csv", index=False
    )
    return folder


def written(folder, *, observations=(), design=(), prior=(), out="out", **tables):
    """Text of a job on the table."""
    held = {
        "source": f"table:{folder / 'samples.csv'}",
        "variable": "lead",
        "columns": {"x": "easting", "y": "northing", "time": "day"},
        "crs": 32632,
    }
    drawn = {
        "train": {"kind": "all"},
        "test": {"kind": "random", "count": 15},
        "map": {"kind": "grid", "resolution": 1000.0},
        "targets": f"table:{folder / 'places.csv'}",
    }
    return job_text(
        observations=held | dict(observations),
        design={name: table for name, table in (drawn | dict(design)).items() if table is not None},
        prior={name: value for name, value in (NUMBERS | dict(prior)).items() if value is not None},
        solver={"name": "cholesky"},
        output={"root": folder / out},
        **tables,
    )


@pytest.mark.parametrize("kind", ["grid", pytest.param("cells", marks=pytest.mark.exhaustive)])
def test_a_job_in_a_plane_is_krige_there(samples, tmp_path, kind):
    drawn = {"map": {"kind": kind, "resolution": 1000.0}}
    path = run(parse_job(written(samples, design=drawn, out=kind))).path
    groups = {name: read_group(path, name) for name in ("posterior", "map", "targets", "observations")}
    cells, seen = groups["map"], groups["observations"]
    assert cells["lead_mean"].dims == ("time", "y", "x")
    assert groups["posterior"]["lead_mean"].dims == ("time", "point")
    assert cells["x"].attrs["standard_name"] == "projection_x_coordinate"
    assert cells["lead_mean"].attrs["grid_mapping"] in cells.coords
    assert located(cells).space.epsg == 32632
    assert not {"latitude", "longitude"} & {name for group in groups.values() for name in group.variables}
    model = cagp.Kriging(crs=32632, mean="constant", kernel="matern32", lengthscale=1500.0, variance=1.0,
                         noise_std=0.1)  # fmt: skip
    model.fit(np.stack([seen.x, seen.y], axis=1), seen["lead"].values.T)
    found = model.predict(cells[["y", "x"]], kind=kind)
    for name in ("mean", "std"):
        wanted = found[name].values.reshape(cells["lead_mean"].shape if name == "mean" else (-1, 6, 6))
        np.testing.assert_allclose(cells[f"lead_{name}"], wanted, rtol=1e-8)
    there = model.predict(np.stack([groups["targets"].x, groups["targets"].y], axis=1)).T
    np.testing.assert_allclose(groups["targets"]["lead_mean"], there, rtol=1e-8)
    assert verify_run(path) == path
    assert solve_again(path, points=3) < 1e-6
    page = write_report(path, tmp_path / "report").read_text()
    assert f"{EAST + 900.0:.10g}" in page
    assert picture_of(path).frame.unit in ("m", "km")
    for form in ("csv", "netcdf", "geotiff", "zarr"):
        assert export_run(path, to=form, groups=["map"], output=tmp_path / form)
    with xr.open_dataset(tmp_path / "netcdf" / "map.nc") as held:
        assert located(held).space.epsg == 32632
    with xr.open_zarr(tmp_path / "zarr" / "map.zarr") as held:
        assert held["lead_mean"].attrs["_CRS"]["url"].endswith("/EPSG/0/32632")
        np.testing.assert_array_equal(held["lead_mean"].sortby("y"), cells["lead_mean"].sortby("y"))
    with pytest.raises(StoreError) as error:
        description(path)
    assert error.value.key == "page-of-plane"


def test_a_fitted_lengthscale_is_said_in_the_unit_of_the_plane(samples, tmp_path):
    job = tmp_path / "fit.toml"
    fitted = {**dict.fromkeys(NUMBERS), "kernel": "matern32"}
    job.write_text(written(samples, design={"map": None, "targets": None}, prior=fitted, out="fitted"))
    (name, estimate, _, said), *_ = prior_rows(read_run(cagp.run(job).path))
    assert (name, said) == ("lengthscale", Plane(unit="m").lengthscale_text(float(estimate)))
    assert "e" not in estimate
    shown = CliRunner().invoke(app, ["fit", str(job)], env={"COLUMNS": "200"}).stdout
    (line,) = (line for line in shown.splitlines() if line.startswith(" lengthscale"))
    assert line.rstrip().endswith(f" {said}")


@pytest.mark.parametrize("door", ["file", pytest.param("memory", marks=pytest.mark.exhaustive)])
def test_a_job_maps_a_file_in_a_plane_as_krige_does(tmp_path, door):
    x, y = EAST + 500.0 * np.arange(12), NORTH + 500.0 * np.arange(9)[::-1]
    values = 10.0 + np.sin((x - EAST) / 900.0) + np.cos((y - NORTH) / 1100.0)[:, None]
    values = np.stack([values, values + 1.0])
    values[:, 3:5, 4:6] = np.nan
    crs = {"grid_mapping_name": "transverse_mercator", "latitude_of_projection_origin": 0.0,
           "longitude_of_central_meridian": 9.0, "scale_factor_at_central_meridian": 0.9996,
           "false_easting": 500_000.0, "false_northing": 0.0,
           "reference_ellipsoid_name": "WGS 84"}  # fmt: skip
    field = xr.Dataset(
        {"lead": (("day", "y", "x"), values, {"grid_mapping": "utm"}), "utm": ((), 0, crs)},
        {
            "day": ("day", pd.to_datetime(["2020-06-01", "2020-06-02"]), {"standard_name": "time"}),
            "x": ("x", x, {"standard_name": "projection_x_coordinate", "units": "m"}),
            "y": ("y", y, {"standard_name": "projection_y_coordinate", "units": "m"}),
        },
    )
    field.to_netcdf(tmp_path / "f.nc", engine="h5netcdf")
    source = f"file:{tmp_path / 'f.nc'}"
    tables = {
        "observations": {"source": source, "variable": "lead"},
        "design": {
            "train": {"kind": "all"},
            "test": {"kind": "random", "count": 15},
            "map": {"kind": "grid", "resolution": 500.0, "mask": "none"},
        },
        "prior": NUMBERS,
        "solver": {"name": "cholesky"},
        "output": {"root": tmp_path / "out"},
    }
    path = run(parse_job(job_text(**tables)), observations=field if door == "memory" else None).path
    cells, seen = (read_group(path, name) for name in ("map", "observations"))
    assert cells["lead_mean"].dims == ("time", "y", "x")
    assert located(cells).space.is_same(located(field).space)
    model = cagp.Kriging(crs=32632, mean="constant", kernel="matern32", lengthscale=1500.0, variance=1.0,
                         noise_std=0.1)  # fmt: skip
    model.fit(np.stack([seen.x, seen.y], axis=1), seen["lead"].values.T)
    wanted = model.predict(cells[["y", "x"]], kind="grid")["mean"].values
    np.testing.assert_allclose(cells["lead_mean"], wanted, rtol=1e-8)
    same = [
        cagp.krige(
            held,
            value="lead",
            mean="constant",
            kernel="matern32",
            lengthscale=1500.0,
            variance=1.0,
            noise_std=0.1,
        )
        for held in (field, source)
    ]
    np.testing.assert_allclose(same[0]["mean"], same[1]["mean"].sel(x=same[0].x, y=same[0].y), rtol=1e-6)
    assert verify_run(path) == path
    assert solve_again(path, points=3) < 1e-6
    # without a word of a plane in the job, its numbers would be those of the globe
    design = {name: table for name, table in tables["design"].items() if name != "map"}
    globe = job_text(**{**tables, "design": design, "prior": {**NUMBERS, "lengthscale": 1.0}})
    with pytest.raises(ConfigurationError) as error:
        run(parse_job(globe))
    assert (error.value.key, error.value.remedies) == (
        "plane-not-said",
        (Setting("columns", {"x": "x", "y": "y"}),),
    )
    box = {"area": [50.0, 8.0, 46.0, 14.0]}
    for asked, key in ((box, "area-in-plane"), ({"grid_degrees": 1.0}, "grid-degrees")):
        with pytest.raises(ConfigurationError) as error:
            run(parse_job(job_text(**{**tables, "observations": {**tables["observations"], **asked}})))
        assert error.value.key == key


def test_blocks_folds_and_strides_are_in_the_unit_of_the_plane(samples):
    times, no_map = {"times": ["2020-06-01"]}, {"map": None, "targets": None}
    for number, test in enumerate(
        (
            {"kind": "folds", "count": 4},
            {"kind": "folds", "count": 3, "blocks": 2000.0},
            {"kind": "blocks", "count": 5, "blocks": 1500.0, "margin": 200.0, "share": 0.2},
        )
    ):
        path = run(
            parse_job(written(samples, observations=times, design={"test": test, **no_map}, out=f"b{number}"))
        ).path
        seen, held = read_group(path, "observations"), read_group(path, "posterior")
        assert np.isfinite(read_group(path, "calibration")["crps"])
        if test["kind"] == "blocks":
            apart = np.hypot(held.x.values[:, None] - seen.x.values, held.y.values[:, None] - seen.y.values)
            assert apart.min() >= 200.0
    folds = {"test": {"kind": "folds", "count": 4}}
    asked = {"method": "local-scale"}
    recalibrated = written(samples, observations=times, design=folds, recalibration=asked, out="b3")
    assert "local_scale" in read_group(run(parse_job(recalibrated)).path, "map")


@pytest.mark.parametrize(
    ("tables", "key"),
    [
        ({"prior": {"mean": "quadratic-latitude"}}, "prior"),
        ({"design": {"map": {"kind": "grid", "resolution_degrees": 1.0}}}, "prior"),
        ({"design": {"regions": ["global"]}}, "prior"),
        ({"design": {"test": {"kind": "blocks", "count": 5, "blocks_degrees": 1.0}}}, "prior"),
        ({"observations": {"columns": {"x": "easting"}}}, "observations.columns"),
        ({"design": {"map": {"kind": "grid"}}}, "design.map"),
    ],
)
def test_what_is_of_the_globe_is_refused_in_a_plane(samples, tables, key):
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(written(samples, **tables))
    assert refusal.value.key == key


def test_what_is_of_a_plane_is_refused_on_the_globe(samples):
    globe = {"columns": {"latitude": "northing", "longitude": "easting"}, "crs": None}
    held = written(samples, observations=globe, design={"map": None}).replace("crs = \n", "")
    with pytest.raises(ConfigurationError) as refusal:
        parse_job("\n".join(line for line in held.splitlines() if not line.startswith("crs")))
    assert refusal.value.key == "prior"
