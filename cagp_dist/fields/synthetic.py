"""Synthetic temperature fields: exact draws of a known prior on any global grid, in ERA5's layout."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array
from cagp_dist.checks import check_positive
from cagp_dist.digest import text_sha256
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.fields.canonical import assemble
from cagp_dist.fields.selection import EVERYTHING, Selection, inside_area, parse_times
from cagp_dist.gram.ring_gram import RingGram
from cagp_dist.kernels import Kernel, Matern32
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.remedies import Setting
from cagp_dist.text import bytes_text
from cagp_dist.variables import T2M, canonical_name

FORMULA = 2  # part of every digest: another formula or another way of drawing has another number

SyntheticMean = Literal["constant", "quadratic-latitude", "harmonic-latitude", "wave"]

DEFAULT_TIMES = ("2001-01-01T00:00",)
DEFAULT_GRID_DEGREES = 1.0

FINEST_DEGREES = 0.02  # a field of it takes 1.2 GiB for each time

_MID_JANUARY = np.datetime64("2000-01-15", "ns")
_YEAR_DAYS = 365.2425


@dataclass(frozen=True)
class Synthetic:
    """What a synthetic field is drawn from.

    Parameters
    ----------
    kernel : Kernel
        Covariance of the latent anomaly, chord on the unit sphere and K^2.
    noise_variance : float
        Variance of the independent noise of every value, K^2, above zero.
    seed : int
        At least 0. Two seeds give independent fields.
    mean : {"constant", "quadratic-latitude", "harmonic-latitude", "wave"}
        What the draw is about. The first three lie within the prior means of the same names, so that a job
        with that mean is right about everything; the last lies within none of them.
    """

    kernel: Kernel = field(default_factory=lambda: Matern32(lengthscale=0.05, variance=22.0))
    noise_variance: float = 0.5
    seed: int = 0
    mean: SyntheticMean = "quadratic-latitude"

    def __post_init__(self) -> None:
        check_positive("noise_variance", self.noise_variance)
        if self.mean not in _NORTHWARD:
            known = ", ".join(f'"{name}"' for name in _NORTHWARD)
            raise ArgumentError(f"mean is {self.mean!r}; expected one of {known}.", key="synthetic")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ArgumentError(f"seed is {self.seed!r}; expected an integer of at least 0.", key="synthetic")

    def sha256(self, grid_degrees: float | None) -> str:
        """Digest of what determines the numbers, apart from the time: settings, resolution and formula."""
        kernel: dict[str, object] = {"kernel": repr(self.kernel)}
        if len(self.kernel.parts) == 1:
            kernel = {
                "kernel": type(self.kernel).__name__,
                "lengthscale": self.kernel.parts[0].common_lengthscale,
                "variance": float(self.kernel.variance),
            }
        settings = {
            "formula": FORMULA,
            **kernel,
            "noise_variance": float(self.noise_variance),
            "seed": self.seed,
            "mean": self.mean,
            "grid_degrees": float(DEFAULT_GRID_DEGREES if grid_degrees is None else grid_degrees),
        }
        return text_sha256(json.dumps(settings, sort_keys=True))


def open_synthetic(
    settings: Synthetic | None = None,
    selection: Selection = EVERYTHING,
    *,
    progress: Callable[[str], None] | None = None,
) -> xr.Dataset:
    """Draw fields: a smooth mean, plus an exact joint draw of ``N(0, K)`` (math 7), plus independent noise.

    The field of a time depends on the settings, the resolution and that time alone.
    """
    settings = settings or Synthetic()
    if selection.level is not None or selection.units is not None:
        raise ConfigurationError(
            "source 'synthetic' has one level, in kelvin; leave level and units out.", key="synthetic"
        )
    if canonical_name(selection.variable) != T2M.name:
        raise ConfigurationError(
            f"the source 'synthetic' has no {selection.variable!r}: it draws 2 metre temperature alone.",
            key="absent-variable",
            remedies=(Setting("value", T2M.name),),
        )
    grid, area = synthetic_grid(selection.grid_degrees), selection.area
    moments = parse_times(DEFAULT_TIMES if selection.times is None else selection.times)
    rows, columns = np.arange(grid.shape[0]), np.arange(grid.shape[1])
    if area is not None:
        rows, columns = inside_area(grid.latitude_degrees, grid.longitude_degrees, area)
    if progress is not None:
        progress(f"drawing {moments.size} x {grid.shape[0]} x {grid.shape[1]} values of the prior")
    rings = RingGram(grid, settings.kernel, noise_variance=settings.noise_variance)
    values = np.empty((moments.size, rows.size, columns.size), dtype=np.float32)
    for index, moment in enumerate(moments):
        drawn = _draw(rings, settings, moment) + synthetic_mean(settings.mean, grid, moment)
        values[index] = drawn[np.ix_(rows, columns)]
    low, high = float(values.min()), float(values.max())
    if low < T2M.low or high > T2M.high:
        raise ConfigurationError(
            f"the synthetic field reaches from {low:g} to {high:g} K; expected {T2M.low:g}.."
            f"{T2M.high:g} K. Lower variance or noise_variance; 22 and 0.5 K^2 resemble ERA5.",
            key="synthetic",
        )
    latitude, longitude = grid.latitude_degrees[rows], grid.longitude_degrees[columns]
    dataset = assemble(values, moments, latitude, longitude)
    dataset.attrs |= {"source": "synthetic", "source_sha256": settings.sha256(selection.grid_degrees)}
    return dataset


def synthetic_grid(grid_degrees: float | None) -> LatLonGrid:
    """Global grid with both poles; raises `ConfigurationError` unless the spacing divides 180 degrees."""
    spacing = DEFAULT_GRID_DEGREES if grid_degrees is None else grid_degrees
    count = round(180.0 / spacing) if 0.0 < spacing <= 90.0 else 0
    if count == 0 or abs(count * spacing - 180.0) > 1e-6:
        raise ConfigurationError(
            f"grid_degrees is {spacing:g}; a synthetic field needs a spacing that divides 180 degrees, so "
            "that both poles are rows, for example 5, 1, 0.75 or 0.25.",
            key="grid-degrees",
            remedies=(Setting("grid_degrees", 1.0),),
        )
    if count > 180.0 / FINEST_DEGREES:
        raise ConfigurationError(
            f"grid_degrees is {spacing:g}; a synthetic field of {count + 1:,} x {2 * count:,} points takes "
            f"{bytes_text(16.0 * count * (count + 1))} for each time, and expected are at least "
            f"{FINEST_DEGREES:g} degrees.",
            key="grid-degrees",
            remedies=(Setting("grid_degrees", 1.0),),
        )
    return LatLonGrid(np.linspace(-90.0, 90.0, count + 1), 2 * count)


def synthetic_mean(name: SyntheticMean, grid: LatLonGrid, moment: np.datetime64) -> Array:
    """Mean of the synthetic field in kelvin, shape (P, Q).

    - constant: 285;
    - quadratic-latitude: ``300 - 45 x^2 + (3 - 12 s) x`` with ``x = lat / 90``;
    - harmonic-latitude: the same with ``x = sin(lat)``;
    - wave: harmonic-latitude ``+ 3 cos^2(lat) sin(2 lon)``, two crests around the globe.

    The season ``s = cos(2 pi (days since 15 January) / 365.2425)`` has opposite signs in the hemispheres.
    """
    days = (moment - _MID_JANUARY) / np.timedelta64(1, "D")
    season = np.cos(2.0 * np.pi * days / _YEAR_DAYS)
    x = _NORTHWARD[name](grid.latitude_degrees)
    zonal = ((285.0 if name == "constant" else 300.0) - 45.0 * x**2 + (3.0 - 12.0 * float(season)) * x)[
        :, None
    ]
    if name != "wave":
        return np.broadcast_to(zonal, grid.shape)
    square = np.cos(np.deg2rad(grid.latitude_degrees))[:, None] ** 2
    crests = np.sin(2.0 * np.deg2rad(grid.longitude_degrees))[None, :]
    return np.asarray(zonal + 3.0 * square * crests, dtype=np.float64)


_NORTHWARD: dict[str, Callable[[Array], Array]] = {
    "constant": lambda degrees: np.zeros_like(degrees),
    "quadratic-latitude": lambda degrees: degrees / 90.0,
    "harmonic-latitude": lambda degrees: np.sin(np.deg2rad(degrees)),
    "wave": lambda degrees: np.sin(np.deg2rad(degrees)),
}
"""What the zonal part of each mean is a parabola of."""


def _draw(rings: RingGram, settings: Synthetic, moment: np.datetime64) -> Array:
    """Latent anomaly and noise of one time, from a stream of its own; shape (P, Q)."""
    stamp = int(moment.astype("datetime64[ns]").astype(np.int64)) + 2**63  # keys are not negative
    generator = np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(stamp,)))
    latent = np.asarray(rings.sample(generator, noise=False), dtype=np.float64)
    noise = np.sqrt(settings.noise_variance) * generator.standard_normal(latent.shape)
    for pole in (0, -1):  # one place: copies of the latent value differ by rounding, the noise is drawn once
        latent[pole] = latent[pole].mean()
        noise[pole] = noise[pole, 0]
    latent += noise
    return latent
