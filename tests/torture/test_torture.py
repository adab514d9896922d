"""The scenarios of `make torture` with few repetitions: what was killed or damaged costs time and no bit."""

from functools import partial

import numpy as np
import pytest

from ..mounts import needs_mounts
from .__main__ import SCENARIOS, machine, main
from .disks import failing_disks, full_disks
from .rows import Row, table
from .workers import kill_storms, killed_workers

SHORT = {
    "workers": (killed_workers, 10),
    "jobs": (SCENARIOS["jobs"][0], 10),
    "checkpoints": (SCENARIOS["checkpoints"][0], 20),
    "schedulers": (SCENARIOS["schedulers"][0], 3),
    "frozen": (SCENARIOS["frozen"][0], 2),
    "storms": (partial(kill_storms, seconds=8.0), 1),
    "failing-disks": (partial(failing_disks, alike=1_000_000), 20),
    "full-disks": (full_disks, 5),
    "damage": (SCENARIOS["damage"][0], 100),
    "at-once": (SCENARIOS["at-once"][0], 5),
    "netcdf-4": (SCENARIOS["netcdf-4"][0], 20),
    "grib": (SCENARIOS["grib"][0], 20),
    "job-files": (SCENARIOS["job-files"][0], 100),
}
"""Repetitions of the tests; `make torture` has more of them, and longer solves and storms.

Publications are killed in `tests.store`, and more files damaged in `tests.era5` and `tests.service`.
"""


@pytest.mark.exhaustive
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_mounts) if name == "full-disks" else name for name in SHORT]
)
def test_what_was_promised_holds(name, tmp_path):
    scenario, count = SHORT[name]
    row = scenario(count, np.random.default_rng(0), tmp_path)
    assert row.held, table([row])
    assert row.runs == count


def test_a_row_holds_only_what_went_well():
    row = Row("killed")
    assert not row.held, "nothing was done"
    row.begin(2)
    row.count(same=True)
    assert row.held
    row.took(6.0, 2.0)
    row.begin(2)
    row.count(same=False)
    row.expect(True, "not said")
    assert not row.held
    assert (
        table([row]).splitlines()[2]
        == "| killed | 2 | 2 | 1 | 0 | 3.0x | **failed**: run 2: another result |"
    )


def test_names_and_scales_that_make_no_sense_are_refused(capsys):
    for given, text in (
        (["wrokers"], "there is no scenario wrokers; expected workers"),
        (["--scale", "0"], "0; exp"),
    ):
        with pytest.raises(SystemExit):
            main(given)
        assert text in capsys.readouterr().err
    assert "cagp-dist" in machine()
