"""fvGP: dense, and gp2Scale, which needs a kernel of compact support and works on Dask."""

from collections.abc import Callable

import numpy as np
import scipy.sparse
from distributed import Client, LocalCluster
from fvgp import GP
from fvgp.kernels import get_distance_matrix, matern_kernel_diff1
from harness import Array, Clock, Prediction, Problem, serve
from scipy.spatial import cKDTree

TAPER_SUPPORT = 0.4  # chord; the reference of the suite holds the same taper
BATCH = 2500


def matern32(X: Array, Z: Array, hyperparameters: Array) -> Array:
    """Matern-3/2 of its own making; variance and lengthscale."""
    return hyperparameters[0] * matern_kernel_diff1(get_distance_matrix(X, Z), hyperparameters[1])


def tapered(X: Array, Z: Array, hyperparameters: Array) -> scipy.sparse.coo_matrix:
    """Matern-3/2 times Wendland's ``(1 - r)^4 (4 r + 1)``: zero beyond the support, returned sparse."""
    near = cKDTree(X).sparse_distance_matrix(cKDTree(Z), TAPER_SUPPORT, output_type="coo_matrix")
    relative = near.data / TAPER_SUPPORT
    near.data = hyperparameters[0] * matern_kernel_diff1(near.data, hyperparameters[1])
    near.data *= (1.0 - relative) ** 4 * (4.0 * relative + 1.0)
    return near


def _zero(X: Array, hyperparameters: Array) -> Array:
    return np.zeros(len(X))


def _model(problem: Problem, kernel: Callable[..., object], **options: object) -> GP:
    """Make the process of a problem; the dense way factors its matrix here."""
    return GP(
        problem.X,
        problem.y,
        init_hyperparameters=np.array([problem.variance, problem.lengthscale]),
        noise_variances=np.full(len(problem.y), problem.noise_variance),
        kernel_function=kernel,
        prior_mean_function=_zero,
        **options,
    )


def _predict(model: GP, problem: Problem, clock: Clock) -> Prediction:
    with clock("predict"):
        mean = model.posterior_mean(problem.X_test)["m(x)"]
        variance = model.posterior_covariance(problem.X_test, variance_only=True)["v(x)"]
    return Prediction(np.ravel(mean), np.sqrt(np.ravel(variance) + problem.noise_variance))


def cholesky(problem: Problem, clock: Clock) -> Prediction:
    """Exact, by a dense factor."""
    with clock("solve"):
        model = _model(problem, matern32)
    return _predict(model, problem, clock)


def gp2scale(problem: Problem, clock: Clock) -> Prediction:
    """Sparse matrix by Dask workers, one for each thread, and a sparse factorisation."""
    with clock("build"):
        cluster = LocalCluster(n_workers=problem.threads, threads_per_worker=1, dashboard_address=None)
        client = Client(cluster)
    with cluster, client:
        with clock("solve"):
            model = _model(
                problem,
                tapered,
                gp2Scale=True,
                gp2Scale_batch_size=BATCH,
                linalg_mode="sparseLU",  # Krylov modes solve once for each variance: four times slower
                dask_client=client,
            )
        return _predict(model, problem, clock)


if __name__ == "__main__":
    serve({"cholesky": cholesky, "gp2scale": gp2scale})
