"""The whole 0.25-degree grid, 1,038,240 points: block Gauss-Seidel and conjugate gradients against exact.

    python -m pipelines.experiments.whole_grid [--quick] [--output FOLDER] [--directions COUNT]

A latent field is drawn from the prior on the 721 x 1440 grid of ERA5, poles included, and observed with noise
at every point. The exact posterior at all points (solver `Rings`) is the yardstick. Every solver runs
in a process of its own, so that its peak memory is its own. Averages are weighted by area. Prints scores of
the latent truth, the distance from the exact mean beside the one that is stated, smoothness, seconds and
memory; draws ``whole-grid.png``.
"""

import resource
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.scores import scores
from pipelines.experiments.output import COLOURS, count_ticks, drawn, parser, plain_ticks, print_table
from pipelines.experiments.smoothness import gradient_rms, zonal_power
from pipelines.experiments.split import LENGTHSCALE, NOISE_VARIANCE, VARIANCE

SEED = 2
LATITUDES, QUICK_LATITUDES = 721, 181
SWEEPS, DIRECTIONS = 10, 80
LEVEL = 0.9
LINES = ("#8bb8de", COLOURS["Gauss-Seidel"], COLOURS["block Gauss-Seidel"], COLOURS["conjugate gradients"])

Result = TypeVar("Result")


@dataclass(frozen=True)
class Case:
    """A solver on the whole grid: Gauss-Seidel with bands of rings as blocks, or conjugate gradients (0)."""

    rings_per_block: int
    iterations: int
    shown: tuple[int, ...]
    drawn: int

    @property
    def name(self) -> str:
        """How tables and figures call it."""
        if not self.rings_per_block:
            return "conjugate gradients"
        rings = "rings" if self.rings_per_block > 1 else "ring"
        return f"block Gauss-Seidel, {self.rings_per_block} {rings}"

    def solver(self, grid: cagp.LatLonGrid) -> cagp.BlockGaussSeidel | cagp.ConjugateGradient:
        """Give the solver its settings."""
        if not self.rings_per_block:
            return cagp.ConjugateGradient(self.iterations)
        return cagp.BlockGaussSeidel(self.iterations, block_size=self.rings_per_block * grid.n_longitudes)


def cases(directions: int = DIRECTIONS) -> tuple[Case, ...]:
    """List the solvers that are compared."""
    return (
        Case(1, SWEEPS, (1, 2, 5, 10), 5),
        Case(8, SWEEPS, (1, 2, 5, 10), 5),
        Case(24, SWEEPS, (1, 2, 5, 10), 2),
        Case(0, directions, (5, 10, 20, 40, 80, 120, 160, 200, 240), 20),
    )


@dataclass(frozen=True, eq=False)
class Row:
    """A state on the whole grid, judged; area-weighted, in kelvin where there is a unit.

    Attributes
    ----------
    iteration : int
    rmse, nll, coverage : float
        About the latent truth: no noise in the error, none in the variance. Coverage of 90 % intervals.
    actual, stated : float
        Rms difference from the exact mean; root of the mean of variance minus exact variance.
    gradient : float
        Rms gradient of the mean, K per 100 km.
    residual : float or None
        ``|b - G v| / |b|`` of conjugate gradients.
    seconds : float
        Since the start of the solve.
    power, difference : array, shape (Q // 2,)
        Zonal power of the mean, and of its difference from the exact one, K^2.
    """

    iteration: int
    rmse: float
    nll: float
    coverage: float
    actual: float
    stated: float
    gradient: float
    residual: float | None
    seconds: float
    power: Array
    difference: Array


@dataclass(frozen=True, eq=False)
class Judge:
    """What states on the grid are held against: truth and exact posterior, each (P, Q)."""

    grid: cagp.LatLonGrid
    truth: Array
    exact_mean: Array
    exact_variance: Array

    def row(self, state: cagp.Step, *, seconds: float, residual: float | None = None) -> Row:
        """Judge a state."""
        weights = self.grid.area_weights.ravel()
        spread = np.sqrt(state.variance).ravel()
        difference = state.mean - self.exact_mean
        mean, truth = state.mean.ravel(), self.truth.ravel()
        found = scores(mean, spread, truth, levels=(LEVEL,), weights=weights).by_area
        return Row(
            iteration=state.iteration,
            rmse=float(np.sqrt(np.average((mean - truth) ** 2, weights=weights))),
            nll=found.nll,
            coverage=float(found.coverage[0]),
            actual=float(np.sqrt(np.average(difference.ravel() ** 2, weights=weights))),
            stated=_root_average((state.variance - self.exact_variance).ravel(), weights),
            gradient=gradient_rms(state.mean, self.grid),
            residual=residual,
            seconds=seconds,
            power=zonal_power(state.mean, self.grid),
            difference=zonal_power(difference, self.grid),
        )


def _root_average(values: Array, weights: Array) -> float:
    """Root of a mean that is nonnegative up to rounding."""
    return float(np.sqrt(max(0.0, np.average(values, weights=weights))))


PRIOR = cagp.Prior(cagp.Matern32(LENGTHSCALE, VARIANCE), NOISE_VARIANCE)


def make_grid(latitudes: int) -> cagp.LatLonGrid:
    """ERA5's layout with this number of latitudes: both poles, longitudes as far apart as latitudes."""
    return cagp.LatLonGrid(np.linspace(-90.0, 90.0, latitudes), 2 * (latitudes - 1))


def draw_field(latitudes: int, seed: int) -> tuple[Array, Array]:
    """Latent field and observations of it, (P, Q)."""
    generator = np.random.default_rng(seed)
    rings = cagp.RingGram(make_grid(latitudes), PRIOR.kernel, noise_variance=NOISE_VARIANCE)
    truth = rings.sample(generator)
    return truth, truth + np.sqrt(NOISE_VARIANCE) * generator.standard_normal(truth.shape)


def run_exact(latitudes: int, truth: Array, observed: Array) -> tuple[Judge, Row]:
    """Solve exactly: what others are judged by, and its own row."""
    grid = make_grid(latitudes)
    exact = cagp.condition(PRIOR, grid, observed, grid, solver=cagp.Rings())
    judge = Judge(grid, truth, exact.mean, exact.variance)
    return judge, judge.row(cagp.Step(0, exact.mean, exact.variance), seconds=exact.stats.seconds)


def run_case(case: Case, latitudes: int, observed: Array, judge: Judge) -> list[Row]:
    """Every state of a solver, judged."""
    grid = make_grid(latitudes)
    seconds: dict[int, float] = {}
    residuals: dict[int, float | None] = {}

    def note(progress: cagp.Progress) -> None:
        seconds[progress.iteration] = progress.seconds
        residuals[progress.iteration] = progress.relative_residual

    posterior = cagp.condition(PRIOR, grid, observed, grid, solver=case.solver(grid), progress=note)
    return [
        judge.row(step, seconds=seconds[step.iteration], residual=residuals[step.iteration])
        for step in posterior.trace[1:]
    ]


def alone(function: Callable[..., Result], *arguments: object) -> tuple[Result, float]:
    """Call a function in a new process; what it returns, and the peak memory of the process in GiB."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_call, function, *arguments).result()


def _call(function: Callable[..., Result], *arguments: object) -> tuple[Result, float]:
    result = function(*arguments)
    unit = 1 if sys.platform == "darwin" else 1024
    return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def line(name: str, row: Row, *, gibibytes: float) -> Sequence[str]:
    """Line of the table."""
    exact = row.iteration == 0
    return (
        name,
        "" if exact else str(row.iteration),
        f"{row.rmse:.3f}",
        f"{row.nll:.3f}",
        f"{row.coverage:.3f}",
        "" if exact else f"{row.actual:.3f}",
        "" if exact else f"{row.stated:.3f}",
        "" if exact else f"{row.actual / row.stated:.2f}",
        f"{row.gradient:.2f}",
        "" if row.residual is None else f"{row.residual:.2f}",
        f"{row.seconds:.1f}",
        f"{gibibytes:.1f}",
    )


HEAD = (
    "solver",
    "m",
    "RMSE [K]",
    "NLL",
    "90 % coverage",
    "distance from exact mean [K]",
    "stated [K]",
    "ratio",
    "gradient [K / 100 km]",
    "residual",
    "seconds",
    "peak GiB",
)


def draw(path: Path, exact: Row, truth: Array, found: dict[Case, list[Row]]) -> None:
    """Draw distances from the exact mean by iteration, spectra of the means and of these distances."""
    wavenumbers = np.arange(1, len(exact.power))  # the last has one wave, not two
    with drawn(path, height_inches=3.8) as figure:
        distance, power, difference = figure.subplots(1, 3)
        for name, values in (("truth", truth), ("exact", exact.power)):
            power.plot(wavenumbers, values[:-1], color=COLOURS[name], linewidth=1.2, label=name, zorder=3)
        for (case, rows), colour in zip(found.items(), LINES, strict=True):
            m = [row.iteration for row in rows]
            distance.plot(m, [row.actual for row in rows], color=colour, marker=".", markersize=4)
            distance.plot(m, [row.stated for row in rows], color=colour, linestyle="--")
            last = next(row for row in rows if row.iteration == case.drawn)
            label = f"{case.name}, m = {case.drawn}"
            power.plot(wavenumbers, last.power[:-1], color=colour, linewidth=1.2, label=label)
            difference.plot(wavenumbers, last.difference[:-1], color=colour, linewidth=1.2)
        count_ticks(distance, (1, 2, 5, 10, 20, 40, 80, 160))
        plain_ticks(distance, (0.1, 0.2, 0.5, 1.0, 2.0, 5.0))
        distance.set_xlabel("iterations")
        distance.set_title("distance from the exact mean [K]", loc="left", fontsize=9)
        distance.plot([], [], color=COLOURS["truth"], marker=".", markersize=4, label="actual")
        distance.plot([], [], color=COLOURS["truth"], linestyle="--", label="stated")
        distance.legend(frameon=False)
        for axes, text in ((power, "power of the means [K²]"), (difference, "power of the distances [K²]")):
            axes.set(xscale="log", yscale="log", xlabel="zonal wavenumber, 30 S to 30 N")
            axes.set_title(text, loc="left", fontsize=9)
        difference.set_ylim(bottom=1e-3 * exact.power.min())
        figure.legend(*power.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw a field, run every solver on it, print and draw."""
    command = parser(__doc__)
    command.add_argument(
        "--directions", type=int, default=DIRECTIONS, help="conjugate gradients (%(default)s); 40 MB each"
    )
    chosen = command.parse_args(arguments)
    latitudes = QUICK_LATITUDES if chosen.quick else LATITUDES
    (truth, observed), _ = alone(draw_field, latitudes, SEED)
    (judge, exact), gibibytes = alone(run_exact, latitudes, truth, observed)
    lines = [line("exact", exact, gibibytes=gibibytes)]
    found: dict[Case, list[Row]] = {}
    for case in cases(chosen.directions):
        found[case], gibibytes = alone(run_case, case, latitudes, observed, judge)
        lines += [
            line(case.name, row, gibibytes=gibibytes) for row in found[case] if row.iteration in case.shown
        ]
    grid = judge.grid
    print(f"{grid.size:,} points; rms gradient of the truth {gradient_rms(truth, grid):.2f} K / 100 km\n")
    print_table(HEAD, lines)
    draw(chosen.output / "whole-grid.png", exact, zonal_power(truth, grid), found)


if __name__ == "__main__":
    main()
