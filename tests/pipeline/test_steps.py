"""The steps of a task, each by itself."""

from dataclasses import replace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import DataError
from cagp_dist.pipeline import Observations, Resources, Split
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.model_settings import ModelSettings
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.solve_task import solve_task
from cagp_dist.pipeline.steps import fit, fit_folds, solve
from cagp_dist.pipeline.task import HeldOut, Priors, Task
from cagp_dist.runtime import SerialExecutor
from cagp_dist.service.job_fit import numbers_of

GIVEN = ModelSettings(cagp.Matern32(0.1, 4.0), "constant", noise_variance=0.25)


def observed(places, times=1, *, seed=0):
    generator = np.random.default_rng(seed)
    north, east = generator.uniform(45.0, 55.0, places), generator.uniform(0.0, 15.0, places)
    values = 280.0 + 0.4 * (north - 50.0) + generator.standard_normal((times, places))
    when = np.datetime64("2020-01-01", "ns") + np.arange(times) * np.timedelta64(1, "D")
    return Observations.from_points(north, east, values, times=when)


def cross_validated(points, *, settings=GIVEN, folds=2):
    """Predict each place from those of the other folds."""
    places = np.arange(points.north.size)
    fold = places % folds
    return Task(
        points,
        Split(places, places, fold, fold),
        Targets(MapPoints(points.X), {"held out": slice(0, places.size)}),
        settings,
        held_out=HeldOut(points.values, points.positions, np.zeros(places.size), fold),
    )


def test_a_time_that_a_fold_leaves_empty_is_named_before_anything_is_fitted(monkeypatch):
    points = observed(12, 3)
    points.values[1, 1::2] = np.nan  # all that is left is of one fold
    for step in ("predict", "fit_field"):
        monkeypatch.setattr(f"cagp_dist.pipeline.steps.{step}", None)
    execution = Execution(SerialExecutor())
    fitted = cross_validated(points, settings=replace(GIVEN, kernel="matern32", noise_variance=None))
    model = FittedModel(GIVEN.kernel, "constant", np.asarray(0.25))
    for do in (lambda: fit(fitted, execution), lambda: solve(fitted, Priors(model), execution)):
        with pytest.raises(DataError) as refused:
            do()
        assert refused.value.key == "empty-fold"
        assert "the time 2020-01-02T00:00 " in str(refused.value)


def test_folds_are_fitted_as_all_are_and_say_how_far_they_are(monkeypatch):
    """Of 70 values the numbers are plugged in; so they are in folds, which have fewer than count as few."""
    monkeypatch.setattr("cagp_dist.likelihood.exact.integrated.FEW", 60)
    said = []
    execution = Execution(SerialExecutor(), progress=lambda fraction, text: said.append(text))
    task = cross_validated(observed(70), settings=replace(GIVEN, kernel="matern32", noise_variance=None))
    model = fit(task, execution)
    of_folds = fit_folds(task, model, execution)
    assert [each.integrated for each in (model, *of_folds)] == [None] * 3
    assert of_folds[0].kernel != of_folds[1].kernel
    assert any("without part 2 of 2 of the folds, likelihood" in text for text in said)
    few = replace(task, model=replace(task.model, hyperparameters="integrate"))
    assert fit_folds(few, replace(model, integrated=None), execution)[0].integrated is None


def test_folds_in_time_are_fitted_to_the_values_of_the_others_with_the_noise_of_each():
    points = observed(10, 6)
    points = replace(points, noise_variance=np.linspace(0.2, 0.4, 10))
    together = points.in_space_and_time(points.times)
    fold_of = np.nonzero(points.present)[1] % 2
    places = np.arange(together.north.size)
    task = Task(
        together,
        Split(places, fold_of=fold_of),
        Targets(MapPoints(together.X), {"held out": slice(0, 10)}),
        ModelSettings("matern32", "constant", in_time=(None,)),
        held_out=HeldOut(points.values, points.positions, np.zeros(10), np.arange(10) % 2),
        times=6,
    )
    execution = Execution(SerialExecutor())
    model = fit(task, execution)
    of_folds = fit_folds(task, model, execution)
    assert of_folds[0].kernel != of_folds[1].kernel
    for each in (model, *of_folds):
        assert each.known_noise.shape == (60,)
        assert numbers_of(each).kernel == each.kernel


def test_the_usual_noise_is_that_of_what_is_observed():
    points, noise = observed(10), np.where(np.arange(10) < 3, 1.0, 9.0)
    points = replace(points, noise_variance=noise)
    task = replace(cross_validated(points), split=Split(np.arange(4), np.arange(4, 10)), held_out=None)
    model = FittedModel(GIVEN.kernel, "constant", noise)
    assert model.usual_noise(points) == 9.0
    assert model.usual_noise(task.observed) == 1.0


def test_a_fit_leaves_the_narrator_of_its_caller_at_work():
    with Narrator(shown=True) as narrator:
        task = cross_validated(observed(20), settings=replace(GIVEN, kernel="matern32", noise_variance=None))
        fit(task, Execution(SerialExecutor()), narrator=narrator)
        assert not narrator._ended.is_set()


def test_a_task_without_recalibration_is_scored_by_the_distributions_of_its_folds():
    """All steps; against kriging of each fold from the other by hand."""
    points, steps = observed(40, 2), []
    task = cross_validated(points)

    def step(name, do, about):
        steps.append(name)
        return do(Execution(SerialExecutor()))

    result = solve_task(task, fit(task, Execution(SerialExecutor())), step)
    assert steps == ["solve", "scores"]
    prior = cagp.Prior(GIVEN.kernel, 0.25, cagp.means.MEANS["constant"])
    for fold in range(2):
        rest, left = np.arange(40) % 2 != fold, np.arange(40) % 2 == fold
        by_hand = cagp.condition(
            prior, points.X[rest], points.values[:, rest].T, points.X[left], solver=cagp.Cholesky()
        )
        np.testing.assert_allclose(result.solution.mean[:, left], by_hand.mean.T, rtol=1e-10)
        score = (points.values[:, left] - by_hand.mean.T) / np.sqrt(by_hand.variance + 0.25)
        np.testing.assert_allclose(result.scores.normal_score[:, left], score, rtol=1e-6, atol=1e-7)


def test_what_is_done_reaches_who_asked():
    heard = []
    execution = Execution.on(
        Resources(SerialExecutor()), report=lambda fraction, text: heard.append((fraction, text))
    )
    execution.part(2, 10, "fold 3 of 10").progress(0.5, "sweep 4")
    assert heard == [(0.25, "fold 3 of 10, sweep 4")]
