"""Grids with missing points: the Gram matrix of the observed ones, by way of the whole grid's.

With R the restriction to observed points, ``G_o = R G R'``: a product is "embed, multiply, restrict". Solves
are an identity with the inverse of the whole grid (math 7, `cagp_dist.gram.gaps`), where the noise is
the same along each latitude. A pole that was observed once is not missing: on the whole grid it is repeated
along its row.
"""

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Mask
from cagp_dist.checks import as_numbers, as_variances
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.gram_matrix import ExactSolve, Gram
from cagp_dist.gram.ring_gram import RingGram, cross_on_grid
from cagp_dist.gram.targets import Targets
from cagp_dist.kernels import Kernel
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.runtime import Executor
from cagp_dist.runtime.counting import count


class MaskedRings:
    """``G_o = k(X_o, X_o) + diag(noise_o)`` of the observed points of a grid.

    Parameters
    ----------
    rings : RingGram
        The whole grid.
    observed : array_like of bool, shape (P, Q)
        Which points were observed. Columns have an entry for each of them, in latitude-major order.
    noise_variance : array of float64, shape (n,), optional
        Noise variance of each observed point, above zero; by default that of its latitude in ``rings``.

    Raises
    ------
    ArgumentError
        If ``observed`` is not boolean, has another shape, or nothing is observed; or if the noise variance
        has another shape or an entry that is not above zero.

    Notes
    -----
    A product costs one of the whole grid.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> grid = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 5), 8)
    >>> rings = cagp.RingGram(grid, cagp.Matern32(lengthscale=0.3), noise_variance=0.1)
    >>> observed = np.ones(grid.shape, dtype=bool)
    >>> observed[2, 3:6] = False
    >>> gram = cagp.MaskedRings(rings, observed)
    >>> b = np.ones(gram.shape[0])
    >>> bool(np.allclose(gram @ b, gram.kernel(gram.X, gram.X) @ b + gram.noise_variance * b))
    True
    """

    def __init__(
        self, rings: RingGram, observed: ArrayLike, *, noise_variance: ArrayLike | None = None
    ) -> None:
        if not isinstance(rings, RingGram):
            raise ArgumentError(
                f"rings is a {type(rings).__name__}; expected a cagp_dist.RingGram.", key="grid-type"
            )
        self._rings = rings
        self._layout = Layout.of(rings.grid, observed)
        self._by_latitude = rings.noise_variance[self._layout.index]
        self._noise = self._by_latitude
        if noise_variance is not None:
            self._noise = as_variances("noise_variance", noise_variance)
            if self._noise.shape != self._by_latitude.shape:
                raise ArgumentError(
                    f"noise_variance has shape {self._noise.shape}; expected ({self.shape[0]},), one "
                    "for each observed point. From a field: field[observed].",
                    key="shapes",
                )

    @property
    def rings(self) -> RingGram:
        """The whole grid."""
        return self._rings

    @property
    def layout(self) -> Layout:
        """Which points were observed."""
        return self._layout

    @property
    def noise_variance(self) -> Array:
        """Noise variance of every observed point, shape (n,)."""
        return self._noise

    @property
    def observed(self) -> Mask:
        """Which points were observed, shape (P, Q)."""
        return self.layout.observed

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n) for n observed points."""
        return self.layout.index.size, self.layout.index.size

    @property
    def kernel(self) -> Kernel:
        """Covariance of the field."""
        return self.rings.kernel

    @property
    def X(self) -> Array:
        """Observed points on the unit sphere, shape (n, 3)."""
        return self.rings.X[self.layout.index]

    @property
    def even_noise(self) -> bool:
        """Whether the noise of every point is that of its latitude in ``rings``."""
        return bool((self.noise_variance == self._by_latitude).all())

    def diagonal(self) -> Array:
        """Diagonal of G_o, shape (n,)."""
        return self.kernel.diagonal(self.X) + self.noise_variance

    @cached_property
    def rows_of_poles(self) -> RingGram:
        """The whole grid, with the noise of a pole that was observed once spread along its row.

        All work is done with this one: factors are made once.
        """
        return self.rings.with_noise(self.layout.row_noise(self.rings.noise_by_latitude))

    def product(self, columns: Array, *, executor: Executor) -> Array:
        """``G_o @ columns``, on the executor that keeps the grid's factors."""
        return self @ columns

    def cross(
        self, targets: Targets, columns: Array, *, executor: Executor, product: Array | None = None
    ) -> Array:
        """``k(targets, X_o) @ columns``, shape (q, r); on the same grid one product of it."""

        def embedded() -> Array:
            return self.layout.embed(columns.T)

        def on_grid() -> Array:
            fields = self.rows_of_poles.prior_product(embedded())
            return np.ascontiguousarray(fields.reshape(len(fields), -1).T)

        return cross_on_grid(self, self.rings.grid, targets, columns, on_grid, embedded, executor=executor)

    def exact(self, *, executor: Executor) -> ExactSolve | None:
        """Solves by an identity, of matrices as large as there are gaps; None if noise varies along a row."""
        from cagp_dist.gram.gaps import GridSolve

        return GridSolve(self.rows_of_poles, self.layout) if self.even_noise else None

    def __matmul__(self, columns: ArrayLike) -> Array:
        """``G_o @ columns`` for columns (n,) or (n, r)."""
        given = self._columns(columns)
        values = np.ascontiguousarray(given.reshape(len(given), -1).T, dtype=np.float64)
        count(products=len(values))
        prior = self.layout.restrict(self.rows_of_poles.prior_product(self.layout.embed(values)))
        return np.asarray((prior + self.noise_variance * values).T.reshape(given.shape))

    def _columns(self, columns: ArrayLike) -> Array:
        given = as_numbers("columns", columns)
        n = self.shape[0]
        if given.ndim not in (1, 2) or len(given) != n:
            raise ArgumentError(
                f"columns has shape {given.shape}; expected ({n},) or ({n}, r), an entry for each observed "
                "point. From a field: field[observed].",
                key="shapes",
            )
        if not np.isfinite(given).all():
            missing = int((~np.isfinite(given)).sum())
            raise ArgumentError(
                f"columns holds NaN or infinite values ({missing} of {given.size}); mark those points as not "
                "observed.",
                key="not-finite",
            )
        return given


def complete_grid(gram: Gram) -> tuple[RingGram, Layout] | None:
    """Find the complete grid behind a Gram matrix whose points are alike all along each latitude."""
    if isinstance(gram, RingGram):
        return gram, gram.layout
    if isinstance(gram, MaskedRings) and gram.even_noise and not gram.layout.missing.any():
        return gram.rows_of_poles, gram.layout
    return None
