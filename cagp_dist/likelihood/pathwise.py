"""The gradient of the likelihood at points too many for a dense factor, by sampling (math 9).

The only dear part of the gradient is a trace, and a trace is the mean of a quadratic form::

    tr(R^-1 dR) = E[ v' dR v ],    v = R^-1 z,   z ~ N(0, R)

The z are random waves plus noise (`cagp_dist.likelihood.fourier`). All linear systems, those of the data and
those of the samples, are solved together by block Gauss-Seidel sweeps in space-filling order, each time
beginning with the solutions of the time before. The random numbers stay the same from one evaluation to the
next, so that the estimate is a smooth function of the parameters whose root can be found as exactly as
wanted; what remains of chance is the distance of that root from the true one, and it is estimated from the
spread of the samples.

``z' R^-1 z`` has the known mean n and goes up and down with the forms: dividing by it makes the estimate
sharper. [Lin et al. 2024, Improving linear system solvers for hyperparameter optimisation in iterative
Gaussian processes]
"""

import numpy as np

from cagp_dist.budget import DOUBLE, Demand, Plan, plan_sweeps
from cagp_dist.errors import BudgetError
from cagp_dist.geometry import space_filling_order
from cagp_dist.gram.base import Array
from cagp_dist.gram.tiled import TiledGram, identity, rows_product
from cagp_dist.kernels import Kernel, coordinates
from cagp_dist.likelihood.evaluation import Evaluation
from cagp_dist.likelihood.fourier import Waves, draw_waves, evaluate_waves
from cagp_dist.runtime import Executor, Handle, single_threaded_blas
from cagp_dist.solvers.adjoint import no_sums
from cagp_dist.solvers.block_tasks import Solved
from cagp_dist.solvers.sweep import SweepSystem
from cagp_dist.tiling import POINT_TILE, block_ranges

SAMPLES = 24
WAVES = 1024
BLOCK = 1024

TOLERANCE = 5e-3
"""Of the residual of every linear system, beside its right-hand side."""

MOST_SWEEPS = 60

KEPT_ARRAYS = 10
"""Of n x (T + S) numbers beside what sweeps take: noise, solutions, sides, residuals, steps, images."""


class PathwiseLikelihood:
    """Estimated gradient of the likelihood of points anywhere.

    Parameters
    ----------
    kernel : type of Kernel
        Family of the covariance.
    X : array of float64, shape (n, p)
        Observed points.
    residuals : array of float64, shape (n, T)
        ``b = y - mean(X)``.
    executor : Executor
        Where tasks run; the result does not depend on it.
    memory_limit_bytes : int
        What may be allocated.
    seed : int
        Of the samples.
    samples : int
        S; the standard error of a trace falls with its square root.

    Raises
    ------
    BudgetError
        If the sweeps do not fit into memory.
    """

    difference = 0.2

    def __init__(
        self,
        kernel: type[Kernel],
        X: Array,
        residuals: Array,
        *,
        executor: Executor,
        memory_limit_bytes: int,
        seed: int,
        samples: int = SAMPLES,
    ) -> None:
        self._kernel = kernel
        self._executor = executor
        self.points, self.fields = residuals.shape
        columns = self.fields + samples
        self._plan = _plan(X, columns=columns, executor=executor, memory_limit_bytes=memory_limit_bytes)
        order = space_filling_order(X, block_size=BLOCK)
        self._X = X[order]
        self._residuals = residuals[order]
        generators = [np.random.default_rng([seed, index]) for index in range(samples)]
        self._waves = [draw_waves(kernel, X.shape[1], WAVES, generator) for generator in generators]
        self._noise = np.stack([g.standard_normal(self.points) for g in generators], axis=1)
        self._weights = np.zeros((self.points, columns))

    def evaluate(self, lengthscale: float, ratio: float) -> Evaluation:
        """Estimate at one lengthscale and ratio.

        Returns
        -------
        Evaluation
            Cost of the sweeps, of two products with T + S columns, and n S m cosines for m waves a sample.

        Raises
        ------
        NumericalError
            If a diagonal block is not positive definite in floating point.
        """
        kernel = self._kernel(lengthscale)
        with single_threaded_blas():
            right = np.concatenate([self._residuals, self._samples(lengthscale, ratio)], axis=1)
            left, solved = self._solve(kernel, ratio, right)
            forms = self._slope_forms(kernel)
        weights = self._weights
        # b' R^-1 b to second order in the residual left: b'v + v'r
        quadratics = np.einsum("ij,ij->j", weights, right + left)
        squares = ratio * np.einsum("ij,ij->j", weights, weights)
        T = self.fields
        traces, covariance = _sharpened(np.stack([forms[T:], squares[T:]]), quadratics[T:], self.points)
        return Evaluation(
            self.points,
            T,
            log_determinant=None,
            quadratic=float(quadratics[:T].sum()),
            traces=traces,
            slopes=np.array([forms[:T].sum(), squares[:T].sum()]),
            trace_covariance=covariance,
            solved=solved,
        )

    def _samples(self, lengthscale: float, ratio: float) -> Array:
        """Draws of N(0, R), shape (n, S)."""
        points = coordinates(self._X)
        waves: Handle[list[Waves]] = self._executor.submit(_same_waves, self._waves)
        parts = [
            self._executor.submit(
                evaluate_waves, waves, lengthscale, np.ascontiguousarray(points[:, start:stop]), home=index
            )
            for index, (start, stop) in enumerate(block_ranges(self.points, POINT_TILE))
        ]
        field = np.concatenate(self._executor.gather(parts))
        return np.asarray(field + np.sqrt(ratio) * self._noise)

    def _solve(self, kernel: Kernel, ratio: float, right: Array) -> tuple[Array, bool]:
        """Solve all systems to `TOLERANCE`; the solutions are in ``self._weights``.

        Returns
        -------
        array, shape (n, T + S)
            The residuals that are left.
        bool
            Whether they are small enough.
        """
        gram = TiledGram(kernel, self._X, noise_variance=np.full(self.points, ratio))
        size = np.linalg.norm(right, axis=0)
        left = right - gram.product(self._weights, executor=self._executor)
        nothing = left[:, :0]  # no sums over the sweeps are wanted
        system = SweepSystem(gram, nothing, plan=self._plan, whole_blocks=True, executor=self._executor)
        step, image = np.zeros_like(left), np.zeros_like(left)
        for _ in range(MOST_SWEEPS):
            if (np.linalg.norm(left, axis=0) <= TOLERANCE * size).all():
                return left, True
            change, after = _sweep(system, left, self._executor)
            step, image = _best_step(left, change, left - after, step, image)
            self._weights += step
            left = left - image
        return left, False

    def _slope_forms(self, kernel: Kernel) -> Array:
        """``v' dR v`` for every column, dR by log lengthscale, shape (T + S,)."""
        points: Handle[Array] = self._executor.submit(identity, coordinates(self._X))
        weights: Handle[Array] = self._executor.submit(identity, self._weights)
        parts = [
            self._executor.submit(
                _tile_forms, kernel.slope_parameters, points, weights, start, stop, home=index
            )
            for index, (start, stop) in enumerate(block_ranges(self.points, POINT_TILE))
        ]
        return np.asarray(sum(self._executor.gather(parts)))


def _plan(X: Array, *, columns: int, executor: Executor, memory_limit_bytes: int) -> Plan:
    n, p = X.shape
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
        return plan_sweeps(demand, method="the pathwise likelihood", iterations=MOST_SWEEPS, block_size=BLOCK)
    except BudgetError as error:
        raise BudgetError(
            f"the pathwise likelihood of {n:,} points with {columns} columns (fields and samples) does not "
            f"fit into the {memory_limit_bytes / 2**30:.3g} GiB that may be used. Raise memory_limit_bytes, "
            "or fit on fewer points or fields."
        ) from error


def _sweep(system: SweepSystem, left: Array, executor: Executor) -> tuple[Array, Array]:
    """One forward sweep: what it adds to the solutions, and the residuals after it."""
    panels = system.value_panels(left)
    sums = executor.submit(no_sums, left.shape[1], 0, False)
    parts = [executor.submit(_columns_of, solved) for solved in system.sweep(panels, sums, adjoint=False)]
    return np.concatenate(executor.gather(parts)), np.concatenate(executor.gather(panels))


def _columns_of(solved: Solved) -> Array:
    return solved.columns


def _best_step(
    left: Array, change: Array, image: Array, last: Array, last_image: Array
) -> tuple[Array, Array]:
    """For each column the step in the plane of two directions that minimises the energy of the error.

    Parameters
    ----------
    left : array, shape (n, r)
        Residuals ``b - R v``.
    change, last : array, shape (n, r)
        Directions: what a sweep would add, and the step before.
    image, last_image : array, shape (n, r)
        R times the directions.

    Returns
    -------
    step, image : array, shape (n, r)
        The step, and R times it.
    """
    # directions that do not meet in the inner product of R can be gone along one by one
    overlap = _share(last, image, last_image)
    fresh, fresh_image = change - overlap * last, image - overlap * last_image
    along, back = _share(fresh, left, fresh_image), _share(last, left, last_image)
    return along * fresh + back * last, along * fresh_image + back * last_image


def _share(direction: Array, other: Array, image: Array) -> Array:
    """``d' o / d' R d`` for each column, zero for directions of length zero."""
    energy = np.einsum("ij,ij->j", direction, image)
    share = np.einsum("ij,ij->j", direction, other)
    return np.asarray(np.divide(share, energy, out=np.zeros_like(share), where=energy > 0.0))


def _same_waves(waves: list[Waves]) -> list[Waves]:
    return waves


def _tile_forms(
    slope: tuple[int, float, float], points: Array, weights: Array, start: int, stop: int
) -> Array:
    """Part of the forms that the rows ``start`` .. ``stop`` make."""
    rows = np.ascontiguousarray(points[:, start:stop])
    product = rows_product(slope, rows, points, weights, POINT_TILE)
    return np.asarray(np.einsum("ij,ij->j", weights[start:stop], product))


def _sharpened(forms: Array, quadratics: Array, n: int) -> tuple[Array, Array]:
    """Means of forms (2, S) times n over the mean of ``z' R^-1 z`` (S,), and their covariance (2, 2)."""
    samples = forms.shape[1]
    scale = n / quadratics.mean()
    traces = scale * forms.mean(axis=1)
    spread = scale * forms - np.outer(traces / n, scale * quadratics)
    return traces, spread @ spread.T / (samples * (samples - 1))
