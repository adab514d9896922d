"""Coarse spaces: a few columns S for a `Projection`, made from points and kernel alone (math 6).

What sweeps over blocks leave of an error varies slowly over many blocks. The covariances of all points with a
few of them, ``S = k(X, Z)``, span such fields; a projection on their span takes out what sweeps cannot reach.
"""

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.tiled import TiledGram, cross_product
from cagp_dist.runtime import Executor
from cagp_dist.runtime.counting import count
from cagp_dist.solvers.engine.stages import ProjectionStage, Simultaneous
from cagp_dist.solvers.engine.tile_tasks import solve_alone
from cagp_dist.solvers.stationary.low_rank import partial_cholesky
from cagp_dist.solvers.stationary.spectrum import lanczos, random_column
from cagp_dist.tiling import block_ranges


def coarse_projection(gram: Gram, *, columns: int, executor: Executor) -> ProjectionStage:
    """Make the projection on the covariances of all points with a few of them."""
    factor = partial_cholesky(gram.kernel, gram.X, rank=columns).factor
    basis, _ = np.linalg.qr(factor)
    return projection_of(gram, basis, executor=executor)


def projection_of(gram: Gram, S: Array, *, executor: Executor) -> ProjectionStage:
    """Make the projection on the span of well-conditioned columns S (n, k); one product with G."""
    from scipy.linalg import solve_triangular

    # by tiles, as the sweeps: a grid would factor all its wavenumbers for this one product
    count(products=S.shape[1])
    image = cross_product(gram.kernel, gram.X, gram.X, S, executor=executor)
    image += gram.noise_variance[:, None] * S
    root = np.linalg.cholesky(S.T @ image)

    def conjugate(columns: Array) -> Array:
        return np.ascontiguousarray(solve_triangular(root, columns.T, lower=True).T)

    return ProjectionStage(conjugate(S), conjugate(image))


def largest_eigenvalue(
    gram: Gram, projection: ProjectionStage, *, block_size: int, executor: Executor, steps: int
) -> float:
    """Estimate the largest eigenvalue of ``B^-1 G`` on errors that a projection leaves, from below."""
    image = projection.image
    tiled = TiledGram(gram.kernel, gram.X, noise_variance=gram.noise_variance)

    def of(p: Array) -> tuple[Array, Array]:
        z = _block_solution(tiled, p, block_size=block_size, executor=executor)
        return z, tiled.product(z, executor=executor) - image @ (image.T @ z)

    start = random_column(gram.shape[0])
    return lanczos(of, start - image @ (projection.basis.T @ start), steps=steps)


def _block_solution(gram: TiledGram, columns: Array, *, block_size: int, executor: Executor) -> Array:
    """``B^-1 @ columns``."""
    stage = Simultaneous(whole_blocks=True)
    points = gram.points
    parts = [
        executor.submit(
            solve_alone,
            stage,
            [
                gram.kernel.parameters,
                np.ascontiguousarray(points[:, start:stop]),
                gram.noise_variance[start:stop],
            ],
            columns[start:stop],
            (0, stop - start),
            home=home,
        )
        for home, (start, stop) in enumerate(block_ranges(len(columns), block_size))
    ]
    return np.concatenate([solved.columns for solved in executor.gather(parts)])
