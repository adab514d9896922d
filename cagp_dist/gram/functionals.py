"""Linear functionals of the field as targets: ``W' f(nodes)``, of which points and means are special cases.

With ``V`` the covariances of the nodes with the observed points, those of the functionals are ``W' V``, and
their prior covariance is ``W' k(nodes, nodes) W``. Solvers never see more than the columns ``V' W``: one
right-hand side for each functional.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import as_numbers, as_points
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import degrees
from cagp_dist.kernels import Kernel, Parameters, point_columns
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import VIEW_ROUNDING, Views

if TYPE_CHECKING:
    from scipy.sparse import csc_array, sparray, spmatrix

# Nodes whose covariances are held at a time, whole functionals; a constant, so that no bit depends on workers
NODES_AT_ONCE = 512

# Largest weight of a functional: variances, with its square, neither over- nor underflow
LEAST_WEIGHT, MOST_WEIGHT = 1e-100, 1e100

ROWS_AT_ONCE = 2048  # Points whose covariances with those nodes are held at a time: 8 MB
SQUARE_NODES = 256  # Nodes whose covariances with each other are evaluated at a time


@dataclass(frozen=True, eq=False, init=False)
class LinearFunctionals:
    """Weighted sums of the field at points: means over regions, differences, slopes, integrals.

    A target of `cagp_dist.condition`, `posterior_mean` and `sample_posterior`, of every solver. The posterior
    is that of ``W' f(points)``: of the belief about the field at the points it has ``W' mean`` and
    ``W' covariance W``, at the cost of one right-hand side for each functional and without that covariance.

    Parameters
    ----------
    points : array_like, shape (N, p)
        Where the field has a part in the functionals, in the coordinates of X.
    weights : array_like or SciPy sparse matrix, shape (N,) or (N, k)
        W: a column for each functional, of any sign and sum. A vector is one functional. The unit of a
        functional is that of the field times that of its weights.

    Attributes
    ----------
    nodes : array, shape (N', p)
        The points that have a weight; each is evaluated once for all functionals.
    terms : array of int, shape (M,), or None
        Node of each weight that is not zero, functional after functional; None where that is 0, 1, 2, ...
    weights : array, shape (M,)
        These weights.
    counts : array of int, shape (k,)
        How many of them each functional has.

    Raises
    ------
    ArgumentError
        If shapes do not fit, weights are not finite, a functional has no weight but zeros, or its largest is
        not between 1e-100 and 1e100.

    Notes
    -----
    A solve takes n N' kernel evaluations for V' and 2 n M flops, and `condition` N'^2 for the prior variance.

    See Also
    --------
    area_means : Means over regions of the Earth.
    gradients : Slopes to the east and to the north.
    cell_means : Means over the cells of a latitude-longitude grid.

    Examples
    --------
    How much higher the field is at 0.9 than at 0.1, and its mean over [0, 1]:

    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 50).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=0.01)
    >>> points = np.linspace(0.0, 1.0, 21)
    >>> difference = np.where(points == 0.9, 1.0, np.where(points == 0.1, -1.0, 0.0))
    >>> W = np.stack([difference, np.full(21, 1.0 / 21.0)], axis=1)
    >>> wanted = cagp.LinearFunctionals(points[:, None], W)
    >>> posterior = cagp.condition(
    ...     prior, X, np.exp(X[:, 0]), wanted, solver=cagp.Cholesky(), covariance="full"
    ... )
    >>> posterior.mean.round(2), np.sqrt(posterior.variance).round(2)
    (array([1.35, 1.72]), array([0.09, 0.02]))
    """

    nodes: Array
    weights: Array
    counts: Indices
    terms: Indices | None
    _variances: dict[Kernel, Array] = field(repr=False)

    def __init__(self, points: ArrayLike, weights: "ArrayLike | sparray | spmatrix") -> None:
        nodes = as_points("points", points)
        W = _columns(weights, len(nodes))
        counts = np.diff(W.indptr)
        if (counts == 0).any():
            empty = int(np.flatnonzero(counts == 0)[0])
            raise ArgumentError(
                f"functional {empty} has no weight but zeros, so that it is zero whatever the field; "
                "expected another weight in each column. Leave the column out, or take a finer grid where a "
                "region holds none of its points.",
                key="zero-functional",
            )
        largest = np.asarray(abs(W).max(axis=0).todense()).reshape(-1)
        unfit = (largest < LEAST_WEIGHT) | (largest > MOST_WEIGHT)
        if unfit.any():
            index = int(unfit.argmax())
            raise ArgumentError(
                f"functional {index} has weights up to {largest[index]:.3g}; expected {LEAST_WEIGHT:g} to "
                f"{MOST_WEIGHT:g}, whose squares are numbers. Use another unit.",
                key="out-of-range",
            )
        used, terms = np.unique(W.indices, return_inverse=True)
        self._set(nodes[used], W.data, counts, terms.reshape(-1))

    def _set(self, nodes: Array, weights: Array, counts: Indices, terms: Indices | None = None) -> None:
        if terms is not None and np.array_equal(terms, np.arange(len(nodes))):
            terms = None
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "counts", np.asarray(counts, dtype=np.intp))
        object.__setattr__(self, "terms", terms)
        object.__setattr__(self, "_variances", {})

    @staticmethod
    def of_terms(
        nodes: Array, weights: Array, counts: Indices, terms: Indices | None = None
    ) -> "LinearFunctionals":
        """Make functionals from the attributes, which are not checked."""
        made = object.__new__(LinearFunctionals)
        made._set(nodes, weights, counts, terms)
        return made

    @staticmethod
    def of_points(points: Array) -> "LinearFunctionals":
        """Points (q, p) as functionals of one weight each, one."""
        q = len(points)
        return LinearFunctionals.of_terms(points, np.ones(q), np.ones(q, dtype=np.intp))

    def followed_by(self, other: "LinearFunctionals") -> "LinearFunctionals":
        """Give these functionals, then the others."""
        terms = None
        if self.terms is not None or other.terms is not None:
            terms = np.concatenate([self._term_nodes(), len(self.nodes) + other._term_nodes()])
        return LinearFunctionals.of_terms(
            np.concatenate([self.nodes, other.nodes]),
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.counts, other.counts]),
            terms,
        )

    def combined(self, coefficients: ArrayLike) -> "LinearFunctionals":
        """Linear combinations of these functionals, one for each column (k,) or (k, m).

        The difference of two: ``[1.0, -1.0]``. `ArgumentError`: there is not a row for each functional, or a
        combination is zero whatever the field.
        """
        given = as_numbers("coefficients", coefficients)
        if given.ndim not in (1, 2) or len(given) != len(self):
            raise ArgumentError(
                f"coefficients have shape {given.shape}; expected ({len(self)},), or ({len(self)}, m) for m "
                f"combinations: one row for each of the {len(self)} functionals.",
                key="shapes",
            )
        return LinearFunctionals(self.nodes, self.matrix() @ given.reshape(len(self), -1))

    def matrix(self) -> "csc_array":
        """W, shape (N', k), sparse."""
        from scipy.sparse import csc_array

        pointers = np.concatenate([self.starts, [len(self.weights)]])
        return csc_array((self.weights, self._term_nodes(), pointers), shape=(len(self.nodes), len(self)))

    def __len__(self) -> int:
        """Count the functionals, k."""
        return self.counts.size

    @cached_property
    def starts(self) -> Indices:
        """First weight of each functional, shape (k,)."""
        return np.asarray(np.cumsum(self.counts) - self.counts)

    @cached_property
    def shared(self) -> bool:
        """Whether functionals have nodes in common."""
        return self.terms is not None and len(self.weights) > len(self.nodes)

    @property
    def points(self) -> Indices:
        """Which functionals are the field at a point: those of one weight, one."""
        return np.flatnonzero((self.counts == 1) & (self.weights[self.starts] == 1.0))

    @property
    def places(self) -> Array:
        """Node of each weight, shape (M, p)."""
        return self.nodes if self.terms is None else self.nodes[self.terms]

    @property
    def magnitudes(self) -> Array:
        """Sum of the absolute weights of each functional, shape (k,)."""
        return np.asarray(np.add.reduceat(np.abs(self.weights), self.starts)) if len(self) else np.empty(0)

    @property
    def centres(self) -> Array:
        """Mean of the nodes of each functional, weighted by absolute values, shape (k, p).

        On a sphere it lies somewhat below the surface.
        """
        if not len(self):
            return np.empty((0, self.nodes.shape[1]))
        sums = np.add.reduceat(np.abs(self.weights)[:, None] * self.places, self.starts, axis=0)
        total = self.magnitudes[:, None]
        return np.asarray(np.where(np.abs(total - 1.0) < 1e-9, sums, sums / total))

    def part(self, chosen: slice | Indices) -> "LinearFunctionals":
        """Take some of the functionals."""
        counts = self.counts[chosen]
        first = np.cumsum(counts) - counts
        index = np.repeat(self.starts[chosen] - first, counts) + np.arange(counts.sum())
        if self.terms is None:
            return LinearFunctionals.of_terms(self.nodes[index], self.weights[index], counts)
        used, terms = np.unique(self.terms[index], return_inverse=True)
        return LinearFunctionals.of_terms(self.nodes[used], self.weights[index], counts, terms.reshape(-1))

    def averaged(self, values: Array) -> Array:
        """``W' @ values``: values at the nodes (N', T), summed with the weights, shape (k, T)."""
        if not len(self):
            return np.empty((0, values.shape[1]))
        at_places = values if self.terms is None else values[self.terms]
        return np.asarray(np.add.reduceat(self.weights[:, None] * at_places, self.starts, axis=0))

    def prior_variance(self, kernel: Kernel) -> Array:
        """``w' k(nodes, nodes) w`` of each functional, shape (k,); worked out once for a kernel."""
        if kernel not in self._variances:
            self._variances[kernel] = variance_of_functionals(kernel, self)
        return self._variances[kernel]

    def _term_nodes(self) -> Indices:
        return np.arange(len(self.nodes)) if self.terms is None else self.terms


def _columns(weights: "ArrayLike | sparray | spmatrix", points: int) -> "csc_array":
    """Check W and give it by columns, without zeros."""
    from scipy.sparse import csc_array, issparse

    given = weights if issparse(weights) else as_numbers("weights", cast("ArrayLike", weights))
    if given.ndim not in (1, 2) or given.shape[0] != points:
        raise ArgumentError(
            f"weights have shape {given.shape}; expected ({points},) for one functional of the {points} "
            f"points, or ({points}, k) for k of them.",
            key="shapes",
        )
    W = csc_array(given.reshape(points, -1), dtype=np.float64, copy=True)
    if not np.isfinite(W.data).all():
        raise ArgumentError(
            "weights hold NaN or infinity; expected finite numbers, zero where there is none.",
            key="not-finite",
        )
    W.sum_duplicates()
    W.eliminate_zeros()
    return W


def views_of_functionals(
    functionals: LinearFunctionals, grid: LatLonGrid
) -> tuple[LinearFunctionals, Indices, Indices]:
    """Functionals that see a grid differently up to rotation by whole grid steps; see `Views` of points."""
    places, starts = functionals.places, functionals.starts
    turns = Views.of(places[starts], grid).steps
    latitude, longitude = degrees(places)
    spacing = 360.0 / grid.n_longitudes
    eastward = np.rint((longitude - np.repeat(turns, functionals.counts) * spacing) / VIEW_ROUNDING)
    # where each node lies once the first one was turned to the first column of the grid; and its weight
    alike = np.column_stack(
        [
            np.rint(latitude / VIEW_ROUNDING),
            np.mod(eastward, np.rint(360.0 / VIEW_ROUNDING)),
            functionals.weights,
        ]
    )
    first: dict[bytes, int] = {}
    ends = starts + functionals.counts
    known = [
        first.setdefault(alike[start:end].tobytes(), index)
        for index, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    chosen, view = np.unique(np.array(known, dtype=np.intp), return_inverse=True)
    return functionals.part(chosen), view.reshape(-1), turns - turns[chosen][view.reshape(-1)]


def functional_panel(kernel: Parameters, points: Array, functionals: LinearFunctionals) -> Array:
    """``k(points, nodes) W`` for the rows of a panel (p, m): shape (m, k); a task of executors."""
    from cagp_dist.compiled import evaluate

    m = points.shape[1]
    out = np.empty((m, len(functionals)))
    # nodes that functionals share are evaluated for all of them at once
    chosen_runs = [slice(None)] if functionals.shared else runs(functionals, NODES_AT_ONCE)
    for chosen in chosen_runs:
        part = functionals.part(chosen)
        Z = point_columns(part.nodes)
        # fewer rows for a functional that has more nodes
        together = max(1, min(ROWS_AT_ONCE, ROWS_AT_ONCE * NODES_AT_ONCE // part.weights.size))
        for start in range(0, m, together):
            rows = slice(start, min(start + together, m))
            values = np.empty((rows.stop - start, Z.shape[1]))
            evaluate(*kernel, np.ascontiguousarray(points[:, rows]), Z, values)
            if part.terms is not None:
                values = values[:, part.terms]
            values *= part.weights
            out[rows, chosen] = np.add.reduceat(values, part.starts, axis=1)
    return out


def covariance_of_functionals(
    kernel: Parameters, observed: LinearFunctionals, functionals: LinearFunctionals
) -> Array:
    """``W' k(nodes, nodes) W`` of functionals with others, shape (m, k)."""
    out = np.empty((len(observed), len(functionals)))
    for chosen in runs(observed, ROWS_AT_ONCE):
        part = observed.part(chosen)
        out[chosen] = part.averaged(functional_panel(kernel, point_columns(part.nodes), functionals))
    return out


def variance_of_functionals(kernel: Kernel, functionals: LinearFunctionals) -> Array:
    """``w' k(nodes, nodes) w`` of each functional, shape (k,)."""
    variance = np.empty(len(functionals))
    if functionals.shared and (functionals.counts**2).sum() > len(functionals.nodes) ** 2:
        seen = functional_panel(kernel.parameters, point_columns(functionals.nodes), functionals)
        for index, (start, count) in enumerate(zip(functionals.starts, functionals.counts, strict=True)):
            own = slice(start, start + count)
            variance[index] = functionals.weights[own] @ seen[functionals._term_nodes()[own], index]
    else:
        for chosen in runs(functionals, SQUARE_NODES):
            variance[chosen] = _variance_of_run(kernel, functionals.part(chosen))
    points = functionals.points
    variance[points] = kernel.diagonal(functionals.places[functionals.starts[points]])
    return variance


def _variance_of_run(kernel: Kernel, part: LinearFunctionals) -> Array:
    places = part.places
    if len(places) > SQUARE_NODES:  # one functional
        seen = functional_panel(kernel.parameters, point_columns(places), part)
        return np.asarray(part.weights @ seen)
    square = part.weights[:, None] * kernel(places, places)
    square *= part.weights
    square *= np.equal.outer(*[np.repeat(np.arange(len(part)), part.counts)] * 2)
    return np.asarray(np.add.reduceat(square.sum(axis=1), part.starts))


def runs(functionals: LinearFunctionals, nodes: int) -> Iterator[slice]:
    """Functionals in runs of at most so many weights, or of one functional."""
    ends = functionals.starts + functionals.counts
    first = 0
    while first < len(functionals):
        last = int(np.searchsorted(ends, functionals.starts[first] + nodes, side="right"))
        last = max(last, first + 1)
        yield slice(first, last)
        first = last
