"""``[solver] name = "auto"``: chosen by the points alone, and said."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.pipeline import Observations, chosen_solver
from cagp_dist.pipeline.solve_plans import choose_solver
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.results import _solver_said

from ..jobs import job_text

NEIGHBOURS = cagp.Neighbours("auto")


@pytest.mark.parametrize(
    ("n", "grid", "expected"),
    [
        (5_000, {}, cagp.Cholesky()),
        (5_001, {}, NEIGHBOURS),
        (100, {"size": 100}, cagp.Rings()),
        (99, {"size": 100, "missing": 1}, cagp.Cholesky()),
        (64_000, {"size": 64_800, "missing": 800}, cagp.Rings()),
        (58_000, {"size": 64_800, "missing": 6_800}, NEIGHBOURS),
        (1_038_000, {"size": 1_038_240, "missing": 240}, NEIGHBOURS),
    ],
    ids=["few", "scattered", "grid", "few-of-a-grid", "few-gaps", "many-gaps", "large-with-gaps"],
)
def test_exact_where_that_is_cheap_else_neighbours(n, grid, expected):
    assert chosen_solver(n, **grid) == expected


def field(*, latitudes, columns, holes=0, times=1):
    """A grid, of which the last of some times lacks values in random places."""
    latitude, longitude = np.meshgrid(latitudes, np.arange(columns) * 360.0 / columns, indexing="ij")
    values = np.zeros((times, latitude.size))
    values[-1, np.random.default_rng(0).permutation(latitude.size)[:holes]] = np.nan
    return Observations.from_points(latitude.ravel(), longitude.ravel(), values)


def test_points_noise_and_gaps_of_all_times_decide():
    whole, grid = np.arange(72 * 144), {"latitudes": np.linspace(-88.75, 88.75, 72), "columns": 144}
    assert choose_solver(field(**grid), whole) == cagp.Rings()
    by_latitude = np.repeat(1.0 + np.arange(72.0), 144)
    assert choose_solver(replace(field(**grid), noise_variance=by_latitude), whole) == cagp.Rings()
    assert choose_solver(replace(field(**grid), noise_variance=whole + 1.0), whole) == NEIGHBOURS
    assert choose_solver(field(**grid, holes=1000, times=2), whole) == cagp.Rings()
    assert choose_solver(field(**grid, holes=6000, times=2), whole) == NEIGHBOURS
    assert choose_solver(field(**grid), whole[::7][:900]) == cagp.Cholesky()
    scattered = replace(field(**grid), north=np.linspace(-80.0, 80.0, 10368))
    assert choose_solver(scattered, whole) == NEIGHBOURS


@pytest.mark.exhaustive
def test_a_plan_and_a_run_say_what_was_taken(tmp_path):
    job = parse_job(job_text(solver=None, output={"root": str(tmp_path)}))
    assert "Solver auto: cholesky, as an exact solve is cheap here" in plan_job(job).lines()
    prepared, plan = (
        SimpleNamespace(job=job, solver=NEIGHBOURS),
        ("64 nearest neighbours: 9 observed points",),
    )
    said = _solver_said(prepared, SimpleNamespace(plan=plan))
    assert said == "auto: neighbours, 64 nearest neighbours"
