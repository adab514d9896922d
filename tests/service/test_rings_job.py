"""The job solver "rings" is the exact solve of the same job, whichever way the points come."""

import numpy as np
import pytest

from cagp_dist.errors import ArgumentError
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.jobfile.solver_table import SOLVER_TABLES
from cagp_dist.service.run import run
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid, random_points
from ..regional import EUROPE

ALL = {"kind": "all"}
RINGS = SOLVER_TABLES["rings"](name="rings")
SYNTHETIC = {
    "source": "synthetic",
    "grid_degrees": 15.0,
    "times": ["2020-01-01T00:00", "2020-07-01T00:00"],
}
PRIOR = {"lengthscale": 0.4, "variance": 22.0, "noise_variance": 0.5}
STRIDE = {"kind": "stride", "step": 2}


def job(root, *, train, solver, kind="grid", **tables):
    text = job_text(
        design={"train": train, "test": random_points(12, seed=1), "map": {**map_grid(40.0), "kind": kind}},
        **{"observations": SYNTHETIC, "prior": PRIOR, **tables},
        solver={"name": solver},
        cluster=None,
        output={"root": root},
    )
    return parse_job(text)


@pytest.mark.parametrize(
    ("train", "kind"),
    [(ALL, "grid"), (ALL, "cells"), (STRIDE, "grid")],
    ids=["all but the test points", "means over cells", "stride"],
)
@pytest.mark.exhaustive
def test_rings_and_cholesky_publish_the_same_posterior(tmp_path, train, kind):
    groups = {}
    for solver in ("rings", "cholesky"):
        root = tmp_path / solver
        outcome = run(job(root, train=train, solver=solver, kind=kind))
        assert outcome.status.value == "exact"
        for name in ("posterior", "map"):
            groups[solver, name] = read_group(outcome.path, name)
    for name in ("posterior", "map"):
        for variable in ("t2m_mean", "t2m_std"):
            ours = groups["rings", name][variable].values
            exact = groups["cholesky", name][variable].values
            assert ours.shape == exact.shape
            np.testing.assert_allclose(ours, exact, rtol=1e-8)


@pytest.mark.exhaustive
def test_a_regional_file_is_solved_exactly_by_all_of_its_points(tmp_path):
    """The file is part of a circle of 480; more of which is missing than a whole-grid identity takes."""
    groups = {}
    for solver in ("rings", "cholesky"):
        regional = job(
            tmp_path / solver,
            train=ALL,
            solver=solver,
            observations={"source": f"file:{EUROPE}"},
            prior={"lengthscale": 0.05, "variance": 20.0, "noise_variance": 0.3},
        )
        outcome = run(regional)
        assert outcome.status.value == "exact"
        assert read_group(outcome.path).attrs["train_count"] > 2000
        for name in ("posterior", "map"):
            groups[solver, name] = read_group(outcome.path, name)
    assert "exact on the regional grid" in plan_job(regional.model_copy(update={"solver": RINGS})).plan.method
    for name in ("posterior", "map"):
        for variable in ("t2m_mean", "t2m_std"):
            ours = groups["rings", name][variable].values
            np.testing.assert_allclose(ours, groups["cholesky", name][variable].values, rtol=1e-7)


def test_a_job_whose_points_fill_no_grid_is_refused_by_the_plan_and_before_a_fit(tmp_path):
    scattered = job(tmp_path, train=random_points(60), solver="rings", prior={})
    with pytest.raises(ArgumentError, match="Rings needs most of one"):
        plan_job(scattered)
    stages = []
    with pytest.raises(ArgumentError, match="Rings needs most of one"):
        run(scattered, observe=stages.append)
    assert not any("Fit" in str(event) for event in stages)
    assert not (tmp_path / "CURRENT").exists()
