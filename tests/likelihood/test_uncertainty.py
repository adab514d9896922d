"""What curvature and gradient at the end of a search are taken for."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.likelihood.bounds import Bounds
from cagp_dist.likelihood.exact.likelihood_evaluation import Evaluation
from cagp_dist.likelihood.exact.profile_likelihood import Counter, ProfileLikelihood
from cagp_dist.likelihood.numbering import Numbering
from cagp_dist.likelihood.uncertainty import uncertainty

from ..oracle import assert_close

WIDE = Bounds((1e-3, 1e3), (1e-3, 1e3), (1e-3, 1e3))
INFORMATION = np.array([[40.0, 10.0, -5.0], [10.0, 30.0, 8.0], [-5.0, 8.0, 20.0]])
"""By the logarithms of (lengthscale, variance, ratio)."""

NATURAL = Numbering().natural


class Scripted:
    """A likelihood of 100 values with a given gradient by (log lengthscale, log ratio)."""

    points, fields = 100, 1

    def __init__(self, gradient=(0.0, 0.0), excess=None):
        self.gradient, self.excess = np.array(gradient), excess

    def evaluate(self, lengthscale, ratio):
        return Evaluation(100, 1, 0.0, 100.0, -2.0 * self.gradient, np.zeros(2), excess=self.excess)


def judged(likelihood, information=INFORMATION, *, bounds=WIDE, x=(0.0, -1.0)):
    profile = ProfileLikelihood(likelihood, bounds, Counter(None))
    return uncertainty(profile, profile.at(np.array(x)), np.asarray(information))


def test_covariance_is_the_inverse_information_of_the_parameters():
    end = judged(Scripted())
    assert end.status is cagp.FitStatus.CONVERGED
    assert end.gradient_norm == 0.0
    expected = np.linalg.inv(NATURAL.T @ INFORMATION @ NATURAL)
    assert_close(end.covariance, expected, relative=1e-12)
    # ratio 1 / e and variance 1
    noise_error = np.sqrt(expected[2, 2]) * np.exp(-1.0)
    assert end.standard_errors.noise_variance == pytest.approx(noise_error, rel=1e-12)


def test_a_likelihood_of_a_sample_of_its_terms_adds_its_part():
    excess = np.array([[3.0, 1.0, 0.5], [1.0, 2.0, 0.2], [0.5, 0.2, 1.0]])
    end = judged(Scripted(excess=excess))
    inverse = np.linalg.inv(NATURAL.T @ INFORMATION @ NATURAL)
    added = inverse @ NATURAL.T @ excess @ NATURAL @ inverse
    assert_close(end.covariance, inverse + added, relative=1e-12)


def test_a_gradient_is_judged_by_the_standard_errors():
    assert judged(Scripted((0.5, 0.0))).status is cagp.FitStatus.CONVERGED
    far = judged(Scripted((2.0, 0.0)))
    assert far.status is cagp.FitStatus.NOT_CONVERGED
    assert far.gradient_norm == pytest.approx(2.0)
    # or by the error of a sample, where that is larger
    assert judged(Scripted((2.0, 0.0), 30.0 * np.eye(3))).status is cagp.FitStatus.CONVERGED


@pytest.mark.parametrize("information", [-INFORMATION, np.diag([40.0, -1.0, 20.0]), np.zeros((3, 3))])
def test_curvature_that_is_not_downwards_is_flat(information):
    end = judged(Scripted(), information)
    assert end.status is cagp.FitStatus.FLAT
    assert not end.status.ok
    assert "Fix a parameter" in end.status.advice
    assert np.isnan(end.covariance).all()
    assert np.isnan(end.standard_errors.variance)


def test_hardly_any_curvature_is_flat_with_its_errors():
    end = judged(Scripted(), np.diag([0.01, 40.0, 40.0]))
    assert end.status is cagp.FitStatus.FLAT
    assert end.standard_errors.lengthscale == pytest.approx(10.0)


@pytest.mark.parametrize(("low", "name"), [(True, "noise_variance"), (False, "variance")])
@pytest.mark.parametrize("fixed", [False, True])
def test_a_limited_ratio_moves_both_variances_together(low, name, fixed):
    lengthscale = (1.0, 1.0) if fixed else (1e-3, 1e3)
    bounds = Bounds(lengthscale, (1e-20, 1e20), (1e-20, 1e20))
    end = judged(Scripted(), bounds=bounds, x=(0.0, np.log(bounds.ratio[0 if low else 1])))
    assert end.status is cagp.FitStatus.AT_BOUND
    assert end.at_bound == (name,)
    free = [1] if fixed else [0, 1]  # with the ratio held
    expected = np.linalg.inv(INFORMATION[np.ix_(free, free)])
    assert end.covariance[1 if low else 2, 1 if low else 2] == pytest.approx(expected[-1, -1])
    assert np.isnan(end.covariance[2 if low else 1]).all()
    assert np.isnan(end.standard_errors.lengthscale) == fixed
