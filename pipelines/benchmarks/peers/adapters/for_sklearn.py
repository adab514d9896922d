"""scikit-learn: ``GaussianProcessRegressor``, a dense Cholesky factor."""

import numpy as np
from harness import Array, Clock, Fit, Prediction, Problem, serve
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel


def cholesky(problem: Problem, clock: Clock) -> Prediction:
    """Exact, with the hyperparameters held."""
    with clock("build"):
        kernel = ConstantKernel(problem.variance) * Matern(problem.lengthscale, nu=1.5)
        model = GaussianProcessRegressor(kernel, alpha=problem.noise_variance, optimizer=None)
    with clock("solve"):
        model.fit(problem.X, problem.y)
    with clock("predict"):
        mean, std = model.predict(problem.X_test, return_std=True)
    return Prediction(mean, np.sqrt(std**2 + problem.noise_variance))


def fit(problem: Problem, clock: Clock) -> Fit:
    """Its default optimiser, L-BFGS-B on the logarithms, from one start; here with a counter."""
    evaluations = 0

    def optimize(objective, start: Array, bounds: Array) -> tuple[Array, float]:
        nonlocal evaluations
        found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds)
        evaluations = int(found.nfev)
        return found.x, found.fun

    with clock("solve"):
        kernel = ConstantKernel(problem.variance) * Matern(problem.lengthscale, (1e-3, 10.0), nu=1.5)
        kernel += WhiteKernel(problem.noise_variance)
        model = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=optimize).fit(problem.X, problem.y)
    variance, lengthscale, noise_variance = np.exp(model.kernel_.theta)
    return Fit(lengthscale, variance, noise_variance, evaluations)


if __name__ == "__main__":
    serve({"cholesky": cholesky, "fit": fit})
