"""Depths, ellipses, shared errors and several variables together: dense formulas, and what is refused.

Kernels are worked out here from the factors of the fitted one, by NumPy alone.
"""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import CagpError
from cagp_dist.factors import Anisotropic, Coregion, SameLabel
from cagp_dist.geometry import east_and_north, unit_sphere
from cagp_dist.kernels import Matern12, Matern32, Matern52

NAMES, DEPTHS, SHIPS = ("t", "s"), np.array([10.0, 60.0]), 8
FIELD = Anisotropic(Matern32(0.08), 3.0, 60.0, centre=(45.0, 7.5)) * Matern12(80.0, axis="depth")
TABLE = np.array([[4.0, 2.0], [2.0, 2.0]])
NOISE, BIAS = np.array([0.2, 0.1]), np.array([1.0, 0.5])  # variances


def matern(family, distance):
    return np.exp(-distance) if family is Matern12 else (1 + 3**0.5 * distance) * np.exp(-(3**0.5) * distance)


def correlation(factor, one, other):
    """Correlate rows of two frames of columns by one factor of a kernel."""
    if isinstance(factor, SameLabel):
        left, right = one[factor.axis].to_numpy(), other[factor.axis].to_numpy()
        return (left[:, None] == right) & (left[:, None] >= 0)
    if isinstance(factor, Coregion):
        return factor.matrix[np.ix_(one["variable"].astype(int), other["variable"].astype(int))]
    P, Q = (unit_sphere(each["latitude"], each["longitude"]) for each in (one, other))
    apart = P[:, None] - Q
    if isinstance(factor, Anisotropic):
        centre = [np.array([degrees]) for degrees in factor.centre]
        east, north, up = (each[0] for each in (*east_and_north(*centre), unit_sphere(*centre)))
        turn, ratio, length = np.radians(factor.azimuth_degrees), factor.ratio, factor.kernel.lengthscale
        along, across = np.sin(turn) * east + np.cos(turn) * north, np.cos(turn) * east - np.sin(turn) * north
        parts = (apart @ along / ratio**0.5, apart @ across * ratio**0.5, apart @ up)
        return matern(type(factor.kernel), np.sqrt(sum(part**2 for part in parts)) / length)
    deep = np.abs(one["depth"].to_numpy()[:, None] - other["depth"].to_numpy()) if "depth" in one else 0.0
    if factor.axis == "depth":
        return matern(type(factor), deep / factor.lengthscale)
    chord = np.linalg.norm(apart, axis=-1)
    if factor.axis == ("space", "depth"):
        return matern(type(factor), np.hypot(chord / factor.lengthscale[0], deep / factor.lengthscale[1]))
    return matern(type(factor), chord / factor.lengthscale)


def covariance(kernel, one, other):
    return sum(
        part.variance * np.prod([correlation(factor, one, other) for factor in part.factors], axis=0)
        for part in kernel.parts
    )


def simulated(places, seed, *, deep=True, held=0):
    """Draw two variables at places with depths, which ships observe, and the truth at the last places."""
    generator = np.random.default_rng(seed)
    north, east = generator.uniform(40, 50, places), generator.uniform(0, 15, places)
    depths = DEPTHS if deep else DEPTHS[:1]
    n = places * depths.size
    latitude, longitude = np.repeat(north, depths.size), np.repeat(east, depths.size)
    depth, ship = np.tile(depths, places), np.repeat(np.arange(places) % SHIPS, depths.size)
    X = np.column_stack([unit_sphere(latitude, longitude), depth])
    root = np.linalg.cholesky(np.kron(TABLE, FIELD(X, X)) + 1e-9 * np.eye(2 * n))
    truth = (root @ generator.standard_normal(2 * n)).reshape(2, n)
    errors = BIAS[:, None] ** 0.5 * generator.standard_normal((2, SHIPS))
    seen = truth + errors[:, ship] + NOISE[:, None] ** 0.5 * generator.standard_normal((2, n))
    rows = pd.DataFrame({"latitude": latitude, "longitude": longitude, "depth": depth})
    rows["ship"] = [f"S{number}" for number in ship]
    rows = rows.assign(t=seen[0], s=seen[1])
    kept = n - held * depths.size
    return rows[:kept], rows[kept:].reset_index(drop=True), truth[:, kept:]


def stacked(rows, names, ships):
    """Give columns of all values, one variable after the other, and the values."""
    parts = [rows[rows[name].notna()].assign(variable=float(at)) for at, name in enumerate(names)]
    columns = pd.concat(parts, ignore_index=True)
    columns["ship"] = [ships.index(name) for name in columns["ship"]]
    return columns, np.concatenate([own[name] for own, name in zip(parts, names, strict=True)])


WAYS = [  # two of them at least; searches of several variables take seconds
    pytest.param(*way, marks=[pytest.mark.exhaustive] if way[-1] else [])
    for way in product((False, True), repeat=4)
    if sum(way) > 1
]


@pytest.mark.parametrize(("deep", "shaped", "shared", "several"), WAYS)
def test_the_map_is_that_of_the_dense_formula(deep, shaped, shared, several):
    table, *_ = simulated(36 if deep else 48, 4, deep=deep)
    table.loc[table.index[::5], "s"] = np.nan
    names = NAMES if several else NAMES[:1]
    model = cagp.Kriging(
        value=list(names) if several else "t",
        columns={"depth": "depth"} if deep else None,
        anisotropy="fit" if shaped else "none",
        bias_by="ship" if shared else None,
        mean=0.0,
        kernel="matern32",
        hyperparameters="plug-in",
        progress=False,
    ).fit(table if deep else table.drop(columns="depth"))
    to = pd.DataFrame({"latitude": [43.0, 46.0, 47.5], "longitude": [4.0, 9.0, 12.0]})
    wanted = to.assign(depth=[20.0, 40.0, 90.0]) if deep else to
    found = model.predict(wanted)

    kernel, known = model.prior_.kernel, np.asarray(model._learned.noise_variance)
    ships = found["ship"].values.tolist() if shared else sorted({*table["ship"]})
    columns, values = stacked(table, names, ships)
    G = covariance(kernel, columns, columns) + np.diag(np.broadcast_to(known, values.shape))
    for label, name in enumerate(names):
        new = wanted.assign(ship=-1, variable=float(label))
        K = covariance(kernel, new, columns)
        W = np.linalg.solve(G, K.T).T
        prior = covariance(kernel, new, new).diagonal()
        if shared:  # of a target, which no ship has measured
            prior = sum(
                part.variance * np.prod([correlation(f, new, new) for f in part.factors], axis=0).diagonal()
                for part in kernel.parts
            )
        of = f"{name}_" if several else ""
        np.testing.assert_allclose(found[f"{of}mean"], W @ values, atol=1e-8)
        np.testing.assert_allclose(found[f"{of}std"] ** 2, prior - (W * K).sum(axis=1), atol=1e-7)
        if shared:
            at = pd.DataFrame(index=range(len(ships)), columns=columns.columns, data=0.0)
            at = at.assign(ship=np.arange(len(ships)), variable=float(label))
            (part,) = [part for part in kernel.parts if isinstance(part.factors[0], SameLabel)]
            K = part.variance * np.prod([correlation(f, at, columns) for f in part.factors], axis=0)
            np.testing.assert_allclose(found[f"{of}bias_ship"], np.linalg.solve(G, values) @ K.T, atol=1e-8)
            assert (found[f"{of}bias_ship_std"] > 0.0).all()
    assert ("anisotropy_ratio" in found.attrs) is shaped
    assert ("lengthscale_depth" in found.attrs) is deep


def test_errors_of_ships_are_not_taken_for_a_rough_field():
    """Of Matern 5/2, twice at 60 places, beside errors of ships of 3 deviations; alone it looks like 1/2."""
    rng = np.random.default_rng(3)
    north, east = (np.repeat(rng.uniform(*ends, 60), 2) for ends in ((45, 52), (0, 10)))
    depth, ship = np.tile(DEPTHS, 60), np.repeat(np.arange(60) % SHIPS, 2)
    X = np.column_stack([unit_sphere(north, east), depth])
    K = (Matern52(0.06) * Matern32(100.0, axis="depth"))(X, X)
    values = np.linalg.cholesky(K + 1e-9 * np.eye(120)) @ rng.standard_normal(120)
    values += 3.0 * rng.standard_normal(SHIPS)[ship] + 0.1 * rng.standard_normal(120)
    table = pd.DataFrame({"latitude": north, "longitude": east, "depth": depth, "ship": ship, "t": values})
    found = cagp.Kriging(value="t", columns={"depth": "depth"}, bias_by="ship", progress=False).fit(table)
    field, _ = found.prior_.kernel.parts
    assert [type(factor) for factor in field.factors] == [Matern52, Matern32]


@pytest.mark.exhaustive
def test_error_bars_of_all_together_hold():
    """Over 40 fields with the numbers that made them: z of the truth at three places, of both variables.

    Fields are independent of each other; the mean of z^2 of a field has a standard error that is estimated.
    """
    kernel = FIELD * Coregion(TABLE) + SameLabel(1.0, "ship") * Coregion(np.diag(BIAS), independent=True)
    inside, squares = [], []
    for seed in range(40):
        table, wanted, truth = simulated(33, 100 + seed, held=3)
        prior = cagp.Prior(kernel, 0.15, 0.0)
        noisy = table.assign(
            t=table["t"], s=table["s"] + 0.05**0.5 * np.random.default_rng(seed).standard_normal(len(table))
        )
        found = cagp.krige(
            noisy,
            value=list(NAMES),
            columns={"depth": "depth"},
            bias_by="ship",
            prior=prior,
            to=wanted[["latitude", "longitude", "depth"]],
            progress=False,
        )
        z = [(truth[at] - found[f"{name}_mean"]) / found[f"{name}_std"] for at, name in enumerate(NAMES)]
        inside.append(np.mean(np.abs(z) < 1.645))
        squares.append(np.mean(np.square(z)))
    for of_fields, expected in ((inside, 0.9), (squares, 1.0)):
        spread = np.std(of_fields, ddof=1) / np.sqrt(len(of_fields))
        assert abs(np.mean(of_fields) - expected) < 4.0 * spread


def test_a_background_goes_with_shared_errors_and_with_an_ellipse():
    """Taking the background away before gives the same map; its error is the variance of the field."""
    table, *_ = simulated(60, 5, deep=False)
    table = table.drop(columns=["depth", "s"]).assign(t=lambda rows: rows["t"] + 0.3 * rows["latitude"])
    axes = np.arange(39.0, 51.5, 0.5), np.arange(-1.0, 16.5, 0.5)
    guess = xr.DataArray(
        0.3 * axes[0][:, None] + 0.0 * axes[1],
        dict(zip(("latitude", "longitude"), axes, strict=True)),
        name="t",
    )
    to = pd.DataFrame({"latitude": [43.0, 46.0], "longitude": [4.0, 9.0]})
    given = {"value": "t", "kernel": "matern32", "to": to, "progress": False}
    for beside in (
        {"bias_by": "ship"},
        {"anisotropy": "fit"},
        {"bias_by": "ship", "anisotropy": (3.0, 60.0)},
    ):
        found = cagp.krige(table, background=guess, background_std=2.0, **given, **beside)
        assert found.attrs["prior_std"] == pytest.approx(2.0)
        without = table.assign(t=table["t"] - 0.3 * table["latitude"])
        free = cagp.krige(table, background=guess, **given, **beside)
        expected = cagp.krige(without, mean=0.0, **given, **beside)
        np.testing.assert_allclose(free["mean"], expected["mean"] + 0.3 * to["latitude"], atol=1e-6)
        np.testing.assert_allclose(free["std"], expected["std"], atol=1e-6)


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("labels-with-others", {"bias_by": "ship", "anisotropy": "fit", "lengthscale_km": 100.0}),
        ("labels-with-others", {"columns": {"depth": "depth"}, "bias_by": "ship", "background": 1.0}),
        ("labels-with-others", {"value": ["t", "s"], "bias_by": "ship", "at": "observed"}),
        ("smoothness-with-labels", {"columns": {"depth": "depth"}, "bias_by": "ship", "kernel": "matern"}),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(key, settings):
    deep = "columns" in settings
    table, *_ = simulated(30, 1, deep=deep)
    table = table if deep else table.drop(columns="depth")
    to = {"latitude": [45.0], "longitude": [3.0], "depth": [20.0]}
    with pytest.raises(CagpError) as refused:
        cagp.krige(table, to=to, **{"value": "t", "kernel": "matern32", "progress": False, **settings})
    assert refused.value.key == key
