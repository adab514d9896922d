"""Links that somebody put into an output folder: what they lead to is never written, removed or changed."""

import hashlib
import re
import shutil
from pathlib import Path

import pytest

from ..jobs import job_text, map_grid, random_points
from ..shell_lines import run_line
from .test_days_of_files import write

DAYS = ["2020-01-01", "2020-01-02", "2020-01-03"]
COMMANDS = (
    "cagp daily jobs/daily.toml",
    "cagp report out",
    "cagp daily jobs/daily.toml --remove 2020-01-02",
    "cagp prune out --keep 1",
)
KINDS = (
    *(".lock", ".series", ".series/*.sha256", ".series/*.zarr", ".series/*.zarr/map", ".staging", "CURRENT"),
    *("days.json", "downloads", "downloads/known-of-files", "downloads/known-of-files/sha256.json"),
    *("downloads/known-of-files/times-*.json", "observations", "observations/.*.zarr.lock"),
    *("observations/*.zarr", "observations/*.zarr/*T*-*", "observations/*.zarr/zarr.json"),
    *("observations/inputs.json", "report", "report/*", "report/*/report.html", "report/index.html"),
    *("runs", "runs/*.sha256", "runs/*.zarr", "runs/*.zarr/map"),
)
ALIKE = r"report/.*png|runs/\*\.zarr/(?!map).*|\.series/\*\.zarr/(?!map).*"  # as others of which there is one


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a daily job, of which two days are done, and the file of a third."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write(Path("files"), DAYS[0])
        write(Path("files"), DAYS[1])
        Path("jobs").mkdir()
        Path("jobs/daily.toml").write_text(
            job_text(
                observations={"source": "file:files/*.nc", "times": DAYS},
                design={
                    "train": random_points(200),
                    "test": random_points(40, seed=1),
                    "map": map_grid(30.0),
                },
                solver={"name": "cholesky"},
                output={"root": "out", "keep_weights": True},
            )
        )
        assert run_line("cagp daily jobs/daily.toml")[0] == 75, "the third day is not there yet"
        assert run_line("cagp report out")[0] == 0
        assert run_line("cagp index out")[0] == 0
        write(Path("files"), DAYS[2])
    return folder


def places(folder):
    """Give a path of each kind below a folder, three levels deep."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if len(name.parts) <= 3 and not path.is_symlink():
            found.setdefault(re.sub(r"[0-9a-f]{16,}|\d{4,}|file-\w+", "*", str(name)), name)
    return {kind: name for kind, name in found.items() if not re.fullmatch(ALIKE, kind)}


def digests(path):
    """Give a digest of each file that a path is or has."""
    files = [path] if path.is_file() else [each for each in sorted(path.rglob("*")) if each.is_file()]
    return {str(each): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def linked(finished, folder, name):
    """Copy a finished folder; what has this name below its output is a link to the same content elsewhere."""
    shutil.copytree(finished, folder, symlinks=True)
    elsewhere = folder / "elsewhere" / name.name
    elsewhere.parent.mkdir()
    (folder / "out" / name).rename(elsewhere)
    (folder / "out" / name).symlink_to(elsewhere)
    return elsewhere


@pytest.mark.exhaustive
def test_the_places_of_links_are_those_that_there_are(finished):
    assert sorted(places(finished / "out")) == sorted(KINDS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_through_a_link(finished, tmp_path, monkeypatch, kind):
    """A pass with a new day, a report, a removal and a clean-up: each does its work, or says why not."""
    elsewhere = linked(finished, tmp_path / "copy", places(finished / "out")[kind])
    before = digests(elsewhere)
    monkeypatch.chdir(tmp_path / "copy")
    for command in COMMANDS:
        code, printed = run_line(command)
        assert code in (0, 2, 4, 6, 75), printed
        assert "unexpected" not in printed
    assert digests(elsewhere) == before
