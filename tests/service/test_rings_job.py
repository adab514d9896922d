"""The job solver "rings" is the exact solve of the same job, whichever way the points come."""

import numpy as np
import pytest

from cagp_dist.errors import ArgumentError
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.plan import plan_job
from cagp_dist.service.run import run
from cagp_dist.store.arrays import read_group

JOB = """
[observations]
source = "synthetic"
grid_degrees = 15.0
times = ["2020-01-01T00:00", "2020-07-01T00:00"]

[design]
train = {train}
test = {{ kind = "random", count = 12, seed = 1 }}
map = {{ kind = "grid", resolution_degrees = 40.0 }}

[prior]
lengthscale = 0.4
variance = 22.0
noise_variance = 0.5

[solver]
name = "{solver}"

[output]
root = "{root}"
"""


@pytest.mark.parametrize(
    "train", ['{ kind = "all" }', '{ kind = "stride", step = 2 }'], ids=["all but the test points", "stride"]
)
def test_rings_and_cholesky_publish_the_same_posterior(tmp_path, train):
    groups = {}
    for solver in ("rings", "cholesky"):
        root = tmp_path / solver
        outcome = run(parse_job(JOB.format(train=train, solver=solver, root=root)))
        assert outcome.status.value == "exact"
        for name in ("posterior", "map"):
            groups[solver, name] = read_group(outcome.path, name)
    for name in ("posterior", "map"):
        for variable in ("t2m_mean", "t2m_std"):
            ours = groups["rings", name][variable].values
            exact = groups["cholesky", name][variable].values
            assert ours.shape == exact.shape
            np.testing.assert_allclose(ours, exact, rtol=1e-8)


def test_points_that_do_not_fill_a_grid_are_refused_with_what_to_do(tmp_path):
    job = parse_job(JOB.format(train='{ kind = "random", count = 60 }', solver="rings", root=tmp_path))
    with pytest.raises(ArgumentError, match=r'train = \{ kind = "all" \}'):
        run(job)
    assert not (tmp_path / "CURRENT").exists()


def test_a_job_whose_points_fill_no_grid_is_refused_by_the_plan_and_before_a_fit(tmp_path):
    text = JOB.format(train='{ kind = "random", count = 60 }', solver="rings", root=tmp_path)
    text = text.replace("lengthscale = 0.4\nvariance = 22.0\nnoise_variance = 0.5\n", "")
    with pytest.raises(ArgumentError, match="Rings needs most of it"):
        plan_job(parse_job(text))
    stages = []
    with pytest.raises(ArgumentError, match="Rings needs most of it"):
        run(parse_job(text), observe=stages.append)
    assert not any("Fit" in str(event) for event in stages)
