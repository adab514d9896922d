"""Learnt actions against a few sweeps on the built-in field: products with G, seconds and scores.

    python -m pipelines.experiments.learned_on_field [--quick] [--output FOLDER] [--points COUNT]
        [--targets COUNT]

10,000 points are drawn in proportion to area and observed, 5,000 others predicted; the quadratic mean is
taken off. The prior is Matern 3/2, fitted to the observed points by Vecchia's likelihood, and the same for
all methods but the last, whose hyperparameters are learnt with the actions, on the evidence lower bound.

A product with G stands for n^2 kernel entries: a sweep takes one, the evaluation of the bound and its
gradient one, and the posterior of actions a half. That of a sweep is with the residual and a column for each
target, so its seconds grow with the targets; those of learning do not. Seconds are those of learning and
solving, without that fit.
"""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.likelihood.learned.course import Optimum, Stopping
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.optimise import LBFGS, maximise
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.memory import available_bytes
from cagp_dist.runtime import Executor, ThreadExecutor
from cagp_dist.solvers import Solver
from cagp_dist.solvers.actions.block_sparse import BlockLayout
from cagp_dist.text import counted
from pipelines.experiments.output import parser, print_table
from pipelines.experiments.sample_field import SampleField

POINTS, QUICK_POINTS, TARGETS = 10_000, 400, 5_000
ACTIONS, BLOCK = 512, 1024
SWEEPS, STEPS = (1, 2, 5, 10), (5, 20, 60)
LEVEL = 0.9
NEVER = Stopping(rise=0.0)
HEAD = (
    *("method", "products with G", "seconds", "noise variance"),
    *("RMSE [K]", "NLL", "CRPS [K]", "90 % coverage", "std of z"),
)


class Data(NamedTuple):
    """Observed points and values, others to be predicted, and the prior."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    prior: cagp.Prior


def drawn(count: int, targets: int) -> Data:
    """Draw points of the built-in field, no two the same, and fit the prior to the observed ones.

    These come in the order of blocks of neighbours.
    """
    field = SampleField.about("quadratic-latitude")
    weights = field.grid.area_weights.ravel()
    rng = np.random.default_rng(0)
    chosen = rng.choice(weights.size, count + targets, replace=False, p=weights / weights.sum())
    order = cagp.space_filling_order(field.grid.points[chosen[:count]], block_size=BLOCK)
    chosen = np.concatenate([chosen[:count][order], chosen[count:]])
    X, y = field.grid.points[chosen], field.residual.ravel()[chosen]
    prior = cagp.fit(cagp.Matern32, X[:count], y[:count], mean=0.0, method="vecchia").prior
    return Data(X[:count], y[:count], X[count:], y[count:], prior)


def row(
    data: Data,
    name: str,
    prior: cagp.Prior,
    solver: Solver,
    executor: Executor,
    products: float,
    spent: float,
) -> tuple[str, ...]:
    """Solve and score; ``spent`` are the seconds of learning, ``products`` those of both."""
    begun = time.perf_counter()
    found = cagp.condition(prior, data.X, data.y, data.X_test, solver=solver, executor=executor)
    spent += time.perf_counter() - begun
    deviation = np.sqrt(found.variance + prior.noise_number)
    score = scores(found.mean, deviation, data.y_test, levels=[LEVEL])
    return (
        name,
        f"{products:g}" if np.isfinite(products) else "",
        f"{spent:.1f}",
        f"{prior.noise_number:.3g}",
        f"{score.rmse:.3f}",
        f"{score.nll:.3f}",
        f"{score.crps:.3f}",
        f"{score.coverage[0]:.3f}",
        f"{((data.y_test - found.mean) / deviation).std():.3f}",
    )


def learnt(data: Data, actions: int, steps: int, executor: Executor, *, prior_too: bool) -> Optimum:
    """Learn the actions, which begin as means of blocks, and the hyperparameters where that is asked for."""
    seen = ProjectedData(
        cagp.Matern32,
        data.X,
        data.y[:, None],
        layout=BlockLayout.of(data.X, actions),
        executor=executor,
        memory_limit_bytes=available_bytes(),
    )
    kernel = data.prior.kernel
    start = np.array([kernel.lengthscale, kernel.variance, data.prior.noise_number])
    wide = 1e3 if prior_too else 1.0
    return maximise(
        Elbo(seen),
        np.concatenate([np.log(start), np.ones(len(data.X))]),
        optimiser=LBFGS(steps=steps),
        bounds=[(value / wide, value * wide) for value in start.tolist()],
        stopping=NEVER,
    )


def rows(data: Data, actions: int, executor: Executor) -> Iterator[tuple[str, ...]]:
    """Every method, one after the other."""
    prior, nothing = data.prior, float("nan")
    yield row(data, "exact", prior, cagp.Cholesky(), executor, nothing, 0.0)
    for sweeps in SWEEPS:
        solver = cagp.BlockGaussSeidel(sweeps, BLOCK)
        yield row(
            data, f"block Gauss-Seidel, {counted(sweeps, 'sweep')}", prior, solver, executor, sweeps, 0.0
        )
    drawn_once, means = (
        cagp.SparseActions(actions, values=values, tuned=False) for values in (None, np.ones(len(data.X)))
    )
    yield row(data, f"{actions} actions, random weights", prior, drawn_once, executor, 0.5, 0.0)
    yield row(data, f"{actions} actions, means of blocks", prior, means, executor, 0.5, 0.0)
    for prior_too in (False, True):
        for steps in STEPS:
            found = learnt(data, actions, steps, executor, prior_too=prior_too)
            length, variance, noise = found.hyperparameters.values()
            own = cagp.Prior(cagp.Matern32(length, variance), noise) if prior_too else prior
            what = "weights and prior" if prior_too else "weights"
            yield row(
                data,
                f"{actions} actions, {what} learnt in {steps} steps",
                own,
                cagp.SparseActions(actions, values=found.vector[3:]),
                executor,
                found.evaluations + 0.5,
                found.seconds,
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, learn, solve, score and print."""
    command = parser(__doc__)
    command.add_argument("--points", type=int, default=POINTS, metavar="COUNT", help="n (%(default)s)")
    command.add_argument("--targets", type=int, default=TARGETS, metavar="COUNT", help="q (%(default)s)")
    chosen = command.parse_args(arguments)
    count = min(chosen.points, QUICK_POINTS) if chosen.quick else chosen.points
    targets = min(chosen.targets, QUICK_POINTS) if chosen.quick else chosen.targets
    data = drawn(count, targets)
    with ThreadExecutor() as executor:
        print_table(HEAD, rows(data, min(ACTIONS, count // 16), executor))


if __name__ == "__main__":
    main()
