"""A kernel that is chosen by how well each value is predicted by all others, and what is said of it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import NumericalError
from cagp_dist.kernels import MaternOf
from cagp_dist.likelihood import kernel_choice as choice
from cagp_dist.posterior.left_out import each_left_out
from cagp_dist.predictive import Gaussian


def field(kernel, n=300, noise=1e-4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    return X, np.linalg.cholesky(kernel(X, X) + noise * np.eye(n)) @ rng.normal(size=n)


@pytest.mark.parametrize(
    ("family", "noise"),
    [
        pytest.param(cagp.Matern12, 0.1, marks=pytest.mark.exhaustive),
        (cagp.Matern32, 1e-2),
        pytest.param(cagp.Matern52, 1e-4, marks=pytest.mark.exhaustive),
    ],
)
def test_the_kernel_that_made_the_field_is_chosen(family, noise):
    X, y = field(family(0.3, 2.0), noise=noise)
    result = cagp.fit("auto", X, y, mean=0.0)
    assert type(result.prior.kernel) is family
    assert result.choice.kernel == family.__name__
    alone = cagp.fit(family, X, y, mean=0.0)
    assert result.log_likelihood == pytest.approx(alone.log_likelihood, abs=1e-2)
    others = [value for name, value in result.choice.crps.items() if name != family.__name__]
    assert all(value > result.choice.crps[family.__name__] for value in others)
    assert result.choice.line().startswith(f"{family.__name__}, chosen by leave-one-out errors (CRPS)")
    by_others = each_left_out(cagp.Prior(alone.prior.kernel, alone.prior.noise_variance), X, y)
    crps = Gaussian(by_others.mean, np.sqrt(by_others.variance)).crps(y[None]).mean()
    assert result.choice.crps[family.__name__] == pytest.approx(crps, rel=1e-3)


def test_kernels_that_predict_alike_keep_matern32_and_one_value_is_chosen_for_by_likelihood():
    X, y = field(cagp.Matern12(0.3, 1.0), n=60, noise=1.0, seed=1)
    alike = choice.choose_kernel(partial(cagp.fit, where=X, y=y, mean=0.0), final=True, crps=lambda fit: 1.0)
    assert alike.choice.kernel == "Matern32"
    assert alike.prior.kernel == cagp.fit(cagp.Matern32, X, y, mean=0.0).prior.kernel
    likeliest = choice.choose_kernel(
        partial(cagp.fit, where=X, y=y, mean=0.0), final=True, crps=lambda fit: float("nan")
    )
    assert likeliest.log_likelihood == max(likeliest.choice.log_likelihoods.values())
    assert "by likelihood on 60 points" in likeliest.choice.line()


def test_a_number_that_is_held_is_held_for_all(monkeypatch):
    X, y = field(cagp.Matern12(0.3, 2.0), n=100)
    seen = []
    monkeypatch.setitem(
        choice.CHOICES,
        "auto",
        lambda search, **others: choice.choose_kernel(
            lambda *args, **settings: seen.append(search(*args, **settings)) or seen[-1], **others
        ),
    )
    result = cagp.fit("auto", X, y, mean=0.0, bounds={"lengthscale": (0.5, 0.5)})
    assert result.prior.kernel.lengthscale == 0.5
    assert [found.prior.kernel.lengthscale for found in seen] == pytest.approx([0.5] * 3)


@pytest.mark.exhaustive
def test_many_points_are_compared_on_some_and_fitted_as_they_are(monkeypatch):
    monkeypatch.setattr("cagp_dist.likelihood.fit.MOST_COMPARED", 224)
    X, y = field(cagp.Matern52(0.3, 2.0))
    result = cagp.fit("auto", X, y, mean=cagp.mean_family("constant"), noise_deviations=np.full(300, 1e-5))
    assert (result.choice.kernel, result.points) == ("Matern52", 300)
    assert result.choice.points < 225


def test_the_fit_of_the_chosen_kernel_goes_on_from_the_comparison(monkeypatch):
    """It ends where one from all starts does, after fewer evaluations."""
    monkeypatch.setattr("cagp_dist.likelihood.fit.MOST_COMPARED", 224)
    X, y = field(cagp.Matern12(0.3, 2.0))
    chosen = cagp.fit("auto", X, y, mean=0.0, method="vecchia")
    alone = cagp.fit(chosen.choice.kernel.lower(), X, y, mean=0.0, method="vecchia")
    assert chosen.choice.points < 225
    assert chosen.evaluations < alone.evaluations / 2
    assert chosen.log_likelihood == pytest.approx(alone.log_likelihood, abs=1e-2)


def test_a_kernel_that_leaves_floating_point_is_none_to_choose():
    X, y = field(cagp.Matern32(0.3, 2.0), n=40)

    def search(family, **settings):
        if family is cagp.Matern52:
            raise NumericalError("not positive definite")
        return cagp.fit(family, X, y, mean=0.0, **settings)

    found = choice.choose_kernel(search, final=True, crps=lambda fit: 1.0).choice
    assert found.missing == ("Matern52",)
    assert found.line().endswith("Matern52 none")


def test_a_better_fit_that_did_not_end_well_is_none_for_good():
    """Matern 1/2 is right, and leaves the noise undetermined; a fit to more points may determine it."""
    X, y = field(cagp.Matern12(0.3, 2.0))
    kept, started = (
        choice.choose_kernel(
            partial(cagp.fit, where=X, y=y, mean=0.0), final=final, crps=lambda fit: -fit.log_likelihood
        )
        for final in (True, False)
    )
    assert (kept.choice.kernel, kept.status.ok) == ("Matern32", True)
    assert (started.choice.kernel, started.status.ok) == ("Matern12", False)
    assert kept.choice.log_likelihoods == started.choice.log_likelihoods


def test_grids_are_compared_by_rings():
    grid = cagp.LatLonGrid(np.linspace(-85.0, 85.0, 18), 36)
    truth = cagp.RingGram(grid, cagp.Matern12(lengthscale=0.5, variance=4.0), noise_variance=0.2)
    drawn = truth.sample(np.random.default_rng(0), noise=True)
    result = cagp.fit("auto", grid, drawn, mean=0.0)
    assert (result.method, result.choice.kernel, result.choice.points) == ("rings", "Matern12", 648)


@pytest.mark.exhaustive
def test_the_smoothness_is_fitted():
    """Of a field of smoothness 0.8: better than the classes, and no neighbour of it is better still."""
    X, y = field(cagp.Matern(0.8, 0.3, 2.0), noise=1e-2)
    result = cagp.fit(cagp.Matern, X, y, mean=0.0)
    smoothness = result.prior.kernel.smoothness
    assert 0.4 < smoothness < 1.4
    others = [MaternOf(factor * smoothness) for factor in (0.93, 1.07)]
    for family in (cagp.Matern32, *others):
        assert cagp.fit(family, X, y, mean=0.0).log_likelihood < result.log_likelihood + 1e-3
    assert result.choice.line().startswith(f"Matern({smoothness:g}), chosen by likelihood on 300 points: Ma")


def test_a_smoothness_that_leaves_floating_point_is_left_out():
    X, y = field(cagp.Matern32(0.3, 2.0), n=40)

    def search(family, **settings):
        if family.smoothness > 2.0:
            raise NumericalError("not positive definite")
        return cagp.fit(family, X, y, mean=0.0, **settings)

    found = choice.fit_smoothness(search, final=True, crps=None)
    assert found.prior.kernel.smoothness <= 2.0


def test_kernels_that_predict_nearly_as_well_are_probable():
    X, y = field(cagp.Matern32(0.3, 2.0), n=40)
    result = cagp.fit("auto", X, y, mean=0.0)
    result = replace(result, choice=replace(result.choice, crps={"Matern32": 1.0, "Matern12": 1.01}))
    result = replace(result, prior=cagp.Prior(cagp.Matern32(0.3), 0.1))
    assert choice.kernel_probabilities(result, 40) == {cagp.Matern32: 1.0, cagp.Matern12: 1.01**-40}
    assert choice.kernel_probabilities(result, 1_000) == {cagp.Matern32: 1.0}
    assert choice.kernel_probabilities(replace(result, choice=None), 40) == {cagp.Matern32: 1.0}
