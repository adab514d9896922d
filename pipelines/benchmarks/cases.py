"""The measured cases; each runs in a process of its own so that its peak memory is its own.

``python -m pipelines.benchmarks.cases NAME`` prints the figures of one case as one line of JSON.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.solvers import Solver
from pipelines.benchmarks import reference
from pipelines.benchmarks.measuring import Figures, named, on_sphere, peak_mebibytes, timed

# What maximum likelihood gives for ERA5 temperature on the unit sphere, in units of the prior variance.
LENGTHSCALE = 0.041
NOISE_VARIANCE = 0.024
# So long that no two points are independent: no tile can be left out.
LONG_LENGTHSCALE = 1.0


def problem(
    n: int, q: int, *, lengthscale: float = LENGTHSCALE
) -> tuple[cagp.Prior, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Prior, X (n, 3), y (n,) and X_test (q, 3) of a timing case."""
    prior = cagp.Prior(cagp.Matern32(lengthscale, 1.0), NOISE_VARIANCE)
    y = np.random.default_rng(2).standard_normal(n)
    return prior, on_sphere(n, seed=0, block_size=1024), y, on_sphere(q, seed=1, block_size=1024)


def interleaved(*functions: Callable[[], object], repeats: int = 5) -> list[float]:
    """Median seconds of each function, measured in turns so that a noisy neighbour hits all."""
    seconds: list[list[float]] = [[] for _ in functions]
    for function in functions:
        function()
    for _ in range(repeats):
        for index, function in enumerate(functions):
            start = time.perf_counter()
            function()
            seconds[index].append(time.perf_counter() - start)
    return [statistics.median(times) for times in seconds]


def gram_product() -> Figures:
    """Product with the Gram matrix, n = 8192, one thread: ours against blocked NumPy."""
    from cagp_dist.runtime import single_threaded_blas

    n = 8192
    X = on_sphere(n, seed=0)  # in no order, so that no tile can be skipped
    gram = cagp.TiledGram(cagp.Matern32(LENGTHSCALE, 1.0), X, noise_variance=np.zeros(n))
    figures: Figures = {}
    with single_threaded_blas():
        for r in (1, 25):
            columns = np.random.default_rng(1).standard_normal((n, r))
            ours, theirs = interleaved(
                partial(gram.__matmul__, columns),
                partial(reference.blocked_product, X, columns, LENGTHSCALE, 1.0),
            )
            figures[f"ns_per_entry_{r}_columns"] = ours / n**2 * 1e9
            figures[f"numpy_ns_per_entry_{r}_columns"] = theirs / n**2 * 1e9
            figures[f"ratio_{r}_columns"] = theirs / ours
    return figures


def sum_product() -> Figures:
    """Product with a sum of two kernels, n = 8192, one thread: one pass against one for each kernel."""
    from cagp_dist.runtime import single_threaded_blas

    n = 8192
    X = on_sphere(n, seed=0)  # in no order, so that no tile can be skipped
    parts = cagp.Matern32(LENGTHSCALE, 1.0), cagp.Matern32(LONG_LENGTHSCALE, 1.0)
    both, *alone = (
        cagp.TiledGram(kernel, X, noise_variance=np.zeros(n)) for kernel in (parts[0] + parts[1], *parts)
    )
    figures: Figures = {}
    with single_threaded_blas():
        for r in (1, 25):
            columns = np.random.default_rng(1).standard_normal((n, r))
            separate = alone[0] @ columns + alone[1] @ columns
            if np.abs(both @ columns - separate).max() > 1e-10 * np.abs(separate).max():
                raise SystemExit("the product with a sum is not the sum of the products")
            together, *one_by_one = interleaved(
                *(partial(gram.__matmul__, columns) for gram in (both, *alone))
            )
            figures[f"ns_per_entry_{r}_columns"] = together / n**2 * 1e9
            figures[f"ratio_{r}_columns"] = sum(one_by_one) / together
    return figures


def gauss_seidel(*, lengthscale: float = LENGTHSCALE) -> Figures:
    """CAGP-GS with n = 10,638, q = 25, m = 80: the paper's timing case."""
    prior, X, y, X_test = problem(10_638, 25, lengthscale=lengthscale)
    figures, posterior = timed(lambda: cagp.condition(prior, X, y, X_test, solver=cagp.GaussSeidel(80)))
    return {**figures, "check": float(posterior.mean @ posterior.variance)}


def gauss_seidel_long() -> Figures:
    """Run the same with a lengthscale so long that nothing can be skipped."""
    return gauss_seidel(lengthscale=LONG_LENGTHSCALE)


def gauss_seidel_scipy() -> Figures:
    """Run the same by dense SciPy triangular solves."""
    _, X, y, X_test = problem(10_638, 25)
    start = time.perf_counter()
    mean, variance = reference.algorithm2(
        X, y, X_test, lengthscale=LENGTHSCALE, noise_variance=NOISE_VARIANCE, iterations=80
    )
    return {"seconds": time.perf_counter() - start, "check": float(mean @ variance)}


def large() -> Figures:
    """Block Gauss-Seidel with n = 64,700, q = 100, m = 5: the paper's largest case."""
    prior, X, y, X_test = problem(64_700, 100)
    start = time.perf_counter()
    posterior = cagp.condition(
        prior, X, y, X_test, solver=cagp.BlockGaussSeidel(5, block_size=1024), memory_limit_bytes=2 * 2**30
    )
    return {
        "seconds": time.perf_counter() - start,
        "gram_gigabytes": 8e-9 * len(X) ** 2,
        "mean_variance": float(posterior.variance.mean()),
    }


def dask_workers() -> Figures:
    """Two single-threaded Dask workers against one: n = 32,768, q = 100, m = 5, no tile skipped."""
    from distributed import LocalCluster

    prior, X, y, X_test = problem(32_768, 100, lengthscale=LONG_LENGTHSCALE)
    solver = cagp.BlockGaussSeidel(5, block_size=1024)
    with ExitStack() as stack:
        solves = []
        for workers in (1, 2):
            cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
            stack.enter_context(cluster)
            executor = stack.enter_context(cagp.open_executor(cluster.scheduler_address))
            solves.append(partial(cagp.condition, prior, X, y, X_test, solver=solver, executor=executor))
        one, two = interleaved(*solves, repeats=1)
    return {"seconds_1_worker": one, "seconds_2_workers": two, "ratio": one / two}


def calibration() -> Figures:
    """Test error bars on a thousand fields in the paper's setting: n = 400, q = 441, m = 5."""
    generator = np.random.default_rng(0)
    X, side = generator.uniform(size=(400, 2)), np.linspace(0.0, 1.0, 21)
    X_test = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    prior = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=0.01)
    solvers: dict[str, Solver] = {
        "gauss_seidel": cagp.GaussSeidel(5),
        "block_gauss_seidel": cagp.BlockGaussSeidel(5, block_size=50),
        "conjugate_gradients": cagp.ConjugateGradient(5),
    }
    figures: Figures = {}
    for name, solver in solvers.items():
        cagp.calibrate(prior, X, X_test, solver=solver, simulations=10)  # functions are compiled
        start = time.perf_counter()
        found = cagp.calibrate(prior, X, X_test, solver=solver)
        figures[f"seconds_{name}"] = time.perf_counter() - start
        figures[f"z_std_{name}"] = found.tests.z_std
    return figures


def sharp() -> Figures:
    """Sharp calibrated GP: 25 levels, 2,000 training and 1,000 calibration points, four coordinates."""
    from cagp_dist.calibration.recalibration.sharp import Sharp
    from cagp_dist.calibration.recalibration.stretched import DenseModel
    from cagp_dist.predictive import Gaussian

    generator = np.random.default_rng(0)
    X = generator.uniform(size=(3000, 4))
    y = 3.0 * np.sin(5.0 * X[:, 0]) * (X[:, 0] > 0.5) + np.cos(3.0 * X[:, 1])
    y += (0.1 + 0.2 * X[:, 1]) * generator.standard_normal(3000)
    prior = cagp.Prior(cagp.Matern52(0.6, 2.5), 0.05)
    found = cagp.condition(prior, X[:2000], y[:2000], X[2000:], solver=cagp.Cholesky())
    distribution = Gaussian(found.mean, np.sqrt(found.variance + 0.05))
    figures: Figures = {}
    for name, anisotropic in (("isotropic", False), ("anisotropic", True)):
        levels = tuple(np.linspace(0.02, 0.98, 25))
        method = Sharp(DenseModel(prior, X[:2000]), levels=levels, anisotropic=anisotropic, split="two-way")
        spent, fitted = timed(lambda: method.fit(distribution, y[2000:], X[2000:]))  # noqa: B023
        figures |= named(spent, name) | {f"stretches_{name}": fitted.evaluations}
    return figures


def startup() -> Figures:
    """Import and help, as a user waits for them (warm file cache)."""

    def run(*command: str) -> Callable[[], object]:
        return lambda: subprocess.run(command, check=True, capture_output=True)

    python = sys.executable
    nothing, imported, helped = interleaved(
        run(python, "-c", "pass"),
        run(python, "-c", "import cagp_dist"),
        run(str(Path(python).with_name("cagp")), "--help"),
    )
    return {"python_seconds": nothing, "import_seconds": imported, "help_seconds": helped}


CASES = {
    "gram_product": "cases",
    "sum_product": "cases",
    "gauss_seidel": "cases",
    "gauss_seidel_long": "cases",
    "gauss_seidel_scipy": "cases",
    "large": "cases",
    "dask_workers": "cases",
    "calibration": "cases",
    "sweeps": "sweeps",
    "whole_grid": "grids",
    "grid_likelihood": "grids",
    "grid_fit": "grids",
    "elbo": "bounds",
    "elbo_dense": "bounds",
    "elbo_large": "bounds",
    "scattered": "scattered",
    "neighbours": "scattered",
    "shared_errors": "scattered",
    "shared_errors_large": "scattered",
    "scattered_fit": "scattered",
    "scattered_large": "scattered",
    "scattered_fit_large": "scattered",
    "transformed": "not_normal",
    "censored": "not_normal",
    "checked": "not_normal",
    "stored_workers": "stored",
    "stored_large": "stored",
    "days_on_grid": "space_and_time",
    "swath_window": "space_and_time",
    "observed_hours": "space_and_time",
    "pathwise_variances": "maps",
    "map_job": "maps",
    "held_out_job": "maps",
    "second_hour": "second_hour",
    "sharp": "cases",
    "local_scale": "local_scales",
    "kernels": "kernels",
    "cokriging": "kernels",
    "variables_fit": "kernels",
    "startup": "cases",
    "first_picture": "first_picture",
}
"""The module of each case: the others are not imported, as they would count in its peak memory."""


LARGE = (
    "scattered_large",
    "scattered_fit_large",
    "shared_errors_large",
    "censored",
    "checked",
    "stored_large",
    "days_on_grid",
    "swath_window",
    "observed_hours",
    "first_picture",
)
"""Cases of minutes, or that need a browser, which run only where they are asked for."""


def main() -> None:
    """Run the case named on the command line."""
    name = sys.argv[1]
    figures: Figures = getattr(import_module(f"pipelines.benchmarks.{CASES[name]}"), name)()
    figures["peak_mebibytes"] = peak_mebibytes()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
