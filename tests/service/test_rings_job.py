"""The job solver "rings" is the exact solve of the same job, whichever way the points come."""

import numpy as np
import pytest

from cagp_dist.errors import ArgumentError
from cagp_dist.remedies import Remedy
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid, random_points
from ..regional import EUROPE

ALL = {"kind": "all"}
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


def test_a_job_whose_points_fill_no_grid_is_refused_by_the_plan_and_before_a_fit(tmp_path):
    """Scattered points; and a regional file, a part of a circle that lacks too many."""
    scattered = job(tmp_path, train=random_points(60), solver="rings", prior={})
    regional = job(tmp_path, train=ALL, solver="rings", prior={}, observations={"source": f"file:{EUROPE}"})
    for refused in (scattered, regional):
        stages = []
        for use in (plan_job, lambda given, stages=stages: run(given, observe=stages.append)):
            with pytest.raises(ArgumentError) as caught:
                use(refused)
            assert (caught.value.key, caught.value.remedies) == ("no-rings", (Remedy.NEIGHBOURS,))
        assert not any("Fit" in str(event) for event in stages)
        assert not (tmp_path / "CURRENT").exists()
