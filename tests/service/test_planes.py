"""Jobs in a plane of x and y: the numbers of `krige`, groups on y and x, and what is of the globe alone."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.export import export_run
from cagp_dist.fields.axes import located
from cagp_dist.report import write_report
from cagp_dist.report.thumbnails import picture_of
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.service.verification import solve_again, verify_run
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
        prior=NUMBERS | dict(prior),
        solver={"name": "cholesky"},
        output={"root": folder / out},
        **tables,
    )


@pytest.mark.parametrize("kind", ["grid", "cells"])
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
    model = cagp.Kriging(crs=32632, drift="constant", kernel="matern32", lengthscale=1500.0, variance=1.0,
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
    for form in ("csv", "netcdf", "geotiff"):
        assert export_run(path, to=form, groups=["map"], output=tmp_path / form)
    with xr.open_dataset(tmp_path / "netcdf" / "map.nc") as held:
        assert located(held).space.epsg == 32632
    with pytest.raises(StoreError) as error:
        description(path)
    assert error.value.key == "page-of-plane"


def test_blocks_folds_and_strides_are_in_the_unit_of_the_plane(samples):
    times = {"times": ["2020-06-01"]}
    for number, test in enumerate(
        (
            {"kind": "folds", "count": 4},
            {"kind": "folds", "count": 3, "blocks": 2000.0},
            {"kind": "blocks", "count": 5, "blocks": 1500.0, "margin": 200.0, "share": 0.2},
        )
    ):
        path = run(
            parse_job(written(samples, observations=times, design={"test": test}, out=f"b{number}"))
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
    ("tables", "text"),
    [
        ({"prior": {"mean": "quadratic-latitude"}}, 'expected mean = "constant"'),
        ({"design": {"map": {"kind": "grid", "resolution_degrees": 1.0}}}, "map.resolution_degrees"),
        ({"design": {"regions": ["global"]}}, "regions of .design. cannot be had in a plane"),
        ({"design": {"test": {"kind": "blocks", "count": 5, "blocks_degrees": 1.0}}}, "test.blocks_degrees"),
        ({"observations": {"columns": {"x": "easting"}}}, "it names x or y alone"),
        ({"design": {"map": {"kind": "grid"}}}, "expected resolution_degrees in degrees, or resolution"),
    ],
)
def test_what_is_of_the_globe_is_refused_in_a_plane(samples, tables, text):
    with pytest.raises(ConfigurationError, match=text):
        parse_job(written(samples, **tables))


def test_what_is_of_a_plane_is_refused_on_the_globe(samples):
    globe = {"columns": {"latitude": "northing", "longitude": "easting"}, "crs": None}
    held = written(samples, observations=globe, design={"map": None}).replace("crs = \n", "")
    with pytest.raises(ConfigurationError, match=r"lengthscale = 1500\.0: .* diameter is 2"):
        parse_job("\n".join(line for line in held.splitlines() if not line.startswith("crs")))
