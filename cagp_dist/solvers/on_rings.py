"""Computation-aware solvers on a whole latitude-longitude grid, judged at every point of it (math 7, T29).

Block Gauss-Seidel whose blocks are bands of whole rings does not mix wavenumbers: a sweep over the bands of
a field is a block sweep over the rows of each ``G_k``. With R the Cholesky factors of its diagonal blocks,
``R^-1 G_k R^-T = T + T' - I`` has identities on its diagonal, and the block sweep becomes the point sweep of
this whitened matrix (T its lower triangle; v, b, Y whitened likewise)::

    forward   v <- T^-1 (b - (T' - I) v)
    adjoint   Z = T^-T Y,   Y <- (I - T) Z,   downdate += Z' Z,     from Y = R^-1 K_k

With V = K, every point of the grid being a test point, the downdate depends on latitude alone. On a mirrored
grid a block is a band together with its mirror image, from the outermost rings to the equator.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.checks import check_count
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.gram.base import Array
from cagp_dist.gram.grid import as_fields
from cagp_dist.gram.ring_tasks import gram_range
from cagp_dist.gram.rings import RingGram
from cagp_dist.gram.wavenumbers import Parameters, Wavenumbers
from cagp_dist.lapack import multiply_lower, solve_lower
from cagp_dist.runtime import Handle
from cagp_dist.solvers.conjugacy import conjugate_directions
from cagp_dist.solvers.status import Status
from cagp_dist.tiling import Range, block_ranges


@dataclass(frozen=True, eq=False)
class GridState:
    """The belief about the latent field on the whole grid after some iterations.

    Attributes
    ----------
    iteration : int
        Sweeps or directions done, from 1.
    mean : array of float64, the shape of the field or stack of fields
        ``K A b``; add the prior mean.
    variance : array of float64, shape (P, Q), or None
        ``diag(K - K D(A) K)``, without noise; None where it was not asked for.
    status : Status
        How the solve would end here.
    relative_residual : float or None
        ``|b - G v| / |b|`` where the solver follows it.
    """

    iteration: int
    mean: Array
    variance: Array | None
    status: Status = Status.COMPLETED
    relative_residual: float | None = None


def gauss_seidel_on_grid(
    rings: RingGram, field: ArrayLike, *, iterations: int, rings_per_block: int = 1, variance: bool = True
) -> Iterator[GridState]:
    """Block Gauss-Seidel with bands of latitude rings (on a mirrored grid, mirrored pairs) as blocks.

    Calibrated for any number of iterations: its matrix does not depend on the data (math 1.1).

    Parameters
    ----------
    rings : RingGram
        Grid, kernel and noise; its factors are not needed.
    field : array_like, shape (P, Q) or (T, P, Q)
        Observed values minus the prior mean, at all points.
    iterations : int
        Sweeps, at least 0.
    rings_per_block : int
        Width of a band, at least 1. A ring is a long, thin block and converges slowly; bands about as wide as
        a few lengthscales converge fast.
    variance : bool
        Whether to work out variances as well: P^3 Q / 2 flops per sweep (a quarter if mirrored), against
        2 P^2 Q for the mean of a field. Those of all sweeps are worked out before the first one.

    Yields
    ------
    GridState
        One per sweep; none for no iterations, when the belief is the prior. Memory: the Gram blocks,
        4 P^2 Q bytes (half if mirrored), as much again times twice the width of a band over P, a quarter more
        while they are made, and a few fields.

    Raises
    ------
    ArgumentError
        If the field has another shape or missing values.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> grid = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 5), 8)
    >>> rings = cagp.RingGram(grid, cagp.Matern32(lengthscale=0.3), noise_variance=0.1)
    >>> field = rings.sample(np.random.default_rng(0), noise=True)
    >>> *_, last = cagp.gauss_seidel_on_grid(rings, field, iterations=50)
    >>> mean, variance = rings.posterior(field)
    >>> bool(np.allclose(last.mean, mean)), bool(np.allclose(last.variance, variance))
    (True, True)
    """
    check_count("iterations", iterations, least=0)
    check_count("rings_per_block", rings_per_block, least=1)
    given, shaped = as_fields("field", field, rings.grid)
    return (
        GridState(
            iteration,
            shaped(mean),
            None if downdate is None else _by_latitude(rings, rings.kernel.variance - downdate),
        )
        for iteration, mean, downdate in _sweeps(rings, given, iterations, rings_per_block, variance)
    )


def _sweeps(
    rings: RingGram, fields: Array, iterations: int, rings_per_block: int, variance: bool
) -> Iterator[tuple[int, Array, Array | None]]:
    """Yield sweep number, ``K v`` (T, P, Q) and ``diag(K D K)`` (P,) after every sweep."""
    wavenumbers, noise = rings.wavenumbers, rings.noise_by_latitude
    if iterations == 0:
        return
    width = min(rings_per_block, max(wavenumbers.sizes))
    blocks = rings.make(
        whitened_range, noise, rings_per_block, copies=1.5 + 2.0 * width / max(wavenumbers.sizes)
    )
    downdates = _downdates(rings, blocks, iterations=iterations) if variance else [None] * iterations
    right = wavenumbers.split(fields)
    above = [np.zeros_like(part) for part in right]
    for iteration in range(1, iterations + 1):
        with rings.workers() as executor:
            swept = executor.gather(
                [
                    executor.submit(
                        sweep_range,
                        block,
                        [part[first:last] for part in right],
                        [part[first:last] for part in above],
                        wavenumbers.by_ring(noise),
                        home=home,
                    )
                    for home, (block, (first, last)) in enumerate(
                        zip(blocks, wavenumbers.ranges(), strict=True)
                    )
                ]
            )
        above = [np.concatenate(sector) for sector in zip(*(part.above for part in swept), strict=True)]
        seen = [np.concatenate(sector) for sector in zip(*(part.seen for part in swept), strict=True)]
        yield iteration, wavenumbers.join(seen), downdates[iteration - 1]


def conjugate_gradient_on_grid(rings: RingGram, field: ArrayLike, *, iterations: int) -> Iterator[GridState]:
    """Conjugate gradients with full reorthogonalisation: CAGP-CG at every point of the grid (math 5).

    What a direction d adds at the points of the grid, ``K d = G d - N d``, is known from the iteration.
    Directions depend on the data, so the variance is conservative.

    Parameters
    ----------
    rings : RingGram
        Grid, kernel and noise.
    field : array_like, shape (P, Q)
        Observed values minus the prior mean, at all points.
    iterations : int
        Directions, at least 0.

    Yields
    ------
    GridState
        One per direction, none for no iterations, when the belief is the prior: a product with G and
        12 n i flops. Memory 24 n bytes per direction.

    Raises
    ------
    ArgumentError
        If the field has another shape or missing values; several fields need one call each.
    """
    check_count("iterations", iterations, least=0)
    given, shaped = as_fields("field", field, rings.grid)
    if len(given) != 1:
        raise ArgumentError(
            f"field holds {len(given)} fields; conjugate gradients follow one residual. Call it "
            "once per field."
        )
    return _steps(rings, given.ravel(), iterations, shaped)


def _steps(
    rings: RingGram, right: Array, iterations: int, shaped: Callable[[Array], Array]
) -> Iterator[GridState]:
    noise = np.repeat(rings.noise_by_latitude, rings.grid.n_longitudes)
    mean = np.zeros(rings.grid.size)
    downdate = np.zeros(rings.grid.size)
    done = 0
    for item in conjugate_directions(lambda d: rings @ d, right, iterations=iterations):
        if item.step != 0.0:
            seen = item.product - noise * item.direction
            mean += item.step * seen
            downdate += seen**2 / item.norm
            done += 1
        yield GridState(
            done,
            shaped(mean[None]).copy(),
            (rings.kernel.variance - downdate).reshape(rings.grid.shape),
            item.status,
            item.relative_residual,
        )


class Whitened(NamedTuple):
    """``R^-1 G_k R^-T`` of a sector (lower triangles), and the diagonal blocks R and R^-1 of each band."""

    gram: Array
    bands: list[Range]
    roots: list[Array]
    inverse_roots: list[Array]

    def apply(self, blocks: list[Array], columns: Array, *, transposed: bool = False) -> Array:
        """Multiply columns by a block diagonal matrix: `roots` or `inverse_roots`."""
        flip = (0, 2, 1) if transposed else (0, 1, 2)
        return np.concatenate(
            [
                block.transpose(flip) @ columns[:, first:last]
                for block, (first, last) in zip(blocks, self.bands, strict=True)
            ],
            axis=1,
        )


class Swept(NamedTuple):
    """Columns of a range of wavenumbers after a sweep: ``(T' - I) v`` for the next one, and ``K v``."""

    above: list[Array]
    seen: list[Array]


def whitened_range(
    parameters: Parameters, wavenumbers: Wavenumbers, span: Range, noise: Array, rings_per_block: int
) -> list[Whitened]:
    """Gram blocks of a range of wavenumbers, whitened by the factors of their diagonal blocks."""
    whitened: list[Whitened] = []
    for gram in gram_range(parameters, wavenumbers, span, noise):
        bands = block_ranges(gram.shape[1], rings_per_block)
        roots: list[Array] = []
        inverse_roots: list[Array] = []
        for first, last in bands:
            root = _cholesky(gram[:, first:last, first:last])
            inverse = np.asarray(np.linalg.inv(root), dtype=np.float64)
            gram[:, first:last, :first] = inverse @ gram[:, first:last, :first]
            gram[:, first:last, first:last] = np.eye(last - first)
            gram[:, last:, first:last] = gram[:, last:, first:last] @ inverse.transpose(0, 2, 1)
            roots.append(root)
            inverse_roots.append(inverse)
        whitened.append(Whitened(gram, bands, roots, inverse_roots))
    return whitened


def _cholesky(blocks: Array) -> Array:
    try:
        # reads the lower triangles alone
        return np.asarray(np.linalg.cholesky(blocks), dtype=np.float64)
    except np.linalg.LinAlgError as error:
        raise NumericalError(
            "a diagonal block of the grid is not positive definite in floating point. Raise noise_variance, "
            "or leave out pole rows and rings that nearly coincide."
        ) from error


def sweep_range(
    sectors: list[Whitened], right: list[Array], above: list[Array], noise: Sequence[Array]
) -> Swept:
    """One forward sweep for a range of wavenumbers."""
    swept = Swept([], [])
    for sector, b, before, variances in zip(sectors, right, above, noise, strict=True):
        left = sector.apply(sector.inverse_roots, b) - before
        v = left.copy()
        solve_lower(sector.gram, v)
        after = v.copy()
        multiply_lower(sector.gram, after, transposed=True)
        after -= v
        product = sector.apply(sector.roots, left + after)  # G v = R (T v + (T' - I) v)
        product -= variances[:, None] * sector.apply(sector.inverse_roots, v, transposed=True)
        swept.above.append(after)
        swept.seen.append(product)
    return swept


def downdate_range(
    sectors: list[Whitened], noise: Sequence[Array], weights: Array, iterations: int
) -> list[Array]:
    """Weighted sum of ``diag(K_k D_m K_k)`` after each adjoint sweep, (iterations, size) per sector."""
    found = []
    for sector, variances in zip(sectors, noise, strict=True):
        # Y = R^-1 K = (R^-1 G R^-T) R' - R^-1 N
        count, size = sector.gram.shape[:2]
        whole = sector.gram + np.tril(sector.gram, -1).transpose(0, 2, 1)
        Y = np.ascontiguousarray(sector.apply(sector.roots, whole.transpose(0, 2, 1)).transpose(0, 2, 1))
        Y -= sector.apply(sector.inverse_roots, np.broadcast_to(np.diag(variances), (count, size, size)))
        downdate = np.zeros((iterations, size))
        total = np.zeros(size)
        for iteration in range(iterations):
            solve_lower(sector.gram, Y, transposed=True)  # Y is Z from here on
            total += weights @ np.einsum("kij,kij->kj", Y, Y)
            downdate[iteration] = total
            image = Y.copy()
            multiply_lower(sector.gram, image)
            Y -= image
        found.append(downdate)
    return found


def _downdates(
    rings: RingGram, blocks: Sequence[Handle[list[Whitened]] | list[Whitened]], *, iterations: int
) -> list[Array]:
    """``diag(K D_m K)`` by latitude (P,) after each sweep."""
    wavenumbers = rings.wavenumbers
    with rings.workers() as executor:
        parts = executor.gather(
            [
                executor.submit(
                    downdate_range,
                    block,
                    wavenumbers.by_ring(rings.noise_by_latitude),
                    wavenumbers.weights[first:last],
                    iterations,
                    home=home,
                )
                for home, (block, (first, last)) in enumerate(zip(blocks, wavenumbers.ranges(), strict=True))
            ]
        )
    sectors = [np.sum(sector, axis=0) for sector in zip(*parts, strict=True)]
    return [
        wavenumbers.to_rings([sector[i] for sector in sectors]) / rings.grid.n_longitudes
        for i in range(iterations)
    ]


def _by_latitude(rings: RingGram, values: Array) -> Array:
    return np.repeat(values[:, None], rings.grid.n_longitudes, axis=1)
