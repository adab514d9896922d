"""Condition on the fields of a latitude-longitude grid as they come: arrays with a row for each latitude."""

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.checks import as_numbers
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import is_pole, unit_sphere
from cagp_dist.gp import Posterior, Prior, condition

if TYPE_CHECKING:
    from cagp_dist.gram import LatLonGrid
    from cagp_dist.runtime import Executor

Array = NDArray[np.float64]


def condition_on_grid(
    prior: Prior,
    grid: "LatLonGrid",
    y: ArrayLike,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    covariance: Literal["diagonal", "full"] = "diagonal",
    executor: "Executor | None" = None,
) -> Posterior:
    """Condition on all (or all observed) points of a latitude-longitude grid, exactly.

    Parameters
    ----------
    prior : Prior
        Kernel of the chordal distance, noise and mean (a number, or a function of points on the unit sphere).
    grid : LatLonGrid
        Full-circle grid, any latitudes.
    y : array_like, shape (P, Q) or (T, P, Q)
        Observed fields; values at points that are not observed are not looked at. The Q copies of a pole
        are one observation, their mean.
    latitude_degrees, longitude_degrees : array_like, shape (q,)
        Test points, on the grid or off it.
    observed : array_like of bool, shape (P, Q), optional
        Which points of the grid were observed; by default all.
    covariance : {"diagonal", "full"}
        Variances only, or also the (q, q) covariance, which takes 24 n q bytes.
    executor : Executor, optional
        Where the work runs; by default all cores of this process.

    Returns
    -------
    Posterior
        As from `condition`, with status EXACT, or SOLVED (to a relative residual of 1e-10) where more than
        8,192 points are missing. Its trace is the prior and the posterior.

    Raises
    ------
    ArgumentError
        If an argument has the wrong shape or value.
    BudgetError
        If the factors do not fit into memory.
    NumericalError
        If G is not positive definite in floating point, or the iteration does not converge.

    Notes
    -----
    Costs those of `RingGram`, one whole-grid solve for each latitude with missing points and for each
    distinct position of a test point between the grid's longitudes, and n q kernel evaluations. With many
    missing points each test point takes tens of solves.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 11), 24)
    >>> y = np.cos(np.deg2rad(grid.latitude_degrees))[:, None] * np.ones(24)
    >>> observed = np.ones(grid.shape, dtype=bool)
    >>> observed[5, 7] = False
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.5), noise_variance=1e-4)
    >>> posterior = cagp.condition_on_grid(prior, grid, y, [0.0], [105.0], observed=observed)
    >>> bool(abs(posterior.mean[0] - 1.0) < 0.01), posterior.status.value
    (True, 'exact')
    """
    from cagp_dist.gram import LatLonGrid
    from cagp_dist.solvers import Rings

    if not isinstance(grid, LatLonGrid):
        raise ArgumentError(
            f"grid is a {type(grid).__name__}; expected a cagp_dist.LatLonGrid. For points that are no "
            "full-circle grid use cagp_dist.condition."
        )
    mask = np.ones(grid.shape, dtype=bool) if observed is None else np.asarray(observed)
    if mask.dtype != np.bool_ or mask.shape != grid.shape:
        raise ArgumentError(
            f"observed has shape {mask.shape} and type {mask.dtype}; expected {grid.shape} of bool, True "
            "where a point was observed."
        )
    if np.ma.is_masked(y):
        raise ArgumentError(
            "y is a masked array; say which points were observed: observed=~numpy.ma.getmaskarray(y), and "
            "y.filled(numpy.nan) for y."
        )
    fields = as_numbers("y", y)
    if fields.ndim not in (2, 3) or fields.shape[-2:] != grid.shape or fields.size == 0:
        raise ArgumentError(
            f"y has shape {fields.shape}; expected {grid.shape} (latitude, longitude), or T such fields."
        )
    fields, mask = _merged_poles(fields, mask, grid)
    values = fields[..., mask]
    missing = int(np.count_nonzero(~np.isfinite(values)))
    if missing:
        raise ArgumentError(
            f"y holds {missing} values that are NaN or infinite where a point was observed. Leave those "
            "points out, at all times: observed=numpy.isfinite(y), or numpy.isfinite(y).all(axis=0)."
        )
    return condition(
        prior,
        grid.points[mask.ravel()],
        values.T,
        unit_sphere(latitude_degrees, longitude_degrees),
        solver=Rings(grid),
        covariance=covariance,
        executor=executor,
    )


def _merged_poles(
    fields: Array, observed: NDArray[np.bool_], grid: "LatLonGrid"
) -> tuple[Array, NDArray[np.bool_]]:
    """Replace the observed copies of a pole by one observation in column zero, their mean."""
    fields, observed = fields.copy(), observed.copy()
    for row in np.flatnonzero(is_pole(grid.latitude_degrees)):
        copies = observed[row].copy()
        observed[row] = False
        if copies.any():
            fields[..., row, 0] = fields[..., row, copies].mean(axis=-1)
            observed[row, 0] = True
    return fields, observed
