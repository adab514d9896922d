"""A month of daily jobs that are killed at random moments is the month that nobody disturbed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .month_of_kills import DAYS, differences, write_jobs


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(("seed", "days"), [(11, DAYS), (1, 3)], ids=["a month", "killed on its first day"])
def test_a_month_of_jobs_that_are_killed_is_the_month_of_jobs_that_are_not(seed, days, tmp_path):
    """Up to three SIGKILLs each: every day once in the series, with the bits of the other month."""
    write_jobs(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.service.month_of_kills", tmp_path, str(seed), str(days)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=1800.0,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    counted = json.loads(done.stdout.splitlines()[-1])
    assert counted["kills"] >= counted["hits"] >= days // 3, counted
    assert differences(tmp_path, days) == []
    assert counted["again"] == days, "and then there is nothing to do"
    assert differences(tmp_path, days) == []
