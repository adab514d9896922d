"""EIO and ENOSPC at each file operation of a solve with checkpoints and of the publication of its result."""

import errno
import os
import re

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import StoreError
from cagp_dist.runtime import SerialExecutor
from cagp_dist.store.memo import checkpoints_folder, checkpoints_of_run
from cagp_dist.store.publish import current_run, output_lock, publish, verify_files
from cagp_dist.store.schema import values_group

from ..operations import failing, operations
from ..problems import regression_problem
from ..store.publisher import key_of

PROBLEM, SOLVER = regression_problem(12, q=4), cagp.BlockGaussSeidel(2, 12)
FEWEST = {"checkpoint": 80, "hierarchy": 40, "other": 10}
"""Operations of the solve and the publication below checkpoints, Zarr hierarchies and elsewhere, at least."""


def solve_and_publish(root, index):
    """What a job does on the disk, the least: each iteration is kept, and the mean published as a run."""
    with output_lock(root):
        checkpoints = checkpoints_of_run(root, key_of(index), seconds=0.0)
        found = PROBLEM.condition(
            SOLVER, executor=SerialExecutor(), covariance="diagonal", checkpoints=checkpoints
        )
        group = values_group(
            "observations",
            times=np.array(["2017-04-27T12"], dtype="datetime64[ns]"),
            north=np.linspace(-60.0, 60.0, 4),
            east=np.linspace(0.0, 270.0, 4),
            values=280.0 + found.mean[None],
        )
        run = publish(root, {"observations": group}, run_key=key_of(index), attributes={"index": index})
        checkpoints.remove()
    return run, found


def place_of(path):
    return "checkpoint" if "/.checkpoints/" in path else "hierarchy" if ".zarr/" in path else "other"


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "failing"])
def test_wherever_the_disk_fails_the_error_names_it_and_the_same_command_goes_on(code, tmp_path):
    """At each operation in turn, once: named error, the run before verifies, the next try publishes its own.

    The publication may also get through, where what failed can be done without.
    """
    root, seen = tmp_path / "out", list[str]()
    before, whole = solve_and_publish(root, 0)
    with operations(root, lambda number, what, path: seen.append(path)) as all_of_them:
        before, _ = solve_and_publish(root, 1)
    places = [place_of(path) for path in seen]
    assert all(places.count(place) >= fewest for place, fewest in FEWEST.items())
    named = 0
    for number in range(1, all_of_them.count + 1):
        index, failed = number + 1, None
        with operations(root, failing(number, code)) as tried:
            try:
                solve_and_publish(root, index)
            except StoreError as error:
                failed = str(error)
        assert tried.count >= number, "the operation came to pass"
        current = current_run(root)
        verify_files(current)
        if failed is not None:
            named += 1
            assert re.search(rf"{re.escape(str(root))}.*{re.escape(os.strerror(code))}", failed), failed
        assert current == before or current.stem == key_of(index)
        assert current != before or failed is not None, "what was not published is an error"
        before, found = solve_and_publish(root, index)
        verify_files(before)
        assert current_run(root) == before
        np.testing.assert_array_equal(found.mean, whole.mean)
        assert not any(checkpoints_folder(root).iterdir())
        assert not any((root / ".staging").iterdir())
    assert named >= 0.9 * all_of_them.count
