"""Data seen through block-sparse actions, by tiles: small matrices, and the way back from their derivatives.

For actions S (n, i), T fields b (n, T) and ``G = K + noise I``::

    forward    A = S'K S,   H = S'S,   M = A + noise H = S'G S = L L'
               W = K S L^-T,   w = L^-1 S'b,   r = b - W w
    backward   from derivatives by A, M and S'b to those by the hyperparameters and the entries of S

What is large is divided by L: sums of squares of W are then nearly as precise as its entries.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.tiled import put_value
from cagp_dist.kernels import Kernel
from cagp_dist.likelihood.learned.action_tiles import AHEAD, ActionTiles
from cagp_dist.likelihood.learned.objective import Hyperparameters
from cagp_dist.likelihood.numbering import Families, Model
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, Handle
from cagp_dist.runtime.memo import key_of
from cagp_dist.solvers.actions.block_sparse import BlockLayout, block_sums, tile_count
from cagp_dist.text import bytes_text
from cagp_dist.tiling import block_ranges

SQUARES = 12  # Matrices (i, i) that are there at a time, at most, beside those of tasks
PIECE_BYTES = 4 * 2**20  # Of rows of W that one task takes: what is sent with it at once stays small


@dataclass(frozen=True, eq=False)
class Seen:
    """What the actions see at one vector."""

    kernel: Kernel
    noise_variance: float
    values: Array  # (n,): entries of S, in the order of the blocks
    lengths: Array  # (i,): diagonal of H
    inverse: Array  # (i, i): ``L^-1``
    solution: Array  # (i, T): w
    log_determinant: float  # ``log|M| - log|H|``
    image: Array  # (n, i): W, its rows in the order of the blocks
    squares: Array  # (i, i): ``W'W``
    residual: Array  # (n, T): r, its rows likewise
    back: Array  # (i, T): ``W'r``

    @property
    def lengths_between(self) -> Array:
        """``L^-1 H L^-T`` (i, i)."""
        half = self.inverse * np.sqrt(self.lengths)
        return half @ half.T


class ProjectedData:
    """Observations X (n, p), residuals (n, T) that actions look at, and derivatives on the way back."""

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
            self.points,
            self.actions,
            fields=self.fields,
            workers=executor.workers,
            memory_limit_bytes=memory_limit_bytes,
        )
        self.tiles = ActionTiles(X, layout, executor=executor)
        self.right = np.ascontiguousarray(residuals[layout.order])
        self.fingerprint = key_of(self.hyperparameters, X, residuals, layout.order, layout.edges)

    @property
    def size(self) -> int:
        """Hyperparameters and points."""
        return self.hyperparameters.size + self.points

    def at(self, vector: Array) -> Seen:
        """Evaluate W, and what follows from it."""
        if vector.shape != (self.size,):
            raise ArgumentError(
                f"the vector has shape {vector.shape}; expected ({self.size},): logarithms of "
                f"{', '.join(self.hyperparameters.names)}, then an entry of the actions for each point.",
                key="shapes",
            )
        kernel, noise_variance = self.hyperparameters.read(vector)
        entries = vector[self.hyperparameters.size :]
        values = np.ascontiguousarray(entries[self.layout.order], dtype=np.float64)
        lengths = block_sums((values**2)[:, None], self.layout.edges)[:, 0]
        if not (np.isfinite(lengths).all() and (lengths > 0.0).all()):
            raise ArgumentError(
                "an action has entries that are not finite, or none but zeros; expected finite entries, one "
                "of each block other than zero.",
                key="empty-action",
            )
        image = self.tiles.forward(kernel, values)
        matrix = np.concatenate(
            [
                block_sums(values[rows, None] * image[rows], self.tiles.edges[tile])
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
                "bounds that keep it larger.",
                key="not-positive-definite",
            ) from error
        inverse = _inverse(factor)
        solution = inverse @ block_sums(values[:, None] * self.right, self.layout.edges)
        log_determinant = 2.0 * float(np.log(factor.diagonal()).sum()) - float(np.log(lengths).sum())
        return Seen(
            *(kernel, noise_variance, values, lengths, inverse, solution, log_determinant),
            *self._divided(image, inverse, solution),
        )

    def _divided(self, image: Array, inverse: Array, solution: Array) -> tuple[Array, Array, Array, Array]:
        """W in the place of its image ``K S``, ``W'W``, r and ``W'r``."""
        squares, residual = np.zeros_like(inverse), np.empty_like(self.right)
        back = np.zeros_like(solution)
        shared: Handle[Array] = self._executor.submit(put_value, inverse)
        for group in self._groups():
            handles = [
                self._executor.submit(
                    piece_image, image[rows], self.right[rows], shared, solution, home=piece
                )
                for piece, rows in group
            ]
            for (_, rows), (own, square, left, product) in zip(
                group, self._executor.gather(handles), strict=True
            ):
                image[rows], residual[rows] = own, left
                squares += square
                back += product
        return image, squares, residual, back

    def gradient(
        self,
        seen: Seen,
        *,
        by_matrix: Array,
        by_inverted: Array,
        by_projected: Array,
        by_noise: float = 0.0,
        by_prior: float = 0.0,
        with_residual: bool = False,
    ) -> Array:
        """Carry derivatives by the small matrices (i, i), (i, i) and (i, T) back to the vector."""
        noise, inverse = seen.noise_variance, seen.inverse
        inverted = np.einsum("ji,jk,ki->i", inverse, by_inverted, inverse, optimize=True)
        by_lengths = noise * inverted - self.fields / seen.lengths
        by_right = inverse.T @ by_projected
        scale = -2.0 / noise if with_residual else 0.0
        by_value, block_of = np.empty(self.points), self.layout.block_of
        shared: Handle[Array] = self._executor.submit(put_value, inverse)
        by_own: Handle[Array] = self._executor.submit(put_value, inverse.T @ (by_matrix + by_inverted))
        for group in self._groups():
            handles = [
                self._executor.submit(
                    piece_weights,
                    seen.image[rows],
                    seen.residual[rows],
                    seen.values[rows],
                    block_of[rows],
                    by_own,
                    shared,
                    seen.solution,
                    scale,
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
        by_value += np.einsum("ij,ij->i", self.right, by_right[block_of])
        by_entry = np.empty_like(by_value)
        by_entry[self.layout.order] = by_value
        by_noise += float(inverted @ seen.lengths)
        return np.concatenate([self.hyperparameters.gradient(by_kernel, noise * by_noise), by_entry])

    def _groups(self) -> Sequence[list[tuple[int, slice]]]:
        """Pieces of W, numbered, and their rows, so many at a time."""
        ranges = block_ranges(self.points, piece_rows(self.actions))
        numbered = list(enumerate(slice(*rows) for rows in ranges))
        ahead = AHEAD * self._executor.workers
        return [numbered[start : start + ahead] for start in range(0, len(numbered), ahead)]


def piece_rows(actions: int) -> int:
    """Rows of W that one task takes: a function of the number of actions alone."""
    return max(1, PIECE_BYTES // (DOUBLE * max(actions, 1)))


def check_projection(n: int, actions: int, *, fields: int, workers: int, memory_limit_bytes: int) -> None:
    """Raise `BudgetError` unless an evaluation with so many points, actions and fields fits."""
    needed = projection_bytes(n, actions, fields=fields, workers=workers)
    if needed > memory_limit_bytes:
        of_fields = f" of {fields:,} fields" if fields > 1 else ""
        raise BudgetError(
            f"{actions:,} actions on {n:,} points{of_fields} need about {bytes_text(needed)}, more than the "
            f"{bytes_text(memory_limit_bytes)} that may be used.",
            key="memory",
            remedies=(Remedy.MORE_MEMORY, Remedy.FEWER_ACTIONS, Remedy.FEWER_OBSERVED),
        )


def projection_bytes(n: int, actions: int, *, fields: int, workers: int) -> int:
    """Bytes of an evaluation, at most: W, parts of it that tasks hold and return, and small matrices."""
    size = max(-(-n // max(tile_count(n, actions), 1)), -(-n // max(actions, 1)))
    tile = 3 * size * -(-actions * size // max(n, 1))
    rows = min(n, piece_rows(actions))
    piece = rows * (3 * actions + 2 * fields) + 2 * actions**2
    columns = n * (12 + 4 * fields)  # residuals, what is missed of them, and one more while they are summed
    return DOUBLE * (n * actions + AHEAD * workers * max(tile, piece) + SQUARES * actions**2 + columns)


def piece_image(
    image: Array, right: Array, inverse: Array, solution: Array
) -> tuple[Array, Array, Array, Array]:
    """W, ``W'W``, ``r = b - W w`` and ``W'r`` of some rows of ``K S``."""
    U, V, w = (np.require(array, requirements="A") for array in (image, inverse, solution))
    W = U @ V.T
    residual = right - W @ w
    return W, W.T @ W, residual, W.T @ residual


def piece_weights(
    image: Array,
    residual: Array,
    values: Array,
    block_of: Indices,
    by_own: Array,
    inverse: Array,
    solution: Array,
    scale: float,
) -> tuple[Array, Array]:
    """Give ``(scale (r w' + T W) + S by_own) L^-1`` of rows of ``K S``, and derivatives by S beside them."""
    W, V, w = (np.require(array, requirements="A") for array in (image, inverse, solution))
    weights = by_own[block_of]
    by_value = np.einsum("xi,xi->x", W, weights)
    weights *= values[:, None]
    if scale != 0.0:
        weights += scale * (residual @ w.T + w.shape[1] * W)
    return weights @ V, by_value


def _inverse(factor: Array) -> Array:
    """Inverse of a lower triangle."""
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(factor, np.eye(len(factor)), lower=True, check_finite=False))
