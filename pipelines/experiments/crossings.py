"""Where conjugate gradients overtake Gauss-Seidel: error, log score and calibration against iterations.

    python -m pipelines.experiments.crossings [--quick] [--output FOLDER] [--fields COUNT]

The published setting: 400 points drawn uniformly in the unit square are observed with noise of variance 0.01,
the field is predicted on a 21 x 21 grid, the kernel has variance 1. For every lengthscale (0.1, 0.2, 0.4 with
Matern 3/2) and smoothness (1/2, 3/2, 5/2 with lengthscale 0.2) 200 fields are drawn from the prior, all
observed at the same points. Gauss-Seidel visits them as they were drawn, as published, and beside that cell
by cell of a k-d tree, as its blocks are. Solvers that are calibrated exactly have one matrix for all of them,
and hence one pass; conjugate gradients are run for each, and, as published, on to 400 directions when the
residual has long been at rounding level (`cagp_dist.ConjugateGradient` stops there). After every iteration,
for each field::

    RMSE   of the mean about the latent field
    NLL    of a new noisy observation, expected over its noise, mean over the grid
    z      error along one random direction over what is stated for it        (math 10.2)

Conjugate gradients overtake at the first m from which their RMSE, or NLL, is the lower one for ten iterations
on end. Prints tables, draws ``crossings.png`` and writes the curves to ``crossings.zarr``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import xarray as xr

import cagp_dist as cagp
from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.simulation.field_draws import Drawn, draw
from cagp_dist.cartography.chart_style import MUTED
from cagp_dist.gram import DenseGram
from cagp_dist.kernels import Kernel
from cagp_dist.posterior.problem import demand_of
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Problem, Solver
from cagp_dist.solvers.actions.policies import Block, Residual
from cagp_dist.solvers.actions.projection import project
from pipelines.experiments.output import (
    COLOURS,
    count_ticks,
    drawn,
    few_colours,
    fields_asked,
    parser,
    plain_ticks,
    print_table,
    save,
)

SEED = 4
POINTS, SIDE, FIELDS, ITERATIONS = 400, 21, 200, 400
QUICK_POINTS, QUICK_SIDE, QUICK_FIELDS = 60, 6, 20
NOISE_VARIANCE = 0.01
BLOCKS = 8
LASTING = 10
AS_DRAWN, IN_CELLS = "Gauss-Seidel", "Gauss-Seidel, k-d order"
SHOWN = (1, 5, 10, 20, 40, 80, 160, 400)
KERNELS: dict[str, Kernel] = {
    "Matern 3/2, 0.1": cagp.Matern32(0.1),
    "Matern 3/2, 0.2": cagp.Matern32(0.2),
    "Matern 3/2, 0.4": cagp.Matern32(0.4),
    "Matern 1/2, 0.2": cagp.Matern12(0.2),
    "Matern 5/2, 0.2": cagp.Matern52(0.2),
}


@dataclass(frozen=True, eq=False)
class Curves:
    """What a solver has reached after 1, 2, ..., m iterations, field by field.

    Attributes
    ----------
    rmse, nll, z : array, shape (m, T)
    """

    rmse: Array
    nll: Array
    z: Array

    @classmethod
    def of(cls, setting: "Setting", error: Array, variance: Array, along: Array) -> Self:
        """Score errors (m, q, T), latent variances and those along the direction; both may differ by field.

        ``variance`` is (m, q, 1) or (m, q, T), ``along`` (m, 1) or (m, T).
        """
        squares = error**2
        spread = variance + NOISE_VARIANCE
        nll = 0.5 * (np.log(2.0 * np.pi * spread) + (squares + NOISE_VARIANCE) / spread)
        z = np.einsum("q,mqt->mt", setting.drawn.direction, error) / np.sqrt(along)
        return cls(np.sqrt(squares.mean(axis=1)), nll.mean(axis=1), z)

    def lasting(self, iterations: int) -> "Curves":
        """Go on to so many iterations with the last state, if the solve ended before."""
        rows = np.minimum(np.arange(iterations), len(self.rmse) - 1)
        return Curves(self.rmse[rows], self.nll[rows], self.z[rows])


@dataclass(frozen=True, eq=False)
class Setting:
    """Fields of a prior, observed and to be predicted.

    Attributes
    ----------
    kernel : Kernel
    drawn : Drawn
        Fields and the direction of z.
    """

    kernel: Kernel
    drawn: Drawn

    @classmethod
    def make(cls, kernel: Kernel, X: Array, *, side: int, fields: int) -> Self:
        """Draw fields at points X (n, 2) and on a square grid; every setting has the same random numbers."""
        axis = np.linspace(0.0, 1.0, side)
        targets = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        prior = cagp.Prior(kernel, NOISE_VARIANCE)
        generator = np.random.default_rng(SEED + 1)
        return cls(kernel, draw(prior, X, targets, simulations=fields, generator=generator))

    @property
    def problem(self) -> Problem:
        """What the solvers get: all fields, and the covariance of all targets."""
        fields = self.drawn.fields
        noise = np.full(len(fields.X), NOISE_VARIANCE)
        gram = DenseGram(self.kernel, np.asarray(fields.X), noise_variance=noise)
        return Problem(gram, fields.y, fields.X_test, full_covariance=True)

    def affine(self, solver: Solver) -> Curves:
        """One pass of a solver that has the same matrix for all fields."""
        problem, latent, w = self.problem, self.drawn.fields.latent, self.drawn.direction
        executor = SerialExecutor()
        plan = solver.plan(demand_of(problem, executor, executor.memory_bytes))
        prior = self.kernel(self.drawn.fields.X_test, self.drawn.fields.X_test)
        found = []
        for state in solver.states(problem, executor=executor, plan=plan):
            covariance = prior - state.downdate
            variance, along = covariance.diagonal()[None, :, None], np.array([[w @ covariance @ w]])
            found.append(Curves.of(self, (state.mean - latent)[None], variance, along))
        return Curves(*(np.concatenate([getattr(c, name) for c in found]) for name in ("rmse", "nll", "z")))

    def conjugate_gradients(self, iterations: int) -> Curves:
        """Run the solver for each field, with its own directions and covariance, to rounding."""
        problem, drawn = self.problem, self.drawn
        G = np.asarray(problem.gram @ np.eye(len(problem.residuals)))
        V = self.kernel(drawn.fields.X_test, drawn.fields.X)
        prior, w = self.kernel(drawn.fields.X_test, drawn.fields.X_test), drawn.direction
        found = []
        for field, latent in zip(problem.residuals.T, drawn.fields.latent.T, strict=True):
            steps = list(
                project(
                    lambda d: G @ d,
                    field[:, None],
                    policy=partial(residuals_to_the_end, actions=iterations),
                    iterations=iterations,
                )
            )
            scale = np.sqrt([step.curvature for step in steps])
            U = V @ np.stack([step.direction for step in steps], axis=1) / scale
            size = scale * np.concatenate([step.step for step in steps])
            error = np.cumsum(U * size, axis=1) - latent[:, None]
            variance = prior.diagonal()[:, None] - np.cumsum(U**2, axis=1)
            along = w @ prior @ w - np.cumsum((w @ U) ** 2)
            curves = Curves.of(self, error.T[:, :, None], variance.T[:, :, None], along[:, None])
            found.append(curves.lasting(iterations))
        return Curves(
            *(np.concatenate([getattr(c, name) for c in found], axis=1) for name in ("rmse", "nll", "z"))
        )

    def in_cells(self, block: int) -> "Setting":
        """Give the same observations in k-d order, with cells of so many points."""
        fields = self.drawn.fields
        order = cagp.space_filling_order(np.asarray(fields.X), block_size=block)
        moved = replace(fields, X=np.asarray(fields.X)[order], y=fields.y[order])
        return replace(self, drawn=replace(self.drawn, fields=moved))

    def solved(self, iterations: int) -> dict[str, Curves]:
        """Run every solver; exact solves, conjugate gradients and random actions have no order of points."""
        block = len(self.drawn.fields.y) // BLOCKS
        in_cells = self.in_cells(block)
        found = {
            AS_DRAWN: self.affine(cagp.GaussSeidel(iterations)),
            IN_CELLS: in_cells.affine(cagp.GaussSeidel(iterations)),
            "conjugate gradients": self.conjugate_gradients(iterations),
            "random actions": self.affine(cagp.RandomActions(iterations)),
            "block Gauss-Seidel": in_cells.affine(cagp.BlockGaussSeidel(iterations, block_size=block)),
            "exact": self.affine(cagp.Cholesky()),
        }
        return {name: curves.lasting(iterations) for name, curves in found.items()}


def residuals_to_the_end(residual: Residual, *, actions: int) -> Iterator[Block]:
    """Take residuals as actions, as conjugate gradients do, and go on when they are at rounding level."""
    for _ in range(actions):
        yield Block(residual()[:, None].copy())


def overtaken(leader: Array, follower: Array) -> Indices:
    """Of each curve (m, T), the first m from which the follower is the lower one for ten iterations on end.

    One more than the number of iterations where it never is.
    """
    below = np.concatenate([follower < leader, np.repeat((follower < leader)[-1:], LASTING - 1, axis=0)])
    lasting = np.lib.stride_tricks.sliding_window_view(below, LASTING, axis=0).all(axis=-1)
    return np.where(lasting.any(axis=0), lasting.argmax(axis=0), len(leader)) + 1


def crossings(curves: Mapping[str, Curves], score: str, *, order: str = AS_DRAWN) -> tuple[int, Indices]:
    """Where conjugate gradients overtake Gauss-Seidel: the means over fields, and each field."""
    leader, follower = (getattr(curves[name], score) for name in (order, "conjugate gradients"))
    [together] = overtaken(*(each.mean(axis=1, keepdims=True) for each in (leader, follower)))
    return int(together), overtaken(leader, follower)


def crossing_rows(found: Mapping[str, Mapping[str, Curves]]) -> Iterator[Sequence[str]]:
    """Lines of the table of crossings."""
    for setting, curves in found.items():
        for order, word in ((AS_DRAWN, "as drawn"), (IN_CELLS, "k-d")):
            cells = []
            for score in ("rmse", "nll"):
                together, each = crossings(curves, score, order=order)
                low, middle, high = (_number(m, curves) for m in np.quantile(each, (0.05, 0.5, 0.95)))
                cells += [_number(together, curves), f"{middle} ({low} to {high})"]
            yield setting, word, *cells


def _number(m: float, curves: Mapping[str, Curves]) -> str:
    """Write a number of iterations; of those beyond what was done it is only known that they are more."""
    done = len(curves["exact"].rmse)
    return f"{m:.0f}" if m <= done else f"> {done}"


def score_rows(curves: Mapping[str, Curves]) -> Iterator[Sequence[str]]:
    """Lines of the table of scores of one setting."""
    for name, each in curves.items():
        for m in SHOWN if name != "exact" else SHOWN[:1]:
            if m <= len(each.rmse):
                rmse, nll, z = each.rmse[m - 1], each.nll[m - 1], each.z[m - 1]
                scale = np.sqrt(np.mean(z**2))
                yield (
                    name,
                    "" if name == "exact" else str(m),
                    f"{rmse.mean():.3f} ± {_error(rmse):.3f}",
                    f"{nll.mean():.3f} ± {_error(nll):.3f}",
                    f"{scale:.3f} ± {scale / np.sqrt(2.0 * z.size):.3f}",
                )


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))


def draw_curves(path: Path, found: Mapping[str, Mapping[str, Curves]]) -> None:
    """Draw the three scores of every setting against iterations."""
    with drawn(path, width_inches=11.0, height_inches=6.2) as figure:
        axes = figure.subplots(3, len(found), sharex=True, sharey="row")
        for column, (setting, curves) in zip(axes.T, found.items(), strict=True):
            column[0].set_title(setting, loc="left", fontsize=9)
            for name, each in curves.items():
                m = np.arange(1, len(each.rmse) + 1)
                style = {
                    "color": COLOURS[AS_DRAWN if name == IN_CELLS else name],
                    "label": name,
                    "linewidth": 1.2,
                    "linestyle": "--" if name == IN_CELLS else "-",
                }
                column[0].plot(m, each.rmse.mean(axis=1), **style)
                column[1].plot(m, each.nll.mean(axis=1), **style)
                if name != "exact":
                    column[2].plot(m, np.sqrt((each.z**2).mean(axis=1)), **style)
            for axis, score in zip(column, ("rmse", "nll"), strict=False):
                first, _ = crossings(curves, score)
                if first <= len(curves["exact"].rmse):
                    axis.axvline(first, color=MUTED, linewidth=0.8, linestyle=":")
            band = 1.96 / np.sqrt(2.0 * curves["exact"].z.shape[1])
            column[2].axhspan(1.0 - band, 1.0 + band, color=MUTED, alpha=0.18, linewidth=0)
            column[2].set_xlabel("iterations")
        for axis, label in zip(
            axes[:, 0], ("RMSE", "negative log likelihood", "error / stated (std of z)"), strict=True
        ):
            axis.set_ylabel(label)
        plain_ticks(axes[0, 0], (0.1, 0.2, 0.4, 0.8))
        count_ticks(axes[0, 0], [m for m in (1, 4, 10, 40, 100, 400) if m <= len(curves["exact"].rmse)])
        figure.legend(
            *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=6, frameon=False
        )


def results(found: Mapping[str, Mapping[str, Curves]]) -> xr.Dataset:
    """Mean curves, and where conjugate gradients overtake in each field."""
    names = list(next(iter(found.values())))
    curves = [[each[name] for name in names] for each in found.values()]
    dims = ("kernel", "solver", "iteration")
    scores = {
        "rmse": [[each.rmse.mean(axis=1) for each in row] for row in curves],
        "nll": [[each.nll.mean(axis=1) for each in row] for row in curves],
        "z_std": [[np.sqrt((each.z**2).mean(axis=1)) for each in row] for row in curves],
    }
    overtaken_at = {
        f"overtaken_{score}{ending}": (
            ("kernel", "field"),
            [crossings(each, score, order=order)[1] for each in found.values()],
        )
        for score in ("rmse", "nll")
        for order, ending in ((AS_DRAWN, ""), (IN_CELLS, "_k_d"))
    }
    return xr.Dataset(
        {**{name: (dims, np.array(values)) for name, values in scores.items()}, **overtaken_at},
        coords={
            "kernel": np.array(list(found), dtype=object),
            "solver": np.array(names, dtype=object),
            "iteration": np.arange(1, len(curves[0][0].rmse) + 1),
        },
        attrs={"title": "Figures 1, 2, S1 and S2 of Hegde, Adil and Cockayne (2025)"},
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw fields, run every solver, print, draw and save."""
    chosen = parser(__doc__, fields=FIELDS, quick_fields=QUICK_FIELDS).parse_args(arguments)
    points, side, iterations = (
        (QUICK_POINTS, QUICK_SIDE, QUICK_POINTS) if chosen.quick else (POINTS, SIDE, ITERATIONS)
    )
    fields = fields_asked(chosen)
    X = np.random.default_rng(SEED).uniform(size=(points, 2))
    found = {}
    for name, kernel in KERNELS.items():
        found[name] = Setting.make(kernel, X, side=side, fields=fields).solved(iterations)
    print(f"{fields} fields, {points} points observed, {side**2} predicted\n")
    print_table(
        ("kernel", "points", "RMSE: mean curves", "each field", "NLL: mean curves", "each field"),
        crossing_rows(found),
    )
    print(f"{list(KERNELS)[1]}\n")
    print_table(("solver", "m", "RMSE", "NLL", "std of z"), score_rows(found[list(KERNELS)[1]]))
    draw_curves(chosen.output / "crossings.png", found)
    few_colours(chosen.output / "crossings.png")
    save(chosen.output / "crossings.zarr", results(found))


if __name__ == "__main__":
    main()
