"""Grids with missing points: the Gram matrix of those that are there, on top of the whole grid's.

With R the restriction to observed points, ``G_o = R G R'``: a product is "embed, multiply, restrict". Its
solves are conjugate gradients preconditioned by "embed, solve on the whole grid, restrict", which differs
from the exact inverse by a matrix whose rank is at most the number of missing points (math 7): few
iterations where the missing points are few or stand together, as continents and swaths do.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.checks import as_numbers, check_count
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.gram.base import Array
from cagp_dist.gram.conjugate import LinearSolution, conjugate_gradients
from cagp_dist.gram.rings import RingGram

MOST_PRODUCTS = 2000


class MaskedRings:
    """``G_o = k(X_o, X_o) + diag(noise_o)`` of the observed points of a grid.

    Parameters
    ----------
    rings : RingGram
        The whole grid.
    observed : array_like of bool, shape (P, Q)
        Which points are there. Columns have an entry for each of them, in latitude-major order.

    Raises
    ------
    ArgumentError
        If ``observed`` is not boolean, has another shape, or nothing is observed.

    Notes
    -----
    A product costs one of the whole grid, an iteration of `solve` a product and a solve.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> grid = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 5), 8)
    >>> rings = cagp.RingGram(grid, cagp.Matern32(lengthscale=0.3), noise_variance=0.1)
    >>> observed = np.ones(grid.shape, dtype=bool)
    >>> observed[2, 3:6] = False
    >>> gram = cagp.MaskedRings(rings, observed)
    >>> b = np.ones(gram.shape[0])
    >>> bool(np.allclose(gram @ gram.solve(b), b))
    True
    """

    def __init__(self, rings: RingGram, observed: ArrayLike) -> None:
        if not isinstance(rings, RingGram):
            raise ArgumentError(f"rings is a {type(rings).__name__}; expected a cagp_dist.RingGram.")
        mask = np.asarray(observed)
        if mask.dtype != np.bool_ or mask.shape != rings.grid.shape:
            raise ArgumentError(
                f"observed has shape {mask.shape} and type {mask.dtype}; expected {rings.grid.shape} of "
                "bool, True where a point is observed. From a field with NaN: numpy.isfinite(field)."
            )
        if not mask.any():
            raise ArgumentError(
                "observed is False everywhere: nothing was observed; expected at least one point."
            )
        self._rings = rings
        self._observed = mask.copy()
        self._observed.flags.writeable = False
        self._index: NDArray[np.intp] = np.flatnonzero(mask)

    @property
    def rings(self) -> RingGram:
        """The whole grid."""
        return self._rings

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Which points are there, shape (P, Q)."""
        return self._observed

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n) for n observed points."""
        return self._index.size, self._index.size

    @property
    def points(self) -> Array:
        """Observed points on the unit sphere, shape (n, 3)."""
        return self.rings.grid.points[self._index]

    def diagonal(self) -> Array:
        """Diagonal of G_o, shape (n,)."""
        return self.rings.diagonal()[self._index]

    def block(self, rows: slice, columns: slice) -> Array:
        """Dense block ``G_o[rows, columns]``."""
        noise = np.repeat(self.rings.noise_by_latitude, self.rings.grid.n_longitudes)
        points, index = self.points, self._index
        block = self.rings.kernel(points[rows], points[columns])
        same_row, same_column = np.nonzero(index[rows, None] == index[None, columns])
        block[same_row, same_column] += noise[index][rows][same_row]
        return block

    def embed(self, values: Array) -> Array:
        """Rows of values at observed points (r, n) as fields (r, P, Q), zero where nothing was observed."""
        fields = np.zeros((len(values), self.rings.grid.size))
        fields[:, self._index] = values
        return fields.reshape(-1, *self.rings.grid.shape)

    def restrict(self, fields: Array) -> Array:
        """Values of fields (r, P, Q) at the observed points, rows (r, n)."""
        return np.ascontiguousarray(fields.reshape(-1, self.rings.grid.size)[:, self._index])

    def __matmul__(self, columns: ArrayLike) -> Array:
        """``G_o @ columns`` for columns (n,) or (n, r)."""
        given = self._columns(columns)
        return self._product(_rows(given)).T.reshape(given.shape)

    def solve(self, columns: ArrayLike, *, tolerance: float = 1e-8) -> Array:
        """``G_o^-1 @ columns`` to a relative residual, for columns (n,) or (n, r).

        Raises
        ------
        NumericalError
            If the tolerance is not reached; use `solution` to see how far it got.
        """
        given = self._columns(columns)
        solution = self.solution(given, tolerance=tolerance)
        if not solution.ok:
            raise NumericalError(
                f"after {solution.products} products the largest relative residual is "
                f"{solution.relative_residual.max():.2g}; asked for was {tolerance:g}. Loosen the "
                "tolerance, raise noise_variance, or use cagp_dist.condition with block Gauss-Seidel."
            )
        return solution.value.T.reshape(given.shape)

    def solution(
        self,
        columns: ArrayLike,
        *,
        tolerance: float = 1e-8,
        iterations: int = MOST_PRODUCTS,
        preconditioned: bool = True,
    ) -> LinearSolution:
        """Solve as `solve` does and say what it took.

        Parameters
        ----------
        columns : array_like, shape (n,) or (n, r)
            Right-hand sides.
        tolerance : float
            Relative residual, in (0, 1).
        iterations : int
            Products at most.
        preconditioned : bool
            False for plain conjugate gradients, to compare with.

        Returns
        -------
        LinearSolution
            With a solution in each row, shape (r, n).
        """
        if not 0.0 < tolerance < 1.0:
            raise ArgumentError(
                f"tolerance is {tolerance!r}; expected a number between 0 and 1, such as 1e-8."
            )
        check_count("iterations", iterations, least=1)
        return conjugate_gradients(
            self._product,
            _rows(self._columns(columns)),
            precondition=self._whole_grid_solve if preconditioned else np.copy,
            tolerance=tolerance,
            iterations=iterations,
        )

    def posterior_mean(self, field: ArrayLike, *, tolerance: float = 1e-8) -> Array:
        """Posterior mean on the whole grid, gaps filled: ``K R' G_o^-1 b``.

        Parameters
        ----------
        field : array_like, shape (P, Q) or (T, P, Q)
            Observed values minus the prior mean; what stands at missing points is not looked at.
        tolerance : float
            Relative residual of the solve.

        Returns
        -------
        array of float64, the shape of ``field``
            Add the prior mean to it.

        Raises
        ------
        ArgumentError
            If the field has another shape, or observed values are missing.
        NumericalError
            If the tolerance is not reached.
        """
        given = as_numbers("field", field)
        grid = self.rings.grid
        if given.ndim not in (2, 3) or given.shape[-2:] != grid.shape:
            raise ArgumentError(f"field has shape {given.shape}; expected {grid.shape}, or T such fields.")
        values = given.reshape(-1, *grid.shape)[:, self.observed]
        weights = self.solve(values.T, tolerance=tolerance)
        return np.reshape(self.rings.prior_product(self.embed(weights.T)), given.shape)

    def _product(self, values: Array) -> Array:
        return self.restrict(self.rings @ self.embed(values))

    def _whole_grid_solve(self, values: Array) -> Array:
        return self.restrict(self.rings.solve(self.embed(values)))

    def _columns(self, columns: ArrayLike) -> Array:
        given = as_numbers("columns", columns)
        n = self.shape[0]
        if given.ndim not in (1, 2) or len(given) != n:
            raise ArgumentError(
                f"columns has shape {given.shape}; expected ({n},) or ({n}, r), an entry for each observed "
                "point. From a field: field[observed]."
            )
        if not np.isfinite(given).all():
            missing = int((~np.isfinite(given)).sum())
            raise ArgumentError(
                f"columns holds {missing} values that are NaN or infinite; mark those points as not observed."
            )
        return given


def _rows(columns: Array) -> Array:
    return np.ascontiguousarray(columns.reshape(len(columns), -1).T, dtype=np.float64)
