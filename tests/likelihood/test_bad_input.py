"""Every wrong argument of a fit gets an error that says what came, what was expected and what to do."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.kernels import Kernel

from ..joined import one_after_another

GRID = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 5), 8)
FIELD = np.random.default_rng(0).normal(size=GRID.shape)
X = np.random.default_rng(1).uniform(size=(20, 2))
Y = np.sin(5.0 * X[:, 0]) + 0.1 * X[:, 1]


def with_missing(values, missing=np.nan):
    values = values.copy()
    values.flat[3] = missing
    return values


POINTS = {
    "instance": (
        (cagp.Matern32(0.2), X, Y),
        {},
        r"expected the family Matern32.*start=\{\"lengthscale\": 0.2\}",
    ),
    "abstract": ((Kernel, X, Y), {}, "expected one of the classes Matern12"),
    "no kernel": (
        ("Matern32", X, Y),
        {},
        "kernel is 'Matern32'; 'Matern32' is not a kernel; expected matern12",
    ),
    "no class of kernels": ((int, X, Y), {}, "expected one of the classes"),
    "length": ((cagp.Matern32, X, Y[:-1]), {}, r"y has shape \(19,\) but X has 20 points.*LatLonGrid"),
    "three axes": ((cagp.Matern32, X, Y.reshape(20, 1, 1)), {}, r"expected \(20,\), or \(20, T\)"),
    "no fields": ((cagp.Matern32, X, np.empty((20, 0))), {}, r"y has shape \(20, 0\)"),
    "missing": (
        (cagp.Matern32, X, with_missing(Y)),
        {},
        r"y holds NaN or infinite values \(1 of \d+\); drop those points",
    ),
    "text": ((cagp.Matern32, X, ["a"] * 20), {}, "y is not numeric"),
    "points": ((cagp.Matern32, Y, Y), {}, r"X has shape \(20,\); expected \(n, p\)"),
    "few": (
        (cagp.Matern32, X[:3], Y[:3]),
        {},
        "three parameters cannot be learned from 3 points; expected at least 4",
    ),
    "coincident": ((cagp.Matern32, np.ones((20, 2)), Y), {}, "all points coincide"),
    "mean name": ((cagp.Matern32, X, Y), {"mean": "average"}, 'mean is "average"; expected "constant"'),
    "mean value": ((cagp.Matern32, X, Y), {"mean": np.nan}, "expected a finite number or a function of X"),
    "mean shape": ((cagp.Matern32, X, Y), {"mean": lambda X: X.T}, "the prior mean returned shape"),
    "mean fields": (
        (cagp.Matern32, X, np.stack([Y, Y, Y], axis=1)),
        {"mean": lambda X: X},
        "has 2 columns for 3 fields",
    ),
    "rings": (
        (cagp.Matern32, X, Y),
        {"method": "rings"},
        "needs a whole latitude-longitude grid and got points",
    ),
    "method": ((cagp.Matern32, X, Y), {"method": "cholesky"}, "method is 'cholesky'; expected \"auto\""),
    "starts": ((cagp.Matern32, X, Y), {"starts": 0}, "starts is 0; expected an integer of at least 1"),
    "start names": (
        (cagp.Matern32, X, Y),
        {"start": {"length": 1.0}},
        "some of the names lengthscale, variance",
    ),
    "start no mapping": ((cagp.Matern32, X, Y), {"start": 0.3}, "start is 0.3; expected a mapping"),
    "start value": (
        (cagp.Matern32, X, Y),
        {"start": {"variance": -1.0}},
        "start of variance is -1.0; expected",
    ),
    "start outside": (
        (cagp.Matern32, X, Y),
        {"start": {"lengthscale": 3.0}, "bounds": {"lengthscale": (0.1, 2.0)}},
        r"start of lengthscale is 3, outside its bounds \(0.1, 2\)",
    ),
    "start outside the default": (
        (cagp.Matern32, X, Y),
        {"start": {"lengthscale": 1e6}},
        r"outside its bounds .* or give bounds=\{\"lengthscale\": \(lower, upper\)\}",
    ),
    "bounds names": (
        (cagp.Matern32, X, Y),
        {"bounds": {"noise": (1.0, 2.0)}},
        "bounds is .* expected a mapping",
    ),
    "bounds pair": ((cagp.Matern32, X, Y), {"bounds": {"variance": 1.0}}, r"expected \(lower, upper\)"),
    "bounds text": ((cagp.Matern32, X, Y), {"bounds": {"variance": "ab"}}, r"expected \(lower, upper\)"),
    "bounds zero": (
        (cagp.Matern32, X, Y),
        {"bounds": {"noise_variance": (0.0, 1.0)}},
        "lower bound of noise_variance is 0.0; expected a finite number above zero",
    ),
    "bounds too wide": (
        (cagp.Matern32, X, Y),
        {"bounds": {"variance": (1e-3, 1e200)}},
        "upper bound of variance is 1e.200; expected 0 to 1e.150",
    ),
    "bounds reversed": (
        (cagp.Matern32, X, Y),
        {"bounds": {"variance": (2.0, 1.0)}},
        r"bounds of variance are \(2, 1\), reversed",
    ),
}

FIELDS = {
    "transposed": (
        GRID,
        FIELD.T,
        r"y has shape \(8, 5\).*expected \(5, 8\), rows being latitudes.*transpose it",
    ),
    "flat": (GRID, FIELD.ravel(), r"y has shape \(40,\) but the grid has 5 latitudes and 8 longitudes"),
    "four axes": (GRID, FIELD[None, None], r"or \(T, 5, 8\)"),
    "no fields": (GRID, np.empty((0, 5, 8)), r"y has shape \(0, 5, 8\)"),
    "missing": (
        GRID,
        np.stack([with_missing(FIELD), FIELD]),
        r"NaN or infinite values \(1 of \d+\); NaN is where no field has a value. .*grid.points\[there.ravel",
    ),
    "infinite": (GRID, with_missing(FIELD, np.inf), r"\(1 of 40\); drop what is infinite"),
    "nothing": (GRID, np.full((5, 8), np.nan), "y is NaN everywhere"),
    "masked": (GRID, np.ma.masked_greater(FIELD, 0.0), "y has masked entries"),
    "only poles": (
        cagp.LatLonGrid([-90.0, 90.0], 8),
        FIELD[:2],
        "three parameters cannot be learned from 0 points; .*pole rows do not count",
    ),
}


@one_after_another
@pytest.mark.parametrize(("given", "settings", "message"), POINTS.values(), ids=list(POINTS))
def test_points(given, settings, message):
    with pytest.raises(ArgumentError, match=message):
        cagp.fit(*given, **settings)


@pytest.mark.parametrize(("grid", "y", "message"), FIELDS.values(), ids=list(FIELDS))
def test_grids(grid, y, message):
    with pytest.raises(ArgumentError, match=message):
        cagp.fit(cagp.Matern32, grid, y)


@pytest.mark.parametrize(
    ("where", "y", "mean"),
    [
        (X, np.full(20, 7.1), "constant"),
        (X, np.zeros(20), 0.0),
        (
            X,
            3.0 + X @ [2.0, -1.0],
            cagp.BasisMean(lambda X: np.column_stack([np.ones(len(X)), X]), ("a", "b", "c")),
        ),
        (GRID, np.full((5, 8), 280.0), "constant"),
    ],
)
def test_constants(where, y, mean):
    with pytest.raises(DataError) as refused:
        cagp.fit(cagp.Matern32, where, y, mean=mean)
    assert refused.value.key == "constant"


@one_after_another
@pytest.mark.parametrize("unit", [1e-200, 1e-70, 1e70, 1e200])
def test_units_far_from_one(unit):
    with pytest.raises(ArgumentError) as refusal:
        cagp.fit(cagp.Matern32, X, unit * Y)
    assert refusal.value.key == "out-of-range"
    with pytest.raises(ArgumentError) as refusal:
        cagp.fit(cagp.Matern32, unit * X, Y)
    assert refusal.value.key == "out-of-range"
