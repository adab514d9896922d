"""Data seen through block-sparse actions, by tiles: small matrices, and the way back from their derivatives.

For actions S (n, i), T fields b (n, T) and ``G = K + noise I``::

    forward    U = K S,   A = S'U,   H = S'S,   M = A + noise H = S'G S,   v = M^-1 S'b
    backward   from derivatives by A, M, S'b and U to those by the hyperparameters and the entries of S

What is made of them is in `cagp_dist.likelihood.elbo`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.tiled import identity
from cagp_dist.kernels import Kernel
from cagp_dist.likelihood.action_tiles import AHEAD, ActionTiles
from cagp_dist.likelihood.model import Families, Model
from cagp_dist.likelihood.objective import Hyperparameters
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, Handle
from cagp_dist.solvers.block_sparse import BlockLayout, block_sums, tile_count
from cagp_dist.solvers.checkpoints import add_arrays
from cagp_dist.text import bytes_text
from cagp_dist.tiling import block_ranges

SQUARES = 12
"""Matrices (i, i) that are there at a time, at most, beside those of tasks."""

PIECE_BYTES = 4 * 2**20
"""Of rows of U that one task takes: what is sent with it at once stays small."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What the actions see at one vector.

    Attributes
    ----------
    kernel : Kernel
    noise_variance : float
    values : array, shape (n,)
        Entries of S, in the order of the blocks.
    image : array, shape (n, i)
        U, its rows likewise.
    matrix, inverse : arrays, shape (i, i)
        A, and the inverse of M.
    lengths : array, shape (i,)
        Diagonal of H.
    solution : array, shape (i, T)
        v.
    log_determinant : float
        ``log|M| - log|H|``.
    """

    kernel: Kernel
    noise_variance: float
    values: Array
    image: Array
    matrix: Array
    inverse: Array
    lengths: Array
    solution: Array
    log_determinant: float


class ProjectedData:
    """Observations that actions are about to look at, and derivatives on the way back.

    Parameters
    ----------
    kernel : type of Kernel, several, or Model
        Family of the covariance, or of each part of a sum.
    X : array of float64, shape (n, p)
        Observed points.
    residuals : array of float64, shape (n, T)
        ``b = y - mean(X)``, a column for each field.
    layout : BlockLayout
        Which points each action weighs.
    executor : Executor
        Where the tiles are worked on; the result does not depend on it.
    memory_limit_bytes : int
        What may be allocated.
    anisotropic : bool
        Whether each coordinate has a lengthscale of its own.

    Raises
    ------
    BudgetError
        If U does not fit, with what goes with it.
    """

    def __init__(
        self,
        kernel: Families | Model,
        X: Array,
        residuals: Array,
        *,
        layout: BlockLayout,
        executor: Executor,
        memory_limit_bytes: int,
        anisotropic: bool = False,
    ) -> None:
        self.hyperparameters = Hyperparameters.of(kernel, X, anisotropic=anisotropic)
        self.points, self.fields = int(residuals.shape[0]), int(residuals.shape[1])
        self.layout, self.actions = layout, layout.blocks
        self._executor = executor
        check_projection(
            self.points, self.actions, workers=executor.workers, memory_limit_bytes=memory_limit_bytes
        )
        self.tiles = ActionTiles(X, layout, executor=executor)
        self.right = np.ascontiguousarray(residuals[layout.order])
        found = hashlib.sha256(repr(self.hyperparameters).encode())
        add_arrays(found, [X, residuals, layout.order, layout.edges])
        self.fingerprint = found.hexdigest()

    @property
    def size(self) -> int:
        """Hyperparameters and points."""
        return self.hyperparameters.size + self.points

    def at(self, vector: Array) -> Seen:
        """Evaluate U, and what follows from it without another look at all of it."""
        if vector.shape != (self.size,):
            raise ArgumentError(
                f"the vector has shape {vector.shape}; expected ({self.size},): logarithms of "
                f"{', '.join(self.hyperparameters.names)}, then an entry of the actions for each point."
            )
        kernel, noise_variance = self.hyperparameters.read(vector)
        entries = vector[self.hyperparameters.size :]
        values = np.ascontiguousarray(entries[self.layout.order], dtype=np.float64)
        lengths = block_sums((values**2)[:, None], self.layout.edges)[:, 0]
        if not (np.isfinite(lengths).all() and (lengths > 0.0).all()):
            raise ArgumentError(
                "an action has entries that are not finite, or none but zeros; expected finite entries, one "
                "of each block other than zero."
            )
        image = self.tiles.forward(kernel, values)
        matrix = np.concatenate(
            [
                block_sums(values[rows, None] * image[rows], self.tiles.edges(tile))
                for tile, rows in enumerate(self.tiles.rows)
            ]
        )
        matrix = 0.5 * (matrix + matrix.T)
        try:
            factor = cholesky_lower(matrix + np.diag(noise_variance * lengths))
        except NumericalError as error:
            raise NumericalError(
                f"S'G S of {self.actions} actions is not positive definite in floating point: the noise "
                f"variance {noise_variance:.3g} is too small beside the variance {kernel.variance:.3g}. Give "
                "bounds that keep it larger."
            ) from error
        inverse = _inverse(factor)
        seen = block_sums(values[:, None] * self.right, self.layout.edges)
        log_determinant = 2.0 * float(np.log(factor.diagonal()).sum()) - float(np.log(lengths).sum())
        return Seen(
            kernel,
            noise_variance,
            values,
            image,
            matrix,
            inverse,
            lengths,
            inverse @ seen,
            log_determinant,
        )

    def squares_and_residual(self, seen: Seen) -> tuple[Array, Array, Array]:
        """``U'U`` (i, i), r (n, T) and ``U'r`` (i, T)."""
        squares, residual = np.zeros_like(seen.matrix), np.empty_like(self.right)
        back = np.zeros_like(seen.solution)
        for group in self._groups():
            handles = [
                self._executor.submit(
                    piece_squares, seen.image[rows], self.right[rows], seen.solution, home=piece
                )
                for piece, rows in group
            ]
            for (_, rows), (square, left, product) in zip(group, self._executor.gather(handles), strict=True):
                squares += square
                residual[rows] = left
                back += product
        return squares, residual, back

    def gradient(
        self,
        seen: Seen,
        *,
        by_matrix: Array,
        by_inverted: Array,
        by_projected: Array,
        by_noise: float,
        by_prior: float = 0.0,
        residual: Array | None = None,
    ) -> Array:
        """Carry derivatives of a function of the small matrices back to the vector.

        Parameters
        ----------
        seen : Seen
            Where; its ``image`` is overwritten.
        by_matrix, by_inverted : arrays, shape (i, i)
            Derivatives by A where it stands for itself, and by M. Symmetric.
        by_projected : array, shape (i, T)
            By S'b.
        by_noise, by_prior : float
            By the noise variance and by ``tr(K) / n``, where they stand for themselves.
        residual : array, shape (n, T), optional
            r, where the function has ``(|r|^2 - T tr(M^-1 U'U)) / noise`` in it.
        """
        noise = seen.noise_variance
        by_lengths = noise * by_inverted.diagonal() - self.fields / seen.lengths
        by_own = by_matrix + by_inverted
        factor = 0.0 if residual is None else -2.0 / noise
        left = np.zeros_like(self.right) if residual is None else residual
        by_value, block_of = np.empty(self.points), self.layout.block_of
        shared: Handle[Array] = self._executor.submit(identity, by_own)
        shares: Handle[Array] = self._executor.submit(identity, factor * self.fields * seen.inverse)
        for group in self._groups():
            handles = [
                self._executor.submit(
                    piece_weights,
                    seen.image[rows],
                    factor * left[rows],
                    seen.values[rows],
                    block_of[rows],
                    shared,
                    shares,
                    seen.solution,
                    home=piece,
                )
                for piece, rows in group
            ]
            for (_, rows), (weights, own) in zip(group, self._executor.gather(handles), strict=True):
                seen.image[rows] = weights
                by_value[rows] = own
        arrays = self.hyperparameters.arrays(seen.kernel)
        by_kernel, through = self.tiles.backward(arrays, seen.values, seen.image)
        by_kernel[:, -1] += by_prior * arrays.variances
        by_value += through + 2.0 * seen.values * by_lengths[block_of]
        by_value += np.einsum("ij,ij->i", self.right, by_projected[block_of])
        by_entry = np.empty_like(by_value)
        by_entry[self.layout.order] = by_value
        by_noise += float(by_inverted.diagonal() @ seen.lengths)
        return np.concatenate([self.hyperparameters.gradient(by_kernel, noise * by_noise), by_entry])

    def _groups(self) -> Sequence[list[tuple[int, slice]]]:
        """Pieces of U, numbered, and their rows, so many at a time."""
        ranges = block_ranges(self.points, piece_rows(self.actions))
        numbered = list(enumerate(slice(*rows) for rows in ranges))
        ahead = AHEAD * self._executor.workers
        return [numbered[start : start + ahead] for start in range(0, len(numbered), ahead)]


def piece_rows(actions: int) -> int:
    """Rows of U that one task takes: a function of the number of actions alone."""
    return max(1, PIECE_BYTES // (DOUBLE * max(actions, 1)))


def check_projection(n: int, actions: int, *, workers: int, memory_limit_bytes: int) -> None:
    """Raise `BudgetError` unless an evaluation with so many points and actions fits."""
    needed = projection_bytes(n, actions, workers=workers)
    if needed > memory_limit_bytes:
        raise BudgetError(
            f"{actions:,} actions on {n:,} points need about {bytes_text(needed)}, more than the "
            f"{bytes_text(memory_limit_bytes)} that may be used.",
            remedies=(Remedy.MORE_MEMORY, Remedy.FEWER_ACTIONS, Remedy.FEWER_OBSERVED),
        )


def projection_bytes(n: int, actions: int, *, workers: int) -> int:
    """Bytes of an evaluation, at most: U, parts of it that tasks hold and return, and small matrices."""
    size = max(-(-n // max(tile_count(n, actions), 1)), -(-n // max(actions, 1)))
    tile = 3 * size * -(-actions * size // max(n, 1))
    piece = 3 * min(n, piece_rows(actions)) * actions + 2 * actions**2
    return DOUBLE * (n * actions + AHEAD * workers * max(tile, piece) + SQUARES * actions**2 + 16 * n)


def piece_squares(image: Array, right: Array, solution: Array) -> tuple[Array, Array, Array]:
    """``U'U``, ``r = b - U v`` and ``U'r`` of some rows."""
    U, v = np.require(image, requirements="A"), np.require(solution, requirements="A")
    residual = right - U @ v
    return U.T @ U, residual, U.T @ residual


def piece_weights(
    image: Array,
    left: Array,
    values: Array,
    block_of: Indices,
    by_own: Array,
    shares: Array,
    solution: Array,
) -> tuple[Array, Array]:
    """Give derivatives by rows of U, ``left v' + U shares + S by_own``, and by S where A has it beside U.

    Shapes: image (n, i), left (n, T), values and block_of (n,), shares and by_own (i, i), solution (i, T).
    """
    U, W = np.require(image, requirements="A"), np.require(shares, requirements="A")
    weights = by_own[block_of]
    by_value = np.einsum("xi,xi->x", U, weights)
    weights *= values[:, None]
    if W.any() or left.any():  # neither, where the function has no residual
        weights += U @ W
        weights += left @ solution.T
    return weights, by_value


def _inverse(factor: Array) -> Array:
    """Inverse of ``L L'`` from L (i, i), symmetric to the last bit."""
    from scipy.linalg import solve_triangular

    half = solve_triangular(factor, np.eye(len(factor)), lower=True, check_finite=False)
    return np.asarray(half.T @ half)
