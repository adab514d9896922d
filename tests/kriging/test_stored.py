"""Maps from store to store: the bits of `condition`, region by region, whoever works and whatever is lost."""

import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.budget import Plan
from cagp_dist.errors import ArgumentError, BudgetError, StoreError
from cagp_dist.kriging import stored
from cagp_dist.runtime import SerialExecutor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.store import point_blocks
from cagp_dist.store.point_blocks import SortedPoints

from ..clusters import local_cluster

RNG = np.random.default_rng(4)
N = 900
SWATH = {
    "latitude": np.round(RNG.uniform(-60.0, 60.0, N)),  # whole degrees: some neighbours are equally far away
    "longitude": np.round(RNG.uniform(0.0, 360.0, N)),
    "sst": RNG.normal(290.0, 2.0, N),
    "error": RNG.uniform(0.1, 0.5, N),
}
SWATH["sst"][::50] = np.nan
TO = {"latitude": np.arange(-50.0, 51.0, 10.0), "longitude": np.arange(0.0, 360.0, 20.0)}
CHUNKS = {"latitude": 6, "longitude": 7}
PRIOR = cagp.Prior(cagp.Matern32(0.2, 4.0), 0.04, mean=lambda X: 290.0 - X[:, 2] ** 2)
SOLVER = cagp.Neighbours(9, coarse=4, drift="constant")
CALL = {"to": TO, "prior": PRIOR, "value": "sst", "noise_std": "error", "solver": SOLVER, "chunks": CHUNKS}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Several blocks with several pieces each, of which a region reads some."""
    monkeypatch.setattr(point_blocks, "PIECE", 32)
    monkeypatch.setattr(stored, "PIECE", 32)
    monkeypatch.setattr(stored, "BLOCK", 128)


@pytest.fixture
def swath(tmp_path) -> Path:
    path = tmp_path / "swath.zarr"
    written = xr.Dataset({name: ("obs", values) for name, values in SWATH.items()})
    written.sst.attrs |= {"units": "K", "long_name": "sea surface temperature"}
    encoding = {"sst": {"chunks": (200,), "dtype": "float32", "_FillValue": np.float32(-999.0)}}
    written.to_zarr(path, encoding=encoding, consolidated=False)
    return path


def mapped(swath: Path, output: str = "map.zarr", **settings) -> xr.Dataset:
    call = {**CALL, "executor": SerialExecutor(), **settings}
    return cagp.krige_store(swath, output=swath.parent / output, **call)


def expected() -> tuple[np.ndarray, np.ndarray]:
    """What `condition` gives for the targets of each region, from all observations in memory."""
    there = ~np.isnan(SWATH["sst"])
    latitude, longitude, _, error = (values[there] for values in SWATH.values())
    prior = cagp.Prior(PRIOR.kernel, error**2, PRIOR.mean)
    X, y = cagp.unit_sphere(latitude, longitude), SWATH["sst"][there].astype(np.float32)
    mean, std = np.empty((2, *map(len, TO.values())))
    for row in range(0, mean.shape[0], 6):
        for column in range(0, mean.shape[1], 7):
            where = np.s_[row : row + 6, column : column + 7]
            at = [
                values[part].ravel()
                for values, part in zip(np.meshgrid(*TO.values(), indexing="ij"), (where, where), strict=True)
            ]
            found = cagp.condition(
                prior, X, y, cagp.unit_sphere(*at), solver=SOLVER, executor=SerialExecutor()
            )
            mean[where] = found.mean.reshape(mean[where].shape)
            std[where] = np.sqrt(found.variance).reshape(mean[where].shape)
    return mean, std


def assert_the_map(found: xr.Dataset) -> None:
    for name, values in zip(("mean", "std"), expected(), strict=True):
        np.testing.assert_array_equal(found[name].values, values)


def test_a_map_from_store_to_store_has_the_bits_of_condition(swath, monkeypatch):
    read, plans, heard = [], [], []
    plain = SortedPoints.read
    monkeypatch.setattr(
        SortedPoints, "read", lambda self, pieces, *box: read.append(len(pieces)) or plain(self, pieces, *box)
    )
    found = mapped(swath, on_plan=plans.append, progress=lambda progress: heard.append(progress.fraction))
    assert_the_map(found)
    assert found["mean"].attrs == {"units": "K", "long_name": "mean of sea surface temperature"}
    assert found["mean"].encoding["chunks"] == (6, 7)
    assert found.attrs["observations"] == N - 18
    assert max(read) < N / 32  # no task has seen all pieces at once
    assert "6 regions of 6 x 7 cells" in plans[0].method
    assert plans[0].q == 11 * 18
    assert heard == sorted(heard)
    assert heard[-1] == pytest.approx(1.0)
    assert not (swath.parent / ".map.zarr.work").exists()
    monkeypatch.setattr(stored, "_sort", None)  # nothing is done a second time
    assert mapped(swath).identical(found)
    with pytest.raises(ArgumentError) as refused:
        mapped(swath, solver=cagp.Neighbours(8))
    assert refused.value.key == "output-exists"


def test_plain_coordinates_of_one_axis_and_one_noise(tmp_path):
    rng = np.random.default_rng(1)
    x, y = rng.uniform(size=300), rng.normal(size=300)
    xr.Dataset({"x": ("row", x), "v": ("row", y)}).to_zarr(tmp_path / "o.zarr", consolidated=False)
    prior, at = cagp.Prior(cagp.Matern12(0.3), 0.1), np.linspace(0.0, 1.0, 40)
    found = cagp.krige_store(
        tmp_path / "o.zarr", to={"x": at}, output=tmp_path / "m.zarr", prior=prior, value="v"
    )
    same = cagp.condition(prior, x[:, None], y, at[:, None], solver=cagp.Neighbours(64))
    np.testing.assert_array_equal(found["mean"].values, same.mean)
    np.testing.assert_array_equal(found["std"].values, np.sqrt(same.variance))


PLANE = {"y": np.linspace(0.0, 10.0, 6), "x": np.linspace(0.0, 8.0, 5)}
REGION = {"latitude": np.linspace(42.0, 58.0, 5), "longitude": np.linspace(2.0, 18.0, 6)}
SHIPS = cagp.Matern32(0.1, 2.0) + cagp.SameLabel(0.7, "ship")
LABELLED = cagp.Matern32(0.1) * cagp.Coregion([[2.0, 1.5], [1.5, 3.0]])


@pytest.mark.parametrize(
    ("kernel", "to"),
    [
        (cagp.Anisotropic(cagp.Matern32(2.0, 3.0), 3.0, 30.0), PLANE),
        (cagp.Anisotropic(cagp.Matern32(0.1, 3.0), 3.0, 30.0, centre=(50.0, 10.0)), REGION),
        (cagp.Matern32(2.0, 3.0) * cagp.Matern12(40.0, axis="depth"), {"depth": [0.0, 60.0], **PLANE}),
        (LABELLED, {"variable": [1.0, 0.0], **REGION}),
        (SHIPS, REGION),
        (
            LABELLED * cagp.Matern12(30.0, axis="time") + cagp.SameLabel(0.7, "ship"),
            {"variable": [0.0, 1.0], "hours": [5.0, 30.0], **REGION},
        ),
    ],
    ids=["ellipse", "ellipse of the globe", "depth in a plane", "variables", "ships", "all"],
)
def test_ellipses_depths_and_labels_have_the_bits_of_condition(tmp_path, kernel, to):
    """Points have the columns of the kernel, whatever the order of the axes; targets share no error."""
    rng, n = np.random.default_rng(3), 400
    ends = {"latitude": (40, 60), "longitude": (0, 20), "x": (0, 8), "y": (0, 10), "hours": (0, 40)}
    given = {name: rng.uniform(*own, n) for name, own in {**ends, "depth": (0, 90)}.items()}
    given |= {"ship": rng.integers(-1, 12, n), "variable": rng.integers(2, size=n), "v": rng.normal(size=n)}
    beside = [name for name in ("hours", "depth", "ship", "variable") if name in to or name in repr(kernel)]
    stored = {name: ("row", given[name]) for name in {*to, *beside, "v"}}
    xr.Dataset(stored).to_zarr(tmp_path / "o.zarr", consolidated=False)

    def points(at: dict) -> np.ndarray:
        if "latitude" in to:
            space = cagp.unit_sphere(at["latitude"], at["longitude"])
        else:
            space = np.column_stack([at["x"], at["y"], *([np.zeros(len(at["x"]))] if beside else [])])
        return np.column_stack([space, *(at[name] for name in beside)])

    prior, solver = cagp.Prior(kernel, 0.2, lambda X: X[:, 0]), cagp.Neighbours(12, coarse=3)
    chunks = dict.fromkeys(to, 3)
    call = {"to": to, "prior": prior, "value": "v", "solver": solver, "chunks": chunks, "executor": "serial"}
    found = cagp.krige_store(tmp_path / "o.zarr", output=tmp_path / "m.zarr", **call)
    X = points(given)
    for starts in np.ndindex(*(-(-len(axis) // 3) for axis in to.values())):
        where = tuple(slice(3 * start, 3 * start + 3) for start in starts)
        axes = [np.asarray(axis)[own] for axis, own in zip(to.values(), where, strict=True)]
        cells = dict(zip(to, (each.ravel() for each in np.meshgrid(*axes, indexing="ij")), strict=True))
        cells["ship"] = np.full(len(cells[next(iter(to))]), -1.0)
        alone = replace(solver, shared_errors="near")
        exact = cagp.condition(prior, X, given["v"], points(cells), solver=alone, executor="serial")
        np.testing.assert_array_equal(found["mean"].values[where].ravel(), exact.mean)
        np.testing.assert_array_equal(found["std"].values[where].ravel(), np.sqrt(exact.variance))


def test_finished_regions_are_not_done_again_and_damaged_ones_are(swath, monkeypatch):
    done, solve = [], stored.solve_region

    def until(number: int):
        def region(*arguments):
            if len(done) == number:
                raise KeyboardInterrupt
            done.append(arguments[2])
            return solve(*arguments)

        return region

    monkeypatch.setattr(stored, "AT_ONCE", 1)
    monkeypatch.setattr(stored, "solve_region", until(4))
    with pytest.raises(KeyboardInterrupt):
        mapped(swath)
    work = swath.parent / ".map.zarr.work"
    assert not (swath.parent / "map.zarr").exists()
    with pytest.raises(StoreError) as refused:
        mapped(swath, solver=cagp.Neighbours(8))
    assert refused.value.key == "changed-since"
    (work / "map.zarr/std/c/0/1").write_bytes(b"torn")
    (work / "map.zarr/mean/c/0/0").unlink()
    monkeypatch.setattr(stored, "sort_block", None)
    monkeypatch.setattr(stored, "solve_region", until(8))
    assert_the_map(mapped(swath))
    assert len(done) == 8
    assert len(set(map(str, done))) == 6


def test_observations_that_change_meanwhile_are_noticed(swath, monkeypatch):
    monkeypatch.setattr(stored, "solve_region", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        mapped(swath)
    os.utime(swath / "sst/c/0")
    with pytest.raises(StoreError) as refused:
        mapped(swath)
    assert refused.value.key == "changed-since"
    shutil.rmtree(swath.parent / ".map.zarr.work")
    sort = stored.sort_block
    monkeypatch.setattr(stored, "sort_block", lambda *given: (os.utime(swath / "error/c/0"), sort(*given))[1])
    with pytest.raises(StoreError) as refused:
        mapped(swath)
    assert refused.value.key == "changed-since"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("latitude", np.nan, "observation 3 of .* has a coordinate that is NaN or infinite"),
        ("latitude", 90.5, "observation 3 of .* has a latitude outside of -90..90"),
        ("sst", np.inf, "observation 3 of .* has an infinite value"),
        ("error", 0.0, "observation 3 of .* has a noise that is not above zero"),
        ("error", "short", "dimensions .* expected one and the same"),
        ("error", None, "has no variable 'error'; .* There are: latitude, longitude, sst"),
    ],
)
def test_observations_that_cannot_be(tmp_path, name, value, text):
    given = {key: ("obs", values.copy()) for key, values in SWATH.items()}
    if value is None:
        del given[name]
    elif value == "short":
        given[name] = ("other", SWATH[name][:-1])
    else:
        given[name][1][3] = value
    xr.Dataset(given).to_zarr(tmp_path / "swath.zarr", consolidated=False)
    with pytest.raises(ArgumentError, match=text):
        mapped(tmp_path / "swath.zarr")


def test_a_store_without_observations_is_refused_and_another_mean_is_another_call(tmp_path):
    empty = {key: ("obs", values[:0]) for key, values in SWATH.items()}
    xr.Dataset(empty).to_zarr(tmp_path / "empty.zarr", consolidated=False)
    with pytest.raises(ArgumentError) as refusal:
        mapped(tmp_path / "empty.zarr")
    assert refusal.value.key == "nothing-observed"
    source = stored.PointSource("", tuple(TO), (), "sst", None, 0.1)
    corner = cagp.Prior(PRIOR.kernel, 0.04, mean=lambda X: PRIOR.mean(X) + (X[:, 2] > 0.7) * (X[:, 1] > 0.5))
    at = stored._sampled(source, TO)
    keys = {stored._key(source, prior, SOLVER, TO, (6, 7), at) for prior in (PRIOR, PRIOR, corner)}
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("settings", "error", "key"),
    [
        ({"solver": cagp.Neighbours("auto")}, ArgumentError, "solver-of-store"),
        ({"prior": cagp.Prior(LABELLED, 0.1)}, ArgumentError, "axes-of-kernel"),
        (
            {"prior": cagp.Prior(LABELLED, 0.1), "to": {**TO, "variable": [-1.0]}},
            ArgumentError,
            "label-range",
        ),
        ({"prior": cagp.Prior(SHIPS, 0.1), "to": {**TO, "ship": [0.0]}}, ArgumentError, "axes-of-kernel"),
        ({"prior": cagp.Prior(SHIPS, 0.1)}, ArgumentError, "absent-variable"),
        (
            {"prior": cagp.Prior(cagp.Anisotropic(cagp.Matern32(1.0), 2.0, 0.0), 0.1)},
            ArgumentError,
            "axes-of-kernel",
        ),
        (
            {"prior": cagp.Prior(cagp.Matern32(0.2) * cagp.Matern32(9.0, axis="depth"), 0.1)},
            ArgumentError,
            "axes-of-kernel",
        ),
        ({"to": {**TO, "time": [0.0]}}, ArgumentError, "axes-of-kernel"),
        ({"to": {"mean": [0.0]}}, ArgumentError, "axis-name"),
        ({"chunks": {"lat": 3}}, ArgumentError, "axis-unknown"),
        (
            {"prior": cagp.Prior(PRIOR.kernel, 0.1, cagp.mean_family("constant"))},
            ArgumentError,
            "mean-estimated",
        ),
        ({"prior": cagp.Prior(PRIOR.kernel, [0.1]), "noise_std": None}, ArgumentError, "noise-std"),
        ({"memory_limit_bytes": 10_000}, BudgetError, "memory"),
    ],
)
def test_calls_that_cannot_be_meant(swath, settings, error, key):
    with pytest.raises(error) as refusal:
        mapped(swath, **settings)
    assert refusal.value.key == key
    assert not (swath.parent / ".map.zarr.work").exists()


def test_labels_that_the_kernel_does_not_have_are_refused(tmp_path):
    where = {"latitude": [1.0, 2.0, 3.0], "longitude": [1.0, 2.0, 3.0], "variable": [0, 1, 2]}
    found = xr.Dataset({name: ("row", values) for name, values in {**where, "sst": [1.0, 2.0, 3.0]}.items()})
    found.to_zarr(tmp_path / "o.zarr", consolidated=False)
    call = {"prior": cagp.Prior(LABELLED, 0.1), "noise_std": None}
    for labels, name in (([0.0, 2.0], "targets"), ([0.0, 1.0], "o.zarr")):
        with pytest.raises(ArgumentError) as refused:
            mapped(tmp_path / "o.zarr", f"{name}.map", to={**TO, "variable": labels}, chunks=None, **call)
        assert refused.value.key == "label-range"
    assert str(refused.value).startswith(str(tmp_path / "o.zarr"))


def test_a_region_with_more_observations_than_memory_is_refused_before_any_is_solved(swath, monkeypatch):
    """The plan takes observations to lie evenly; where they are is known once they are sorted."""
    monkeypatch.setattr(stored, "WIDER", 0)
    monkeypatch.setattr(stored, "solve_region", lambda *_: pytest.fail("a region was solved"))
    limit = stored.Sizes(N, (11, 18), (6, 7), 3, 3, 200, SOLVER, 1, 2**40)
    with pytest.raises(BudgetError) as refusal:
        mapped(swath, memory_limit_bytes=limit.region_bytes(100))
    assert refusal.value.key == "memory"


@pytest.mark.exhaustive
def test_memory_is_less_than_planned(tmp_path, traced):
    rng, plans = np.random.default_rng(2), []
    observed = {"x": rng.uniform(size=40_000), "v": rng.normal(size=40_000)}
    encoding = {name: {"chunks": (5000,)} for name in observed}
    written = xr.Dataset({name: ("row", values) for name, values in observed.items()})
    written.to_zarr(tmp_path / "o.zarr", encoding=encoding, consolidated=False)
    prior, solver = cagp.Prior(cagp.Matern32(0.01), 0.1), cagp.Neighbours(10)

    def made(output: str) -> xr.Dataset:
        return cagp.krige_store(
            tmp_path / "o.zarr",
            to={"x": np.linspace(0.0, 1.0, 400)},
            output=tmp_path / output,
            prior=prior,
            value="v",
            solver=solver,
            chunks={"x": 20},
            executor=SerialExecutor(),
            on_plan=plans.append,
        )

    made("compiled.zarr")
    _, peak = traced(lambda: made("measured.zarr"))
    assert peak < plans[0].peak_bytes < 12 * 2**20


def test_the_plan_is_said_before_long_work(swath, monkeypatch, caplog):
    """Observations, cells, blocks, regions and bytes, as on the plan that is handed out."""
    monkeypatch.setattr("cagp_dist.pipeline.narration.QUICK_SECONDS", 0.0)
    plans: list[Plan] = []

    def note(plan: Plan) -> None:
        plans.append(plan)
        assert not caplog.records

    mapped(swath, on_plan=note)
    said = caplog.records[0].getMessage()
    assert said.startswith("map: 9 nearest neighbours")
    assert plans[0].method in said
    assert re.search(
        r"8 blocks of observations, 6 regions of 6 x 7 cells, .*iB a task, .*, 900 observed points, "
        r"198 targets",
        said,
    )
    mapped(swath, "silent.zarr", progress=lambda progress: None)
    assert len(caplog.records) == 1


def test_a_map_by_dask_has_the_same_bits(swath, two_dask_workers):
    assert_the_map(mapped(swath, executor=two_dask_workers))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_dask_worker_killed_in_the_middle_of_a_map_changes_no_bit(swath):
    with local_cluster(2) as client:
        killed: list[int] = []

        def kill_one(progress) -> None:
            if progress.fraction > 0.6 and not killed:
                killed.extend(client.run(os.getpid).values())
                os.kill(killed[0], signal.SIGKILL)

        cells = {"latitude": 1, "longitude": 1}
        found = mapped(swath, executor=DaskExecutor(client), chunks=cells, progress=kill_one)
        assert killed
        assert found.equals(mapped(swath, "undisturbed.zarr", chunks=cells))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda given: given.assign(pres=("obs", np.resize([5.0, 100.0], 400))), "levels-differ"),
        (
            lambda given: given.assign(sst=given.sst.where(given.sst < given.sst.max(), -9999.0)),
            "missing-mark",
        ),
        (
            lambda given: given.assign(latitude=np.deg2rad(given.latitude).assign_attrs(units="rad")),
            "degrees",
        ),
    ],
)
def test_what_lies_beside_the_values_of_a_store_is_looked_at(tmp_path, change, key):
    given = xr.Dataset({name: ("obs", np.repeat(values[:200], 2)) for name, values in SWATH.items()})
    change(given).to_zarr(tmp_path / "swath.zarr", consolidated=False)
    with pytest.raises(ArgumentError) as refused:
        mapped(tmp_path / "swath.zarr")
    assert refused.value.key == key
