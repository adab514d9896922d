"""The transform that the likelihood prefers, on one scale."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.model_settings import ModelSettings
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.transform_choice import advice_of_values, log_likelihood, transform_of_values
from cagp_dist.runtime import SerialExecutor

RNG = np.random.default_rng(2)
LAT, LON = RNG.uniform(45.0, 55.0, 100), RNG.uniform(0.0, 15.0, 100)
G = cagp.Matern32(0.04, 1.0)(*2 * [cagp.unit_sphere(LAT, LON)]) + 0.04 * np.eye(100)
Z = np.linalg.cholesky(G) @ RNG.standard_normal(100)


def test_the_likelihood_of_values_has_the_slopes_of_the_transform_t48():
    """T48: the density of y is that of z times the slopes; with a mean that is known."""
    observed = Observations.from_points(LAT, LON, np.exp(Z)[None]).transformed(cagp.BoxCox(0.0))
    model = FittedModel(cagp.Matern32(0.04, 1.0), 0.3, np.asarray(0.0), 0.04)
    by_hand = multivariate_normal(np.full(100, 0.3), G).logpdf(Z) - Z.sum()
    assert log_likelihood(observed, model) == pytest.approx(by_hand, rel=1e-10)


def test_a_multiple_of_what_values_become_changes_no_likelihood_of_contrasts():
    """With a mean that is estimated: 3 log(y) is no other transform than log(y)."""
    y, three = np.exp(Z)[None], 3.0
    mean = cagp.MEANS["constant"]

    class Tripled:
        def forward(self, values):
            return three * np.log(values)

        def inverse(self, scores):
            return np.exp(scores / three)

        def log_slope(self, values):
            return np.log(three / values)

    once = Observations.from_points(LAT, LON, y).transformed(cagp.BoxCox(0.0))
    thrice = Observations.from_points(LAT, LON, y).transformed(Tripled())
    first, second = (
        log_likelihood(
            observed, FittedModel(cagp.Matern32(0.04, factor), mean, np.asarray(0.0), 0.04 * factor)
        )
        for observed, factor in ((once, 1.0), (thrice, 9.0))
    )
    assert second == pytest.approx(first, rel=1e-10)


@pytest.mark.parametrize(
    ("values", "text"),
    [(np.exp(Z), "log(y)"), (20.0 + Z, "y"), (np.sinh(2.0 * Z), "asinh")],
    ids=["lognormal", "normal", "both tails"],
)
def test_auto_finds_how_values_were_made_whatever_their_unit(values, text):
    settings = ModelSettings("matern32", cagp.MEANS["constant"])
    execution = Execution(SerialExecutor())
    for factor in (1.0, 1e4)[: 1 + (text == "log(y)")]:
        observed = Observations.from_points(LAT, LON, factor * values[None])
        found = transform_of_values(observed, "auto", settings, execution, narrator=Narrator(shown=False))
        assert found.chosen.text.startswith(text)
        best = max(found.log_likelihoods.values())
        assert best - found.log_likelihoods["none"] > (-1.0 if text == "y" else 6.0)


@pytest.mark.parametrize(
    ("values", "units", "said"),
    [
        (np.exp(Z), "ppm", 'transform="log"'),
        ((6.0 + 2.0 * Z) ** 2, "", 'transform="sqrt"'),
        (280.0 + Z, "K", ""),
        (np.maximum(Z, 0.0), "mm", 'transform="auto"'),
        (np.maximum(Z - np.sort(Z)[-4], 0.0), "mm", ""),
        ((60.0 * Z) % 360.0, "degree", "u = -speed"),
        (100.0 + 8.0 * Z, "degree", ""),
    ],
    ids=["lognormal", "squares", "normal", "zeros", "three above zero", "directions", "angles of one side"],
)
def test_values_that_are_not_normal_are_told_what_helps(values, units, said):
    observed = Observations.from_points(LAT, LON, values[None], stated_units=units)
    model = FittedModel(cagp.Matern32(0.04, 1.0), cagp.MEANS["constant"], np.asarray(0.0), 0.04)
    advice = advice_of_values(observed, model)
    assert (said in advice) if said else advice == ""


def test_no_transform_is_proposed_beside_a_mean_that_is_read():
    """But of directions, which have no mean, it is said."""
    for values, units, said in ((np.exp(Z), "ppm", ""), ((60.0 * Z) % 360.0, "degree", "u = -speed")):
        observed = Observations.from_points(LAT, LON, values[None], stated_units=units)
        for mean in ("climatology:normals.nc", [[1.0]]):
            model = FittedModel(cagp.Matern32(0.04, 1.0), mean, np.asarray(0.0), 0.04)
            advice = advice_of_values(observed, model)
            assert (said in advice) if said else advice == ""


def test_zeros_that_are_not_censored_are_proposed_to_be_values():
    values = np.maximum(Z, 0.0).round(1)
    timed = replace(Observations.from_points(LAT, LON, values[None], stated_units="mm"), hours=np.zeros(100))
    model = FittedModel(cagp.Matern32(0.04, 1.0), cagp.MEANS["constant"], np.asarray(0.0), 0.04)
    assert "transform=cagp.BoxCox(0.5, shift=0.1)" in advice_of_values(timed, model)
