"""Held-out values have no part in what predicts them: other values there, and not a bit of it changes."""

import dataclasses

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.calibration.recalibration.methods import SHARP
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.synthetic import Synthetic, open_synthetic
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.runtime import SerialExecutor
from cagp_dist.service.job_fit import fit_prior
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.results import groups_of
from cagp_dist.service.task import prepare_job

from .. import jobs
from ..jobs import job_text, random_points

SETTINGS = Synthetic(cagp.Matern32(0.3, 22.0), noise_variance=1.0, seed=5)
RANDOM = random_points(40, seed=1)
BLOCKS = {"kind": "blocks", "count": 15, "blocks_degrees": 30.0, "share": 0.2}
WHOLE = {"kind": "all"}
OTHERS = random_points(104, seed=2)


@pytest.fixture(scope="module")
def field():
    """Rougher in the north, so that there is a scale to learn."""
    times = ["2020-01-01", "2020-01-02"]
    drawn = open_synthetic(SETTINGS, selection=Selection(grid_degrees=15.0, times=times)).isel(
        latitude=slice(1, -1)
    )
    rough = 9.0 * np.random.default_rng(1).normal(size=drawn.t2m.shape)
    return drawn.assign(t2m=drawn.t2m + (rough * (drawn.latitude.values[:, None] > 0.0)).astype("float32"))


def with_gaps(field):
    """A tenth of the values missing, at other places at each time."""
    missing = np.random.default_rng(0).random(field.t2m.shape) < 0.1
    return field.assign(t2m=field.t2m.where(~missing))


def permuted(field, points, chosen):
    """Exchange the values at some points with each other, time by time; that of one point is raised."""
    other = field.copy(deep=True)
    row = np.searchsorted(field.latitude.values, points.north[chosen])
    column = np.searchsorted(field.longitude.values, points.east[chosen])
    for values in other.t2m.values:
        there = ~np.isnan(values[row, column])
        at = row[there], column[there]
        values[at] = values[at] + 1.0 if chosen.size == 1 else np.roll(values[at], 1)
    return other


def prepared_of(
    field,
    design,
    *,
    mean="quadratic-latitude",
    solver=None,
    fit_to="observed",
    recalibration="none",
):
    text = job_text(
        observations={"source": "synthetic", "times": ["2020-01-01", "2020-01-02"]},
        design=design,
        prior={"kernel": "matern32", "mean": mean, "fit_to": fit_to},
        solver=solver or {"name": "block-gauss-seidel", "iterations": 2, "block_size": 100},
        recalibration={"method": recalibration},
    )
    return prepare_job(parse_job(text), field)


def mean_of(prepared):
    """The mean that was fitted before, or the coefficients that are estimated with the field."""
    mean = jobs.mean_of(prepared)
    if callable(mean):
        return mean(np.eye(3))
    prior = cagp.Prior(SETTINGS.kernel, 1.0, mean)
    found = cagp.condition(prior, prepared.X, prepared.y, np.eye(3), solver=cagp.GaussSeidel(1))
    return found.coefficients.values


def outcome(prepared):
    """Every number that is fitted or predicted, by name."""
    fitted = fit_prior(prepared, Execution(SerialExecutor()))
    result = jobs.result_of(prepared)
    solution = result.solution
    said, groups = fitted.attributes(), groups_of(prepared, result)
    distributions = groups["posterior"].drop_vars("t2m")  # what was observed there
    found = {
        "mean": mean_of(prepared),
        "estimates": np.array([row[1:] for row in fitted.estimates()]),
        "said": repr(said),
        **{f"published {name}": values.to_numpy() for name, values in distributions.data_vars.items()},
        **{f"mean {number}": step.mean for number, step in enumerate(solution.steps)},
        **{f"std {number}": step.std for number, step in enumerate(solution.steps)},
        "unfinished": solution.computational_std,
        "fine mean": solution.fine_mean,
        **({} if solution.sampled is None else dataclasses.asdict(solution.sampled)),
        "nugget": result.priors.noise_of(result.task.held_out) if result.priors.of_folds else None,
        "integrated over": None if (numbers := result.priors.model.integrated) is None else repr(numbers),
    }
    return {name: value for name, value in found.items() if value is not None}


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.array_equal(value, other[name], equal_nan=not isinstance(value, str)), name


@pytest.mark.parametrize(
    ("design", "settings", "change"),
    [
        pytest.param(
            {"train": random_points(110), "test": RANDOM, "calibration": OTHERS},
            {"recalibration": "local-scale"},
            None,
            marks=pytest.mark.exhaustive,
        ),
        (
            {"train": random_points(110), "test": RANDOM, "calibration": OTHERS},
            {"recalibration": "kuleshov"},
            with_gaps,
        ),
        (
            {"train": WHOLE, "test": RANDOM},
            {"solver": {"name": "rings"}, "mean": "constant", "recalibration": "local-scale"},
            None,
        ),
        pytest.param(
            {"train": WHOLE, "test": BLOCKS},
            {"solver": {"name": "rings"}},
            None,
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            {"train": random_points(110), "test": RANDOM, "calibration": OTHERS},
            {"recalibration": SHARP},
            None,
            marks=pytest.mark.exhaustive,
        ),
        (
            {
                "train": random_points(120),
                "test": BLOCKS,
                "map": {"kind": "grid", "resolution_degrees": 20.0, "std_samples": 50},
            },
            {"solver": {"name": "block-gauss-seidel", "iterations": 1, "block_size": 100}},
            None,
        ),
        pytest.param(
            {"train": random_points(110), "test": RANDOM, "calibration": OTHERS},
            {
                "solver": {"name": "conjugate-gradient", "iterations": 3},
                "mean": "harmonic-latitude",
                "recalibration": "kuleshov",
            },
            None,
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=[
        "points",
        "gaps",
        "whole grid",
        "blocks",
        "sharp",
        "sampled map",
        "conjugate gradients",
    ],
)
def test_no_bit_depends_on_values_that_are_held_out(field, design, settings, change):
    """Fitted numbers, mean, predictions at every iteration, and their recalibrated distributions."""
    field = field if change is None else change(field)
    prepared = prepared_of(field, design, **settings)
    found = outcome(prepared)
    by_levels = "recalibration" in settings or "integrated over" in found
    assert ("published t2m_quantile" in found) == by_levels
    other = prepared_of(permuted(field, prepared.points, prepared.design.test), design, **settings)
    before, after = (one.points.values[:, prepared.design.test] for one in (prepared, other))
    assert not np.array_equal(before, after, equal_nan=True)
    assert np.array_equal(other.design.train, prepared.design.train)
    assert_same_bits(found, outcome(other))
    if (
        prepared.design.calibration is not None
    ):  # nor is anything but these distributions fitted to calibration points
        other = outcome(
            prepared_of(permuted(field, prepared.points, prepared.design.calibration), design, **settings)
        )
        distributions = [name for name in found if name.startswith("published ")]
        assert any(not np.array_equal(found[name], other[name]) for name in distributions)
        rest = [name for name in found if name not in distributions]
        assert_same_bits({name: found[name] for name in rest}, {name: other[name] for name in rest})
    # and the test can fail: one observed value decides many of these numbers
    moved = prepared_of(permuted(field, prepared.points, prepared.design.train[:1]), design, **settings)
    assert not np.array_equal(mean_of(moved), mean_of(prepared))
    assert not np.array_equal(moved.y, prepared.y, equal_nan=True)


def test_no_bit_of_a_fold_depends_on_its_own_values(field):
    design = {"train": random_points(120), "test": {"kind": "folds", "count": 3, "blocks_degrees": 30.0}}
    prepared = prepared_of(field, design)
    whole = outcome(prepared)
    own = prepared.design.folds == 1
    other = outcome(prepared_of(permuted(field, prepared.points, prepared.design.test[own]), design))
    for name in [name for name in whole if name.startswith(("mean ", "std "))]:
        assert np.array_equal(whole[name][:, own], other[name][:, own]), name
    assert np.array_equal(whole["nugget"][own], other["nugget"][own])
    assert not np.array_equal(whole["mean 0"][:, ~own], other["mean 0"][:, ~own])
    assert (whole["nugget"] != other["nugget"])[~own].all()


def test_a_fit_to_the_whole_field_looks_at_held_out_values_and_says_so(field):
    design = {"train": random_points(120), "test": RANDOM}
    prepared = prepared_of(field, design, fit_to="field")
    fitted = fit_prior(prepared, Execution(SerialExecutor()))
    other = prepared_of(permuted(field, prepared.points, prepared.design.test), design, fit_to="field")
    again = fit_prior(other, Execution(SerialExecutor()))
    assert fitted.estimates() != again.estimates()
    assert fitted.attributes()["where"] == "the whole field of 264 points, test points included"
