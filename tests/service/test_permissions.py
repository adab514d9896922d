"""What others may do with all that a service writes: what the umask of its user says, and no more."""

import os
import stat
from pathlib import Path

import pytest

from cagp_dist.runtime.certificates import make_certificates

from ..jobs import job_text, map_grid, random_points
from ..shell_lines import run_line
from .test_days_of_files import write

GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@pytest.fixture
def umask():
    """Set the umask for the length of a test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def modes(folder):
    """Give the permissions of all files and folders below a folder; links have none of their own."""
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in folder.rglob("*")
        if not path.is_symlink()
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize("mask", [0o077, 0o022])
def test_all_outputs_have_the_permissions_of_the_umask(tmp_path, monkeypatch, umask, mask):
    """Runs, series, records, locks, observations, reports, metrics and exports."""
    monkeypatch.chdir(tmp_path)
    write(Path("files"), "2020-01-01")
    umask(mask)
    Path("job.toml").write_text(
        job_text(
            observations={"source": "file:files/*.nc", "times": ["2020-01-01", "2020-01-02"]},
            design={"train": random_points(200), "test": random_points(40, seed=1), "map": map_grid(30.0)},
            solver={"name": "cholesky"},
            output={"root": "out", "keep_weights": True},
        )
    )
    assert run_line("cagp daily job.toml --metrics cagp.prom")[0] == 75, "one day is not there yet"
    if mask == 0o022:
        for command in (
            "report out",
            "index out",
            "export out --to netcdf",
            "status out --metrics out/out.prom",
        ):
            assert run_line(f"cagp {command}")[0] in (0, 75), command
    found = {**modes(Path("out")), "cagp.prom": stat.S_IMODE(Path("cagp.prom").stat().st_mode)}
    assert {"CURRENT", "days.json", ".lock", "runs", "observations"} <= found.keys()
    given = {name: mode & GROUP_AND_OTHERS for name, mode in found.items()}
    assert not {name for name, mode in given.items() if mode & mask}
    if mask == 0o022:  # those who may look at all see all of it
        assert {name for name, mode in given.items() if not mode & stat.S_IROTH} == set()


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_keys_of_a_cluster_are_of_their_owner_alone_whatever_the_umask(tmp_path, umask, mask):
    umask(mask)
    make_certificates(tmp_path / "certificates")
    assert stat.S_IMODE((tmp_path / "certificates").stat().st_mode) == 0o700
    found = modes(tmp_path / "certificates")
    assert {
        name for name, mode in found.items() if mode & GROUP_AND_OTHERS and name.endswith(".pem")
    } == set()
    assert any(name.endswith(".pem") for name in found)
