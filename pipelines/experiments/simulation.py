"""Simulation-based calibration at full size: 200 fields of the published split, in place of one.

    python -m pipelines.experiments.simulation [--quick] [--output FOLDER]

All fields are drawn from the prior, with the same 64,700 points observed and the same 100 held out. With e
the error of the mean at the points held out, about the latent field, and S the stated covariance, for each
field

    z = w' e / sqrt(w' S w)   one random direction w per field        (math 10.2)
    u = L^-1 e,  S = L L'     all 100 errors, made independent

are independent standard normal numbers if the solver is calibrated: 200 and 20,000 of them. The variance of
mean minus exact mean is known as well (stated minus exact variance); the mean square is held against it, for
points within 45 degrees of the equator and beyond, where the points of the grid are denser. Gauss-Seidel has
one matrix for all fields; conjugate gradients are run once for each. Prints a table and
draws ``simulation.png``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtr

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.pit import normal_tests
from pipelines.experiments.output import COLOURS, drawn, parser, pit_bars, print_table
from pipelines.experiments.split import LATITUDES, QUICK_LATITUDES, Split

SEED = 1
FIELDS, QUICK_FIELDS = 200, 20
SWEEPS, BLOCK_SWEEPS, DIRECTIONS = (1, 5, 20), (1, 2), (5, 20, 80)
DRAWN = (
    ("Gauss-Seidel", 5),
    ("block Gauss-Seidel", 1),
    ("conjugate gradients", 5),
    ("conjugate gradients", 20),
)


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of a solver after m iterations, of all fields.

    Attributes
    ----------
    solver : str
    iteration : int
    projected : array, shape (T,)
        ``z``, one for each field.
    whitened : array, shape (q T,)
        ``u``.
    actual, stated : array, shape (q, T)
        Squared difference from the exact mean, and stated minus exact variance, K^2.
    """

    solver: str
    iteration: int
    projected: Array
    whitened: Array
    actual: Array
    stated: Array

    def ratio(self, points: NDArray[np.bool_]) -> tuple[float, float]:
        """Actual over stated mean square at some of the points (q,), all fields, and its standard error."""
        actual, stated = self.actual[points].mean(axis=0), self.stated[points].mean(axis=0)
        ratio = actual.mean() / stated.mean()
        scatter = (actual - ratio * stated).std(ddof=1) / stated.mean()
        return float(ratio), float(scatter / np.sqrt(actual.size))


@dataclass(frozen=True, eq=False)
class Judge:
    """Standardises errors of posteriors of T fields at q points.

    Attributes
    ----------
    truth : array, shape (q, T)
        Latent fields.
    exact : Posterior
        Of the same fields.
    directions : array, shape (q, T)
        ``w``, a direction for each field.
    """

    truth: Array
    exact: cagp.Posterior
    directions: Array

    def errors(self, solver: str, iteration: int, mean: Array, covariances: Sequence[Array]) -> Errors:
        """Judge means (q, T) with a covariance (q, q) for each field, or one for all."""
        projected, whitened, stated = [], [], []
        width = self.truth.shape[1] // len(covariances)
        for i, covariance in enumerate(covariances):
            own = slice(i * width, (i + 1) * width)
            error, w = (mean - self.truth)[:, own], self.directions[:, own]
            projected.append((w * error).sum(axis=0) / np.sqrt(np.einsum("it,ij,jt->t", w, covariance, w)))
            whitened.append(solve_triangular(np.linalg.cholesky(covariance), error, lower=True))
            stated += width * [covariance.diagonal() - self.exact.variance]
        return Errors(
            solver,
            iteration,
            np.concatenate(projected),
            np.concatenate(whitened, axis=1).ravel(),
            (mean - self.exact.mean) ** 2,
            np.stack(stated, axis=1),
        )


def simulate(split: Split, generator: np.random.Generator, *, fields: int) -> Iterator[Errors]:
    """Draw fields and yield the errors of every solver and iteration; the exact posterior comes first."""
    latent, values = split.draw(generator, fields)
    directions = generator.standard_normal((len(split.test), fields))
    judge = Judge(split.at_test(latent), split.exact(values), directions / np.linalg.norm(directions, axis=0))
    X, y = split.train, split.at_train(values)
    order = cagp.space_filling_order(X, block_size=split.block_size)

    exact = judge.exact
    yield judge.errors("exact", 0, exact.mean, [_covariance(exact)])
    for m in SWEEPS:
        posterior = cagp.condition(
            split.prior, X, y, split.test, solver=cagp.GaussSeidel(m), covariance="full"
        )
        yield judge.errors("Gauss-Seidel", m, posterior.mean, [_covariance(posterior)])
    for m in BLOCK_SWEEPS:
        solver = cagp.BlockGaussSeidel(m, block_size=split.block_size)
        posterior = cagp.condition(
            split.prior, X[order], y[order], split.test, solver=solver, covariance="full"
        )
        yield judge.errors("block Gauss-Seidel", m, posterior.mean, [_covariance(posterior)])
    prior_covariance = split.prior.kernel(split.test, split.test)
    found: dict[int, list[tuple[Array, Array]]] = {m: [] for m in DIRECTIONS}
    for field in values:
        for m, state in enumerate(split.conjugate_gradients(field, iterations=max(DIRECTIONS)), start=1):
            if m in found:
                found[m].append(state)
    for m, states in found.items():
        mean = np.stack([state[0] for state in states], axis=1)
        yield judge.errors("conjugate gradients", m, mean, [prior_covariance - state[1] for state in states])


def _covariance(posterior: cagp.Posterior) -> Array:
    assert posterior.covariance is not None  # asked for above
    return posterior.covariance


def table(found: Sequence[Errors], poleward: NDArray[np.bool_]) -> Iterator[Sequence[str]]:
    """Lines of the table; ``poleward`` (q,) says which points are beyond 45 degrees."""
    for errors in found:
        one, every = normal_tests(errors.projected), normal_tests(errors.whitened)
        groups = [] if errors.solver == "exact" else [~poleward, poleward]
        ratios = [f"{ratio:.3f} ± {error:.3f}" for ratio, error in map(errors.ratio, groups)]
        yield (
            errors.solver,
            str(errors.iteration or ""),
            _p(one.ks_pvalue),
            f"{one.z_std:.3f}",
            _p(one.variance_pvalue),
            f"{every.z_std:.3f}",
            _p(every.variance_pvalue),
            _p(every.ks_pvalue),
            *(ratios or ["", ""]),
        )


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-4 else "< 0.0001"


def draw(path: Path, found: Sequence[Errors]) -> None:
    """Draw PIT histograms of the whitened errors, with the 95 % range of a count between dashed lines."""
    chosen = {(errors.solver, errors.iteration): errors for errors in found}
    with drawn(path, height_inches=2.8) as figure:
        for axes, key in zip(figure.subplots(1, len(DRAWN), sharey=True), DRAWN, strict=True):
            pit = ndtr(chosen[key].whitened)
            pit_bars(axes, pit, colour=COLOURS[key[0]], title=f"{key[0]}, m = {key[1]}")
            axes.set_xlabel("PIT of whitened errors")
        figure.axes[0].set_ylabel("count / expected count")


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, print and draw."""
    chosen = parser(__doc__).parse_args(arguments)
    generator = np.random.default_rng(SEED)
    split = Split.make(QUICK_LATITUDES if chosen.quick else LATITUDES, generator)
    fields = QUICK_FIELDS if chosen.quick else FIELDS
    found = list(simulate(split, generator, fields=fields))
    q, poleward = len(split.test), np.abs(split.test[:, 2]) > np.sqrt(0.5)
    print(f"{fields} fields; {np.count_nonzero(split.observed):,} points observed, {q} held out\n")
    print_table(
        (
            "solver",
            "m",
            "KS p, z",
            "std of z",
            "its p",
            "std of u",
            "its p",
            "KS p, u",
            "actual / stated, < 45°",
            "actual / stated, > 45°",
        ),
        table(found, poleward),
    )
    one, every = (1.96 / np.sqrt(2.0 * count) for count in (fields, q * fields))
    print(f"95 % of calibrated solvers: std of z within 1 ± {one:.3f}, std of u within 1 ± {every:.4f}")
    draw(chosen.output / "simulation.png", found)


if __name__ == "__main__":
    main()
