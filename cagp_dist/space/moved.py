"""Coordinates brought from one space to another."""

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.space.interface import Space
from cagp_dist.space.systems import import_pyproj
from cagp_dist.text import counted


def moved(source: Space, target: Space, north: Array, east: Array, *, what: str) -> tuple[Array, Array]:
    """Give north and east (n,) in another space, of which nothing is guessed."""
    if target.is_same(source):
        return north, east
    if not (source.is_placed or target.is_placed) and (factor := target.factor_of(source)) is not None:
        return factor * north, factor * east
    if not (source.is_placed and target.is_placed):
        ends = (source, target) if what == "observation" else (target, source)
        raise ArgumentError(
            f"the observations lie on the {ends[0].text}, the targets on the {ends[1].text}, and it is not "
            "known how one lies to the other; expected both in one system, or crs=... beside x and y.",
            key="of-another-space",
        )
    pyproj = import_pyproj()
    first, second = source.system, target.system
    try:
        found = pyproj.Transformer.from_crs(first, second, always_xy=True).transform(
            source.scale * east, source.scale * north
        )
    except pyproj.exceptions.ProjError as error:
        raise ArgumentError(
            f"nothing is known of how {first.name} lies to {second.name} ({error}); expected observations "
            "and targets in one system.",
            key="of-another-space",
        ) from error
    x, y = (np.asarray(axis, dtype=np.float64) / target.scale for axis in found)
    wrong = ~(np.isfinite(x) & np.isfinite(y))
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{counted(int(wrong.sum()), what)} of {wrong.size:,} cannot be brought from the {source.text} "
            f"to the {target.text}, such as {source.place_text(float(north[row]), float(east[row]))}; "
            "expected places where both are defined.",
            key="not-in-system",
        )
    return y, x
