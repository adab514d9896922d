"""The exact Gram matrix of a whole latitude-longitude grid (math 7): block-circulant in longitude.

Cholesky factors of one block per wavenumber (`cagp_dist.latlon.wavenumbers`), 8 P^2 Q / 2 bytes, half of that
on a mirrored grid, give products, solves, determinant, samples and leave-one-out errors.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.checks import as_numbers, check_count, check_generator
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.gram_matrix import ExactSolve, Gram
from cagp_dist.gram.leave_one_out import LeaveOneOut, from_others
from cagp_dist.gram.targets import Targets, averaged, cross_by_views, target_points
from cagp_dist.gram.tiled import cross_product
from cagp_dist.kernels import OWN_ON_SPHERE, Kernel
from cagp_dist.latlon.grid import LatLonGrid, as_fields
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.latlon.tasks import (
    Apply,
    Factors,
    factor_range,
    inverse_diagonal_range,
    inverse_range,
    logdet_range,
    lower_range,
    multiply_range,
    root_range,
    solve_range,
    square_root_range,
)
from cagp_dist.latlon.wavenumbers import Wavenumbers
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, Handle, ThreadExecutor, single_threaded_blas
from cagp_dist.runtime.counting import count
from cagp_dist.text import bytes_text
from cagp_dist.tiling import Range

T = TypeVar("T")

# Columns that are sent with a task, at most: the scheduler of Dask keeps what is sent
TASK_COLUMN_BYTES = 8 * 2**20

# Factors of all ranges, in this process or as handles of what lies on the workers
Kept = Sequence[Handle[Factors] | Factors]


class RingGram:
    """``G = k(X, X) + diag(noise)`` of all points of a latitude-longitude grid, by wavenumbers.

    Fields are arrays (P, Q), stacks of fields (T, P, Q); flat columns (n,) and (n, r) with n = P Q in
    latitude-major order are taken as well, as by every other Gram matrix. Results have the shape of the
    argument.

    Parameters
    ----------
    grid : LatLonGrid
        Full-circle grid, any latitudes. The Q points of a pole row count as Q observations of one place.
    kernel : Kernel
        Covariance of the field, of the chord on the unit sphere or `AxiallySymmetric`.
    noise_variance : float or array_like, shape (P,)
        Noise variance, for all points or by latitude; squared unit of the field, above zero.
    executor : Executor, optional
        Where factors are made and kept; by default all cores of this process. On a Dask cluster they stay
        on the workers, and the executor has to stay open.
    memory_limit_bytes : int, optional
        What the factors may take; by default what the executor has.

    Raises
    ------
    ArgumentError
        If an argument has the wrong type, shape or value.
    BudgetError
        On the first use, if the factors do not fit into memory.
    NumericalError
        On the first use, if G is not positive definite in floating point.

    Notes
    -----
    Factors cost t P^2 Q / 4 kernel evaluations in t tasks (4, or more on large grids), P^2 Q^2 / 4 flops for
    their transform and P^3 Q / 6 for factorisation; a mirrored grid (latitudes and noise symmetric about the
    equator) half, half and a quarter.
    A solve or a product is 2 P^2 Q flops. Source: math 7, T26-T29; [Jun & Stein 2008].

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> grid = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 5), 8)
    >>> rings = cagp.RingGram(grid, cagp.Matern32(lengthscale=0.3), noise_variance=0.1)
    >>> field = rings.sample(np.random.default_rng(0), noise=True)
    >>> bool(np.allclose(rings @ rings.solve(field), field))
    True
    """

    def __init__(
        self,
        grid: LatLonGrid,
        kernel: Kernel,
        *,
        noise_variance: float | ArrayLike,
        executor: Executor | None = None,
        memory_limit_bytes: int | None = None,
    ) -> None:
        if not isinstance(grid, LatLonGrid):
            raise ArgumentError(
                f"grid is a {type(grid).__name__}; expected a cagp_dist.LatLonGrid. For points that are no "
                "full-circle grid use cagp_dist.condition, or TiledGram.",
                key="grid-type",
            )
        if not isinstance(kernel, Kernel):
            raise ArgumentError(
                f"kernel is a {type(kernel).__name__}; expected Matern12, Matern32, Matern52, "
                "SquaredExponential or a sum of them, of chordal distance (great-circle distance is not "
                "positive definite).",
                key="kernel-of-chord",
            )
        if kernel.of_space_and_time:
            raise ArgumentError(
                f"the kernel is {kernel!r}, one of space and time, and a grid has no time; expected a kernel "
                "of space. For fields of a grid at several times use cagp_dist.condition_over_times.",
                key="kernel-of-time",
            )
        if (layout := kernel.layout) is not None and not kernel.is_zonal:
            what = f"has {' and '.join(layout.axes)} beside space" if layout.axes else "has directions"
            raise ArgumentError(
                f"the kernel is {kernel!r}, which {what}; expected one that is the same at every "
                "longitude, of distance alone or cagp.AxiallySymmetric. Give the grid as points, and take "
                "Neighbours or Cholesky.",
                key="kernel-on-rings",
            )
        if layout is None and kernel.coordinates is not None:
            raise ArgumentError(OWN_ON_SPHERE, key="anisotropic-on-sphere")
        self._grid, self._kernel = grid, kernel
        self._noise_by_latitude = _noise(noise_variance, grid)
        even_noise = bool((self._noise_by_latitude == self._noise_by_latitude[::-1]).all())
        self._wavenumbers = Wavenumbers(
            grid.latitude_degrees, grid.n_longitudes, grid.mirrored and even_noise
        )
        self._executor, self.memory_limit_bytes = executor, memory_limit_bytes
        self._factors: Kept = []
        self._roots: Kept = []
        self._other: RingGram | None = None
        self._logdet: float | None = None
        self._inverse_diagonal: Array | None = None

    def __repr__(self) -> str:
        rows, columns = self.grid.shape
        return f"RingGram({rows} x {columns} points, {self.kernel!r})"

    @property
    def grid(self) -> LatLonGrid:
        """The points."""
        return self._grid

    @property
    def kernel(self) -> Kernel:
        """Covariance of the field."""
        return self._kernel

    @property
    def noise_by_latitude(self) -> Array:
        """Noise variances, shape (P,); read-only."""
        return self._noise_by_latitude

    @property
    def wavenumbers(self) -> Wavenumbers:
        """How fields are split."""
        return self._wavenumbers

    @property
    def X(self) -> Array:
        """Points on the unit sphere, latitude by latitude, shape (n, 3)."""
        return self.grid.points

    @property
    def noise_variance(self) -> Array:
        """Noise variance of every point, shape (n,)."""
        return np.repeat(self.noise_by_latitude, self.grid.n_longitudes)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return self.grid.size, self.grid.size

    @property
    def layout(self) -> Layout:
        """All points are observed."""
        return Layout.of(self.grid, np.ones(self.grid.shape, dtype=bool))

    def with_noise(self, noise_by_latitude: Array) -> "RingGram":
        """Return the same matrix with other noise variances (P,); `self` where they are the same.

        The last one is kept, with its factors.
        """
        if np.array_equal(noise_by_latitude, self.noise_by_latitude):
            return self
        if self._other is None or not np.array_equal(noise_by_latitude, self._other.noise_by_latitude):
            self._other = RingGram(
                self.grid,
                self.kernel,
                noise_variance=noise_by_latitude,
                executor=self._executor,
                memory_limit_bytes=self.memory_limit_bytes,
            )
        return self._other

    def diagonal(self) -> Array:
        """Diagonal of G, shape (n,)."""
        return self.kernel.diagonal(self.X) + self.noise_variance

    def __matmul__(self, field: ArrayLike) -> Array:
        """``G @ field``, as ``L (L' field)`` for each wavenumber."""
        return self._apply(multiply_range, field)

    def prior_product(self, field: ArrayLike) -> Array:
        """``K @ field``, without the noise."""
        fields, shaped = as_fields("field", field, self.grid)
        return shaped(self._by_wavenumber(multiply_range, fields) - self.noise_by_latitude[:, None] * fields)

    def product(self, columns: Array, *, executor: Executor) -> Array:
        """``G @ columns``, on the executor that keeps the factors."""
        count(products=1 if columns.ndim == 1 else columns.shape[1])
        return self @ columns

    def cross(
        self, targets: Targets, columns: Array, *, executor: Executor, product: Array | None = None
    ) -> Array:
        """``k(targets, X) @ columns``, shape (q, r); on the grid itself as ``G @ columns`` less the noise."""

        def on_grid() -> Array:
            image = self @ columns if product is None else product
            return np.asarray(image - self.noise_variance[:, None] * columns)

        return cross_on_grid(self, self.grid, targets, columns, on_grid, lambda: columns.T, executor=executor)

    def exact(self, *, executor: Executor) -> ExactSolve:
        """Solves by the factors, on the executor that keeps them."""
        from cagp_dist.gram.gaps import GridSolve

        return GridSolve(self, self.layout)

    def condition_estimate(self) -> float:
        """Estimate of the condition number in the 1-norm from a few solves (SciPy's onenormest)."""
        from scipy.sparse.linalg import LinearOperator, onenormest

        inverse = LinearOperator(
            self.shape, matvec=self.solve, rmatvec=self.solve, matmat=self.solve, dtype=np.float64
        )
        return float((self @ np.ones(self.grid.shape)).max() * onenormest(inverse))

    def condition_bound(self) -> float:
        """Upper bound of the condition number: largest row sum over smallest noise (kernels are positive)."""
        return float((self @ np.ones(self.grid.shape)).max() / self.noise_by_latitude.min())

    def solve(self, field: ArrayLike) -> Array:
        """``G^-1 @ field``."""
        return self._apply(solve_range, field)

    def logdet(self) -> float:
        """Logarithm of the determinant of G (T26)."""
        if self._logdet is None:
            self._logdet = float(sum(self._of_factors(logdet_range)))
        return self._logdet

    def inverse_by_latitude(self) -> Array:
        """Diagonal of ``G^-1``, the same along each ring (T27), shape (P,); P^3 Q / 6 flops once."""
        if self._inverse_diagonal is None:
            parts = self._of_factors(inverse_diagonal_range)
            by_sector = [sum(sector) for sector in zip(*parts, strict=True)]
            diagonal = self.wavenumbers.to_rings([np.asarray(values) for values in by_sector])
            self._inverse_diagonal = diagonal / self.grid.n_longitudes
        return self._inverse_diagonal.copy()

    def inverse_diagonal(self) -> Array:
        """Diagonal of ``G^-1``, shape (n,)."""
        return np.repeat(self.inverse_by_latitude(), self.grid.n_longitudes)

    def inverse_blocks(self, rows: Sequence[Indices]) -> list[Array]:
        """Blocks (l_s, l_s, wavenumbers) of ``G^-1`` at some rows of each sector, for `PlacesOnGrid`.

        Cost P^3 Q / 3 flops, a quarter of it on a mirrored grid.
        """
        blocks = [np.empty((chosen.size, chosen.size, self.wavenumbers.count)) for chosen in rows]
        with self.workers() as executor:
            kept = list(enumerate(self._ranges_with_factors()))
            for start in range(0, len(kept), executor.workers):  # copies of few ranges at a time
                some = kept[start : start + executor.workers]
                parts = executor.gather(
                    [executor.submit(inverse_range, factors, rows, home=home) for home, (factors, _) in some]
                )
                for (_, (_, (first, last))), part in zip(some, parts, strict=True):
                    for block, found in zip(blocks, part, strict=True):
                        block[:, :, first:last] = found
        return blocks

    def leave_one_out(self, field: ArrayLike) -> LeaveOneOut:
        """Predict each point from all others; see `cagp_dist.gram.leave_one_out.from_others`.

        ``field`` (P, Q), (T, P, Q), (n,) or (n, r) is observed values minus the prior mean, which the mean,
        of that shape, is to have added; the variance is (P, Q).
        """
        fields, shaped = as_fields("field", field, self.grid)
        precision = self.inverse_diagonal().reshape(self.grid.shape)
        found = from_others(fields, self._by_wavenumber(solve_range, fields), precision)
        return LeaveOneOut(shaped(found.mean), found.variance)

    def sample(
        self, generator: np.random.Generator, *, noise: bool = False, fields: int | None = None
    ) -> Array:
        """Exact draws of the prior: of ``N(0, K)``, or of ``N(0, G)`` with noise, (P, Q) or (fields, P, Q).

        Equal states of the generator give equal draws. The first draw without noise makes and keeps square
        roots of K, once more the memory of the factors; they exist where K is singular too, as in pole rows.
        """
        check_generator(generator)
        if fields is not None:
            check_count("fields", fields, least=1)
        white = generator.standard_normal((fields or 1, *self.grid.shape))
        draws = self._by_wavenumber(lower_range if noise else root_range, white, roots=not noise)
        return draws if fields is not None else draws[0]

    def _of_factors(self, function: Callable[..., T]) -> list[T]:
        """Call a function of the factors, and of how often each wavenumber counts, for every range."""
        with self.workers() as executor:
            return executor.gather(
                [
                    executor.submit(function, factors, self.wavenumbers.weights[first:last], home=home)
                    for home, (factors, (first, last)) in enumerate(self._ranges_with_factors())
                ]
            )

    def _apply(self, function: Apply, field: ArrayLike) -> Array:
        fields, shaped = as_fields("field", field, self.grid)
        return shaped(self._by_wavenumber(function, fields))

    def _by_wavenumber(self, function: Apply, fields: Array, *, roots: bool = False) -> Array:
        """Apply a matrix that is diagonal in wavenumbers to fields (T, P, Q), a few at a time."""
        out = np.empty_like(fields)
        kept = self._ranges_with_roots() if roots else self._ranges_with_factors()
        # a function of the grid alone, so that results do not depend on where it is done
        together = max(1, TASK_COLUMN_BYTES * len(kept) // (2 * DOUBLE * max(self.grid.size, 1)))
        with self.workers() as executor:
            for first in range(0, len(fields), together):
                batch = slice(first, first + together)
                out[batch] = self._batch(function, fields[batch], kept, executor)
        return out

    def _batch(
        self,
        function: Apply,
        fields: Array,
        kept: Sequence[tuple[Handle[Factors] | Factors, Range]],
        executor: Executor,
    ) -> Array:
        columns = self.wavenumbers.split(fields)
        parts = executor.gather(
            [
                executor.submit(function, factors, [part[first:last] for part in columns], home=home)
                for home, (factors, (first, last)) in enumerate(kept)
            ]
        )
        return self.wavenumbers.join([np.concatenate(sector) for sector in zip(*parts, strict=True)])

    def _ranges_with_factors(self) -> list[tuple[Handle[Factors] | Factors, Range]]:
        if not self._factors:
            self._factors = self.make(factor_range, self.noise_by_latitude)
        return list(zip(self._factors, self.wavenumbers.ranges(), strict=True))

    def _ranges_with_roots(self) -> list[tuple[Handle[Factors] | Factors, Range]]:
        if not self._roots:
            self._roots = self.make(square_root_range)
        return list(zip(self._roots, self.wavenumbers.ranges(), strict=True))

    def make(
        self, function: Callable[..., T], *arguments: object, copies: float = 1.25
    ) -> "Sequence[Handle[T] | T]":
        """Call ``function(kernel parameters, wavenumbers, span, *arguments)`` for every range.

        On a cluster the results stay where they were made. ``copies`` is what they and the work on them take,
        in units of the blocks of all wavenumbers; `BudgetError` if that is not free.
        """
        with self.workers() as executor:
            check_ring_memory(
                self.wavenumbers, self.memory_limit_bytes or executor.memory_bytes, copies=copies
            )
            handles = [
                executor.submit(
                    function, self.kernel.parameters, self.wavenumbers, span, *arguments, home=home
                )
                for home, span in enumerate(self.wavenumbers.ranges())
            ]
            return executor.gather(handles) if executor.shares_memory else handles

    @contextmanager
    def workers(self) -> Iterator[Executor]:
        """Open the executor on which work for this matrix runs."""
        with single_threaded_blas():
            if self._executor is not None:
                yield self._executor
            else:
                with ThreadExecutor() as executor:
                    yield executor


def cross_on_grid(
    gram: Gram,
    grid: LatLonGrid,
    targets: Targets,
    columns: Array,
    on_grid: Callable[[], Array],
    embedded: Callable[[], Array],
    *,
    executor: Executor,
) -> Array:
    """``k(targets, X) @ columns`` (q, r) for points X of a grid, in the way that takes the least time."""
    if isinstance(targets, LatLonGrid) and targets.same_points(grid):
        return on_grid()
    if (index := many_places(targets, grid)) is not None:
        return on_grid()[index]
    if isinstance(targets, LinearFunctionals):
        found = cross_by_views(gram.kernel, targets, grid, embedded().reshape(-1, *grid.shape))
        if found is not None:
            return found
    at_points = cross_product(gram.kernel, target_points(targets), gram.X, columns, executor=executor)
    return averaged(targets, at_points)


def many_places(targets: Targets, grid: LatLonGrid) -> Indices | None:
    """Where on the flattened grid targets are, if all are points of it and more than it has latitudes."""
    if not isinstance(targets, np.ndarray) or len(targets) <= grid.shape[0]:
        return None
    index = grid.places(targets)
    return index if (index >= 0).all() else None


def _noise(noise_variance: float | ArrayLike, grid: LatLonGrid) -> Array:
    noise = as_numbers("noise_variance", noise_variance)
    if noise.shape not in ((), (grid.shape[0],)) or not (np.isfinite(noise).all() and (noise > 0.0).all()):
        raise ArgumentError(
            f"noise_variance has shape {noise.shape} and smallest value {noise.min(initial=np.inf):g}; "
            f"expected one number above zero, or {grid.shape[0]} of them, one for each latitude.",
            key="ring-noise",
        )
    return np.broadcast_to(noise, (grid.shape[0],)).copy()


def check_ring_memory(wavenumbers: Wavenumbers, memory_bytes: int, *, copies: float) -> None:
    """Raise `BudgetError` if ``copies`` times the blocks of all wavenumbers do not fit into memory."""
    needed = copies * wavenumbers.block_bytes
    if needed > memory_bytes:
        raise BudgetError(
            f"the factors of a {wavenumbers.latitude_degrees.size} x {wavenumbers.n_longitudes} grid take "
            f"{bytes_text(needed)}, more than the {bytes_text(memory_bytes)} that may be used.",
            key="memory",
            remedies=(Remedy.MORE_MEMORY, Remedy.COARSER_GRID),
        )
