"""Names chosen to forge lines of a log, or to be obeyed by a terminal: of files, in cells, as units."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cagp_dist.cli import app

from ..jobs import job_text, map_grid, random_points
from ..shell_lines import run_line
from ..sources import temperature

FORGED = "2026-01-01T00:00:00Z ERROR: all is lost"
NAME = f"a\x1b]0;title\x07b\r\x9b31m[red]\n{FORGED}\u202e"


def assert_harmless(printed):
    """No line is forged, and nothing is there that a terminal obeys."""
    assert not any(line.startswith(FORGED[:10]) for line in printed.splitlines()), printed
    assert not set("\x1b\x07\r\x9b\u202e") & set(printed), printed


def everything(command):
    """Run a command and give all that it printed."""
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 1 or "unhealthy" in result.stdout, result.output
    return result.output


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table of stations in whose cells and heading such names are, and its job."""
    monkeypatch.chdir(tmp_path)
    rng, day = np.random.default_rng(0), "2020-01-01"
    rows = ["station,lat,lon,date,height"]
    for k in range(60):
        value = rng.normal() + 40.0 * (k == 7)
        rows.append(
            f'"{NAME}{k}",{rng.uniform(40.0, 60.0):.3f},{rng.uniform(0.0, 30.0):.3f},{day},{value:.3f}'
        )
    Path("stations.csv").write_text("\n".join(rows))
    return tmp_path


def test_no_cell_of_a_table_forges_a_line(table):
    printed = everything(["check", "stations.csv", "--value", "height"])
    assert "1 of 60 values are flagged" in printed
    assert "all is lost" in printed
    assert_harmless(printed)


@pytest.mark.exhaustive
def test_no_name_of_a_column_comes_into_what_is_made_of_it(tmp_path, monkeypatch):
    """A variable of a table gives its name to the run, its report and its logs, as a name may be."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    with Path("stations.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["lat", "lon", "date", NAME])
        rows.writerows(
            [rng.uniform(40, 60), rng.uniform(0, 30), "2020-01-01", rng.normal()] for _ in range(60)
        )
    text = job_text(
        observations={"source": "table:stations.csv", "variable": "NAME"},
        design={"train": {"kind": "all"}, "test": {"kind": "folds", "count": 2}, "map": map_grid(30.0)},
        output={"root": "out"},
    )
    Path("job.toml").write_text(text.replace('"NAME"', json.dumps(NAME)))
    printed = ""
    for command in ("plan job.toml", "run job.toml", "report out", "list out", "verify out"):
        result = CliRunner().invoke(app, command.split())
        assert result.exit_code == 0, result.output
        printed += result.output
    assert_harmless(printed)
    pages = [path.read_text() for path in Path("out").rglob("*.html")]
    assert any("all_is_lost" in page for page in pages)
    assert not set("\x1b\x07\x9b\u202e") & set("".join(pages))


@pytest.mark.exhaustive
def test_no_name_of_a_file_or_unit_forges_a_line(tmp_path, monkeypatch):
    """What passes, states, checks of health, metrics and lists say of them."""
    monkeypatch.chdir(tmp_path)
    Path("files").mkdir()
    latitude, longitude = np.arange(-85.0, 90.0, 10.0), np.arange(0.0, 360.0, 10.0)
    values = 280.0 + np.random.default_rng(0).normal(size=(1, 18, 36))
    field = temperature(values, latitude=latitude, longitude=longitude, times=["2020-01-01"], units=NAME)
    field.rename(t2m="dust").to_netcdf("files/a.nc", engine="h5netcdf")
    (Path("files") / f"{NAME.replace('/', '')}.nc").write_bytes(b"no field")
    Path("job.toml").write_text(
        job_text(
            observations={
                "source": "file:files/*.nc",
                "variable": "dust",
                "times": ["2020-01-01", "2020-01-02"],
            },
            design={"train": random_points(200), "test": random_points(40, seed=1), "map": map_grid(30.0)},
            output={"root": "out"},
        )
    )
    printed = ""
    for command in (
        ["daily", "job.toml", "--metrics", "cagp.prom"],
        ["daily", "job.toml", "--dry-run"],
        ["status", "out"],
        ["health", "out", "--max-unreadable", "0"],
        ["list", "out"],
        ["verify", "out"],
        ["plan", "job.toml", "--times", "2020-01-01"],
        ["daily", "job.toml", "--log", "json"],
    ):
        said = everything(command)
        assert_harmless(said)
        printed += said
    assert printed.count("all is lost") > 5
    assert "in version 1 of the series" in printed
    assert_harmless(Path("cagp.prom").read_text())
    assert json.loads(run_line("cagp status out --json")[1])["failed"]
