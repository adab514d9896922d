"""`krige` and a job give the same bits for the same observations and settings."""

import csv
import json

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError, BusyError
from cagp_dist.remedies import Remedy
from cagp_dist.service.ingest import ingest
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.service.task import choose_points
from cagp_dist.solvers import solver_choice
from cagp_dist.store.durable_files import files_below
from cagp_dist.store.publish import output_lock

from ..jobs import job_text

NUMBERS = {"lengthscale": 0.1, "variance": 30.0}
SHAPE = {"ratio": 2.0, "azimuth_degrees": 100.0}
BLOCKS = {"name": "block-gauss-seidel", "iterations": 3, "block_size": 64}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """80 stations with two noises, a field with gaps of its own on two days, and places across Greenwich."""
    folder, rng = tmp_path_factory.mktemp("doors"), np.random.default_rng(0)
    latitude, longitude = rng.uniform(38.0, 62.0, 80), rng.uniform(-12.0, 30.0, 80)
    noise = np.where(np.arange(80) % 2, 0.3, 0.6)
    value = 280.0 - 0.5 * (latitude - 50.0) + 3.0 * np.sin(np.deg2rad(6.0 * longitude))
    value += noise * rng.standard_normal(80)
    write(
        folder / "stations.csv",
        ["lat", "lon", "t", "err"],
        zip(latitude, longitude, value, noise, strict=True),
    )
    write(
        folder / "places.csv",
        ["name", "lat", "lon"],
        [("a", 52.5, 13.4), ("b", 38.7, -9.1), ("c", 45.0, 3.0)],
    )
    for name, (rows, columns) in {
        "region": (np.arange(40.0, 60.0, 2.0), np.arange(0.0, 24.0, 2.0)),
        "globe": (np.arange(-90.0, 91.0, 15.0), np.arange(0.0, 360.0, 15.0)),
    }.items():
        field = (
            285.0
            - 0.3 * np.abs(rows)[:, None]
            + 2.0 * np.sin(np.deg2rad(7.0 * columns))
            + np.zeros((2, 1, 1))
        )
        field = field + 0.3 * rng.standard_normal(field.shape)
        field[:, np.abs(rows) == 90.0] = 250.0
        for day, missing in enumerate(((2, slice(3, 5)), (5, slice(None, 3)))):
            field[(day, *missing)] = np.nan
        days = np.array(["2020-01-01", "2020-01-02"], "M8[ns]")
        coordinates = {"time": days, "latitude": rows, "longitude": columns}
        field = field.astype(np.float64 if name == "region" else np.float32)
        named = xr.DataArray(field, coordinates, name="t2m", attrs={"units": "K"})
        named.to_netcdf(folder / f"{name}.nc", engine="h5netcdf")
    return folder


def write(path, header, rows):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])


def job(folder, observations, *, prior, solver):
    return parse_job(
        job_text(
            observations=observations,
            design={
                "train": {"kind": "all"},
                "test": {"kind": "folds", "count": 2},
                "targets": f"table:{folder / 'places.csv'}",
            },
            prior={"kernel": "matern32", "mean": "constant", "hyperparameters": "plug-in", **prior},
            recalibration={"method": "none"},
            solver=solver,
            output={"root": folder / "out"},
        )
    )


def assert_same(path, krige, name, group="targets"):
    with xr.open_zarr(path, group=group) as run:
        assert run.attrs["Conventions"] == krige.attrs["Conventions"]
        for ours, published in (("mean", f"{name}_mean"), ("std", f"{name}_std")):
            values = run[published].values
            np.testing.assert_array_equal(values, np.broadcast_to(krige[ours].values, values.shape))


@pytest.mark.parametrize(
    ("noise", "prior", "solver", "asked"),
    [
        pytest.param(None, {}, {"name": "cholesky"}, {}, marks=pytest.mark.exhaustive),
        pytest.param(
            None,
            {"hyperparameters": "integrate"},
            {"name": "cholesky"},
            {"hyperparameters": "integrate"},
            marks=pytest.mark.exhaustive,
        ),
        ("err", {}, {"name": "neighbours", "neighbours": 20}, {"solver": cagp.Neighbours(20)}),
        (0.3, {}, {"name": "cholesky"}, {}),
        (None, {**NUMBERS, "noise_variance": 0.09}, BLOCKS, {"solver": cagp.BlockGaussSeidel(3, 64)}),
        pytest.param(
            None,
            {"anisotropy": "fit"},
            {"name": "cholesky"},
            {"anisotropy": "fit"},
            marks=[pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore:the fit")],
        ),
        (
            None,
            {**NUMBERS, "noise_variance": 0.09, "anisotropy": SHAPE},
            BLOCKS,
            {"solver": cagp.BlockGaussSeidel(3, 64), "anisotropy": (2.0, 100.0)},
        ),
    ],
    ids=[
        "exact",
        "integrated",
        "noise of each place, neighbours",
        "one noise",
        "sweeps",
        "ellipse",
        "given ellipse",
    ],
)
def test_of_stations(folder, noise, prior, solver, asked):
    """Fitted to, where the prior has no numbers."""
    observations = {
        "source": f"table:{folder / 'stations.csv'}",
        "variable": "t",
        "times": ["2020-01-01T00:00"],
    }
    if noise is not None:
        observations["noise_std"], asked = noise, {**asked, "noise_std": noise}
    if "noise_variance" in prior:
        asked = {**asked, **NUMBERS, "noise_std": 0.3}
    asked = {"hyperparameters": "plug-in", **asked}
    found = cagp.krige(
        folder / "stations.csv",
        to=folder / "places.csv",
        value="t",
        kernel="matern32",
        mean="constant",
        progress=False,
        **asked,
    )
    assert_same(run(job(folder, observations, prior=prior, solver=solver)).path, found, "t")


@pytest.mark.parametrize("noise", [None, pytest.param("err", marks=pytest.mark.exhaustive)])
def test_of_stations_with_nothing_set(folder, noise):
    """Kernel, mean, noise, solver and the integral over numbers are chosen alike."""
    with (folder / "stations.csv").open() as stream:
        table = list(csv.reader(stream))[:13]
    path = folder / "plain.csv"
    write(path, ["lat", "lon", "depth", "err"], table[1:])
    named = {} if noise is None else {"noise_std": noise}
    parsed = parse_job(
        job_text(
            observations={"source": f"table:{path}", "variable": "depth", **named},
            design={
                "train": {"kind": "all"},
                "test": {"kind": "folds", "count": 2},
                "targets": f"table:{folder / 'places.csv'}",
            },
            prior=None,
            solver=None,
            output={"root": folder / "out"},
        )
    )
    found = cagp.krige(path, to=folder / "places.csv", value="depth", progress=False, **named)
    assert found.attrs["hyperparameters"].startswith("integrated over")
    assert_same(run(parsed).path, found, "depth")


@pytest.mark.parametrize(
    ("errors", "solver", "asked"),
    [
        ("none", {"name": "cholesky"}, None),
        ("leave-one-out", {"name": "cholesky"}, "kuleshov"),
        ("blocks", {"name": "neighbours", "neighbours": 20}, "kuleshov"),
        ("drawn", {"name": "neighbours", "neighbours": 20}, "kuleshov"),
    ],
    ids=["nothing set", "alone", "blocks", "drawn"],
)
def test_recalibrations_learn_from_the_same_errors(folder, tmp_path, errors, solver, asked, monkeypatch):
    """Those that are scored in folds by errors of the other folds; what is mapped as in a call."""
    if errors == "drawn":
        monkeypatch.setattr("cagp_dist.pipeline.cross_validation.FEWEST_DRAWN", 20)
    elif errors == "none":
        monkeypatch.setattr("cagp_dist.pipeline.cross_validation.FEWEST_DRAWN", 2)
    parsed = parse_job(
        job_text(
            observations={"source": f"table:{folder / 'stations.csv'}", "variable": "t"},
            design={"targets": f"table:{folder / 'places.csv'}"},
            prior={"kernel": "matern32", **NUMBERS, "noise_variance": 0.09},
            recalibration=None if asked is None else {"method": asked},
            solver=solver,
            output={"root": tmp_path / "out"},
        )
    )
    path = run(parsed).path
    given = {"kernel": "matern32", **NUMBERS, "noise_std": 0.3, "progress": False, "value": "t"}
    given |= {} if asked is None else {"recalibration": asked}
    own = cagp.Cholesky() if solver["name"] == "cholesky" else cagp.Neighbours(20)
    found = cagp.krige(folder / "stations.csv", to=folder / "places.csv", solver=own, **given)
    assert_same(path, found, "t")
    with xr.open_zarr(path) as published, xr.open_zarr(path, group="targets") as targets:
        said = published.attrs["recalibration_statement"]
        assert said.partition("; ")[0] in found.attrs.get("recalibration_statement", said)
        assert published.attrs["recalibration"] == (asked or "none")
        if asked is not None:
            for name in ("predictive_std", "quantile"):
                values = targets[f"t_{name}"].values.ravel()
                np.testing.assert_array_equal(values, found[name].values.ravel())
            assert (found["predictive_std"] != np.hypot(found["std"], 0.3)).any()


@pytest.mark.parametrize(("mean", "relief"), [("regional_linear", False), ("wave", True)])
def test_means_are_those_of_calls(folder, tmp_path, monkeypatch, mean, relief):
    """A trend that is counted from the middle of the places, and a field beside a mean that is registered."""
    wave = cagp.BasisMean(lambda X: np.column_stack([np.ones(len(X)), X[:, 0]]), ("constant", "wave"))
    monkeypatch.setitem(cagp.MEANS, "wave", wave)
    latitude, longitude = np.arange(30.0, 71.0, 2.0), np.arange(-20.0, 40.0, 2.0)
    heights = np.sin(latitude)[:, None] * np.cos(longitude)
    coordinates = {"latitude": latitude, "longitude": longitude}
    height = xr.DataArray(heights, coordinates, name="height")
    height.to_netcdf(tmp_path / "static.nc", engine="h5netcdf")
    named = f"file:{tmp_path / 'static.nc'}:height"
    prior = {"kernel": "matern32", "mean": mean, **NUMBERS, "noise_variance": 0.09}
    parsed = parse_job(
        job_text(
            observations={"source": f"table:{folder / 'stations.csv'}", "variable": "t"},
            design={"targets": f"table:{folder / 'places.csv'}"},
            prior=prior | ({"covariates": [named]} if relief else {}),
            solver={"name": "cholesky"},
            output={"root": tmp_path / "out"},
        )
    )
    given = {"kernel": "matern32", **NUMBERS, "noise_std": 0.3, "progress": False, "value": "t"}
    terms = [mean, named] if relief else mean
    found = cagp.krige(folder / "stations.csv", to=folder / "places.csv", mean=terms, **given)
    assert_same(run(parsed).path, found, "t")
    assert found.sizes["drift_term"] == 3


def test_a_map_of_which_no_area_is_said_is_of_the_same_cells(folder, tmp_path):
    parsed = parse_job(
        job_text(
            observations={"source": f"file:{folder / 'region.nc'}", "variable": "t2m"},
            design={"train": {"kind": "all"}, "map": {"kind": "grid", "resolution_degrees": 3.0}},
            prior={"kernel": "matern32", **NUMBERS, "noise_variance": 0.09},
            solver={"name": "cholesky"},
            output={"root": tmp_path / "out"},
        )
    )
    given = {"kernel": "matern32", **NUMBERS, "noise_std": 0.3, "progress": False}
    found = cagp.krige(f"file:{folder / 'region.nc'}", to=3.0, solver=cagp.Cholesky(), **given)
    path = run(parsed).path
    assert_same(path, found, "t2m", "map")
    with xr.open_zarr(path, group="map") as cells:
        for name in ("latitude", "longitude"):
            np.testing.assert_array_equal(cells[name], found[name])


def test_each_value_alone_is_what_as_many_folds_predict(folder):
    with (folder / "stations.csv").open() as stream:
        rows = np.array(list(csv.reader(stream))[1:26], dtype=float)
    few = cagp.Kriging(kernel="matern32", **NUMBERS, noise_std=0.3, progress=False)
    few = few.fit(rows[:, :2], rows[:, 2])
    alone, slow = few.cross_validate(None), few.cross_validate(25, blocks_degrees=None)
    for name in ("mean", "std", "predictive_std", "pit"):
        np.testing.assert_allclose(alone[name], slow[name], rtol=1e-8, err_msg=name)


@pytest.mark.parametrize(
    ("name", "mean", "given"),
    [
        pytest.param("region", "constant", False, marks=pytest.mark.exhaustive),
        pytest.param("globe", "constant", False, marks=pytest.mark.exhaustive),
        ("globe", "quadratic-latitude", True),
    ],
)
def test_of_grids_with_gaps(folder, name, mean, given):
    """Of a region without rings, and of the globe with the copies of its poles."""
    observations = {"source": f"file:{folder / name}.nc", "variable": "t2m"}
    prior = {"mean": mean, **({**NUMBERS, "noise_variance": 0.09} if given else {})}
    path = run(job(folder, observations, prior=prior, solver={"name": "auto"})).path
    with xr.open_dataset(folder / f"{name}.nc", engine="h5netcdf") as dataset:
        field = dataset["t2m"].load()
    asked = {**NUMBERS, "noise_std": 0.3} if given else {"hyperparameters": "plug-in"}
    found = cagp.krige(field, to=folder / "places.csv", kernel="matern32", mean=mean, progress=False, **asked)
    assert_same(path, found, "t2m")


LAYOUTS = {
    "stations": (None, "Neighbours"),
    "whole": (lambda field: field.fillna(285.0), "Rings"),
    "gappy": (lambda field: field, "Rings"),
    "region": (lambda field: field.fillna(285.0).sel(longitude=slice(0.0, 90.0)), "Neighbours"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_solver_follows_from_the_points_alone(folder, layout, monkeypatch):
    """In both doors, with the same bits whatever memory and workers there are."""
    monkeypatch.setattr(solver_choice, "MOST_SOLVED_DENSE", 50)
    change, expected = LAYOUTS[layout]
    source, name, asked = f"table:{folder / 'stations.csv'}", "t", {"value": "t"}
    if change is not None:
        with xr.open_dataset(folder / "globe.nc", engine="h5netcdf") as dataset:
            change(dataset["t2m"].load()).to_netcdf(folder / f"{layout}.nc", engine="h5netcdf")
        source, name, asked = f"file:{folder / layout}.nc", "t2m", {}
    asked |= {**NUMBERS, "kernel": "matern32", "noise_std": 0.3, "to": folder / "places.csv"}
    found = [
        cagp.krige(source, **asked, progress=False, memory_limit_bytes=memory, executor=executor)
        for memory, executor in ((2**26, "serial"), (2**32, None))
    ]
    for name_of_values in ("mean", "std"):
        np.testing.assert_array_equal(*(each[name_of_values] for each in found))
    observations = {"source": source, "variable": name}
    if change is None:
        observations["times"] = ["2020-01-01T00:00"]
    own = job(folder, observations, prior={**NUMBERS, "noise_variance": 0.09}, solver={"name": "auto"})
    chosen = choose_points(own, ingest(own, report=print), None).solver
    assert repr(chosen).startswith(expected)
    assert all(each.attrs["solver"].startswith(repr(chosen)) for each in found)


def test_what_does_not_fit_is_refused_and_not_solved_otherwise():
    latitude, longitude = np.random.default_rng(0).uniform(30.0, 60.0, (2, 4900))
    table = {"lat": latitude, "lon": longitude, "t": latitude}
    with pytest.raises(BudgetError) as refused:
        cagp.krige(table, to=5.0, memory_limit_bytes=300 * 10**6, kernel="matern32", noise_std=0.3, **NUMBERS)
    assert {Remedy.NEIGHBOURS, Remedy.FEWER_TEST_POINTS} <= set(refused.value.remedies)


def test_a_job_takes_an_object_and_krige_takes_a_source(folder):
    """With the bits of the file, whatever the encoding of the object says."""
    prior, path = {**NUMBERS, "noise_variance": 0.09}, folder / "job.toml"
    path.write_text(
        job_text(
            observations={"variable": "t2m", "source": "sample"},
            design={"targets": f"table:{folder / 'places.csv'}"},
            prior={"kernel": "matern32", "mean": "constant", **prior},
            recalibration={"method": "none"},
            solver={"name": "auto"},
            output={"root": folder / "memory"},
            **{"design.train": {"kind": "all"}, "design.test": {"kind": "folds", "count": 2}},
        )
    )
    with xr.open_dataset(folder / "region.nc", engine="h5netcdf") as dataset:
        field = dataset["t2m"].load()
    field.encoding = {"dtype": "int16", "scale_factor": 0.5, "add_offset": 280.0}
    field.attrs |= {"history": None, "steps": {"a": 1}, "checked": True}  # which no file can hold
    with output_lock(folder / "memory"):
        before = {*files_below(folder / "memory")}
        with pytest.raises(BusyError):
            cagp.run(path, observations=field)
        assert {*files_below(folder / "memory")} == before  # nothing is written without the lock
    outcome = cagp.run(path, observations=field.rename(None))
    with xr.open_dataset(outcome.path, engine="zarr") as root:
        assert json.loads(root.attrs["provenance"])["source"] == "an object in memory"
    assert not [name for name in files_below(folder / "memory") if name.endswith(".nc")]
    asked = {"kernel": "matern32", "mean": "constant", "progress": False, "noise_std": 0.3, **NUMBERS}
    source, places = f"file:{folder / 'region.nc'}", folder / "places.csv"
    assert_same(outcome.path, cagp.krige(source, to=places, **asked), "t2m")
    day = cagp.krige(source, where={"times": "2020-01-02"}, to=places, **asked)
    alone = cagp.krige(field.isel(time=[1]), to=places, **asked)
    np.testing.assert_array_equal(day["mean"], alone["mean"])
    with pytest.raises(ArgumentError) as refusal:
        cagp.run(path, observations=field.rename("air"))
    assert refusal.value.key == "absent-variable"
    with pytest.raises(ArgumentError) as refusal:
        cagp.run(path, observations=[1.0])
    assert refusal.value.key == "observations-type"
    assert cagp.run(path, observations=field.chunk(time=1)).already_done


def test_the_least_noisy_place_may_have_no_part_in_a_fit(folder):
    """Of fields with gaps, where a fit uses the places that many of them share: the noise given is kept."""
    rng, n = np.random.default_rng(0), 60
    latitude, longitude = rng.uniform(38.0, 62.0, n), rng.uniform(0.0, 30.0, n)
    times = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "M8[ns]")
    seen = [(t, k) for t in range(3) for k in range(n) if k > 2 or t == 0]
    error = np.where(np.arange(n) < 3, 1.0, 1.2)
    table = {
        "lat": [latitude[k] for _, k in seen],
        "lon": [longitude[k] for _, k in seen],
        "time": [times[t] for t, _ in seen],
        "v": [np.sin(latitude[k] / 3.0) * 5.0 + t + error[k] * rng.standard_normal() for t, k in seen],
        "err": [error[k] for _, k in seen],
    }
    asked = {"kernel": "matern32", "value": "v", "noise_std": "err", "progress": False}
    for nugget_std in (0.0, None):
        model = cagp.Kriging(**asked, nugget_std=nugget_std, hyperparameters="plug-in").fit(table)
        noise = np.unique(model.prior_.noise_variance)
        np.testing.assert_allclose(noise[1] - noise[0], 0.44, rtol=1e-9)
        assert noise[0] >= 1.0 - 1e-9
        assert nugget_std is None or noise[0] < 1.0 + 1e-9


def test_numbers_are_integrated_over_by_all_of_many_times(folder, tmp_path):
    rng, days = np.random.default_rng(2), np.arange("2020-01-01", "2020-02-02", dtype="M8[D]")
    places = np.column_stack([rng.uniform(38.0, 62.0, 6), rng.uniform(-12.0, 30.0, 6)])
    rows = [
        (*place, day, value)
        for day, values in zip(days, 280.0 + rng.standard_normal((days.size, 6)), strict=True)
        for place, value in zip(places, values, strict=True)
    ]
    write(tmp_path / "days.csv", ["lat", "lon", "time", "t"], rows)
    found = cagp.krige(
        tmp_path / "days.csv",
        to=folder / "places.csv",
        value="t",
        kernel="matern32",
        mean="constant",
        progress=False,
    )
    assert found.attrs["hyperparameters"].startswith("integrated over")
    observations = {
        "source": f"table:{tmp_path / 'days.csv'}",
        "variable": "t",
        "times": [str(day) for day in days],
    }
    prior = {"hyperparameters": "auto"}
    outcome = run(job(folder, observations, prior=prior, solver={"name": "cholesky"}))
    with xr.open_zarr(outcome.path, group="targets") as there:  # solved with other targets: to rounding
        np.testing.assert_allclose(there["t_mean"], found["mean"], rtol=1e-13)
        np.testing.assert_allclose(there["t_std"], found["std"], rtol=1e-13)
