"""Fields that no prior describes: what is observed of them, kept for calibration, and predicted."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.verification.spatial_folds import block_folds, blocks_of
from cagp_dist.fields.sources import open_source

Kind = Literal["random", "blocks"]

DATA = Path("../shared/data/fields")
EUROPE = DATA / "era5_2t_2017-01-01T12_0p25_europe.grib"
UNITED_KINGDOM = DATA / "era5_2t_2019-03_hourly_0p25_uk.grib"

BUILT_IN_PRIOR = cagp.Prior(cagp.Matern32(lengthscale=0.0387, variance=19.6), 0.52)
"""Maximum likelihood for the built-in field about a mean that is quadratic in latitude."""

HOURS_APART = 36
MOST_TO_FIT = 2000


@dataclass(frozen=True, eq=False)
class Field:
    """Fields on one grid; several of them, or one at several times, share a solve.

    Attributes
    ----------
    names : tuple of str
        One for each field; of times of one field the same.
    latitude_degrees, longitude_degrees : array, shape (P,), (Q,)
    values : array, shape (T, P Q)
        K.
    true_scale : array, shape (P Q,), or None
        Of the last field: what its errors are multiplied with, where that is known.
    prior : Prior or None
        About zero, for values minus their mean; None: fitted to what is observed.
    """

    names: tuple[str, ...]
    latitude_degrees: Array
    longitude_degrees: Array
    values: Array
    true_scale: Array | None = None
    prior: cagp.Prior | None = None

    @property
    def places(self) -> tuple[Array, Array]:
        """Latitude and longitude of each point of the grid."""
        latitude, longitude = np.meshgrid(self.latitude_degrees, self.longitude_degrees, indexing="ij")
        return latitude.ravel(), longitude.ravel()


@dataclass(frozen=True, eq=False)
class Parts:
    """Points of the grid that are observed, kept for calibration, and predicted; none is in two of them.

    Of parts by blocks, ``blocks`` says which block each calibration point lies in.
    """

    observed: Indices
    calibration: Indices
    test: Indices
    blocks: Indices | None = None

    @classmethod
    def drawn(
        cls, field: Field, counts: tuple[int, int, int], generator: np.random.Generator, kind: Kind
    ) -> "Parts":
        """Draw so many points of each part in proportion to area; by blocks each part from blocks of its own.

        Blocks are 10 degrees high, or what makes at least 200 of them; a tenth of them is for calibration and
        a tenth for the test.
        """
        latitude, longitude = field.places
        weights = np.cos(np.deg2rad(latitude))
        part = np.zeros(weights.size, dtype=np.intp)
        height = min(10.0, float(np.ptp(field.latitude_degrees)) / 12.0)
        if kind == "blocks":
            folds = block_folds(latitude, longitude, count=10, blocks=height, generator=generator)
            part = np.where(folds < 2, folds + 1, 0)
        taken = np.zeros(weights.size, dtype=bool)
        drawn = []
        for number, count in enumerate(counts):
            share = np.where(taken | (kind == "blocks") & (part != number), 0.0, weights)
            count = min(count, int(0.8 * np.count_nonzero(share)))
            chosen = generator.choice(weights.size, size=count, replace=False, p=share / share.sum())
            taken[chosen] = True
            drawn.append(chosen)
        blocks = None
        if kind == "blocks":
            place = drawn[1]
            blocks = blocks_of(latitude[place], longitude[place], blocks=height)
        return cls(*drawn, blocks)


def global_fields(generator: np.random.Generator) -> Field:
    """Read the built-in field, and draw two of its prior, one with a scale that varies, on the same grid.

    The scale is that of `varying_scale`, constant over a lengthscale but not over the globe.
    """
    with tempfile.TemporaryDirectory() as folder:
        field = open_source("sample", cache_directory=Path(folder)).load()
    latitude = field.latitude.values[1:-1].astype(np.float64)
    longitude = field.longitude.values.astype(np.float64)
    grid = cagp.LatLonGrid(latitude, longitude.size)
    prior = BUILT_IN_PRIOR
    rings = cagp.RingGram(grid, prior.kernel, noise_variance=prior.noise_variance)
    drawn = rings.sample(generator, fields=2)
    drawn = drawn + np.sqrt(prior.noise_variance) * generator.standard_normal(drawn.shape)
    scale = varying_scale(latitude, longitude)
    values = np.stack([field.t2m.values[0, 1:-1].astype(np.float64), drawn[0], scale * drawn[1]])
    names = ("built-in", "drawn from the prior", "of known scale")
    return Field(names, latitude, longitude, values.reshape(3, -1), scale.ravel(), prior)


def varying_scale(latitude_degrees: Array, longitude_degrees: Array) -> Array:
    """Scale ``exp(0.8 sin(2 lon) cos(lat) - 0.3 sin(3 lat))`` on a grid, between 0.36 and 2.8, (P, Q)."""
    north, east = np.deg2rad(latitude_degrees)[:, None], np.deg2rad(longitude_degrees)[None]
    return np.asarray(np.exp(0.8 * np.sin(2.0 * east) * np.cos(north) - 0.3 * np.sin(3.0 * north)))


def file_field(path: Path, name: str, *, every: int = 1) -> Field:
    """Read the field of a file, at every ``every``-th of its times."""
    from cagp_dist.fields.files.local_files import open_file

    with tempfile.TemporaryDirectory() as folder:
        field = open_file(path, scratch=Path(folder)).load()
    values = field.t2m.values[::every].astype(np.float64)
    latitude, longitude = (field[axis].values.astype(np.float64) for axis in ("latitude", "longitude"))
    return Field((name,) * len(values), latitude, longitude, values.reshape(len(values), -1))


FIELDS: dict[str, tuple[Callable[[np.random.Generator], Field], tuple[int, int, int]]] = {
    "global": (global_fields, (10_000, 2000, 2500)),
    "sparse": (global_fields, (2500, 1000, 2500)),
    "europe": (lambda _: file_field(EUROPE, "Europe"), (2000, 1000, 2500)),
    "uk": (lambda _: file_field(UNITED_KINGDOM, "British Isles", every=HOURS_APART), (400, 300, 500)),
}
"""How fields are made, and how many points of each part there are."""


def with_drawn(
    field: Field, mean: Array, prior: cagp.Prior, parts: Parts, generator: np.random.Generator
) -> tuple[Field, Array]:
    """Add as many fields of the prior that was fitted, about zero, at the points of the parts.

    They say what chance alone does to the scores of so many points that err together.
    """
    at = np.concatenate([parts.observed, parts.calibration, parts.test])
    points = cagp.unit_sphere(*field.places)[at]
    covariance = prior.kernel(points, points)
    covariance[np.diag_indices(at.size)] += prior.noise_variance
    values = np.full(field.values.shape, np.nan)
    values[:, at] = (np.linalg.cholesky(covariance) @ generator.standard_normal((at.size, len(values)))).T
    names = tuple(f"{name}, drawn from the prior" for name in field.names)
    both = replace(field, names=field.names + names, values=np.concatenate([field.values, values]))
    return both, np.concatenate([mean, np.zeros_like(mean)])


def prior_and_mean(field: Field, parts: Parts, generator: np.random.Generator) -> tuple[cagp.Prior, Array]:
    """Give kernel and noise, and the mean (T, P Q): quadratic in latitude, by least squares.

    Both know of what is observed alone. A field of the prior has mean zero, and so has what is made of it.
    Without a prior of the field one is fitted to `MOST_TO_FIT` observed points, of up to eight times.
    """
    latitude, longitude = field.places
    points = cagp.unit_sphere(latitude, longitude)
    observed = parts.observed
    fitted = cagp.mean_family("quadratic-latitude").fit(
        latitude[observed], longitude[observed], np.ascontiguousarray(field.values[:, observed].T)
    )
    mean = np.asarray(fitted(points)).reshape(len(points), -1).T.copy()
    if field.prior is not None:
        mean[1:] = 0.0
        return field.prior, mean
    some = generator.permutation(observed)[:MOST_TO_FIT]
    times = np.unique(np.linspace(0, len(mean) - 1, 8).astype(np.intp))
    residuals = (field.values - mean)[np.ix_(times, some)].T
    return cagp.fit(cagp.Matern32, points[some], np.ascontiguousarray(residuals), mean=0.0).prior, mean
