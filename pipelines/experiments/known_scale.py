"""A scale that varies over the whole 0.25-degree grid, 721 x 1440, recovered from leave-one-out errors.

    python -m pipelines.experiments.known_scale [--quick] [--output FOLDER]

A field with its noise is drawn from the prior and multiplied with a scale between 0.36 and 2.8
(`real_fields.varying_scale`); the model knows the prior alone. Every point is predicted exactly from all the
others, and a local scale is learnt from these errors. Prints how far it is from the true one, and what
the 90 % intervals of leave-one-out predictions hold by fifth of the true scale, each with a scale that did
not use the point's own error; draws ``known-scale.png`` and writes ``known-scale.zarr``.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import xarray as xr

import cagp_dist as cagp
from cagp_dist.calibration.recalibration.local_scale import LocalScale
from cagp_dist.posterior.left_out import each_left_out
from cagp_dist.predictive import Gaussian
from pipelines.experiments.output import drawn, few_colours, parser, print_table, save
from pipelines.experiments.real_fields import varying_scale
from pipelines.experiments.split import LENGTHSCALE, NOISE_VARIANCE, VARIANCE

SEED = 0
LATITUDES, QUICK_LATITUDES = 721, 91
LEVEL = 0.9
MOST_DRAWN_ROWS = 241


def known_scale(latitudes: int, *, seed: int = SEED) -> xr.Dataset:
    """Draw a field on a grid of so many latitudes, and learn its scale.

    Returns
    -------
    Dataset
        ``true``, ``recovered``, ``probability_plain`` and ``probability`` over latitude and longitude: the
        last two the probability of smaller values under the leave-one-out distributions, as they are and
        corrected.
    """
    generator = np.random.default_rng(seed)
    latitude = np.linspace(-90.0, 90.0, latitudes)[1:-1]  # a pole is one point
    grid = cagp.LatLonGrid(latitude, 2 * (latitudes - 1))
    prior = cagp.Prior(cagp.Matern32(LENGTHSCALE, VARIANCE), NOISE_VARIANCE)
    rings = cagp.RingGram(grid, prior.kernel, noise_variance=NOISE_VARIANCE)
    field = rings.sample(generator, fields=1)[0]
    field = field + np.sqrt(NOISE_VARIANCE) * generator.standard_normal(field.shape)
    longitude = np.arange(grid.n_longitudes) * 360.0 / grid.n_longitudes
    true = varying_scale(latitude, longitude)
    started = time.process_time()
    left_out = each_left_out(prior, grid, true * field)
    predicted = time.process_time()
    distribution = Gaussian(left_out.mean.ravel(), np.sqrt(left_out.variance).ravel())
    observed, points = (true * field).ravel(), grid.points
    fitted = LocalScale().fit(distribution, observed, points)
    recovered = fitted.scale(distribution, points)
    learnt = time.process_time()
    data = {
        "true": true,
        "recovered": recovered,
        "probability_plain": distribution.cdf(observed),
        "probability": fitted.left_out(distribution).cdf(observed),
    }
    shape = true.shape
    return xr.Dataset(
        {name: (("latitude", "longitude"), values.reshape(shape)) for name, values in data.items()},
        coords={"latitude": latitude, "longitude": longitude},
        attrs={
            "lengthscale": LENGTHSCALE,
            "processor_seconds_left_out": predicted - started,
            "processor_seconds_scale": learnt - predicted,
        },
    )


def rows(found: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of the table: all points, and fifths of the true scale."""
    true = found.true.values
    edges = np.quantile(true, np.linspace(0.0, 1.0, 6))
    everywhere = np.ones(true.shape, dtype=bool)
    fifths = [(low <= true) & (true <= high) for low, high in pairwise(edges)]
    names = ["all", *(f"{low:.2f} to {high:.2f}" for low, high in pairwise(edges))]
    for name, some in zip(names, [everywhere, *fifths], strict=True):
        ratio = found.recovered.values[some] / true[some]
        inside = [
            np.mean(np.abs(found[probability].values[some] - 0.5) <= 0.5 * LEVEL)
            for probability in ("probability_plain", "probability")
        ]
        yield (
            name,
            f"{np.exp(np.mean(np.log(ratio))):.3f}",
            f"{np.std(np.log(ratio)):.3f}",
            *(f"{share:.3f}" for share in inside),
        )


def draw(path: Path, found: xr.Dataset) -> None:
    """Draw the true scale, the recovered one, and their ratio."""
    step = max(1, found.sizes["latitude"] // MOST_DRAWN_ROWS)
    some = found.isel(latitude=slice(None, None, step), longitude=slice(None, None, step))
    true, recovered = some.true.values, some.recovered.values
    panels = (("true scale", true), ("recovered", recovered), ("recovered over true", recovered / true))
    with drawn(path, height_inches=2.5) as figure:
        axes = figure.subplots(1, 3, sharey=True)
        for place, (title, values) in zip(axes, panels, strict=True):
            mesh = place.pcolormesh(
                some.longitude,
                some.latitude,
                np.log2(values),
                cmap="RdBu_r",
                vmin=-1.5,
                vmax=1.5,
                rasterized=True,
            )
            place.set_title(title, loc="left", fontsize=9)
            place.set_xticks([0, 90, 180, 270, 360])
            place.set_yticks([-60, 0, 60])
        bar = figure.colorbar(mesh, ax=axes, ticks=[-1, 0, 1], shrink=0.9)
        bar.ax.set_yticklabels(["1/2", "1", "2"])
    few_colours(path, count=256)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, learn, print, draw and save."""
    chosen = parser(__doc__).parse_args(arguments)
    found = known_scale(QUICK_LATITUDES if chosen.quick else LATITUDES)
    size = f"{found.sizes['latitude']:,} x {found.sizes['longitude']:,} points"
    seconds = (found.attrs[f"processor_seconds_{part}"] for part in ("left_out", "scale"))
    left_out, scale = (f"{each:.0f} s" for each in seconds)
    print(f"{size}; processor time of leave-one-out errors {left_out}, of the scale {scale}\n")
    head = ("true scale", "recovered over true", "spread of its logarithm", "90 % hold, plain", "local scale")
    print_table(head, rows(found))
    draw(chosen.output / "known-scale.png", found)
    save(chosen.output / "known-scale.zarr", found.astype(np.float32))


if __name__ == "__main__":
    main()
