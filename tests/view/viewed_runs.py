"""Published runs for the page: a temperature with observations at points, and a map of any grid or none."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cagp_dist.pipeline.recalibration import Distribution
from cagp_dist.store.publish import output_lock, publish
from cagp_dist.store.schema import prediction_group, values_group

NOISE = 0.4
LEVEL_STEPS = (-2.0, -1.6, -0.7, 0.0, 0.7, 1.6, 2.0)  # standard deviations to the quantiles
DAYS = tuple(f"2020-01-{day:02d}T12:00" for day in range(1, 31))


def temperature(latitude, longitude, step=0):
    """A field in kelvin of warm tropics, continents and weather that moves eastward."""
    phi, lam = np.deg2rad(latitude), np.deg2rad(longitude)
    weather = (
        7.0 * np.sin(4.0 * lam - 0.35 * step + 2.0 * np.sin(3.0 * phi)) * np.cos(phi) * np.sin(2.0 * phi) ** 2
    )
    return 301.0 - 52.0 * np.sin(phi) ** 2 + 5.0 * np.cos(2.0 * lam - 1.0) * np.cos(2.0 * phi) + weather


def error_bar(latitude, longitude):
    """Small where there are many stations: here in the north, between the Atlantic and the Urals."""
    phi, lam = np.deg2rad(latitude - 45.0), np.deg2rad((longitude + 160.0) % 360.0 - 180.0)
    return 0.3 + 2.4 * (1.0 - np.exp(-(phi**2) / 0.35 - lam**2 / 1.6)) * (
        0.8 + 0.2 * np.sin(9.0 * lam) * np.sin(7.0 * phi)
    )


def publish_viewed(
    root: Path,
    latitude: np.ndarray,
    longitude: np.ndarray,
    *,
    times: Sequence[str] = DAYS[:3],
    key: str = "0123456789abcdef0123456789abcdef",
    with_map: bool = True,
    blank: np.ndarray | None = None,
    points: int = 200,
    coarse: int | None = None,
    skewed: bool = False,
    unfinished: np.ndarray | float = 0.2,
    attributes: dict[str, object] | None = None,
) -> Path:
    """Publish a run; cells where ``blank`` is true have no value, ``coarse`` thins the map of error bars.

    ``skewed``: recalibrated, with quantiles further above the mean than below. ``unfinished`` is the share of
    the map's standard deviations, also of each time, that is left to compute.
    """
    rng, stamps = np.random.default_rng(3), np.array(times, dtype="datetime64[s]")
    y = rng.uniform(latitude.min(), latitude.max(), points)
    x = rng.uniform(longitude.min(), longitude.max(), points)
    steps, std = range(len(stamps)), error_bar(y, x)
    mean = np.stack([temperature(y, x, step) for step in steps])
    observed = mean + np.hypot(std, np.sqrt(NOISE)) * rng.standard_normal(mean.shape)
    observed[:, 0] = np.nan
    place = {"times": stamps, "north": y, "east": x % 360.0}
    names = np.array([f"Station {number}" for number in range(points)])
    groups = {
        "posterior": prediction_group(
            "posterior", **place, mean=mean, std=std, noise_variance=NOISE, observed=observed, names=names
        ),
        "observations": values_group("observations", **place, values=observed),
    }
    if with_map:
        of_errors = {"with_errors": coarse is None, "skewed": skewed, "unfinished": unfinished}
        groups["map"] = _map(stamps, latitude, longitude, blank, **of_errors)
    if with_map and coarse is not None:
        groups["map_std"] = _map(stamps, latitude[::coarse], longitude[::coarse], None, skewed=skewed)
    said = {"prior": {"kernel": "matern32", "variance": 22.0}, "noise_variance": NOISE, "train_count": points}
    said["calibration_statement"] = "Error bars hold at the held-out observations."
    with output_lock(root):
        return publish(root, groups, run_key=key, attributes={**said, **(attributes or {})})


def _map(stamps, latitude, longitude, blank, *, with_errors=True, skewed=False, unfinished=0.2):
    """A group on a grid, with computational error bars."""
    rows, columns = np.meshgrid(latitude, longitude, indexing="ij")
    mean = np.stack([temperature(rows, columns, step) for step in range(len(stamps))])
    std = error_bar(rows, columns)
    if blank is not None:
        mean, std = np.where(blank, np.nan, mean), np.where(blank, np.nan, std)
    part = np.reshape(unfinished, (-1, 1, 1)) * std if np.ndim(unfinished) else unfinished * std
    errors = {"std": std, "noise_variance": NOISE, "computational_std": part} if with_errors else {}
    if skewed and with_errors:
        scaled = 1.3 * np.broadcast_to(std, mean.shape)
        steps = [mean + (step if step < 0.0 else 2.0 * step) * scaled for step in LEVEL_STEPS]
        errors["distribution"] = Distribution(scaled, np.stack(steps, axis=1))
    group = prediction_group("map", times=stamps, north=latitude, east=longitude, mean=mean, **errors)
    return group if blank is None else group.assign_attrs(blank_cells=int(blank.sum()))
