"""How smooth the posterior means are: the field of `held_out`, its means on the whole grid, their spectra.

    python -m pipelines.experiments.smooth_means [--quick] [--output FOLDER]

Prints the rms gradient of every mean, and of its difference from the exact one; draws ``smooth-means.png``,
power by zonal wavenumber, and ``means.png``, a part of the globe.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.solvers.actions.policies import residuals
from cagp_dist.solvers.actions.projection import project
from pipelines.experiments.held_out import SEED
from pipelines.experiments.output import COLOURS, drawn, parser, print_table
from pipelines.experiments.smoothness import gradient_rms, zonal_power
from pipelines.experiments.split import LATITUDES, QUICK_LATITUDES, Split

Means = dict[tuple[str, int], Array]
"""Means on the whole grid (P, Q) by solver and iteration; 0 where there is no iteration."""

SWEEPS, BLOCK_SWEEPS, DIRECTIONS = (1, 2, 5), (1, 2), (5, 20, 80)
SPECTRA = (
    ("truth", 0, "-"),
    ("exact", 0, "-"),
    ("Gauss-Seidel", 1, ":"),
    ("Gauss-Seidel", 5, "-"),
    ("block Gauss-Seidel", 1, "-"),
    ("conjugate gradients", 5, ":"),
    ("conjugate gradients", 20, "-"),
    ("conjugate gradients", 80, "--"),
)
MAPS = (
    ("truth", 0),
    ("exact", 0),
    ("block Gauss-Seidel", 1),
    ("Gauss-Seidel", 5),
    ("conjugate gradients", 20),
)


def means(split: Split, values: Array, exact: Array) -> Iterator[tuple[tuple[str, int], Array]]:
    """Yield the means of all solvers on the whole grid, after the exact one."""
    grid, gram, X = split.rings.grid, cagp.MaskedRings(split.rings, split.observed), split.train
    y = values[split.observed]
    order = cagp.space_filling_order(X, block_size=split.block_size)

    def seen(weights: Array) -> Array:
        return split.rings.prior_product(gram.layout.embed(weights[None]))[0]

    yield ("exact", 0), exact
    for m in SWEEPS:
        yield ("Gauss-Seidel", m), cagp.posterior_mean(split.prior, X, y, grid, solver=cagp.GaussSeidel(m))
    for m in BLOCK_SWEEPS:
        solver = cagp.BlockGaussSeidel(m, block_size=split.block_size)
        mean = cagp.posterior_mean(split.prior, X[order], y[order], grid, solver=solver)
        yield ("block Gauss-Seidel", m), mean
    weights = np.zeros(len(y))
    steps = project(gram.__matmul__, y[:, None], policy=residuals, iterations=max(DIRECTIONS))
    for m, item in enumerate(steps, start=1):
        weights += item.step[0] * item.direction
        if m in DIRECTIONS:
            yield ("conjugate gradients", m), seen(weights)


def table(found: Means, grid: cagp.LatLonGrid) -> Iterator[Sequence[str]]:
    """Lines of the table of gradients, and of distances from the exact mean."""
    weights = grid.area_weights
    for (name, m), field in found.items():
        difference = field - found["exact", 0]
        yield (
            name,
            str(m) if m else "",
            f"{gradient_rms(field, grid):.2f}",
            f"{gradient_rms(difference, grid):.2f}" if name != "exact" else "",
            f"{np.sqrt(np.average(difference**2, weights=weights)):.2f}" if name != "exact" else "",
        )


def draw_spectra(path: Path, found: Means, grid: cagp.LatLonGrid) -> None:
    """Draw the power of the means, and of their differences from the exact mean."""
    with drawn(path, height_inches=3.8) as figure:
        field, difference = figure.subplots(1, 2, sharey=True)
        for name, m, style in SPECTRA:
            label = f"{name}, m = {m}" if m else name
            wavenumbers = np.arange(1, (grid.n_longitudes + 1) // 2)  # the last may have one wave, not two
            line = {"color": COLOURS[name], "linestyle": style, "linewidth": 1.2}
            line["zorder"] = 3 if name == "exact" else 2
            power = zonal_power(found[name, m], grid)
            field.plot(wavenumbers, power[: wavenumbers.size], label=label, **line)
            if name != "exact":
                power = zonal_power(found[name, m] - found["exact", 0], grid)
                difference.plot(wavenumbers, power[: wavenumbers.size], **line)
        for axes, text in ((field, "the means"), (difference, "their differences from the exact mean")):
            axes.set(xscale="log", yscale="log", xlabel="zonal wavenumber, 30 S to 30 N")
            axes.set_title(f"Power of {text} [K²]", loc="left", fontsize=9)
        low = zonal_power(found["exact", 0], grid).min()
        field.set_ylim(bottom=0.05 * low)
        figure.legend(*field.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)


def draw_maps(path: Path, found: Means, grid: cagp.LatLonGrid) -> None:
    """Draw a sixth of the globe, for the eye."""
    rows = np.abs(grid.latitude_degrees) <= 30.0
    columns = grid.longitude_degrees <= 60.0
    limit = 2.5 * np.sqrt(np.mean(found["truth", 0] ** 2))
    with drawn(path, height_inches=2.5) as figure:
        panels = figure.subplots(1, len(MAPS), sharey=True)
        for axes, key in zip(panels, MAPS, strict=True):
            image = axes.imshow(
                found[key][np.ix_(rows, columns)],
                origin="lower",
                extent=(0.0, 60.0, -30.0, 30.0),
                cmap="RdBu_r",
                interpolation="nearest",
                vmin=-limit,
                vmax=limit,
            )
            axes.set_title(f"{key[0]},\nm = {key[1]}" if key[1] else key[0], loc="left", fontsize=9)
            axes.set_xlabel("longitude [°]")
            axes.set_xticks([0, 20, 40, 60])
        panels[0].set_ylabel("latitude [°]")
        figure.colorbar(image, ax=panels, label="[K]", shrink=0.7)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the field of `held_out`, work out all means, print and draw."""
    chosen = parser(__doc__).parse_args(arguments)
    generator = np.random.default_rng(SEED)
    split = Split.make(QUICK_LATITUDES if chosen.quick else LATITUDES, generator)
    latent, values = split.draw(generator, 1)
    grid, seen = split.rings.grid, np.where(split.observed, values[0], np.nan)
    exact = cagp.posterior_mean(split.prior, grid, seen, grid, solver=cagp.Rings())
    found: Means = {("truth", 0): latent[0]} | dict(means(split, values[0], exact))
    print_table(
        ("mean", "m", "rms gradient [K / 100 km]", "of the difference from exact", "rms difference [K]"),
        table(found, grid),
    )
    draw_spectra(chosen.output / "smooth-means.png", found, grid)
    draw_maps(chosen.output / "means.png", found, grid)


if __name__ == "__main__":
    main()
