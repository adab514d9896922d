"""`cagp drift`: the line, the exit code, and which times have a part."""

import json
import shutil

import numpy as np
import pytest
import xarray as xr
from scipy.special import ndtr
from typer.testing import CliRunner

from cagp_dist.calibration.verification.calibration_drift import measure_drift
from cagp_dist.calibration.verification.verdict import compact_cells
from cagp_dist.cli import app
from cagp_dist.geometry import unit_sphere
from cagp_dist.service.drift_check import FEWEST_TIMES, drift_of_series
from cagp_dist.service.series_status import HealthLimits, status_of
from cagp_dist.store import series
from cagp_dist.store.zarr_arrays import write_group

DAYS, STATIONS = 14, 60


def write_series(root, z, latitude, longitude, **others):
    """A series of the folder, as far as the alarm reads it, of errors with these standardised values.

    With others, by their names, it is one of several variables, and the first is tmin.
    """
    times = np.datetime64("2020-06-01", "ns") + np.arange(len(z)) * np.timedelta64(1, "D")
    keys = [f"{number:032x}" for number in range(len(z))]
    version = root / series.VERSIONS / "000001.zarr"
    write_group(version, "/", xr.Dataset())
    scores = xr.Dataset({series.RUN_KEY: ("time", np.array(keys, dtype=object))}, {"time": times})
    write_group(version, series.SCORES, scores)
    (root / series.NAME).symlink_to(version.relative_to(root))
    named = {"variables": json.dumps(["tmin", *others])} if others else {}
    groups = {"calibration": z, **{f"calibration_{name}": each for name, each in others.items()}}
    for at, (key, time) in enumerate(zip(keys, times, strict=True)):
        run = root / "runs" / f"{key}.zarr"
        write_group(run, "/", xr.Dataset(attrs=named))
        for name, each in groups.items():
            group = xr.Dataset(
                {"pit": (("time", "point"), ndtr(each[at])[None])},
                {"time": [time], "latitude": ("point", latitude), "longitude": ("point", longitude)},
            )
            write_group(run, name, group)


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Errors that are right until the fourth day and twice as large from then on, with gaps."""
    rng = np.random.default_rng(5)
    latitude, longitude = rng.uniform(-80.0, 80.0, STATIONS), rng.uniform(0.0, 360.0, STATIONS)
    z = rng.normal(size=(DAYS + 4, STATIONS))
    z[rng.random(z.shape) < 0.1] = np.nan
    roots = tmp_path_factory.mktemp("right") / "out", tmp_path_factory.mktemp("drifted") / "out"
    for root, size in zip(roots, (1.0, 2.0), strict=True):
        write_series(root, np.where(np.arange(len(z))[:, None] < 4, 1.0, size) * z, latitude, longitude)
    return *roots, z, latitude, longitude


def test_errors_as_large_as_stated_are_no_alarm_and_larger_ones_are(history):
    right, drifted, z, latitude, longitude = history
    said = CliRunner().invoke(app, ["drift", str(right), "--last", str(DAYS)])
    assert said.exit_code == 0
    assert said.stdout.startswith(
        "within chance: over 14 times, 2020-06-05T00:00 to 2020-06-18T00:00, errors"
    )
    said = CliRunner().invoke(app, ["drift", str(drifted), "--last", str(DAYS)])
    assert said.exit_code == 4
    assert said.stdout.startswith("drift: the error bars are too narrow: over 14 times")
    day, place = np.nonzero(~np.isnan(z[4:]))
    cells = compact_cells(unit_sphere(latitude, longitude)[np.lexsort((longitude, latitude))])
    cell = np.empty(STATIONS, int)
    cell[np.lexsort((longitude, latitude))] = cells
    expected = measure_drift(ndtr(2.0 * z[4:][day, place]), times=day, cells=cell[place])
    assert drift_of_series(drifted, last=DAYS).variables[0].found == expected


def test_each_variable_is_looked_at_and_all_together_alarm_as_rarely_as_one(history, tmp_path):
    _, _, z, latitude, longitude = history
    write_series(tmp_path / "out", z, latitude, longitude, tmax=1.5 * z)
    said = CliRunner().invoke(app, ["drift", str(tmp_path / "out")])
    assert said.exit_code == 4
    first, second = said.stdout.splitlines()
    assert first.startswith("tmin: within chance: over 18 times")
    assert second.startswith("tmax: drift: the error bars are too narrow: over 18 times")
    low, high = drift_of_series(tmp_path / "out").variables
    write_series(tmp_path / "alone", z, latitude, longitude)
    (alone,) = drift_of_series(tmp_path / "alone").variables
    assert low.found.ratio == alone.found.ratio == pytest.approx(high.found.ratio / 1.5)
    assert low.found.high > alone.found.high  # of two looks each is stricter
    state = status_of(tmp_path / "out")
    assert [*state.as_json()["drift"]] == ["tmin", "tmax"]
    assert HealthLimits(drift=True).faults(state) == [second]


def test_times_whose_runs_were_removed_have_no_part_and_few_times_decide_nothing(history, tmp_path):
    right, *_ = history
    kept = shutil.copytree(right, tmp_path / "out", symlinks=True)
    shutil.rmtree(kept / "runs" / f"{DAYS:032x}.zarr")
    assert len(drift_of_series(kept).variables[0].times) == DAYS + 3
    for number in range(7):
        shutil.rmtree(kept / "runs" / f"{number:032x}.zarr")
    said = CliRunner().invoke(app, ["drift", str(kept)])
    assert (said.exit_code, said.stdout[:27]) == (0, "undecided: 10 of the 12 tim")


def test_a_damaged_run_leaves_the_drift_unknown_and_all_else_told(history, tmp_path):
    root = shutil.copytree(history[0], tmp_path / "out", symlinks=True)
    damaged = root / "runs" / f"{DAYS:032x}.zarr"
    shutil.rmtree(damaged / "calibration")
    file = tmp_path / "out.prom"
    said = CliRunner().invoke(app, ["status", str(root), "--metrics", str(file)])
    assert said.exit_code == 0, said.output
    (line,) = [line for line in said.stdout.splitlines() if line.startswith("error bars   unknown: ")]
    assert damaged.stem in line
    assert f"runs         {DAYS + 4} runs kept" in said.stdout
    assert "cagp_days{" in file.read_text()
    assert "cagp_drift" not in file.read_text()
    told = CliRunner().invoke(app, ["status", str(root), "--json"])
    assert damaged.stem in json.loads(told.stdout)["drift"]["unknown"]
    assert CliRunner().invoke(app, ["health", str(root)]).exit_code == 0
    said = CliRunner().invoke(app, ["health", str(root), "--drift"])
    assert (said.exit_code, said.stdout[:33]) == (1, "unhealthy: the drift is not known")


@pytest.mark.parametrize("last", [-1, 1, FEWEST_TIMES - 1])
def test_fewer_times_than_decide_are_not_asked_for(history, last):
    said = CliRunner().invoke(app, ["drift", str(history[1]), "--last", str(last)])
    assert said.exit_code == 2
    assert f"expected --last {FEWEST_TIMES} or more" in " ".join(said.stderr.split())
    assert CliRunner().invoke(app, ["drift", str(history[1]), "--last", str(FEWEST_TIMES)]).exit_code == 4
    told = CliRunner().invoke(app, ["drift", "--help"]).stdout.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ")
    assert f"to check, at least {FEWEST_TIMES}." in " ".join(told.split())


def test_a_folder_without_a_series_is_named(tmp_path):
    said = CliRunner().invoke(app, ["drift", str(tmp_path)])
    assert said.exit_code == 2
    assert "there is no time series in" in said.stderr
