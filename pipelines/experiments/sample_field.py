"""The built-in field as a whole grid without its pole rows, about a fitted prior mean."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.fields.canonical import observation_points
from cagp_dist.fields.sources import open_source

MEANS = ("constant", "quadratic-latitude")


@dataclass(frozen=True, eq=False)
class SampleField:
    """What is left of the built-in field when a prior mean, fitted to all of it, is taken off.

    Attributes
    ----------
    grid : LatLonGrid
        239 x 480 points, 0.75 degrees apart.
    residual : array of float64, shape (P, Q)
        Kelvin.
    """

    grid: cagp.LatLonGrid
    residual: Array

    @classmethod
    def about(cls, mean: str) -> Self:
        """Read the field; ``mean`` as in a job file."""
        with tempfile.TemporaryDirectory() as folder:
            field = open_source("sample", cache_directory=Path(folder))
        points = observation_points(field)
        fitted = cagp.mean_family(mean).fit(points.north, points.east, points.values.T)
        grid = cagp.LatLonGrid(field.latitude.values[1:-1], field.longitude.size)
        values = field.t2m.values[0, 1:-1].astype(np.float64)
        return cls(grid, values - fitted(grid.points).reshape(grid.shape))

    def strided(self, step: int) -> tuple[cagp.LatLonGrid, Array]:
        """Every ``step``-th latitude and longitude: the coarse grid and the values on it."""
        latitude = self.grid.latitude_degrees[::step]
        return cagp.LatLonGrid(latitude, self.grid.n_longitudes // step), self.residual[::step, ::step]

    def fit(self, step: int = 1) -> cagp.FitResult:
        """Fit a Matern-3/2 kernel and the noise on a strided grid, about zero."""
        return cagp.fit(cagp.Matern32, *self.strided(step), mean=0.0)


def by_area(mean: Array, std: Array, observed: Array, weights: Array) -> list[float]:
    """RMSE, NLL, CRPS and coverage of 95 % intervals, weighted by area."""
    given = (each.ravel() for each in (mean, std, observed))
    found = scores(*given, weights=weights.ravel(), levels=(0.95,)).by_area
    return [found.rmse, found.nll, found.crps, float(found.coverage[0])]
