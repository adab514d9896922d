"""The models of GPyTorch stand for what they are compared as: the same kernel, start and posterior."""

import sys

import numpy as np
import pytest

import cagp_dist as cagp

from .scripts import script

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning"),
]

KERNEL, NOISE = cagp.Matern32((0.4, 0.8), 1.5), 0.05


@pytest.fixture
def models():
    pytest.importorskip("gpytorch", reason="the extra [baselines] is not installed")
    return script("gpytorch_models")


@pytest.fixture(scope="module")
def data():
    """60 observed points of a field in the square, and 30 others, with observations of both."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(90, 2))
    gram = KERNEL(X, X) + NOISE * np.eye(90)
    y = np.linalg.cholesky(gram) @ rng.standard_normal(90)
    return X[:60], y[:60], X[60:], y[60:]


def root_mean_square(values) -> float:
    return float(np.sqrt(np.mean(values**2)))


def test_without_steps_the_exact_posterior_of_the_start_is_there(models, data):
    X, y, X_test, _ = data
    found = models.cggp(X, y, X_test, (KERNEL, NOISE), steps=0)
    exact = cagp.condition(cagp.Prior(KERNEL, NOISE), X, y, X_test, solver=cagp.Cholesky())
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-6)
    np.testing.assert_allclose(found.variance, exact.variance, atol=1e-6)
    assert (found.noise_variance, found.steps) == (pytest.approx(NOISE, rel=1e-6), 0)


def test_conjugate_gradients_take_the_place_of_factors(models, data):
    """As with many cases; below 800 GPyTorch would factor.

    It predicts to a relative residual of 0.01, and takes its steps to one of 1 with sampled derivatives: the
    means differ by 0.5 and 3 % here.
    """
    from linear_operator.settings import max_cholesky_size

    X, y, X_test, _ = data
    best = cagp.fit(cagp.Matern32, X, y, mean=0.0, method="dense", anisotropic=True).prior
    exact = cagp.condition(best, X, y, X_test, solver=cagp.Cholesky())
    with max_cholesky_size(0):
        found = models.cggp(X, y, X_test, (best.kernel, best.noise_number), steps=0)
        learnt = models.cggp(X, y, X_test, (cagp.Matern32((1.0, 1.0), 1.0), 0.5), steps=40)
    for of, within in ((found, 0.02), (learnt, 0.1)):
        assert np.isfinite(of.variance).all()
        assert (of.variance > 0.0).all()
        assert root_mean_square(of.mean - exact.mean) < within * root_mean_square(exact.mean)


def test_steps_of_conjugate_gradients_raise_the_likelihood(models, data):
    """60 cases are factored: the maximum is that of the exact likelihood, to 3e-6 after forty steps."""
    X, y, X_test, _ = data
    start = cagp.Matern32((1.0, 1.0), 1.0), 0.5
    found = models.cggp(X, y, X_test, start, steps=40)
    best = cagp.fit(cagp.Matern32, X, y, mean=0.0, method="dense", anisotropic=True).prior
    assert found.steps > 0
    assert abs(np.log(found.noise_variance / best.noise_number)) < 1e-3
    exact = cagp.condition(best, X, y, X_test, solver=cagp.Cholesky())
    assert root_mean_square(found.mean - exact.mean) < 1e-3 * root_mean_square(exact.mean)


def test_with_all_points_inducing_the_variational_posterior_comes_near_the_exact_one(models, data):
    """After 400 steps, which move hyperparameters too, errors differ by 3 % and variances by 10 % here."""
    X, y, X_test, y_test = data
    found = models.svgp(X, y, X_test, (KERNEL, NOISE), inducing=X, epochs=400, rate=0.02)
    exact = cagp.condition(cagp.Prior(KERNEL, NOISE), X, y, X_test, solver=cagp.Cholesky())
    assert found.steps == 400  # one batch has them all
    assert root_mean_square(found.mean - y_test) < 1.2 * root_mean_square(exact.mean - y_test)
    assert 0.75 < np.mean(found.variance) / np.mean(exact.variance) < 1.33


def test_where_it_is_not_installed_that_is_said(monkeypatch, regression_set, tmp_path, capsys):
    learned = script("learned_actions")
    monkeypatch.setitem(sys.modules, "gpytorch", None)
    monkeypatch.setattr(learned.gpytorch_models, "find_spec", lambda name: None)
    given = ["--quick", "--data", str(regression_set), "--sets", "concrete", "--output", str(tmp_path)]
    with pytest.raises(SystemExit):
        learned.main([*given, "--methods", "SVGP"])
    printed = capsys.readouterr()
    assert "pip install '.[baselines]'" in printed.out
    assert "no method is left" in printed.err
    learned.main([*given, "--methods", "subset", "SVGP"])
    printed = capsys.readouterr().out
    assert "pip install '.[baselines]'" in printed
    assert "subset: NLL" in printed
    learned.main([*given, "--methods", "subset"])  # it was not asked for
    assert "pip install" not in capsys.readouterr().out
