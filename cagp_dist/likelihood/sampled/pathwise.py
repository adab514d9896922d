"""The gradient of the likelihood at points too many for a dense factor, by sampling (math 9).

The traces of the gradient are means of quadratic forms, ``tr(R^-1 dR) = E[v' dR v]``, ``v = R^-1 z``, ``z ~
N(0, R)``. The z are random waves plus noise, the same in every evaluation: the estimate is a continuous
function of the parameters. Systems are solved together by sweeps, from the solutions of the evaluation
before. ``z' R^-1 z`` has the known mean n: dividing by it makes the estimate sharper [Lin et al. 2024].
"""

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.point_plans import Sweeps, plan_sweeps
from cagp_dist.errors import BudgetError
from cagp_dist.geometry import space_filling_order
from cagp_dist.gram.tiled import TiledGram, put_value, rows_product
from cagp_dist.kernels import Lengthscales, Parameters, point_columns
from cagp_dist.likelihood.exact.likelihood_evaluation import Evaluation
from cagp_dist.likelihood.numbering import Families, Model
from cagp_dist.likelihood.sampled.sweeps import solve_by_sweeps
from cagp_dist.posterior.fourier import RandomWaves, draw_waves, evaluate_waves
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, Handle, single_threaded_blas
from cagp_dist.text import bytes_text
from cagp_dist.tiling import POINT_TILE, block_ranges

SAMPLES = 24  # More lower the noise of the gradient; time grows in proportion
WAVES = 1024  # Of each sample: more bring its covariance nearer to that of the kernel
BLOCK = 1024  # Points of a block of the sweeps
TOLERANCE = 5e-3  # Of the residual of every linear system, beside its right-hand side
MOST_SWEEPS = 60

# Of n x (T + S) numbers beside what sweeps take: noise, solutions, sides, residuals, steps, images
KEPT_ARRAYS = 12


class PathwiseLikelihood:
    """Estimated gradient of the likelihood of points anywhere. Shapes: ``X`` (n, p), ``residuals`` (n, T)."""

    difference = 0.2

    def __init__(
        self,
        kernel: Families | Model,
        X: Array,
        residuals: Array,
        *,
        executor: Executor,
        memory_limit_bytes: int,
        seed: int,
        samples: int = SAMPLES,
    ) -> None:
        self._model = Model.of(kernel)
        self._executor = executor
        self.points, self.fields = residuals.shape
        columns = self.fields + samples
        self._plan = pathwise_plan(
            *X.shape, columns=columns, executor=executor, memory_limit_bytes=memory_limit_bytes
        )
        order = space_filling_order(self._model.comparable(X), block_size=BLOCK)
        self._X = X[order]
        self._residuals = residuals[order]
        generators = [np.random.default_rng([seed, index]) for index in range(samples)]
        self._waves = [
            [draw_waves(family, X.shape[1], WAVES, generator) for generator in generators]
            for family in self._model.families
        ]
        self._noise = np.stack([g.standard_normal(self.points) for g in generators], axis=1)
        self._weights = np.zeros((self.points, columns))

    def evaluate(self, *numbers: float) -> Evaluation:
        """Estimate at (lengthscale, ratio), or (lengthscales, weights, ratio) of a sum."""
        kernel, ratio = self._model.unit(numbers), numbers[-1]
        with single_threaded_blas():
            right = np.concatenate([self._residuals, self._samples(*numbers)], axis=1)
            solution = solve_by_sweeps(
                TiledGram(kernel, self._X, noise_variance=np.full(self.points, ratio)),
                right,
                start=self._weights,
                tolerance=TOLERANCE,
                most_sweeps=MOST_SWEEPS,
                plan=self._plan,
                executor=self._executor,
            )
            weights = self._weights = np.ascontiguousarray(solution.value.T)
            forms = [self._forms(derivative) for derivative in self._model.derivatives(numbers)]
        # b' R^-1 b to second order in the residual left: b'v + v'r
        quadratics = np.einsum("ij,ij->j", weights, right + solution.residual.T)
        squares = ratio * np.einsum("ij,ij->j", weights, weights)
        forms.append(squares)
        T = self.fields
        traces, covariance = _sharpened(np.stack([form[T:] for form in forms]), quadratics[T:], self.points)
        return Evaluation(
            self.points,
            T,
            log_determinant=None,
            quadratic=float(quadratics[:T].sum()),
            traces=traces,
            slopes=np.array([form[:T].sum() for form in forms]),
            trace_covariance=covariance,
            solved=bool((solution.relative_residual <= TOLERANCE).all()),
            numbering=self._model.numbering,
        )

    def _samples(self, *numbers: float) -> Array:
        """Draws of N(0, R), shape (n, S)."""
        first = self._model.numbering.lengthscales
        lengthscales = self._model.numbering.of_parts(numbers[:first])
        weights = [1.0, *numbers[first:-1]]
        field = self._fields(self._waves[0], lengthscales[0])
        for waves, lengthscale, weight in zip(self._waves[1:], lengthscales[1:], weights[1:], strict=True):
            field += np.sqrt(weight) * self._fields(waves, lengthscale)
        return np.asarray(field + np.sqrt(numbers[-1]) * self._noise)

    def _fields(self, draws: list[RandomWaves], lengthscale: Lengthscales) -> Array:
        """Draws of one part of variance one, shape (n, S)."""
        points = point_columns(self._X)
        waves: Handle[list[RandomWaves]] = self._executor.submit(put_value, draws)
        parts = [
            self._executor.submit(
                evaluate_waves, waves, lengthscale, np.ascontiguousarray(points[:, start:stop]), home=index
            )
            for index, (start, stop) in enumerate(block_ranges(self.points, POINT_TILE))
        ]
        return np.concatenate(self._executor.gather(parts))

    def _forms(self, derivative: Parameters) -> Array:
        """``v' dR v`` for every column and one derivative dR, shape (T + S,)."""
        points: Handle[Array] = self._executor.submit(put_value, point_columns(self._X))
        weights: Handle[Array] = self._executor.submit(put_value, self._weights)
        parts = [
            self._executor.submit(_tile_forms, derivative, points, weights, start, stop, home=index)
            for index, (start, stop) in enumerate(block_ranges(self.points, POINT_TILE))
        ]
        return np.asarray(sum(self._executor.gather(parts)))


def pathwise_plan(n: int, p: int, *, columns: int, executor: Executor, memory_limit_bytes: int) -> Plan:
    """Plan the sweeps of n points in p dimensions, with as many columns as fields and samples."""
    demand = Demand(
        n=n,
        q=columns,
        fields=1,
        full_covariance=False,
        workers=executor.workers,
        shares_memory=executor.shares_memory,
        memory_limit_bytes=memory_limit_bytes - KEPT_ARRAYS * DOUBLE * n * columns,
        p=p,
    )
    try:
        return plan_sweeps(
            demand, Sweeps(iterations=MOST_SWEEPS, block_size=BLOCK), method="the pathwise likelihood"
        )
    except BudgetError as error:
        raise BudgetError(
            f"the pathwise likelihood of {n:,} points with {columns} columns (fields and samples) does not "
            f"fit into the {bytes_text(memory_limit_bytes)} that may be used.",
            remedies=(Remedy.MORE_MEMORY, Remedy.FEWER_OBSERVED, Remedy.FEWER_FIELDS),
        ) from error


def _tile_forms(derivative: Parameters, points: Array, weights: Array, start: int, stop: int) -> Array:
    """Part of the forms that the rows ``start`` .. ``stop`` make."""
    rows = np.ascontiguousarray(points[:, start:stop])
    product = rows_product(derivative, rows, points, weights, POINT_TILE)
    return np.asarray(np.einsum("ij,ij->j", weights[start:stop], product))


def _sharpened(forms: Array, quadratics: Array, n: int) -> tuple[Array, Array]:
    """Means of forms (k, S) times n over the mean of ``z' R^-1 z`` (S,), and their covariance (k, k)."""
    samples = forms.shape[1]
    scale = n / quadratics.mean()
    traces = scale * forms.mean(axis=1)
    spread = scale * forms - np.outer(traces / n, scale * quadratics)
    return traces, spread @ spread.T / (samples * (samples - 1))
