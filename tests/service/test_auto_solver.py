"""``[solver] name = "auto"``: chosen by the points alone, and said."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.budget import GridSize
from cagp_dist.mapping import Observations
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.results import _solver_said
from cagp_dist.service.task import solver_of
from cagp_dist.solvers.solver_choice import chosen_solver, demand_of_choice

from ..jobs import job_text

NEIGHBOURS = cagp.Neighbours("auto")


@pytest.mark.parametrize(
    ("n", "grid", "expected"),
    [
        (5_000, None, cagp.Cholesky()),
        (5_001, None, NEIGHBOURS),
        (64_800, GridSize(180, 360), cagp.Rings()),
        (64_000, GridSize(180, 360, missing=800, target_places=10_000), cagp.Rings()),
        (900_000, GridSize(721, 1440, missing=138_240), NEIGHBOURS),
        (64_800, GridSize(180, 360, noise_spread=1e6), NEIGHBOURS),
    ],
    ids=["few", "scattered", "grid", "few-gaps", "many-gaps", "own-noise"],
)
def test_exact_where_that_is_cheap_else_neighbours(n, grid, expected):
    demand = demand_of_choice(n, 10_000, fields=1)
    assert chosen_solver(demand, replace(demand, grid=grid)) == expected


def field(*, latitudes, columns, holes=0, times=1):
    """A grid, of which the last of some times lacks values in random places."""
    latitude, longitude = np.meshgrid(latitudes, np.arange(columns) * 360.0 / columns, indexing="ij")
    values = np.zeros((times, latitude.size))
    values[-1, np.random.default_rng(0).permutation(latitude.size)[:holes]] = np.nan
    return Observations.from_points(latitude.ravel(), longitude.ravel(), values)


def test_the_points_of_all_times_and_folds_decide():
    whole = np.arange(72 * 144)
    plain = SimpleNamespace(
        train=whole, test=whole[:5000], calibration=None, folds=None, cells=None, samples=0, region_means=None
    )
    grid = {"latitudes": np.linspace(-88.75, 88.75, 72), "columns": 144}
    assert solver_of(field(**grid), plain, None) == cagp.Rings()
    assert solver_of(field(**grid, holes=8500, times=2), plain, None) == NEIGHBOURS
    few = SimpleNamespace(**{**vars(plain), "train": whole[::7][:900]})
    assert solver_of(field(**grid), few, None) == cagp.Cholesky()
    scattered = replace(field(**grid), north=np.linspace(-80.0, 80.0, 10368))
    assert solver_of(scattered, plain, None) == NEIGHBOURS


@pytest.mark.exhaustive
def test_a_plan_and_a_run_say_what_was_taken(tmp_path):
    job = parse_job(job_text(solver=None, output={"root": str(tmp_path)}))
    assert "Solver auto: cholesky, as an exact solve is cheap here" in plan_job(job).lines()
    task, plan = SimpleNamespace(job=job, solver=NEIGHBOURS), ("64 nearest neighbours: 9 observed points",)
    said = _solver_said(task, SimpleNamespace(plan=plan))
    assert said == "auto: neighbours, 64 nearest neighbours"
