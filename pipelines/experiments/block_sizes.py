"""Calibration and cost of block Gauss-Seidel against the size of its blocks and the order of the points.

    python -m pipelines.experiments.block_sizes [--quick] [--output FOLDER]

2,048 points, uniform on the sphere, are observed with noise of variance 0.5 K^2, 200 others predicted; Matern
3/2, variance 22 K^2, lengthscale 0.2. 200 fields are drawn from the prior. Points stand in k-d order, in the
order of latitude, or in random order; blocks hold 1 (point Gauss-Seidel), 16, 64, 256, 1,024 or all 2,048 of
them. For every order, size and number of sweeps::

    bars       stated over exact standard deviation, root of the mean variances
    z          rms of error over stated standard deviation, over points and fields
    std of u   the same of errors whitened with the whole stated covariance (math 10.2)
    seconds    of one core, all sweeps

Prints tables, draws ``block-sizes.png`` and writes ``block-sizes.zarr``.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from scipy.linalg import solve_triangular

import cagp_dist as cagp
from cagp_dist.arrays import Array, Indices
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Solver
from pipelines.experiments.limits import Points, draw_fields, prior_of
from pipelines.experiments.output import COLOURS, count_ticks, drawn, parser, print_table, save

SEED = 13
OBSERVED, PREDICTED, FIELDS, LENGTHSCALE = 2048, 200, 200, 0.2
SIZES, QUICK_SIZES = (1, 16, 64, 256, 1024, 2048), (1, 8, 32)
SWEEPS = (1, 5)


def orders(points: Array, generator: np.random.Generator) -> dict[str, Indices]:
    """Orders in which the observed points (n, 3), given in k-d order, are visited."""
    return {
        "k-d": np.arange(len(points)),
        "latitude": np.argsort(points[:, 2]),
        "random": generator.permutation(len(points)),
    }


def measured(
    prior: cagp.Prior, X: Array, y: Array, points: Points, latent: Array, *, size: int, exact: Array
) -> xr.Dataset:
    """Solve with blocks of ``size`` points for every number of sweeps."""
    found = []
    for m in SWEEPS:
        solver: Solver = cagp.GaussSeidel(m) if size == 1 else cagp.BlockGaussSeidel(m, block_size=size)
        started = time.process_time()
        cagp.condition(prior, X, y[:, :1], points.predicted, solver=solver, executor=SerialExecutor())
        seconds = time.process_time() - started
        posterior = cagp.condition(
            prior, X, y, points.predicted, solver=solver, covariance="full", executor=SerialExecutor()
        )
        assert posterior.covariance is not None  # asked for
        error = posterior.mean - latent
        white = solve_triangular(np.linalg.cholesky(posterior.covariance), error, lower=True)
        found.append(
            (
                np.sqrt(posterior.variance.mean() / exact.mean()),
                np.sqrt(np.mean(error**2 / posterior.variance[:, None])),
                np.sqrt(np.mean(white**2)),
                seconds,
            )
        )
    names = ("bars", "z", "u", "seconds")
    return xr.Dataset(
        {name: ("sweeps", list(each)) for name, each in zip(names, zip(*found, strict=True), strict=True)}
    )


def table(data: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of the table."""
    for order in data["order"].values:
        for size in data["size"].values:
            at = data.sel(order=order, size=size)
            cells = [
                f"{float(at['bars'].sel(sweeps=m)):.2f}, {float(at['z'].sel(sweeps=m)):.3f}, "
                f"{float(at['u'].sel(sweeps=m)):.4f}"
                for m in SWEEPS
            ]
            yield order, f"{size:,}", *cells, f"{float(at['seconds'].sel(sweeps=SWEEPS[-1])):.2f}"


def draw(path: Path, data: xr.Dataset) -> None:
    """Draw width of the error bars and seconds against block size."""
    styles = {
        "k-d": COLOURS["block Gauss-Seidel"],
        "latitude": COLOURS["Gauss-Seidel"],
        "random": COLOURS["conjugate gradients"],
    }
    with drawn(path) as figure:
        panels = figure.subplots(1, len(SWEEPS) + 1)
        for order, colour in styles.items():
            at = data.sel(order=order)
            for axes, m in zip(panels, SWEEPS, strict=False):
                axes.plot(data["size"], at["bars"].sel(sweeps=m), color=colour, marker=".", label=order)
                axes.set_title(f"stated over exact, {m} sweep{'s' if m > 1 else ''}", loc="left", fontsize=9)
            panels[-1].plot(data["size"], at["seconds"].sel(sweeps=SWEEPS[-1]), color=colour, marker=".")
        panels[-1].set_title(f"seconds of one core, {SWEEPS[-1]} sweeps", loc="left", fontsize=9)
        for axes in panels:
            count_ticks(axes, data["size"].values.tolist()[:-1])
            axes.set_xlabel("points of a block")
            axes.set_ylim(bottom=0.0)
        panels[0].legend(frameon=False, title="order of the points")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw fields, solve with every order and size, print, draw and save."""
    chosen = parser(__doc__).parse_args(arguments)
    n, q, fields, sizes = (64, 12, 20, QUICK_SIZES) if chosen.quick else (OBSERVED, PREDICTED, FIELDS, SIZES)
    generator, prior = np.random.default_rng(SEED), prior_of(LENGTHSCALE)
    points = Points.draw(generator, n, q, block=sizes[-2])
    y, latent = draw_fields(points, LENGTHSCALE, generator, fields=fields)
    exact = cagp.condition(prior, points.observed, y[:, 0], points.predicted, solver=cagp.Cholesky()).variance
    measured(prior, points.observed, y, points, latent, size=sizes[0], exact=exact)  # compiles
    visits = orders(points.observed, generator)
    found = [
        xr.concat(
            [
                measured(prior, points.observed[order], y[order], points, latent, size=size, exact=exact)
                for size in sizes
            ],
            dim=xr.Variable("size", list(sizes)),
        )
        for order in visits.values()
    ]
    data = xr.concat(found, dim=xr.Variable("order", np.array(list(visits), dtype=object)))
    data = data.assign_coords(sweeps=list(SWEEPS))
    head = ("order", "points of a block", *(f"m = {m}: bars, z, std of u" for m in SWEEPS), "seconds")
    print_table(head, table(data))
    band = 1.96 / np.sqrt(2.0 * q * fields)
    print(f"95 % of calibrated solvers: std of u within 1 ± {band:.4f}")
    draw(chosen.output / "block-sizes.png", data)
    save(chosen.output / "block-sizes.zarr", data)


if __name__ == "__main__":
    main()
