"""A column of tables as a term of a drift: known where the observations and the targets say it."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import cKDTree

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import degrees

SAME_PLACE = 1e-9
"""Chord of places that are the same: 6 mm."""

SAME_VALUE = 1e-6
"""Relative difference of values of one place that are the same."""


@dataclass(frozen=True, eq=False)
class StaticColumn:
    """Values at places, such as the elevation of stations."""

    name: str
    X: Array  # (n, 3), unit vectors of the places
    values: Array  # (n,)

    def __post_init__(self) -> None:
        _, first = cKDTree(self.X).query(self.X)
        known, values = self.values[first], self.values
        wrong: Mask = np.abs(values - known) > SAME_VALUE * np.maximum(np.abs(known), np.abs(values))
        if wrong.any():
            row = int(wrong.argmax())
            raise ArgumentError(
                f"drift has the column {self.name!r}, which is {known[row]:g} and {values[row]:g} at "
                f"{_place(self.X[row])}; expected one value for each place, of observations and of targets."
            )

    def at(self, X: Array) -> Array:
        """Values at unit vectors X (n, 3), which must be among the places."""
        distance, first = cKDTree(self.X).query(X)
        apart: Mask = np.asarray(distance > SAME_PLACE)
        if apart.any():
            raise ArgumentError(
                f"drift has the column {self.name!r} of the table, which is not known at "
                f"{int(apart.sum()):,} of {len(X):,} targets, such as {_place(X[apart.argmax()])}; expected "
                f"a table of places with a column {self.name!r}, or an xarray dataset with such a variable. "
                "For other targets give the term as a field on a grid, drift=DataArray."
            )
        return self.values[first]

    def with_places(self, X: Array, values: Array) -> "StaticColumn":
        """Know it at more places."""
        return replace(self, X=np.vstack([self.X, X]), values=np.concatenate([self.values, values]))


def _place(x: Array) -> str:
    latitude, longitude = degrees(x[None])
    return f"{latitude[0]:.4f} N, {longitude[0]:.4f} E"
