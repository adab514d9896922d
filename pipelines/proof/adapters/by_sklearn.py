"""scikit-learn: a Gaussian process with Matern 3/2 and noise, by maximum likelihood from three starts."""

import numpy as np
from harness import Array, Predicted, Seen, serve, unit_vectors
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel


def _predicted(X: Array, y: Array, X_new: Array, *, each: bool) -> Predicted:
    """Fit, with a lengthscale for all columns or for each, and predict observations."""
    scale = X.std(axis=0) if each else X.std()
    lengthscales = np.ones(X.shape[1]) if each else 1.0
    kernel = ConstantKernel() * Matern(lengthscales, nu=1.5) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0)
    mean, std = model.fit(X / scale, y).predict(X_new / scale, return_std=True)
    return Predicted(mean, std)


def process(seen: Seen) -> Predicted:
    """One lengthscale, of coordinates alone."""
    X, X_new = (unit_vectors(X) if seen.geographic else X for X in (seen.X, seen.X_new))
    return _predicted(X, seen.y, X_new, each=False)


def process_of_columns(seen: Seen) -> Predicted:
    """Covariates as further columns, with a lengthscale for each column."""
    X, X_new = (unit_vectors(X) if seen.geographic else X for X in (seen.X, seen.X_new))
    return _predicted(np.hstack([X, seen.U]), seen.y, np.hstack([X_new, seen.U_new]), each=True)


if __name__ == "__main__":
    serve({"process": process, "columns": process_of_columns})
