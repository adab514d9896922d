import pytest

from ..jobs import job_text as written
from ..jobs import map_grid, random_points

JOB = written(
    observations={"source": "sample", "times": ["2017-04-27T12:00"]},
    design={"train": random_points(10000), "test": random_points(1000, seed=1), "map": map_grid(4.0)},
    prior={
        "kernel": "matern32",
        "mean": "quadratic-latitude",
        "lengthscale": 0.05,
        "variance": 22.0,
        "noise_variance": 0.5,
    },
    solver={"name": "block-gauss-seidel", "iterations": 5, "block_size": 1024},
    cluster={"scheduler": "local", "memory_limit": "4GiB"},
    output={"root": "out"},
)


@pytest.fixture
def job_text():
    return JOB
