"""Depths: the posterior of dense algebra, which kernel is taken, honest error bars, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import CagpError

DEPTHS, PLACES, NOISE = np.array([10.0, 40.0, 90.0]), 45, 0.3
PRODUCT = cagp.Matern32(0.06, 4.0) * cagp.Matern32(60.0, axis="depth")
METRIC = cagp.Matern32((0.06, 60.0), 4.0, axis=("space", "depth"))
NAMED = {"columns": {"depth": "pressure"}, "value": "t", "progress": False}


def points(latitude, longitude, depth):
    return np.column_stack([cagp.unit_sphere(latitude, longitude), depth])


def drawn(kernel, seed, places=PLACES):
    """Profiles of a field with mean 10, observed with noise, and the field itself at the same rows."""
    rng = np.random.default_rng(seed)
    latitude, longitude = (np.repeat(rng.uniform(*ends, places), DEPTHS.size) for ends in ((40, 50), (0, 15)))
    depth = np.tile(DEPTHS, places)
    X = points(latitude, longitude, depth)
    field = 10.0 + np.linalg.cholesky(kernel(X, X) + 1e-10 * np.eye(len(X))) @ rng.standard_normal(len(X))
    table = {"latitude": latitude, "longitude": longitude, "pressure (dbar)": depth}
    return pd.DataFrame({**table, "t": field + NOISE * rng.standard_normal(len(X))}), field


@pytest.fixture(scope="module")
def profiles():
    return drawn(PRODUCT, 0)[0]


@pytest.fixture(scope="module")
def model(profiles):
    return cagp.Kriging(kernel="matern32", mean=10.0, **NAMED).fit(profiles)


KNOWN = {"kernel": "auto", "prior": cagp.Prior(PRODUCT, NOISE**2, 10.0)}
WITHOUT = {"columns": None, "where": {"pressure": 40.0}}
GRID = xr.Dataset(coords={"latitude": [44.0, 46.0], "longitude": [3.0, 5.0, 7.0]})


def test_posterior_is_that_of_dense_algebra(profiles, model):
    kernel, noise = model.prior_.kernel, model.prior_.noise_variance
    X = points(*(profiles[name] for name in ("latitude", "longitude", "pressure (dbar)")))
    G = kernel(X, X) + noise * np.eye(len(X))

    def check(found, latitude, longitude, depth):
        wanted = points(latitude, longitude, depth)
        V = kernel(wanted, X)
        mean = 10.0 + V @ np.linalg.solve(G, profiles["t"] - 10.0)
        variance = kernel.variance - np.einsum("ij,ji->i", V, np.linalg.solve(G, V.T))
        np.testing.assert_allclose(found["mean"].values.ravel(), mean, rtol=1e-9)
        np.testing.assert_allclose(found["std"].values.ravel(), np.sqrt(variance), rtol=1e-7)

    deep = GRID.assign_coords(depth=("depth", [20.0, 70.0], {"units": "dbar"}))
    found = model.predict(deep)
    assert found["mean"].dims == ("depth", "latitude", "longitude")
    about = {"units": "dbar", "positive": "down"}
    assert about.items() <= found["depth"].attrs.items()
    depth, latitude, longitude = np.meshgrid([20.0, 70.0], GRID["latitude"], GRID["longitude"], indexing="ij")
    check(found, latitude.ravel(), longitude.ravel(), depth.ravel())
    single = model.predict(GRID.assign_coords(depth=70.0))
    np.testing.assert_allclose(single["mean"], found["mean"].sel(depth=70.0), rtol=1e-12)
    assert single["depth"].item() == 70.0
    table = {"latitude": [44.0, 45.0], "longitude": [3.0, 4.0], "depth": [20.0, 55.0]}
    own = {name: ("place", given) for name, given in table.items()}
    of_object = model.predict(xr.Dataset(coords=own))
    found = model.predict(table)
    np.testing.assert_array_equal(of_object["mean"], found["mean"])
    check(found, *map(np.array, table.values()))
    np.testing.assert_array_equal(found["depth"], table["depth"])
    samples = model.sample(deep, 2)
    assert samples["t"].dims == ("sample", "depth", "latitude", "longitude")
    assert "depth" in model.cross_validate(3).coords


@pytest.mark.parametrize("truth", [PRODUCT, METRIC], ids=["product", "metric"])
def test_likelihood_takes_the_kernel_of_the_field(truth):
    table, _ = drawn(truth, 2, places=80)
    found = cagp.Kriging(kernel="matern32", **NAMED).fit(table)
    kernel = found.prior_.kernel
    assert type(kernel) is type(truth)
    errors = np.log(np.array(kernel.numbers) / truth.numbers)
    assert np.abs(errors).max() < 1.0  # a few standard errors of some 0.25
    assert found.predict(GRID.assign_coords(depth=20.0)).attrs["lengthscale_depth"] == kernel.numbers[1]


def test_an_object_with_a_dimension_of_depths_is_as_its_table(profiles):
    """Profiles, of which one has a gap, with a noise for each value."""
    places, shape = profiles.iloc[:: DEPTHS.size], (PLACES, DEPTHS.size)
    values, noise = profiles["t"].to_numpy().reshape(shape).copy(), np.linspace(0.2, 0.4, PLACES)
    values[3, 1] = np.nan
    of_object = xr.Dataset(
        {"t": (("profile", "z"), values), "err": ("profile", noise)},
        {name: ("profile", places[name]) for name in ("latitude", "longitude")} | {"z": DEPTHS},
    )
    table = profiles.assign(t=values.ravel(), err=np.repeat(noise, DEPTHS.size))

    settings = {"value": "t", "noise_std": "err", "kernel": "matern32", "progress": False}
    settings["hyperparameters"] = "plug-in"
    to = GRID.assign_coords(depth=[20.0, 70.0])
    found = cagp.krige(of_object, columns={"depth": "z"}, to=to, **settings)
    expected = cagp.krige(table, columns={"depth": "pressure"}, to=to, **settings)
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-12)
    np.testing.assert_allclose(found["std"], expected["std"], rtol=1e-12)


def test_neighbours_agree_with_the_exact_solver(model, profiles):
    deep = GRID.assign_coords(depth=[20.0, 70.0])
    exact = model.predict(deep)
    near = cagp.krige(profiles, to=deep, prior=model.prior_, solver="neighbours", **NAMED)
    assert (np.abs(near["mean"] - exact["mean"]) < 0.2 * exact["std"]).all()
    np.testing.assert_allclose(near["std"], exact["std"], rtol=0.05)


def test_error_bars_hold_what_they_say():
    inside, scores = [], []
    for seed in range(12):
        table, field = drawn(PRODUCT, 100 + seed)
        held = np.arange(len(table)) % (3 * DEPTHS.size) < DEPTHS.size  # every third profile
        to = table.loc[held, ["latitude", "longitude", "pressure (dbar)"]].reset_index(drop=True)
        prior = cagp.Prior(PRODUCT, NOISE**2, 10.0)
        found = cagp.krige(table[~held], to=to, prior=prior, **NAMED)
        errors = (field[held] - found["mean"].values) / found["std"].values
        inside.append(np.mean(np.abs(errors) < 1.645))
        scores.append(np.mean(errors**2))
    for of_fields, expected in ((inside, 0.9), (scores, 1.0)):
        spread = np.std(of_fields, ddof=1) / np.sqrt(len(of_fields))
        assert abs(np.mean(of_fields) - expected) < 4.0 * spread


def test_one_depth_is_a_map_of_its_own(profiles):
    single = profiles[profiles["pressure (dbar)"] == 40.0]
    with pytest.warns(UserWarning, match="ignored"):
        model = cagp.Kriging(kernel="matern32", **NAMED).fit(single)
    plain = cagp.krige(
        single.drop(columns="pressure (dbar)"), to=GRID, kernel="matern32", value="t", progress=False
    )
    np.testing.assert_allclose(model.predict(GRID)["mean"], plain["mean"])
    np.testing.assert_allclose(model.predict(GRID.assign_coords(depth=[40.0]))["mean"][0], plain["mean"])
    with pytest.raises(CagpError) as refused:
        model.predict(GRID.assign_coords(depth=[40.0, 50.0]))
    assert refused.value.key == "depth-of-targets"


def changed(table, depth):
    return table.assign(**{"pressure (dbar)": depth(table["pressure (dbar)"])})


@pytest.mark.parametrize(
    ("key", "depth", "to", "settings"),
    [
        ("depth-sign", lambda depth: -depth, GRID, {}),
        ("row", lambda depth: depth.where(depth > 10.0), GRID, {}),
        ("depth-of-targets", None, GRID, {}),
        ("depth-of-targets", None, {"latitude": [45.0], "longitude": [3.0]}, {}),
        ("depth-of-targets", None, GRID.assign_coords(depth=[20.0, 30.0]), WITHOUT),
        ("depth-sign", None, GRID.assign_coords(depth=[-20.0]), {}),
        ("depth-units", None, {"latitude": [45.0], "longitude": [3.0], "depth (m)": [20.0]}, {}),
        ("labels-with-others", None, GRID, {"at": "observed"}),
        ("labels-with-others", None, GRID, {"background": GRID["latitude"]}),
        ("labels-with-others", None, GRID.assign_coords(depth=20.0), {"variance": 4.0}),
        ("labels-with-others", None, GRID.assign_coords(depth=20.0), {"recalibration": "kuleshov"}),
        ("labels-with-others", None, GRID.assign_coords(depth=20.0), {**KNOWN, "recalibration": "kuleshov"}),
        ("kernel-of-depths", None, GRID.assign_coords(depth=20.0), {"kernel": "matern32 + matern32"}),
        ("depth-in-mean", None, GRID, {"mean": ["pressure"]}),
    ],
)  # fmt: skip
def test_what_is_not_meant_is_refused_by_name(profiles, key, depth, to, settings):
    table = profiles if depth is None else changed(profiles, depth)
    table = table.assign(time="2020-01-01") if "at" in settings else table
    with pytest.raises(CagpError) as refused:
        cagp.krige(table, to=to, **{**NAMED, "kernel": "matern32", **settings})
    assert refused.value.key == key


def test_other_sources_and_other_ways_are_refused(model, profiles):
    cells = GRID.assign_coords(depth=20.0)
    field = xr.DataArray(np.ones((2, 3)), {**GRID.coords, "depth": 1.0}, GRID.sizes, name="t")
    calls = {
        "depth-of-cells": lambda: model.predict(cells, kind="cells"),
        "depth-of-targets": lambda: model.predict(np.array([[45.0, 3.0]])),
        "variogram-of-columns": model.variogram,
        "depth-of-arrays": lambda: cagp.Kriging(columns={"depth": "z"}).fit(np.ones((3, 2)), np.ones(3)),
        "depth-of-fields": lambda: cagp.krige(field, columns={"depth": "depth"}, progress=False),
    }
    for key, call in calls.items():
        with pytest.raises(CagpError) as refused:
            call()
        assert refused.value.key == key
