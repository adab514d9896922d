"""Which actions: projections of every kind on fields drawn from the prior, their errors and what they state.

    python -m pipelines.experiments.actions [--quick] [--only WORD ...]

4,096 points of the sphere, drawn uniformly, are observed and 500 others predicted; Matern 3/2 of variance 1,
noise variance 0.01, 40 fields. Prints a table for each lengthscale. *Actual* is the root mean square error of
the mean about the latent field, *stated* the root of the mean variance, and the last column the root mean
square of errors in units of what is stated for them: 1 where error bars are right.

The last lines are of no solver of the package. *Columns of G* at random points are what the method of
Kaczmarz moves along, here taken as actions. *By-products*: conjugate gradients of the first field leave
directions d with ``U = K [d / sqrt(d'G d)]``, and ``noise + U U'`` preconditions those of all other fields.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.solvers import Solver
from cagp_dist.solvers.actions.policies import residuals
from cagp_dist.solvers.actions.projection import Direction, project
from cagp_dist.solvers.actions.subsets import random_points
from cagp_dist.solvers.stationary.preconditioners import DiagonalPlusLowRank
from pipelines.experiments.output import parser, print_table

SEED, NOISE = 0, 0.01
LENGTHSCALES = (0.3, 0.1)
POINTS, TARGETS, FIELDS = 4096, 500, 40
QUICK_POINTS, QUICK_TARGETS, QUICK_FIELDS = 300, 40, 3
SOLVERS: tuple[tuple[str, Solver], ...] = (
    ("200 unit vectors, random", cagp.UnitVectors(200, order="random")),
    ("200 unit vectors, pivoted", cagp.UnitVectors(200)),
    ("50 pseudo-inputs", cagp.PseudoInputs(50)),
    ("200 pseudo-inputs", cagp.PseudoInputs(200)),
    ("50 eigenvectors", cagp.Eigenvectors(50)),
    ("50 Krylov actions", cagp.KrylovActions(50)),
    ("50 random actions", cagp.RandomActions(50)),
    ("20 conjugate gradients", cagp.ConjugateGradient(20)),
    ("50 conjugate gradients", cagp.ConjugateGradient(50)),
    ("20, pivoted Cholesky of rank 200", cagp.ConjugateGradient(20, "pivoted-cholesky", 200)),
    ("20, Nystrom with 200 points", cagp.ConjugateGradient(20, "nystrom", 200)),
    ("20, block Gauss-Seidel, 256 points", cagp.ConjugateGradient(20, "block-gauss-seidel", 256)),
    ("50 pseudo-inputs, then 20 gradients", cagp.MixedActions("pseudo-inputs 50, conjugate-gradient 20")),
    ("exact", cagp.Cholesky()),
)
ADDED: tuple[tuple[str, "Callable[[Drawn], tuple[Array, Array]]"], ...] = (
    ("200 columns of G, random", lambda drawn: drawn.columns(200)),
    ("20, by-products of 50", lambda drawn: drawn.by_products(50, 20)),
    ("20, by-products of 200", lambda drawn: drawn.by_products(200, 20)),
)
LINES = tuple(name for name, _ in (*SOLVERS, *ADDED))
"""Names of all that is compared."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Fields of the prior: ``y`` (n, T) at X (n, 3), and the truth ``f`` (q, T) at X_test (q, 3)."""

    prior: cagp.Prior
    X: Array
    y: Array
    X_test: Array
    f: Array

    @classmethod
    def make(cls, lengthscale: float, *, points: int, targets: int, fields: int) -> "Drawn":
        """Draw points and fields from one generator."""
        generator = np.random.default_rng(SEED)
        joint = generator.standard_normal((points + targets, 3))
        joint /= np.linalg.norm(joint, axis=1)[:, None]
        # neighbours together, for blocks; which of all points are observed stays a matter of chance
        X, X_test = joint[:points], joint[points:]
        X = X[cagp.space_filling_order(X, block_size=256)]
        prior = cagp.Prior(cagp.Matern32(lengthscale), noise_variance=NOISE)
        gram = cagp.DenseGram(
            prior.kernel, np.concatenate([X, X_test]), noise_variance=np.full(points + targets, 1e-10)
        )
        f = gram.factor @ generator.standard_normal((points + targets, fields))
        y = f[:points] + np.sqrt(NOISE) * generator.standard_normal((points, fields))
        return cls(prior, X, y, X_test, f[points:])

    def solve(self, solver: Solver) -> tuple[Array, Array]:
        """Errors (q, T), and variances (q, T)."""
        if solver.many_fields:
            posterior = cagp.condition(self.prior, self.X, self.y, self.X_test, solver=solver)
            return posterior.mean - self.f, np.broadcast_to(posterior.variance[:, None], self.f.shape)
        alone = [
            dataclasses.replace(self, y=self.y[:, [t]], f=self.f[:, [t]])._alone(solver)
            for t in range(self.y.shape[1])
        ]
        errors, variances = zip(*alone, strict=True)
        return np.concatenate(errors, axis=1), np.stack(variances, axis=1)

    @cached_property
    def gram(self) -> Array:
        """G (n, n)."""
        G = self.prior.kernel(self.X, self.X)
        G[np.diag_indices(len(G))] += NOISE
        return G

    def columns(self, count: int) -> tuple[Array, Array]:
        """Errors and variances (q, T) with columns of G at random points as actions."""
        S, _ = np.linalg.qr(self.gram[:, random_points(len(self.X), count, SEED)])
        factor = np.linalg.cholesky(S.T @ self.gram @ S)
        seen = np.linalg.solve(factor, (self.prior.kernel(self.X_test, self.X) @ S).T)
        mean = seen.T @ np.linalg.solve(factor, S.T @ self.y)
        variance = self.prior.kernel.diagonal(self.X_test) - (seen**2).sum(axis=0)
        return mean - self.f, np.broadcast_to(variance[:, None], self.f.shape)

    def by_products(self, directions: int, iterations: int) -> tuple[Array, Array]:
        """Errors and variances (q, T - 1) with a preconditioner that is left over from the first field."""
        first = self._gradients(0, lambda columns: columns, directions)
        factor = [(step.image - NOISE * step.direction) / np.sqrt(step.curvature) for step in first]
        P = DiagonalPlusLowRank(np.full(len(self.X), NOISE), np.stack(factor, axis=1))
        V = self.prior.kernel(self.X_test, self.X)
        errors, variances = [], []
        for t in range(1, self.y.shape[1]):
            steps = self._gradients(t, P.solve, iterations)
            seen = V @ np.stack([step.direction / np.sqrt(step.curvature) for step in steps], axis=1)
            length = [step.step[0] * np.sqrt(step.curvature) for step in steps]
            errors.append(seen @ length - self.f[:, t])
            variances.append(self.prior.kernel.diagonal(self.X_test) - (seen**2).sum(axis=1))
        return np.stack(errors, axis=1), np.stack(variances, axis=1)

    def _gradients(self, field: int, solve: Callable[[Array], Array], iterations: int) -> list[Direction]:
        """Directions of preconditioned conjugate gradients for one field."""
        policy = partial(residuals, solve=solve)
        b = self.y[:, [field]]
        found = project(self.gram.__matmul__, b, policy=policy, iterations=iterations)
        return [step for step in found if step.direction.any()]

    def _alone(self, solver: Solver) -> tuple[Array, Array]:
        posterior = cagp.condition(self.prior, self.X, self.y, self.X_test, solver=solver)
        return posterior.mean - self.f, posterior.variance


def rms(values: Array) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(values**2)))


def rows(drawn: Drawn, names: Sequence[str]) -> Iterator[tuple[str, float, float, float]]:
    """Yield name, actual, stated, and the ratio of errors to what is stated for them."""
    solvers, added = dict(SOLVERS), dict(ADDED)
    for name in names:
        errors, variances = drawn.solve(solvers[name]) if name in solvers else added[name](drawn)
        deviations = np.sqrt(variances)
        yield name, rms(errors), rms(deviations), rms(errors / deviations)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    command = parser(__doc__)
    command.add_argument("--only", nargs="+", metavar="WORD", help="lines whose name has one of these (all)")
    chosen = command.parse_args(arguments)
    names = [name for name in LINES if not chosen.only or any(word in name for word in chosen.only)]
    sizes = (QUICK_POINTS, QUICK_TARGETS, QUICK_FIELDS) if chosen.quick else (POINTS, TARGETS, FIELDS)
    for lengthscale in LENGTHSCALES:
        points, targets, fields = sizes
        drawn = Drawn.make(lengthscale, points=points, targets=targets, fields=fields)
        print(f"lengthscale {lengthscale:g}", flush=True)
        print_table(
            ("actions", "actual", "stated", "error / stated"),
            ((name, *(f"{value:.3f}" for value in values)) for name, *values in rows(drawn, names)),
        )


if __name__ == "__main__":
    main()
