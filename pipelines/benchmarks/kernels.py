"""Measured cases of kernels made from others: products, ellipses, and several variables.

Processor seconds are compared, in turns, within one process: the ratios hold on a busy machine as well.
"""

import time
from collections.abc import Callable

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.compiled import evaluate
from cagp_dist.kernels import VARIABLE, Kernel, beside_columns, point_columns
from pipelines.benchmarks.measuring import Figures, on_sphere
from pipelines.benchmarks.scattered import MANY, MAP

POINTS, REPEATS = 1_500, 15
PLACES = 300
"""Of each variable of a fit."""

TOGETHER = cagp.Coregion([[1.0, 0.8], [0.8, 1.0]], axis=VARIABLE)


def kernels() -> Figures:
    """Evaluate 1,500 x 1,500 values of kernels of two factors, and of an ellipse, beside Matern 3/2."""
    X, place = on_sphere(POINTS, seed=0), np.random.default_rng(0).uniform(0.0, 100.0, (POINTS, 2))
    hours = np.random.default_rng(1).uniform(0.0, 48.0, POINTS)
    label = (np.arange(POINTS) % 2).astype(np.float64)
    one, flat = cagp.Matern32(0.1), cagp.Matern32(20.0)
    made: dict[str, tuple[Kernel, Array]] = {
        "sphere": (one, X),
        "plane": (flat, place),
        "product_with_time": (one * cagp.Matern12(7.5, axis="time"), beside_columns(X, {"time": hours})),
        "product_with_variables": (one * TOGETHER, beside_columns(X, {VARIABLE: label})),
        "ellipse": (cagp.Anisotropic(flat, 3.0, 30.0), place),
    }
    out = np.empty((POINTS, POINTS))

    def evaluated(kernel: Kernel, points: Array) -> Callable[[], None]:
        columns = point_columns(points)
        return lambda: evaluate(*kernel.parameters, columns, columns, out)

    ways = {name: evaluated(*pair) for name, pair in made.items()}
    least = _least(ways, REPEATS)
    ratios = {f"{name}_ratio": least[name] / least["sphere"] for name in least if name.startswith("product")}
    return {**least, **ratios, "ellipse_ratio": least["ellipse"] / least["plane"]}


def cokriging() -> Figures:
    """Map one of two variables, and both, from 500,000 values of each, beside one with all 10^6 values."""
    X, targets, y = (
        on_sphere(MANY, seed=0),
        on_sphere(MAP, seed=1),
        np.random.default_rng(2).standard_normal(MANY),
    )
    one = cagp.Matern32(0.04, 1.0)
    observed = beside_columns(X, {VARIABLE: (np.arange(MANY) % 2).astype(np.float64)})
    of_first, of_second = (beside_columns(targets, {VARIABLE: np.full(MAP, label)}) for label in (0.0, 1.0))

    def solve(kernel: Kernel, points: Array, wanted: Array) -> Callable[[], None]:
        def solved() -> None:
            cagp.condition(cagp.Prior(kernel, 0.024, mean=0.0), points, y, wanted, solver=cagp.Neighbours())

        return solved

    ways = {
        "one": solve(one, X, targets),
        "first_of_two": solve(one * TOGETHER, observed, of_first),
        "both": solve(one * TOGETHER, observed, np.concatenate([of_first, of_second])),
    }
    least = _least(ways, 2)
    return {
        **least,
        "first_of_two_ratio": least["first_of_two"] / least["one"],
        "both_ratio": least["both"] / least["one"],
    }


def variables_fit() -> Figures:
    """Fit two variables at 300 places by their likelihood, beside one at 600."""
    generator = np.random.default_rng(3)

    def table(count: int, variables: int) -> dict[str, Array]:
        """Draw fields of which each goes with the first one."""
        north, east = generator.uniform([45.0, 0.0], [55.0, 15.0], (count, 2)).T
        X = cagp.unit_sphere(north, east)
        root = np.linalg.cholesky(cagp.Matern32(0.05, 1.0)(X, X) + 1e-8 * np.eye(count))
        drawn = root @ generator.standard_normal((count, variables))
        fields = [0.8 * drawn[:, 0] + 0.6 * column for column in drawn.T]
        noise = 0.3 * generator.standard_normal((variables, count))
        own = {f"v{at}": field + noise[at] for at, field in enumerate(fields)}
        return {"lat": north, "lon": east, **own}

    one, two = table(2 * PLACES, 1), table(PLACES, 2)

    def fit(observed: dict[str, Array], value: str | list[str]) -> Callable[[], None]:
        def fitted() -> None:
            model = cagp.Kriging(value=value, kernel="matern32", hyperparameters="plug-in", progress=False)
            model.fit(observed)

        return fitted

    least = _least({"one": fit(one, "v0"), "two": fit(two, ["v0", "v1"])}, 3)
    return {**least, "ratio": least["two"] / least["one"]}


def _least(ways: dict[str, Callable[[], None]], repeats: int) -> Figures:
    """Least processor seconds of each way of so many, in turns, after they are compiled."""
    for way in ways.values():
        way()
    least = dict.fromkeys(ways, np.inf)
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.process_time()
            way()
            least[name] = min(least[name], time.process_time() - start)
    return {name: float(seconds) for name, seconds in least.items()}
