"""Rules for the kernel: fits of the experiment against the package, and what rules take."""

import numpy as np

import cagp_dist as cagp
from cagp_dist.posterior.left_out import each_left_out
from pipelines.experiments import kernel_rules as rules


def test_predictions_and_errors_are_those_of_the_package():
    case = rules.field_of("repeats", 30, np.random.default_rng(3))
    found = rules.fitted(case, cagp.Matern32, np.random.default_rng(0))
    mean = cagp.BasisMean(lambda X: np.ones((len(X), 1)), ("constant",))
    prior = cagp.fit(cagp.Matern32, case.X, case.y, mean=mean).prior
    exact = cagp.condition(prior, case.X, case.y, case.X_new, solver=cagp.Cholesky())
    np.testing.assert_allclose(found.places.mean, exact.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.places.std, np.sqrt(exact.variance), rtol=1e-5, atol=1e-6)
    others = each_left_out(prior, case.X, case.y)
    np.testing.assert_allclose(found.each[0], case.y - others.mean[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.each[1] ** 2, others.variance[0], rtol=1e-6)


def test_a_rule_that_takes_the_best_has_no_regret():
    case = rules.field_of("rough", 40, np.random.default_rng(0))
    fits = [rules.fitted(case, family, np.random.default_rng(0)) for family in rules.FAMILIES]
    judged = rules.judged(case, fits)
    assert min(judged[f"Matern {name}/2"][0] for name in (1, 3, 5)) == 0.0
    assert all(np.isfinite(numbers).all() for numbers in judged.values())
    assert rules.RULES["leave-one-out CRPS"](fits) == np.argmin(
        [rules.crps(*fit.each).mean() for fit in fits]
    )
