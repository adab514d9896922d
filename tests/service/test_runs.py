"""The list of the runs of an output folder, what the command line makes of it, and how a run is named."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.cli.display import show_runs
from cagp_dist.errors import ConfigurationError
from cagp_dist.service.published_runs import list_runs
from cagp_dist.service.run import find_run

from ..report.make_run import make_run

KEYS = ("aa" + 14 * "0", "ab" + 14 * "0", "cc" + 14 * "0")
DAYS = ("2019-03-02T00:00", "2019-03-01T00:00", "2019-03-03T00:00")
LOOK = {"map_step": None, "test_count": 40, "iterations": 1}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of three runs; the second is current, the third has two times."""
    folder = tmp_path_factory.mktemp("many")
    for key, day in zip(KEYS, DAYS, strict=True):
        times = (day,) if key != KEYS[2] else (day, "2019-03-03T06:00")
        make_run(folder, key=key, times=times, train_count=1234, **LOOK)
    (folder / "CURRENT").write_text(KEYS[1] + "\n")
    return folder


def cagp(*arguments, **environment):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)


def test_runs_are_in_the_order_of_their_times_with_what_they_hold(root):
    entries = list_runs(root)
    assert [entry.key for entry in entries] == [KEYS[1], KEYS[0], KEYS[2]]
    assert [entry.current for entry in entries] == [True, False, False]
    assert [entry.times.size for entry in entries] == [1, 1, 2]
    for entry in entries:
        scores = xr.open_zarr(entry.path, group="calibration", consolidated=False)
        assert entry.scores["rmse"] == float(scores.rmse)
        assert entry.scores["coverage"] == float(scores.coverage.sel(level=0.9))
        assert (entry.source, entry.status, entry.observations) == ("sample", "completed", 1234)
        assert entry.units == "K"
        assert entry.fault == ""


def test_the_list_is_printed_whole_into_a_pipe(root):
    lines = cagp("list", root).stdout.splitlines()
    rows = [line for line in lines if "sample" in line]
    assert [row.split()[0] for row in rows] == ["*", KEYS[0][:8], KEYS[2][:8]]
    assert "2019-03-03 00:00 + 1" in rows[2]
    entry = list_runs(root)[1]
    for words in (
        f"{entry.scores['rmse']:.3f} K",
        f"{entry.scores['coverage']:.1%}",
        "1,234",
        "completed",
    ):
        assert words in rows[1]


def test_the_list_says_when_a_run_was_made(root, capsys):
    show_runs([replace(list_runs(root)[0], created="2019-03-09T06:01:59Z")])
    row = next(line for line in capsys.readouterr().out.splitlines() if "sample" in line)
    assert row.split()[2:4] == ["2019-03-09", "06:01"]


def test_files_are_listed_without_their_folders(root, capsys):
    entry = list_runs(root)[0]
    for source in ("file:/data/era5/2019/t2m.grib", "table stations.csv", "cds"):
        show_runs([replace(entry, source=source)])
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name in ("file:t2m.grib", "table stations.csv", "cds"))
    assert "/data" not in shown


def test_a_damaged_run_is_listed_with_its_fault(root, tmp_path):
    shutil.copytree(root, tmp_path / "out")
    (tmp_path / "out" / "runs" / f"{KEYS[0]}.zarr" / "zarr.json").write_text("{")
    result = cagp("list", tmp_path / "out")
    assert result.exit_code == 0
    assert "cannot be read" in result.stdout
    assert f"{KEYS[0]}: " in result.stdout
    assert result.stdout.count("completed") == 2


def test_a_missing_pointer_marks_no_run(root, tmp_path):
    shutil.copytree(root, tmp_path / "out")
    (tmp_path / "out" / "CURRENT").write_text("nonsense")
    assert not any(entry.current for entry in list_runs(tmp_path / "out"))


def test_an_empty_folder_is_refused(tmp_path):
    result = cagp("list", tmp_path)
    assert result.exit_code == 2
    assert "there is no published run in" in result.stderr


def test_the_first_digits_of_a_key_name_a_run(root):
    assert find_run(root / "cc") == root / "runs" / f"{KEYS[2]}.zarr"
    assert find_run(root / KEYS[0]) == root / "runs" / f"{KEYS[0]}.zarr"
    assert find_run(root).stem == KEYS[1]
    with pytest.raises(ConfigurationError) as refusal:
        find_run(root / "a")
    assert refusal.value.key == "several-runs"
    with pytest.raises(ConfigurationError) as refusal:
        find_run(root / "ee")
    assert refusal.value.key == "no-run"
    with pytest.raises(ConfigurationError) as refusal:
        find_run(root / "*")
    assert refusal.value.key == "no-run"


def test_open_writes_a_report_that_is_not_there_and_prints_it(root, monkeypatch):
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    page = root / "report" / KEYS[2] / "report.html"
    assert not page.exists()
    result = cagp("open", root / "cc", DISPLAY="", WAYLAND_DISPLAY="")
    assert result.stdout == f"{page}\n"
    assert page.exists()
    assert shown == []
    written = page.stat().st_mtime_ns
    assert cagp("open", root / "cc", "--no-browser", DISPLAY=":0").exit_code == 0
    assert shown == []
    assert cagp("open", root / "cc", DISPLAY=":0").exit_code == 0
    assert shown == [page.as_uri()]
    assert page.stat().st_mtime_ns == written


def test_runs_without_scores_are_listed(root, tmp_path):
    shutil.copytree(root, tmp_path / "out")
    run = tmp_path / "out" / "runs" / f"{KEYS[0]}.zarr"
    shutil.rmtree(run / "calibration")
    root_json = run / "zarr.json"
    content = json.loads(root_json.read_text())
    content.pop("consolidated_metadata", None)
    root_json.write_text(json.dumps(content))
    entry = next(entry for entry in list_runs(tmp_path / "out") if entry.key == KEYS[0])
    assert entry.fault == ""
    assert entry.scores == {}
    np.testing.assert_array_equal(entry.times, np.array([DAYS[0]], dtype="datetime64[s]"))
    assert KEYS[0][:8] in cagp("list", tmp_path / "out").stdout
