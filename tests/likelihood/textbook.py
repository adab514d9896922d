"""The log marginal likelihood as the books write it, dense, without the package."""

import numpy as np
from scipy.stats import multivariate_normal

from ..oracle import kernel_matrix


def log_likelihood(kernel_class, X, residuals, parameters):
    """Sum of log N(b | 0, G) over the columns of ``residuals`` (n, T), for (lengthscale, variance, noise)."""
    lengthscale, variance, noise_variance = parameters
    G = kernel_matrix(kernel_class(lengthscale, variance), X, X) + noise_variance * np.eye(len(X))
    return float(np.sum(multivariate_normal(np.zeros(len(X)), G).logpdf(residuals.T)))


def slope(function, x, step=1e-4):
    """Central differences of a function of a vector, of fourth order."""
    found = []
    for direction in np.eye(len(x)):
        near = function(x + step * direction) - function(x - step * direction)
        far = function(x + 2 * step * direction) - function(x - 2 * step * direction)
        found.append((8.0 * near - far) / (12.0 * step))
    return np.array(found)


def curvature(function, x, step=2e-3):
    """Second derivatives of a function of a vector by central differences."""
    gradient = [slope(function, x + sign * step * e, step) for e in np.eye(len(x)) for sign in (1, -1)]
    second = (np.array(gradient[::2]) - np.array(gradient[1::2])) / (2.0 * step)
    return 0.5 * (second + second.T)
