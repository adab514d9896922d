"""Measured cases of values that are not normal: transforms, censored zeros, checks; beside the plain map.

Points are drawn uniformly on the sphere: Matern 3/2, lengthscale 0.04, noise a fortieth of the variance. The
parameters are known, so that maps are compared and not fits.
"""

import warnings
from collections.abc import Mapping

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array, Mask
from cagp_dist.geometry import degrees
from cagp_dist.pipeline.censoring import DRAWS
from pipelines.benchmarks.measuring import Figures, named, on_sphere, peak_mebibytes, timed
from pipelines.benchmarks.scattered import FEW, MANY, MAP, PRIOR, field

ZERO = -0.5244
"""Below it are 30 % of a standard normal distribution."""

GROSS, SHARE = 20.0, 0.01
"""Error of some values, in standard deviations of the field, and how many have it."""

PLAIN = cagp.Prior(PRIOR.kernel, PRIOR.noise_variance, cagp.MEANS["constant"])  # type: ignore[arg-type]


def transformed() -> Figures:
    """Map 64,800 targets from 10^5 values: plain, by square roots, by logarithms and by Box-Cox."""
    return _compared(FEW, MAP, {"sqrt": "sqrt", "log": "log", "box_cox": cagp.BoxCox(0.3)}, lowest=None)


def censored() -> Figures:
    """Map them from 10^5 values of which 30 % are zero and censored."""
    return _compared(FEW, MAP, {"sqrt": "sqrt"}, lowest=ZERO) | {"draws": float(DRAWS)}


def checked() -> Figures:
    """Check 10^6 values of which 1 % are wrong, numbers fitted."""
    for n in (3_000, MANY):  # compiled before it is measured
        X = on_sphere(n, seed=0)
        rng = np.random.default_rng(3)
        wrong = rng.random(n) < SHARE
        values = field(X) + np.where(wrong, GROSS * rng.choice([-1.0, 1.0], n), 0.0)
        table = _table(X, values)
        figures, (hits, false) = timed(lambda: _flags(table, wrong))  # noqa: B023
    found = {"found": hits / int(wrong.sum()), "false": false / max(hits + false, 1)}
    return figures | found | {"peak_mebibytes": peak_mebibytes()}


def _flags(table: Mapping[str, Array], wrong: Mask) -> tuple[int, int]:
    """Count what is flagged rightly and wrongly."""
    flags = cagp.check(table, kernel="matern32", progress=False)["flag"].to_numpy()
    return int((flags & wrong).sum()), int((flags & ~wrong).sum())


def _compared(
    n: int, q: int, transforms: Mapping[str, str | cagp.BoxCox], *, lowest: float | None
) -> Figures:
    """Map by each transform and plainly, in turn; processor seconds over those of the plain map."""
    figures: Figures = {}
    for points, targets in ((5_000, 500), (n, q)):
        X, to = on_sphere(points, seed=0), _table(on_sphere(targets, seed=1))
        z = field(X)
        values = (1.0 + 0.25 * z) ** 2 if lowest is None else np.maximum(z - lowest, 0.0) ** 2
        settings = {"plain": None, **transforms}
        for name, transform in settings.items():
            given = {} if transform is None else {"transform": transform}
            own, _ = timed(lambda: _mapped(_table(X, values), to, given))  # noqa: B023
            figures |= named(own, name)
    for name in transforms:
        figures[f"times_{name}"] = figures[f"processor_seconds_{name}"] / figures["processor_seconds_plain"]
    return figures | {"peak_mebibytes": peak_mebibytes()}


def _mapped(table: Mapping[str, Array], to: Mapping[str, Array], given: Mapping[str, object]) -> None:
    with warnings.catch_warnings(
        action="ignore", category=UserWarning
    ):  # of tails: numbers are not those of the values
        cagp.krige(table, to=to, prior=PLAIN, solver=cagp.Neighbours(), progress=False, **given)  # type: ignore[arg-type]


def _table(X: Array, values: Array | None = None) -> dict[str, Array]:
    """Columns of points (n, 3), and their values."""
    north, east = degrees(X)
    return {"latitude": north, "longitude": east} | ({} if values is None else {"value": values})
