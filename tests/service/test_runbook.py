"""The runbook: each of its commands is run, in its order, and prints and does what the page says."""

import os
import shutil
import types
from pathlib import Path

import numpy as np
import pytest

from cagp_dist import versions
from cagp_dist.store.series import runs_of_times

from ..jobs import job_text, map_grid, random_points
from ..shell_lines import DOCS, lines_of, run_line
from ..sources import temperature

PAGE = DOCS / "how-to" / "runbook.md"
SECTIONS = {
    section: [line for line in lines_of(PAGE) if line.section == section]
    for section in dict.fromkeys(line.section for line in lines_of(PAGE))
}


def write(day, *, north=90.0, folder="era5"):
    """Write the file of a noon of July, as it was delivered long ago."""
    latitude, longitude = np.arange(-85.0, north, 10.0), np.arange(0.0, 360.0, 10.0)
    values = 280.0 + np.random.default_rng(day).normal(size=(1, latitude.size, longitude.size))
    path = Path(folder) / f"t2m_202407{day:02d}.nc"
    path.parent.mkdir(exist_ok=True)
    field = temperature(values, latitude=latitude, longitude=longitude, times=[f"2024-07-{day:02d}T12:00"])
    field.to_netcdf(path, engine="h5netcdf")
    os.utime(path, (1.72e9, 1.72e9 + day))
    return path


@pytest.fixture
def service(tmp_path, monkeypatch):
    """A folder with a daily job of which three days are done."""
    monkeypatch.chdir(tmp_path)
    for day in (1, 2, 3):
        write(day)
    Path("jobs").mkdir()
    Path("jobs/daily.toml").write_text(
        job_text(
            observations={
                "source": "file:era5/*.nc",
                "variable": "t2m",
                "times": {"last": "3d", "at": "12:00"},
            },
            design={"train": random_points(200), "test": random_points(40, seed=1), "map": map_grid(30.0)},
            solver={"name": "cholesky"},
            output={"root": "out"},
        )
    )
    assert run_line("cagp daily jobs/daily.toml")[0] == 0


@pytest.mark.exhaustive
def test_every_command_prints_and_does_what_the_page_says(service, monkeypatch):
    """What happens in the world between them is done here."""
    with monkeypatch.context() as patch:

        def disk_is_full(full):
            free = 3 * 2**20 if full else 2**40
            patch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=free))

        def cut_off(day):
            path = write(day)
            (Path("incoming") / path.name).parent.mkdir()
            shutil.copy2(path, "incoming")
            path.write_bytes(path.read_bytes()[:2000])
            os.utime(path, (1.72e9, 1.72e9))

        def upgrade():
            newer = versions.NumericalVersion("99.0.0", "2030-01-01", "Another.")
            patch.setattr(versions, "NUMERICAL_VERSIONS", (*versions.NUMERICAL_VERSIONS, newer))

        # what happens before the line of a section that has this number
        before = {
            ("A full disk", 0): lambda: (write(4), disk_is_full(True)),
            ("A full disk", 3): lambda: disk_is_full(False),
            ("A bad file", 0): lambda: (cut_off(5), write(6)),
            ("A changed grid", 0): lambda: write(7, north=0.0),
            ("A moved archive", 0): lambda: (
                Path("era5/t2m_20240707.nc").unlink(),
                Path("archive").mkdir(),
                Path("era5").rename("archive/2024"),
            ),
            ("A stopped feed", 2): lambda: write(9),
            ("A stopped feed", 4): lambda: write(8),
            ("An upgrade", 1): upgrade,
        }
        for section, lines in SECTIONS.items():
            for number, line in enumerate(lines):
                before.pop((section, number), lambda: None)()
                code, printed = run_line(line.command)
                assert code == line.exit_code, f"{line.command}\n{printed}"
                assert line.printed is None or line.matches(printed), f"{line.command}\n{printed}"
        assert not before
    done = [str(time)[8:10] for time in sorted(runs_of_times(Path("out")))]
    assert done == ["01", "02", "03", "04", "05", "06", "08", "09"]
    assert len(runs_of_times(Path("out-2"))) == 1
    assert set(SECTIONS) == {
        "When something goes wrong",
        "A full disk",
        "A bad file",
        "A changed grid",
        "A moved archive",
        "A stopped feed",
        "An upgrade",
    }
