"""One field, 64,700 points observed, 100 held out: every solver iteration against the exact posterior.

    python -m pipelines.experiments.held_out [--quick] [--output FOLDER] [--lengthscale CHORD]

A field on a 180 x 360 grid is drawn from the prior. The exact posterior at the points held out comes from the
structure of the whole grid; point Gauss-Seidel in the order of the grid, block Gauss-Seidel in k-d order and
conjugate gradients come from `cagp_dist.condition`, whose trace has the state after every iteration. Prints
scores against the held-out observations, and how far each mean is from the exact one beside the standard
deviation stated for that distance; draws ``held-out.png``.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.scores import Scores, scores
from pipelines.experiments.output import COLOURS, count_ticks, drawn, parser, plain_ticks, print_table
from pipelines.experiments.split import LATITUDES, LENGTHSCALE, QUICK_LATITUDES, Split

SEED = 0
SWEEPS, BLOCK_SWEEPS, DIRECTIONS = 20, 5, 80
SHOWN = {
    "Gauss-Seidel": (1, 2, 5, 10, 20),
    "block Gauss-Seidel": (1, 2, 5),
    "conjugate gradients": (5, 10, 20, 40, 80),
    "exact": (1,),
}


@dataclass(frozen=True)
class Row:
    """The state of a solver after an iteration.

    Attributes
    ----------
    solver : str
    iteration : int
    score : Scores
        Of the prediction of the held-out observations.
    actual : float
        Rms difference of the mean from the exact one, K.
    stated : float
        What the solver says of it: root of the mean of variance minus exact variance, K.
    """

    solver: str
    iteration: int
    score: Scores
    actual: float
    stated: float


def judged(
    solver: str, posterior: cagp.Posterior, exact: cagp.Posterior, observed: Array, *, noise_variance: float
) -> list[Row]:
    """Rows of all iterations of a posterior of one field; ``observed`` (q,) are the values held out."""
    return [
        Row(
            solver,
            step.iteration,
            scores(step.mean, np.sqrt(step.variance + noise_variance), observed),
            float(np.sqrt(np.mean((step.mean - exact.mean) ** 2))),
            float(np.sqrt(max(0.0, np.mean(step.variance - exact.variance)))),
        )
        for step in posterior.trace[1:]
    ]


def solve(split: Split, values: Array) -> tuple[dict[str, list[Row]], dict[str, float]]:
    """Run every solver on a field (P, Q): rows by solver, and the seconds it took."""
    X, X_test = split.train, split.test
    y, held_out = values[split.observed], values[~split.observed]
    order = cagp.space_filling_order(X, block_size=split.block_size)
    everything, noise = np.arange(len(X)), split.prior.noise_variance
    started = time.perf_counter()
    exact = split.exact(values)
    rows, seconds = {}, {"exact": time.perf_counter() - started}
    for name, solver, visits in (
        ("Gauss-Seidel", cagp.GaussSeidel(SWEEPS), everything),
        ("block Gauss-Seidel", cagp.BlockGaussSeidel(BLOCK_SWEEPS, block_size=split.block_size), order),
        ("conjugate gradients", cagp.ConjugateGradient(DIRECTIONS), everything),
    ):
        posterior = cagp.condition(split.prior, X[visits], y[visits], X_test, solver=solver)
        rows[name] = judged(name, posterior, exact, held_out, noise_variance=noise)
        seconds[name] = posterior.stats.seconds
    rows["exact"] = judged("exact", exact, exact, held_out, noise_variance=noise)
    return rows, seconds


def table(rows: dict[str, list[Row]]) -> Iterator[Sequence[str]]:
    """Lines of the table of scores."""
    for name, found in rows.items():
        for row in found:
            if row.iteration in SHOWN[name]:
                yield (
                    name,
                    "" if name == "exact" else str(row.iteration),
                    f"{row.score.rmse:.3f}",
                    f"{row.score.nll:.3f}",
                    f"{row.score.ks_pvalue:.2g}",
                    f"{row.actual:.3f}",
                    f"{row.stated:.3f}",
                )


def draw(path: Path, rows: dict[str, list[Row]]) -> None:
    """Draw scores and distances from the exact mean by iteration."""
    with drawn(path) as figure:
        rmse, nll, distance = figure.subplots(1, 3)
        for name, found in rows.items():
            m = [row.iteration for row in found]
            for axes, values in (
                (rmse, [row.score.rmse for row in found]),
                (nll, [row.score.nll for row in found]),
            ):
                if name == "exact":
                    axes.axhline(values[0], color=COLOURS[name], linewidth=1.0, label=name)
                else:
                    axes.plot(m, values, color=COLOURS[name], marker=".", markersize=4, label=name)
            if name != "exact":
                distance.plot(m, [row.actual for row in found], color=COLOURS[name], marker=".", markersize=4)
                distance.plot(m, [row.stated for row in found], color=COLOURS[name], linestyle="--")
        for axes, label in (
            (rmse, "RMSE [K]"),
            (nll, "negative log likelihood"),
            (distance, "distance from the exact mean [K]"),
        ):
            count_ticks(axes, (1, 2, 5, 10, 20, 40, 80))
            axes.set_xlabel("iterations")
            axes.set_title(label, loc="left", fontsize=9)
        plain_ticks(rmse, (1.0, 1.5, 2.0, 3.0, 4.0, 6.0))
        plain_ticks(distance, (0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0))
        distance.plot([], [], color=COLOURS["truth"], marker=".", markersize=4, label="actual")
        distance.plot([], [], color=COLOURS["truth"], linestyle="--", label="stated")
        distance.legend(frameon=False)
        figure.legend(*rmse.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw a field, solve it with every solver, print and draw."""
    command = parser(__doc__)
    command.add_argument("--lengthscale", type=float, default=LENGTHSCALE, help="chord (%(default)s)")
    chosen = command.parse_args(arguments)
    generator = np.random.default_rng(SEED)
    latitudes = QUICK_LATITUDES if chosen.quick else LATITUDES
    split = Split.make(latitudes, generator, lengthscale=chosen.lengthscale)
    values = split.draw(generator, 1)[1][0]
    rows, seconds = solve(split, values)
    print(
        f"{np.count_nonzero(split.observed):,} observed, {len(split.test)} held out; {split.prior.kernel}\n"
    )
    print_table(
        ("solver", "m", "RMSE [K]", "NLL", "KS p", "rms distance from exact mean [K]", "stated [K]"),
        table(rows),
    )
    print("seconds: " + ", ".join(f"{name} {value:.0f}" for name, value in seconds.items()))
    draw(chosen.output / "held-out.png", rows)


if __name__ == "__main__":
    main()
