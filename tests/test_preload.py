"""What a Dask worker loads before it takes tasks."""

import os
import subprocess
import sys

import pytest

from cagp_dist.preload import seldom_evaluated, ways_of_evaluation

from .clusters import local_cluster

PROGRAM = """
from cagp_dist.preload import dask_setup
dask_setup(None)
from cagp_dist.compiled import _add_product
print(len(_add_product.signatures), sum(_add_product.stats.cache_misses.values()))
"""


def loaded(**environment: str) -> list[int]:
    """Versions of a function that a new process has after the preload, and how many were not on disk."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return [int(number) for number in done.stdout.split()]


def compile_here() -> None:
    for evaluate in ways_of_evaluation():
        evaluate()


def test_compiled_code_that_is_on_disk_is_loaded():
    compile_here()
    assert loaded() == [1, 0]


def test_seldom_evaluated_functions_stay_within_their_arrays():
    """NumPy checks what compiled code does not."""
    found = [each for each in seldom_evaluated() if each.func.__module__.endswith("conditional_draws")]
    assert len(found) == 2
    for each in found:
        each.func.py_func(*each.args)


@pytest.mark.exhaustive
def test_nothing_is_compiled(tmp_path):
    assert loaded(NUMBA_CACHE_DIR=str(tmp_path)) == [0, 1]
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".nbc"]


def versions() -> int:
    from cagp_dist.compiled import _add_product

    return len(_add_product.signatures)


@pytest.mark.exhaustive
def test_a_new_worker_is_ready():
    compile_here()
    with local_cluster(1) as client:
        client.wait_for_workers(1)
        assert list(client.run(versions).values()) == [1]
