"""Small published runs of any layout, for exports."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.recalibration import Distribution
from cagp_dist.predictive import StudentT
from cagp_dist.store.publish import output_lock, publish
from cagp_dist.store.schema import prediction_group, values_group

KEY = "0123456789abcdef"
NOISE = 1.7


def publish_run(
    root: Path,
    *,
    latitude: np.ndarray,
    longitude: np.ndarray,
    times: Sequence[str] = ("2019-03-01T00:00", "2019-03-01T06:00"),
    source: str = "sample",
    field=None,
    recalibrated: bool = False,
) -> Path:
    """Publish a run with a map and its observations; the field is latitude + longitude / 1000 + time step.

    If it was recalibrated the distribution at each cell has a scale that grows eastward.
    """
    stamps = np.array(times, dtype="datetime64[s]")
    rows, columns = np.meshgrid(latitude, longitude, indexing="ij")
    steps = np.arange(len(stamps))[:, None, None]
    some = slice(min(3, latitude.size, longitude.size))
    mean = 280.0 + rows / 2.0 + columns / 1000.0 + steps if field is None else field
    groups = {
        "map": prediction_group(
            "map",
            times=stamps,
            north=latitude,
            east=longitude,
            mean=mean,
            std=np.full(mean.shape, 0.5),
            noise_variance=NOISE,
            distribution=_distribution(mean, columns) if recalibrated else None,
        ),
        "observations": values_group(
            "observations",
            times=stamps,
            north=latitude[some],
            east=longitude[some] % 360.0,
            values=mean[:, 0, some],
        ),
    }
    attributes = {
        "noise_variance": NOISE,
        "prior": {"kernel": "matern32", "lengthscale": 0.1, "variance": 33.0, "noise_variance": NOISE},
        "job": "[observations]\n",
        "solver_calibrated": True,
        "provenance": {"source": source, "cagp_dist": "0.1.0"},
    }
    with output_lock(root):
        return publish(root, groups, run_key=KEY, attributes=attributes)


def _distribution(mean: np.ndarray, columns: np.ndarray) -> Distribution:
    scale = np.broadcast_to(1.0 + columns / 1000.0, mean.shape)
    distribution = StudentT(mean, scale, 5.0)
    return Distribution(distribution.std, np.moveaxis(distribution.quantile(QUANTILE_LEVELS), 0, 1), scale)


def cells(start: float, stop: float, count: int) -> np.ndarray:
    """Centres of cells that fill an interval."""
    return start + (np.arange(count) + 0.5) * (stop - start) / count


REGIONS = {
    "globe": (cells(-90.0, 90.0, 9), cells(0.0, 360.0, 12)),
    "europe": (cells(34.0, 72.0, 19), cells(-12.0, 42.0, 27)),
    "africa": (cells(-36.0, 38.0, 37), cells(-20.0, 52.0, 36)),
    "pacific": (cells(-60.0, 60.0, 30), cells(120.0, 290.0, 34)),
    "americas": (cells(-60.0, 60.0, 12), cells(200.0, 330.0, 13)),
    "arctic": (cells(60.0, 90.0, 15), cells(0.0, 360.0, 36)),
    "antarctic": (cells(-90.0, -60.0, 15), cells(0.0, 360.0, 36)),
}
"""Latitudes and longitudes of maps as jobs make them: some cross Greenwich, the date line, reach a pole."""
