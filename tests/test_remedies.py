"""Errors say what to change: arguments in Python, keys in a job file."""

import pickle
import re

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import BudgetError, CagpError, in_words_of_the_job
from cagp_dist.remedies import Remedy, advice
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.jobfile.solver_table import SOLVER_TABLES


def solve(solver, **settings):
    X = np.linspace(0.0, 1.0, 200).reshape(-1, 1)
    return cagp.condition(
        cagp.Prior(cagp.Matern32(0.1), 0.1), X, X[:, 0], X, solver=solver, memory_limit_bytes=5000, **settings
    )


@pytest.mark.parametrize(
    ("solver", "settings", "in_python", "in_job"),
    [
        (
            cagp.BlockGaussSeidel(2, block_size=50),
            {},
            "Raise memory_limit_bytes, ask for fewer test points, or lower block_size.",
            "Raise [cluster] memory_limit, lower [design] test.count or raise [design] "
            "map.resolution_degrees, or lower [solver] block_size.",
        ),
        (
            cagp.GaussSeidel(2),
            {},
            "Raise memory_limit_bytes, or ask for fewer test points.",
            "Raise [cluster] memory_limit, or lower [design] test.count or raise [design] "
            "map.resolution_degrees.",
        ),
        (
            cagp.GaussSeidel(2),
            {"covariance": "full"},
            'Raise memory_limit_bytes, or ask for covariance="diagonal".',
            "Raise [cluster] memory_limit.",
        ),
        (
            cagp.RandomActions(2),
            {},
            "Raise memory_limit_bytes, or lower iterations.",
            "Raise [cluster] memory_limit, or lower [solver] iterations.",
        ),
        (
            cagp.Cholesky(),
            {},
            "Raise memory_limit_bytes, use solver=cagp.Neighbours(), or ask for fewer test points.",
            'Raise [cluster] memory_limit, use [solver] name = "neighbours", or lower [design] test.count or '
            "raise [design] map.resolution_degrees.",
        ),
    ],
)
def test_a_solve_that_does_not_fit_says_what_its_reader_can_change(solver, settings, in_python, in_job):
    with pytest.raises(BudgetError) as caught:
        solve(solver, **settings)
    assert str(caught.value).endswith(f"that may be used. {in_python}")
    with pytest.raises(BudgetError) as caught, in_words_of_the_job():
        solve(solver, **settings)
    assert str(caught.value).endswith(f"that may be used. {in_job}")


@pytest.mark.parametrize("remedy", Remedy)
def test_remedies_name_keys_that_a_job_has_and_arguments_that_python_has(remedy):
    keys = {
        name: set(field.annotation.model_fields)
        for name, field in Job.model_fields.items()
        if name in ("observations", "design", "prior", "cluster", "runtime")
    }
    keys["design"] |= {"test.count", "train.count", "map.resolution_degrees"}
    keys["solver"] = {key for table in SOLVER_TABLES.values() for key in table.model_fields}
    for table, key in re.findall(r"\[(\w+)\] ([\w.]+)", remedy.in_job or ""):
        assert key in keys[table]
    assert "[" not in remedy.in_python


def test_an_error_keeps_its_remedies_on_its_way_between_processes():
    error = pickle.loads(pickle.dumps(BudgetError("Too much.", remedies=(Remedy.MORE_MEMORY,))))
    assert str(error) == "Too much. Raise memory_limit_bytes."
    with (
        pytest.raises(BudgetError, match=r"Too much\. Raise \[cluster\] memory_limit\."),
        in_words_of_the_job(),
    ):
        raise error


def test_errors_without_remedies_are_as_they_were():
    assert (str(CagpError()), str(CagpError("text"))) == ("", "text")
    with pytest.raises(CagpError, match=r"^text$"), in_words_of_the_job():
        raise CagpError("text")
    assert advice([]) == advice([Remedy.VECCHIA], in_job=True) == ""


@pytest.mark.parametrize("status", cagp.FitStatus)
def test_a_fit_that_does_not_end_well_says_in_a_job_what_a_job_can_change(status):
    assert status.advice == f"{status.meaning} {advice(status.remedies)}".rstrip()
    assert bool(status.remedies) is not status.ok
    in_job = advice(status.remedies, in_job=True)
    assert status.ok or "[" in in_job
    assert not re.search(r"bounds|starts|method", in_job)
