"""Numbers that are drawn by their probability, against the posterior on a grid."""

import numpy as np

import cagp_dist as cagp
from cagp_dist.factors import Anisotropic
from cagp_dist.likelihood.exact.hyperprior import log_prior_of_lengthscale
from cagp_dist.pipeline.likely_numbers import Fields, likely_kernels


def test_draws_have_the_moments_of_the_posterior():
    """Of one variable and a known noise, whose two numbers are on a grid as well."""
    generator = np.random.default_rng(6)
    X, truth = generator.uniform(0.0, 10.0, (60, 2)), cagp.Matern32(2.0, 1.0)
    basis, noise = np.ones((60, 1)), np.full(60, 0.1)
    y = np.linalg.cholesky(truth(X, X) + np.diag(noise)) @ generator.normal(size=60)
    result = cagp.fit(
        cagp.Matern32, X, y, mean=cagp.mean_family("constant"), bounds={"noise_variance": (0.1, 0.1)}
    )
    extent = float(np.linalg.norm(np.ptp(X, axis=0)))
    found = likely_kernels(result, Fields(X, y[:, None], noise, basis, extent))
    weights = np.array([weight for weight, _ in found])
    drawn = np.log([[kernel.numbers[0], kernel.variance] for _, kernel in found])

    grid = np.stack(np.meshgrid(np.linspace(-1.0, 2.5, 36), np.linspace(-2.0, 3.0, 36)), axis=-1).reshape(
        -1, 2
    )
    values = []
    for length, variance in np.exp(grid):
        G = cagp.Matern32(length, variance)(X, X) + np.diag(noise)
        one = np.linalg.solve(G, basis)
        A = (basis.T @ one).item()
        left = y - basis[:, 0] * (one[:, 0] @ y) / A
        density = -0.5 * (np.linalg.slogdet(G)[1] + np.log(A) + left @ np.linalg.solve(G, left))
        prior = float(log_prior_of_lengthscale(np.array([length]), extent)[0])
        values.append(density + prior - 0.5 * (np.log(variance) / 3.0) ** 2)
    exact = np.exp(np.array(values) - max(values))
    exact /= exact.sum()
    mean = exact @ grid
    deviation = np.sqrt(exact @ (grid - mean) ** 2)
    # 32 draws, of weights that are worth some 60: four standard errors of both
    assert (np.abs(weights @ drawn - mean) < 4.0 * deviation / np.sqrt(32)).all()
    assert (np.abs(np.log(np.sqrt(weights @ (drawn - mean) ** 2) / deviation)) < 4.0 / np.sqrt(64)).all()


def test_what_a_fit_does_not_know_is_kept():
    generator = np.random.default_rng(6)
    X = generator.uniform(0.0, 10.0, (30, 2))
    bounds = {"lengthscale": (2.0, 2.0), "noise_variance": (0.1, 0.1)}
    result = cagp.fit(cagp.Matern32, X, generator.normal(size=30), mean=0.0, bounds=bounds)
    fields = Fields(X, generator.normal(size=(30, 1)), np.full(30, 0.1), np.empty((30, 0)), 10.0)
    kernels = [kernel for _, kernel in likely_kernels(result, fields)]
    assert {kernel.numbers for kernel in kernels} == {(2.0,)}
    assert len({kernel.variance for kernel in kernels}) > 10


def test_no_ellipse_is_drawn_that_is_longer_than_there_may_be():
    """One was an error, where 25 values say little of its ratio."""
    generator = np.random.default_rng(0)
    X = cagp.unit_sphere(generator.uniform(40.0, 50.0, 25), generator.uniform(0.0, 15.0, 25))
    truth = Anisotropic(cagp.Matern32(0.08), 20.0, 60.0, centre=(45.0, 7.5))
    y = np.linalg.cholesky(truth(X, X) + 0.1 * np.eye(25)) @ generator.normal(size=25)
    result = cagp.fit(truth.family, X, y, mean=0.0, bounds={"noise_variance": (0.1, 0.1)})
    found = likely_kernels(result, Fields(X, y[:, None], np.full(25, 0.1), np.empty((25, 0)), 0.4))
    assert 20.0 < max(kernel.ratio for _, kernel in found) <= 100.0
