"""Regression problems of moderate condition (at most 1e5), drawn from a seed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import cagp_dist as cagp

from .oracle import Dense, dense

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RegressionProblem:
    """What `cagp.condition` takes, and its matrices."""

    prior: cagp.Prior
    X: Array
    y: Array
    X_test: Array

    @property
    def dense(self) -> Dense:
        """The matrices, evaluated without the package."""
        return dense(self.prior, self.X, self.y, self.X_test)

    def condition(self, solver, **settings) -> cagp.Posterior:
        """`cagp.condition` with a full covariance unless told otherwise."""
        settings = {"covariance": "full", **settings}
        return cagp.condition(self.prior, self.X, self.y, self.X_test, solver=solver, **settings)


def regression_problem(
    n: int = 300,
    *,
    q: int = 40,
    p: int = 2,
    kernel_class: type[cagp.Matern32] = cagp.Matern32,
    lengthscale: float = 0.3,
    noise_variance: float = 0.02,
    fields: int | None = None,
    seed: int = 0,
) -> RegressionProblem:
    """n points in the unit cube, in random order, observed with noise; q test points; a mean that varies."""
    rng = np.random.default_rng([seed, n, p])
    X, X_test = rng.uniform(size=(n, p)), rng.uniform(size=(q, p))
    columns = () if fields is None else (fields,)
    y = rng.normal(size=(n, *columns)) + np.multiply.outer(5.0 + np.sin(5.0 * X[:, 0]), np.ones(columns))
    prior = cagp.Prior(
        kernel_class(lengthscale=lengthscale, variance=2.0),
        noise_variance=noise_variance,
        mean=lambda points: np.multiply.outer(5.0 - points[:, 0], np.ones(columns)),
    )
    return RegressionProblem(prior, X, y, X_test)


class Prescribed(np.random.Generator):
    """Gives these arrays, one after the other, in place of standard normal numbers."""

    def __init__(self, *arrays: Array) -> None:
        super().__init__(np.random.PCG64(0))
        self._arrays = iter(arrays)

    def standard_normal(self, size):
        return next(self._arrays).reshape(size)


def unit_noise(prior: int, noise: int) -> Prescribed:
    """Unit vectors in place of the white noise of draws, first of the prior and then of the noise.

    The sum of the outer products of ``prior + noise`` draws is then their covariance, without chance.
    """
    both = np.eye(prior + noise)
    return Prescribed(both[:, :prior], both[:, prior:])
