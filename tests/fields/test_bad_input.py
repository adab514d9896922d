"""Bad input: each case is one clear error with its exit code, and nothing is left half-written."""

import os
import re
import socket
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import cagp_dist as cagp
from cagp_dist.cli import app
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.files.file_catalogue import FOLDER
from cagp_dist.service.jobfile.config import parse_job

from .. import sources
from ..jobs import job_text, random_points
from ..regional import WORLD, corrupted
from ..sources import save, smooth

JOB = job_text(
    observations={"source": "file:field.nc"},
    design={"train": random_points(120), "test": random_points(30, seed=1)},
    prior={
        "kernel": "matern32",
        "mean": "quadratic-latitude",
        "lengthscale": 0.3,
        "variance": 22.0,
        "noise_variance": 0.5,
    },
    solver={"name": "block-gauss-seidel", "iterations": 2, "block_size": 64},
    output={"root": "out"},
)


def temperature(*, units: str = "K") -> xr.Dataset:
    """A smooth field of 12 x 24 points in the layout of the Climate Data Store."""
    latitude, longitude = np.arange(82.5, -90.0, -15.0), np.arange(0.0, 360.0, 15.0)
    return sources.temperature(
        smooth(latitude, longitude), latitude=latitude, longitude=longitude, time="valid_time", units=units
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder with a good field and a good job."""
    monkeypatch.chdir(tmp_path)
    temperature().to_netcdf("field.nc", engine="scipy")
    save(temperature().sel(latitude=slice(70, 0), longitude=slice(0, 80)), Path("europe.zarr"))
    Path("job.toml").write_text(JOB)
    return tmp_path


def run(*arguments: str, job: str | None = None):
    if job is not None:
        Path("job.toml").write_text(job)
    return CliRunner().invoke(app, list(arguments) or ["run", "job.toml"])


def assert_refused(result, code: int, *said: str) -> None:
    """The right exit code, one block on standard error, nothing on standard output, nothing half-written."""
    assert result.exit_code == code, result.output
    message = " ".join(result.stderr.split())
    for words in said:
        assert words in message
    timed = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ Error: ")
    assert len([line for line in result.stderr.splitlines() if timed.match(line)]) == 1
    assert "Traceback" not in result.output
    assert result.stdout == ""
    left = {path.relative_to("out").as_posix() for path in Path("out").rglob("*") if path.is_file()}
    left = {name for name in left if not name.startswith(("observations/", f"downloads/{FOLDER}/"))}
    assert left <= {".lock"}


def assert_no_observations() -> None:
    assert not list(Path("out").glob("observations/*"))


TRAIN_AND_TEST = JOB.split("[design]\n")[1].split("\n\n")[0]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("iterations = 2", "iteration = 2", ("unknown key [solver] iteration", 'nearest: "iterations"')),
        ("[prior]", "[prier]", ("unknown table [prier]", 'nearest: "prior"')),
        ("count = 120", "count = 289", ("train.count asks for 289", "the field has 288", "Lower the count")),
        ("count = 30", "count = 169", ("test.count asks for 169", "the other set takes 120", "at most 168")),
        (
            TRAIN_AND_TEST,
            'train = { kind = "stride", step = 2 }\ntest = { kind = "stride", step = 4 }',
            ("train and test share 18 of 18 test points", "different offsets"),
        ),
        (
            "lengthscale = 0.3",
            "lengthscale = -0.3",
            ("lengthscale = -0.3 is not allowed", "for example 0.05"),
        ),
        ("lengthscale = 0.3", "lengthscale = 0", ("lengthscale = 0 is not allowed", "for example 0.05")),
        ("\nvariance = 22.0", "\nvariance = -22.0", ("[prior] variance = -22.0", "for example 22.0")),
        ("\nvariance = 22.0", "\nvariance = 0.0", ("[prior] variance = 0.0", "for example 22.0")),
        ("noise_variance = 0.5", "noise_variance = -1", ("noise_variance = -1", "for example 0.5")),
        ("noise_variance = 0.5", "noise_variance = 0", ("noise_variance = 0 is", "for example 0.5")),
        ("iterations = 2", "iterations = -1", ("iterations = -1", "an integer of at least 0")),
        ("block_size = 64", "block_size = 0", ("block_size = 0", "an integer of at least 1")),
        ("[solver]", "[solver", ("is not valid TOML", "at line", "line 15: [solver")),
        ('"file:field.nc"', '"field.nc"', ('write "file:field.nc"',)),
        (
            '"file:field.nc"',
            '"file:field.nc"\narea = [10.0, 1.0, 5.0, 3.0]',
            ("area [10.0, 1.0, 5.0, 3.0]", "holds no grid point", "latitudes -82.5..82.5"),
        ),
        (
            '"file:field.nc"',
            '"file:field.nc"\nvariable = "a/b"',
            ("'a/b' cannot be the name of a field", "'t2m'"),
        ),
        ("lengthscale = 0.3\n", "", ("variance and noise_variance given without lengthscale", "all three")),
        (
            '"file:field.nc"',
            '"synthetic"\n[observations.synthetic]\nlenghtscale = 0.1',
            (
                "unknown key [observations] synthetic.lenghtscale",
                'nearest: "lengthscale"',
                "noise_variance, seed",
            ),
        ),
        (
            '"file:field.nc"',
            '"file:field.nc"\nsynthetic = { seed = 1 }',
            (
                '[observations.synthetic] cannot be combined with source "file:field.nc"',
                'write source = "synthetic"',
            ),
        ),
        (
            '"file:field.nc"',
            '"synthetic"\ngrid_degrees = 7.0',
            ("grid_degrees is 7;", "divides 180 degrees"),
        ),
        (
            '"file:field.nc"',
            '"synthetic"\ngrid_degrees = 10.0\nsynthetic = { variance = 1e4 }',
            ("the synthetic field reaches from", "Lower variance"),
        ),
        (
            '"quadratic-latitude"',
            '"quadratic-longitude"',
            ("quadratic-longitude", 'nearest: "quadratic-latitude"'),
        ),
        ('"quadratic-latitude"', '"climatology:"', ('the address is missing after "climatology:"',)),
        (
            '"quadratic-latitude"',
            '"climatology:europe.zarr"',
            (
                "the climatology covers latitudes 7.5..67.5 and 75 degrees east of longitude 0",
                "use another mean",
            ),
        ),
    ],
)
def test_a_wrong_job_is_refused(folder, old, new, said):
    assert old in JOB
    assert_refused(run(job=JOB.replace(old, new)), 2, *said)


def test_a_job_that_does_not_fit_into_memory_is_refused(folder):
    job = JOB.replace("[prior]", 'map = { kind = "grid", resolution_degrees = 1.0 }\n[prior]')
    job = job.replace("[cluster]", '[cluster]\nmemory_limit = "2MiB"')
    assert_refused(
        run(job=job), 2, "block Gauss-Seidel on 120 points needs", "2 MiB", "Raise [cluster] memory_limit"
    )


def test_a_climatology_that_is_not_there_is_refused(folder):
    job = JOB.replace('"quadratic-latitude"', '"climatology:none.zarr"')
    assert_refused(run(job=job), 1, "there is no Zarr store at none.zarr")


def test_a_climatology_with_gaps_is_refused(folder):
    holed = temperature()
    holed["t2m"][0, 3, 5:8] = np.nan
    save(holed, Path("holed.zarr"))
    job = JOB.replace('"quadratic-latitude"', '"climatology:holed.zarr"')
    assert_refused(run(job=job), 1, "holed.zarr: 3 of 288 values of the climatology are missing", "Fill them")


NUMBERS = "lengthscale = 0.3\nvariance = 22.0\nnoise_variance = 0.5\n"


def test_a_prior_that_the_data_do_not_hold_is_a_warning_with_what_to_do(folder):
    """Of noise alone, no lengthscale can be told: it ends on its lower bound, or anywhere."""
    rng = np.random.default_rng(0)
    field = temperature()
    field["t2m"][:] = 280.0 + rng.normal(0.0, 3.0, field.t2m.shape).astype("f4")
    field.to_netcdf("field.nc", engine="scipy")
    result = run(job=JOB.replace(NUMBERS, ""))
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "WARNING: the fit of the prior to the 120 observed points ended flat" in said
    assert "or observe more or closer points ([design] train)" in said


@pytest.mark.exhaustive
def test_a_noise_too_small_to_be_told_from_none_is_said_and_does_not_stop_a_job(folder):
    result = run(job=JOB.replace(NUMBERS, ""))
    assert result.exit_code == 0, result.output
    assert "the noise is too small to be distinguished from zero" in " ".join(result.output.split())


def test_a_field_with_a_gap_is_fitted_at_its_observed_points(folder):
    rng = np.random.default_rng(0)
    field = temperature()
    field["t2m"] += rng.normal(0.0, 1.0, field.t2m.shape).astype("f4")
    field["t2m"][0, 4, 4] = np.nan
    field.to_netcdf("field.nc", engine="scipy")
    result = run("fit", "job.toml", job=JOB.replace(NUMBERS, ""))
    assert result.exit_code in (0, 3), result.output  # 120 points may leave the likelihood flat
    assert "fitted  to the 120 observed points in" in result.stdout


def test_too_few_points_to_fit_are_refused(folder):
    job = JOB.replace(NUMBERS, "").replace("count = 120", "count = 3").replace("count = 30", "count = 2")
    job = job.replace('"file:field.nc"', '"file:field.nc"\narea = [60.0, 0.0, 0.0, 60.0]')
    assert_refused(run(job=job), 2, "three parameters cannot be learned from 3 points")


def test_a_missing_job_file_is_refused(folder):
    assert_refused(run("run", "none.toml"), 2, "there is no job file at none.toml", "cagp example")


def test_a_missing_data_file_is_refused(folder):
    Path("field.nc").unlink()
    assert_refused(run(), 1, "field.nc", "No such file", "relative to")
    assert_no_observations()


def html(path: Path) -> None:
    path.write_text("<!DOCTYPE html><html><body>Please log in</body></html>")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3000])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def celsius(path: Path) -> None:
    field = temperature()
    field["t2m"] = (field.t2m - 273.15).assign_attrs(units="K")
    field.to_netcdf(path, engine="scipy")


def says_rankine(path: Path) -> None:
    temperature(units="degR").to_netcdf(path, engine="scipy")


def all_nan(path: Path) -> None:
    field = temperature()
    field["t2m"] = field.t2m * np.nan
    field.to_netcdf(path, engine="scipy")


def other_variable(path: Path) -> None:
    temperature().rename(t2m="tp").to_netcdf(path, engine="scipy")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (html, ("field.nc is a web page, not data", "fetch the file again")),
        (truncated, ("field.nc",)),
        (empty, ("field.nc", "empty")),
        (celsius, ("Celsius", "150..350 K")),
        (says_rankine, ("units 'degR'; expected kelvin, degrees Celsius or Fahrenheit",)),
        (all_nan, ("NaN everywhere",)),
        (other_variable, ("'t2m' is missing", "'tp'")),
    ],
)
def test_a_wrong_netcdf_file_is_refused(folder, damage, said):
    damage(Path("field.nc"))
    assert_refused(run(), 1, *said)
    assert_no_observations()


@pytest.mark.parametrize("damage", [html, truncated])
def test_a_wrong_grib_file_is_refused(folder, damage):
    Path("field.grib").write_bytes(WORLD.read_bytes())
    damage(Path("field.grib"))
    assert_refused(run(job=JOB.replace("field.nc", "field.grib")), 1, "field.grib")
    assert_no_observations()


def test_a_corrupted_grib_message_is_refused(folder):
    Path("field.grib").write_bytes(corrupted())
    assert_refused(run(job=JOB.replace("field.nc", "field.grib")), 1, "field.grib")
    assert_no_observations()


def test_a_time_that_is_not_there_is_refused(folder):
    job = JOB.replace('"file:field.nc"', '"file:field.nc"\ntimes = ["2021-01-01"]')
    assert_refused(run(job=job), 1, "2021-01-01T00:00", "from 2020-01-01T00:00 to 2020-01-01T00:00")
    assert_no_observations()


@pytest.mark.parametrize("root", ["job.toml", "job.toml/below"])
def test_an_output_root_that_is_no_folder_is_refused(folder, root):
    result = run(job=JOB.replace('root = "out"', f'root = "{root}"'))
    assert_refused(result, 2, root, "choose another output root")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_root_without_permission_is_refused(folder):
    Path("locked").mkdir(mode=0o500)
    result = run(job=JOB.replace('root = "out"', 'root = "locked/out"'))
    assert_refused(result, 2, "Permission denied", "choose another output root")


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_scheduler_that_does_not_answer_is_refused(folder, monkeypatch, command):
    monkeypatch.setattr("cagp_dist.runtime.dask.CONNECT_SECONDS", 1)
    result = run(command, "job.toml", "--scheduler", "tcp://127.0.0.1:9")
    assert_refused(result, 2, "tcp://127.0.0.1:9", "Check that `dask scheduler` runs there")


@pytest.mark.exhaustive
def test_a_scheduler_that_accepts_and_says_nothing_is_refused_in_time(folder, monkeypatch, caplog):
    monkeypatch.setattr("cagp_dist.runtime.dask.CONNECT_SECONDS", 1)
    job = job_text(observations={"source": "synthetic", "grid_degrees": 10.0}, output={"root": "out"})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        result = run("run", "job.toml", "--scheduler", address, job=job)
        assert time.monotonic() - started < 10.0
    assert_refused(result, 2, f"no Dask scheduler answers at {address}", "Check that `dask scheduler` runs")
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\n" * 50_000, ("job.toml is larger than 256 KiB", "as a rule")),
        ("a." * 50_000 + "a = 1", ("job.toml, line 1: a key has more than 16 parts, a.a.a", "four at most")),
        (
            "\n\n[" + '"a" . ' * 40_000 + "a]",
            ("job.toml, line 3: a key has more than 16 parts", "cagp example"),
        ),
        ("a = {" * 20_000, ("not valid TOML: its arrays or tables are nested too deeply",)),
        ("a = " + "[" * 100_000, ("not valid TOML: its arrays or tables are nested too deeply",)),
    ],
    ids=["size", "dots", "header", "tables", "arrays"],
)
def test_a_job_file_that_would_keep_the_parser_busy_is_refused_before_it_is_parsed(folder, text, said):
    started = time.process_time()  # which nobody else takes
    assert_refused(run(job=text), 2, *said)
    assert time.process_time() - started < 10.0


def test_a_job_file_without_end_is_refused(folder):
    assert_refused(run("run", "/dev/zero"), 2, "/dev/zero cannot be read", "not a regular file")


def test_texts_with_dots_are_no_deep_keys():
    dots = "x." * 40
    parse_job(f"# {dots}\n" + JOB.replace('"file:field.nc"', f'"file:{dots}nc"  # {dots}'))


def test_a_scheduler_file_that_is_missing_is_refused(folder):
    result = run("run", "job.toml", "--scheduler", "none.json")
    assert_refused(result, 2, "scheduler file none.json does not exist")


def test_a_scheduler_that_is_none_is_refused(folder):
    result = run("run", "job.toml", "--scheduler", "dask")
    assert_refused(result, 2, '--scheduler "dask": expected "local"')


PRIOR = cagp.Prior(cagp.Matern32(lengthscale=0.3), noise_variance=0.1)
X, Y = np.linspace(0, 1, 12).reshape(4, 3), np.arange(4.0)
HOLED = X.copy()
HOLED[1, 1] = np.nan


@pytest.mark.parametrize(
    ("points", "values", "key"),
    [
        (HOLED, Y, "not-finite"),
        (X[:, 0], Y, "shapes"),
        (X, Y[:3], "shapes"),
        (X, np.where(Y == 2, np.inf, Y), "not-finite"),
        (X, Y.reshape(2, 2), "shapes"),
    ],
)
def test_wrong_arrays_are_refused(points, values, key):
    with pytest.raises(ArgumentError) as caught:
        cagp.condition(PRIOR, points, values, X, solver=cagp.GaussSeidel(2))
    assert caught.value.key == key
    assert caught.value.exit_code == 2


def test_the_good_job_runs(folder):
    result = run()
    assert result.exit_code == 0, result.output
    assert Path("out/CURRENT").exists()
