"""Files damaged anywhere are decoded or refused by name: nothing hangs or dies but a child process."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..regional import EUROPE
from .test_damage import temperature

CUT = ("cut", "gone", "more")
EXHAUSTIVE = pytest.param(500, marks=[pytest.mark.slow, pytest.mark.exhaustive])


def fuzz(source: Path, folder: Path, count: int) -> list[tuple[str, str]]:
    """Damage and decode as often as asked; ways of the damage, and what came of it."""
    folder.mkdir()
    shown = subprocess.run(
        [sys.executable, "-m", "tests.fields.fuzzed", source, folder, str(count), "0"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split(" ", 1) for line in shown.stdout.splitlines()]
    assert len(lines) == count
    found = [(way, outcome) for way, outcome in lines]
    assert {outcome.split()[0] for _, outcome in found} <= {"refused", "crashed", "same", "other"}
    kinds = {"refused DataError", "refused DamagedFileError"}
    assert {outcome for _, outcome in found if outcome.startswith("refused")} <= kinds
    return found


def farthest(found: list[tuple[str, str]], name: str) -> float:
    """Largest difference of what was taken as data."""
    others = [outcome.split() for way, outcome in found if outcome.startswith("other") and way != "header"]
    return max((float(word.split("=")[1]) for words in others for word in words if name in word), default=0.0)


@pytest.mark.parametrize("count", [EXHAUSTIVE])
def test_compressed_netcdf4_is_never_taken_for_other_data(tmp_path, count):
    temperature(units="K").to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"t2m": {"zlib": True}})
    found = fuzz(tmp_path / "a.nc", tmp_path / "fuzz", count)
    assert not [line for line in found if line[1].startswith("other")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [12, EXHAUSTIVE])
def test_netcdf3_is_taken_for_data_only_where_values_are_near(tmp_path, count):
    temperature(units="K").to_netcdf(tmp_path / "a.nc", engine="scipy")
    found = fuzz(tmp_path / "a.nc", tmp_path / "fuzz", count)
    assert all(outcome.startswith(("refused", "same")) for way, outcome in found if way in CUT)
    assert farthest(found, "values") < 45.0
    assert max(farthest(found, "latitude"), farthest(found, "longitude")) < 0.03


@pytest.mark.parametrize("count", [5, EXHAUSTIVE])
def test_damaged_grib_is_decoded_or_refused(tmp_path, count):
    found = fuzz(EUROPE, tmp_path / "fuzz", count)
    assert all(outcome.startswith(("refused", "same")) for way, outcome in found if way in CUT)
