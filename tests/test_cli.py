"""The `cagp` command: what it prints, where, and with which exit code."""

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.cli.display import Display
from cagp_dist.cli.records import listen
from cagp_dist.errors import NotReadyError, NumericalError
from cagp_dist.service.events import Event
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.metrics import Metrics
from cagp_dist.text import json_line

from .jobs import job_text, map_grid, random_points
from .prometheus import metrics_of
from .sources import save, smooth, temperature

CAGP = Path(sys.executable).with_name("cagp")

JOB = job_text(design={"train": random_points(300), "test": random_points(40, seed=1), "map": map_grid(45.0)})


@pytest.fixture(scope="session", autouse=True)
def field(tmp_path_factory):
    """A smooth field of 24 x 48 points as a Zarr store."""
    latitude, longitude = np.arange(-86.25, 90.0, 7.5), np.arange(0.0, 360.0, 7.5)
    field = temperature(smooth(latitude, longitude), latitude=latitude, longitude=longitude)
    return save(field, tmp_path_factory.mktemp("source") / "field.zarr")


@pytest.fixture
def job(tmp_path, field):
    """A job file that takes a moment, with its output in ``out`` beside it."""
    path = tmp_path / "job.toml"
    path.write_text(small(field) + f'[output]\nroot = "{tmp_path}/out"\n')
    return path


def small(field) -> str:
    return JOB.replace('"sample"', f'"zarr:{field}"\ntimes = ["2020-01-01"]')


def cagp(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def page_not_drawn(monkeypatch):
    """A report without figures, which take longer than the runs of tests."""

    def write_report(run, to):
        to.mkdir(parents=True)
        (to / "report.html").touch()
        return to / "report.html"

    monkeypatch.setattr("cagp_dist.report.write_report", write_report)


@pytest.fixture(scope="module")
def done(tmp_path_factory, field):
    """A folder in which the job was done, and what was printed."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "job.toml").write_text(f'{small(field)}[output]\nroot = "{folder}/out"\n')
    return folder, cagp("run", folder / "job.toml")


def test_run_prints_scores_and_paths(done):
    folder, result = done
    assert result.exit_code == 0, result.output
    for words in ("RMSE", "CRPS", "NLL", "coverage at 90%", "status  completed: All iterations"):
        assert words in result.stdout
    run = (folder / "out" / "CURRENT").read_text().strip()
    assert f"run     {folder}/out/runs/{run}.zarr\n" in result.stdout
    page = result.stdout.split("report  ")[1].strip()
    assert Path(page).read_text().startswith("<!doctype html>")
    rmse = float(xr.open_zarr(folder / "out" / "runs" / f"{run}.zarr", group="calibration").rmse)
    assert f"{rmse:.3f} K" in result.stdout


def test_json_log_and_metrics_tell_programs_what_people_are_told(job, tmp_path, page_not_drawn):
    file = tmp_path / "metrics" / "cagp.prom"
    result = cagp("run", job, "--log-format", "json", "--metrics", file)
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in result.stderr.splitlines()]
    times = [datetime.fromisoformat(event["time"]) for event in events]
    assert times == sorted(times)
    assert all(time.utcoffset() == timedelta(0) for time in times)
    stages = ["Observations", "Points", "Solve", "Scores", "Results", "Publication", "Report"]
    for kind in ("start", "done"):
        assert [event["stage"] for event in events if event["event"] == kind] == stages
    solved = next(event for event in events if event["event"] == "done" and event["stage"] == "Solve")
    assert solved["text"] == "completed after 2 iterations"
    samples = metrics_of(file)
    assert {name: solved[name] for name in ("products", "moved_bytes")} == {
        # sweeps of a column for each test point and map cell, and of one for the coefficient of the mean
        "products": 2 * (40 + 32) + 3,
        "moved_bytes": 0,
    }
    for name in ("tasks", "products", "moved_bytes"):
        assert samples[f'cagp_stage_{name}{{job="job",stage="Solve"}}'] == solved[name]
        assert samples[f'cagp_stage_{name}{{job="job",stage="Points"}}'] == 0
    took = {stage: samples[f'cagp_stage_seconds{{job="job",stage="{stage}"}}'] for stage in stages}
    assert took["Solve"] == pytest.approx(solved["seconds"], abs=0.0005)  # milliseconds in the log
    assert sum(took.values()) <= samples['cagp_run_seconds{job="job"}']
    run = (tmp_path / "out" / "CURRENT").read_text().strip()
    recorded = json.loads(xr.open_zarr(tmp_path / "out" / "runs" / f"{run}.zarr").attrs["work"])
    assert recorded == {"Solve": {name: solved[name] for name in ("tasks", "products", "moved_bytes")}}
    scores = xr.open_zarr(tmp_path / "out" / "runs" / f"{run}.zarr", group="calibration")
    assert samples['cagp_score{job="job",score="rmse",units="K"}'] == float(scores.rmse)
    covered = float(scores.coverage.sel(level=0.9))
    assert samples['cagp_coverage_ratio{job="job",level="0.9"}'] == covered
    assert any(f'run="{run}",status="completed"' in name for name in samples)
    assert samples['cagp_run_exit_code{job="job"}'] == 0
    assert samples['cagp_run_computed{job="job"}'] == 1
    assert list(file.parent.iterdir()) == [file]
    cagp("run", job, "--metrics", file)
    assert metrics_of(file)['cagp_run_computed{job="job"}'] == 0


def test_metrics_and_json_log_of_a_run_that_fails(job, tmp_path):
    job.write_text(job.read_text().replace("field.zarr", "nowhere.zarr"))
    file = tmp_path / "cagp.prom"
    result = cagp("run", job, "--log-format", "json", "--metrics", file)
    assert result.exit_code == 1
    last = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")][-1]
    assert (last["event"], last["stage"]) == ("error", "Observations")
    assert "nowhere.zarr" in last["text"]
    samples = metrics_of(file)
    assert samples['cagp_run_exit_code{job="job"}'] == 1
    assert not any(name.startswith(("cagp_score", "cagp_stage")) for name in samples)
    (tmp_path / "folder").mkdir()
    result = cagp("run", job, "--metrics", tmp_path / "folder")
    assert result.exit_code == 1, "that of the run"
    assert f"WARNING: metrics were not written to {tmp_path / 'folder'}: " in result.stderr


def test_labels_of_metrics_are_written_as_the_format_asks():
    metrics = Metrics('a"b\\c\nd')
    assert 'cagp_run_exit_code{job="a\\"b\\\\c\\nd"} 75.0' in metrics.text(75).splitlines()


def test_run_prints_both_weightings_and_the_verdict(done):
    folder, result = done
    run = (folder / "out" / "CURRENT").read_text().strip()
    scores = xr.open_zarr(folder / "out" / "runs" / f"{run}.zarr", group="calibration").load()
    words = result.stdout.split()
    row = words[words.index("CRPS") :]
    assert row[1:5:2] == [f"{float(scores[name]):.3f}" for name in ("crps", "crps_area_weighted")]
    assert f"bars    {scores.attrs['calibration_statement']}\n" in result.stdout


def test_wrong_error_bars_are_yellow(capsys, monkeypatch):
    from cagp_dist.calibration.verification.pit import pit
    from cagp_dist.calibration.verification.scores import scores
    from cagp_dist.cli.display import show_outcome
    from cagp_dist.solvers.status import Status
    from cagp_dist.store.scored_groups import calibration_group

    monkeypatch.setenv("FORCE_COLOR", "1")
    rng = np.random.default_rng(0)
    points = {
        "times": np.array(["2020-01-01"], dtype="datetime64[s]"),
        "north": rng.uniform(-60.0, 60.0, 200),
        "east": rng.uniform(0.0, 360.0, 200),
    }
    for std, yellow in ((1.0, False), (0.1, True)):
        prediction = np.zeros((1, 200)), np.full(200, std), rng.standard_normal((1, 200))
        group = calibration_group(**points, pit=pit(*prediction), scores=scores(*prediction))
        outcome = SimpleNamespace(
            calibration=group,
            already_done=False,
            status=Status.COMPLETED,
            path=None,
            simulation=None,
            regions=None,
            by_variable={"": group},
        )
        show_outcome(outcome, None)
        line = next(
            line for line in capsys.readouterr().out.splitlines() if re.match(r"(\x1b\[\d+m)*bars    ", line)
        )
        assert ("The error bars are too narrow" in line) is yellow
        assert ("\x1b[33m" in line) is yellow


@pytest.mark.exhaustive
def test_calibrate_prints_what_error_bars_do_on_fields_of_the_prior(tmp_path, field):
    path = tmp_path / "job.toml"
    path.write_text(f'{small(field)}[output]\nroot = "{tmp_path}/out"\n')
    result = cagp("calibrate", path, "--simulations", "60", "--seed", "3")
    assert result.exit_code == 0, result.output
    line = next(line for line in result.stdout.splitlines() if line.startswith("prior   "))
    [run] = (tmp_path / "out" / "runs").glob("*.zarr")
    assert line == f"prior   {xr.open_zarr(run).attrs['simulation_statement']}"
    assert "over 60 fields drawn from the prior" in line
    assert "done  Simulation    60 fields: " in result.stderr
    page = Path(result.stdout.split("report  ")[1].strip())
    assert "On fields drawn from the prior" in page.read_text()
    assert (page.parent / "simulation.png").is_file()
    assert cagp("verify", tmp_path / "out").exit_code == 0
    exported = cagp("export", tmp_path / "out", "--to", "netcdf", "--group", "simulation")
    assert exported.exit_code == 0, exported.output
    with xr.open_dataset(exported.stdout.strip()) as group:
        assert group.sizes["simulation"] == 60
    for wrong, value in (("--simulations", "0"), ("--seed", "-1")):
        refused = cagp("calibrate", path, wrong, value)
        assert refused.exit_code == 2
        assert "should be greater than or equal to" in refused.output


def timed_lines(text):
    """Lines of a log file without their times: each has one, and none is earlier than the one before."""
    found = [re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) (.*)", line) for line in text.splitlines()]
    times = [datetime.fromisoformat(match[1]) for match in found]
    assert times == sorted(times)
    return [match[2] for match in found]


def test_what_is_logged_is_a_line_with_its_time_and_a_cluster_is_quiet(capsys, monkeypatch):
    for name in ("distributed", "distributed.client"):  # as before it is imported
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])

    def say():
        try:
            raise OSError("connection reset")
        except OSError:
            logging.getLogger("distributed.client").exception("failed to reconnect")
        logging.getLogger("cagp_dist.runtime").warning("worker %s is silent", "tcp://a")
        logging.getLogger("cagp_dist.runtime").info("nobody asked")

    listen(as_json=False, debug=False)
    say()
    assert timed_lines(capsys.readouterr().err) == ["WARNING: worker tcp://a is silent"]
    listen(as_json=False, debug=True)
    say()
    shown = capsys.readouterr().err
    assert "ERROR: failed to reconnect\nTraceback" in shown
    assert "OSError: connection reset" in shown
    listen(as_json=True, debug=False)
    say()
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(event["event"], event["level"], event["logger"], event["text"]) for event in events] == [
        ("log", "error", "distributed.client", "failed to reconnect (OSError: connection reset)"),
        ("log", "warning", "cagp_dist.runtime", "worker tcp://a is silent"),
    ]
    assert all(datetime.fromisoformat(event["time"]).utcoffset() == timedelta(0) for event in events)


def test_run_shows_its_stages_on_standard_error(done):
    _, result = done
    lines = timed_lines(result.stderr)
    assert [line.split()[1] for line in lines if line.startswith("done")] == [
        "Observations",
        "Points",
        "Solve",
        "Scores",
        "Results",
        "Publication",
        "Report",
    ]
    assert any("300 points observed, 40 held out, 32 map cells, 1 time" in line for line in lines)
    assert any("Gram matrix 300 x 300" in line for line in lines)
    assert any("100%  iteration 2 of 2" in line for line in lines)
    assert any(line.startswith("done") and line.endswith("completed after 2 iterations") for line in lines)


def test_a_single_iteration_is_said_in_the_singular(tmp_path, field, page_not_drawn):
    path = tmp_path / "job.toml"
    path.write_text(
        f'{small(field)}[output]\nroot = "{tmp_path}/out"\n'.replace("iterations = 2", "iterations = 1")
    )
    assert "completed after 1 iteration\n" in cagp("run", path).stderr


def test_run_again_does_nothing(done):
    folder, first = done
    result = cagp("run", folder / "job.toml", "--scheduler", "local")
    assert result.exit_code == 0
    assert "This run was already published; nothing was computed." in result.stdout
    assert result.stdout.split("report  ")[1] == first.stdout.split("report  ")[1]
    assert "Solve" not in result.stderr


def test_plan_prints_the_plan_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(JOB)
    result = cagp("plan", "job.toml")
    assert result.exit_code == 0, result.output
    assert "300 points observed, 40 held out, 32 map cells, 1 time" in result.stdout
    assert "Gram matrix 300 x 300 would take 703 KiB" in result.stdout
    assert "on 1 worker" in result.stdout
    assert os.listdir() == ["job.toml"]


def test_plan_says_what_each_of_many_workers_gets(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    result = cagp("plan", job, "--workers", "256", "--threads", "8")
    assert result.exit_code == 0, result.output
    assert "of a worker, program included, and" in result.stdout
    assert "on 256 workers with 8 threads each: " in result.stdout
    assert "tasks that wait for each other" in result.stdout
    assert cagp("plan", job, "--threads", "8").exit_code == 2


def test_plan_of_a_job_that_the_disk_does_not_take_is_shown_all_the_same(job, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=2**20))
    result = cagp("plan", job)
    assert result.exit_code == 75
    assert "300 points observed" in result.stdout
    assert "disk: about 8" in result.stdout
    assert "1 MiB are free in" in result.stderr


def test_plan_of_a_source_that_is_far_away_comes_from_the_job(job):
    assert "300 points observed, 40 held out, 32 map cells, 1 time" in cagp("plan", job).stdout
    assert not (job.parent / "out").exists()


def test_plan_refuses_what_does_not_fit(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(JOB.replace("[cluster]", '[cluster]\nmemory_limit = "1MiB"').replace("300,", "30000,"))
    result = cagp("plan", job)
    assert result.exit_code == 2
    assert "1 MiB" in result.stderr
    assert "Raise [cluster] memory_limit" in result.stderr


def fit_text(root: Path) -> str:
    """A job that leaves the numbers of its prior out."""
    return job_text(
        observations={
            "source": "synthetic",
            "grid_degrees": 15.0,
            "synthetic": {"lengthscale": 0.4, "seed": 3},
        },
        design={
            "train": random_points(100, weight="equal"),
            "test": random_points(20, seed=1, weight="equal"),
        },
        prior={"mean": "harmonic-latitude"},
        solver={"name": "gauss-seidel", "iterations": 2},
        output={"root": root},
    )


@pytest.fixture
def fit_job(tmp_path):
    path = tmp_path / "fit.toml"
    path.write_text(fit_text(tmp_path / "out"))
    return path


def test_fit_prints_numbers_and_a_table_to_paste(fit_job, tmp_path):
    result = cagp("fit", fit_job)
    assert result.exit_code == 0, result.output
    for words in (
        "estimate   standard error",
        "95% interval",
        "lengthscale",
        "K²",
        "log-likelihood  -",
        "status  converged: ",
    ):
        assert words in result.stdout
    assert re.search(r" lengthscale +0\.\d+ +0\.\d+ +0\.\d+ to 0\.\d+ ", result.stdout)
    assert "fitted  to the 100 observed points in " in result.stdout
    table = "[prior]" + result.stdout.split("[prior]")[1]
    pasted = fit_text(tmp_path).replace('[prior]\nmean = "harmonic-latitude"', table)
    numbers = parse_job(pasted).prior.numbers
    assert 0.1 < numbers.lengthscale < 1.0
    shown = re.search(r"([\d.e+]+) km \(chord 0\.", " ".join(result.stdout.split()))[1]
    assert float(shown) == pytest.approx(6371.0 * 2.0 * np.arcsin(numbers.lengthscale / 2.0), rel=1e-3)
    assert "to the 100 observed points, on serial" in result.stderr
    assert "done  Fit           converged, lengthscale " in result.stderr
    assert not (tmp_path / "out" / "CURRENT").exists()


def test_run_fits_first_and_finds_its_run_without_fitting_again(fit_job, monkeypatch):
    first = cagp("run", fit_job)
    assert first.exit_code == 0, first.output
    stages = [line.split()[1] for line in timed_lines(first.stderr) if line.startswith("done")]
    assert stages == ["Observations", "Points", "Fit", "Solve", "Scores", "Results", "Publication", "Report"]
    page = Path(first.stdout.split("report  ")[1].strip()).read_text()
    assert "Prior, fitted to the 100 observed points" in page
    monkeypatch.setattr("cagp_dist.service.run.fit_prior", None)
    again = cagp("run", fit_job)
    assert again.exit_code == 0, again.output
    assert "nothing was computed" in again.stdout


def test_plan_says_that_the_prior_will_be_fitted(fit_job, tmp_path):
    result = cagp("plan", fit_job)
    assert result.exit_code == 0, result.output
    assert "the parameters of [prior] are fitted first, to the 100 observed points" in result.stdout
    assert not (tmp_path / "out").exists()


def test_a_fit_that_does_not_end_well_exits_with_3(fit_job, tmp_path, monkeypatch):
    import dataclasses

    import cagp_dist.service.run as service
    from cagp_dist.likelihood.fit_result import FitStatus, StandardErrors

    fit_prior = service.fit_prior

    def badly(*arguments, **settings):
        fitted = fit_prior(*arguments, **settings)
        unknown = StandardErrors(float("nan"), 1.0, 0.1)
        result = dataclasses.replace(
            fitted.result, status=FitStatus.FLAT, standard_errors=unknown, log_likelihood=None
        )
        return dataclasses.replace(fitted, model=dataclasses.replace(fitted.model, result=result))

    monkeypatch.setattr(service, "fit_prior", badly)
    fitted = cagp("fit", fit_job)
    assert fitted.exit_code == 3
    assert "unknown" in fitted.stdout
    assert "status  flat: The likelihood hardly depends" in fitted.stdout
    assert "log-likelihood" not in fitted.stdout
    ran = cagp("run", fit_job)
    assert ran.exit_code == 0  # a run goes on, and says so
    assert "the fit of the prior to the 100 observed points ended flat" in " ".join(ran.stderr.split())
    assert (tmp_path / "out" / "CURRENT").exists()


def test_ingest_is_idempotent(job, tmp_path):
    first, second = cagp("ingest", job), cagp("ingest", job)
    assert first.exit_code == second.exit_code == 0
    assert "1 time added, 0 there already" in first.stderr
    assert "nothing to fetch, 1 time already in the store" in second.stderr
    assert "1 x 24 x 48 values from zarr:" in second.stderr
    assert not (tmp_path / "out" / "CURRENT").exists()


@pytest.mark.exhaustive
def test_report_writes_the_page_again(done, tmp_path):
    folder, first = done
    page = Path(first.stdout.split("report  ")[1].strip())
    page.unlink()
    result = cagp("report", folder / "out")
    assert (result.exit_code, result.stdout.strip()) == (0, str(page))
    assert page.exists()
    run = next((folder / "out" / "runs").glob("*.zarr"))
    elsewhere = cagp("report", run, "--to", tmp_path / "page")
    assert elsewhere.stdout.strip() == str(tmp_path / "page" / "report.html")


def test_verify_names_what_is_damaged(done, tmp_path):
    shutil.copytree(done[0] / "out", tmp_path / "out")
    (run,) = (tmp_path / "out" / "runs").glob("*.zarr")
    for place in (tmp_path / "out", run, tmp_path / "out" / run.stem[:4]):
        result = cagp("verify", place)
        assert (result.exit_code, result.stdout) == (0, f"undamaged  {run}\n")
    chunk = next(path for path in sorted(run.rglob("c.*")) if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-1])
    for place in (tmp_path / "out", run, tmp_path / "out" / run.stem[:4]):
        result = cagp("verify", place)
        assert result.exit_code == 1
        assert chunk.name in result.stderr
        assert result.stdout == ""


@pytest.mark.parametrize("command", ["report", "verify"])
def test_an_output_folder_without_a_run(tmp_path, command):
    result = cagp(command, tmp_path)
    assert result.exit_code == 2
    assert f"there is no published run in {tmp_path}" in result.stderr


def test_demo_runs_its_job_in_the_folder_that_is_asked(tmp_path, field, monkeypatch):
    import cagp_dist.service.demo as demo

    job = f"{small(field)}[output]\nroot = {{root}}\n".replace("{ kind", "{{ kind").replace(" }\n", " }}\n")
    monkeypatch.setattr(demo, "DEMO_JOB", job.replace("count = 300", "count = 80"))
    result = cagp("demo", "--output", tmp_path / "a folder", "--scheduler", "serial")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "a folder" / "CURRENT").exists()


def test_the_demonstration_is_the_main_job():
    from cagp_dist.service.demo import demo_job

    job = demo_job("some where")
    assert job.output.root == "some where"
    assert (job.design.train.count, job.design.test.count) == (10000, 2000)
    assert job.solver.name == "neighbours"


def test_example_prints_a_job():
    result = cagp("example")
    assert result.exit_code == 0
    assert parse_job(result.stdout).output.root == "out"


@pytest.mark.exhaustive
def test_example_writes_a_job_on_stations_that_can_be_done(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cagp("example", "--stations", "a folder")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.split("\n")[:-1] == [
        f"a folder/{n}" for n in ("job.toml", "stations.csv", "places.csv")
    ]
    planned = cagp("plan", "a folder/job.toml")
    assert planned.exit_code == 0, planned.stderr
    assert "245 points observed, predicted in 10 folds" in planned.stdout
    assert "4 places of a table" in planned.stdout
    again = cagp("example", "--stations", "a folder")
    assert again.exit_code == 2
    assert "a folder/job.toml exists; it is not replaced. Name another folder." in again.stderr
    Path("file").touch()
    assert cagp("example", "--stations", "file").exit_code == 1


def test_help_shows_the_brackets_of_tables():
    assert "[cluster] scheduler" in cagp("plan", "--help").stdout
    assert "[prior]" in cagp("fit", "--help").stdout


def test_help_names_every_kind_of_scheduler_and_a_solver_that_is_enough():
    from cagp_dist.runtime.schedulers import SCHEDULERS

    said = cagp("run", "--help").stdout
    option = said[said.index("--scheduler") : said.index("--insecure")]
    assert set(SCHEDULERS) <= set(re.findall(r"\w+", option))
    assert "auto, the default, chooses one and is enough" in said


def test_version():
    import cagp_dist

    result = cagp("--version")
    assert (result.exit_code, result.stdout) == (0, f"cagp_dist {cagp_dist.__version__}\n")


@pytest.mark.parametrize(
    "command", ["demo", "run", "plan", "fit", "ingest", "report", "verify", "prune", "drift", "example"]
)
def test_every_command_helps_with_examples(command):
    result = cagp(command, "--help")
    assert result.exit_code == 0
    assert f"cagp {command}" in result.stdout.split("Examples:")[1]


@pytest.mark.parametrize("command", ["daily", "calibrate", "verify"])
def test_help_is_wrapped_where_the_terminal_ends(command):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "70"}).stdout
    told = shown[: shown.index("Arguments")].splitlines()[2:-1]
    for line, following in pairwise(told):
        if line.strip() and following.strip():
            assert len(line.rstrip()) + 1 + len(following.split()[0]) > 68, line


def test_the_package_is_the_command():
    shown = subprocess.run([sys.executable, "-m", "cagp_dist", "--version"], capture_output=True, text=True)
    assert (shown.returncode, shown.stdout) == (0, cagp("--version").stdout)


def test_unknown_commands_and_options_exit_with_2():
    assert cagp("runn").exit_code == 2
    assert cagp("run").exit_code == 2
    assert cagp("run", "job.toml", "--sheduler", "local").exit_code == 2


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (NotReadyError("the data is not there yet"), 75, "Error: the data is not there yet"),
        (NumericalError("not positive [definite]"), 1, "Error: not positive [definite]"),
        (OSError("disk on fire"), 1, "OSError: disk on fire"),
        (ZeroDivisionError("x"), 1, "This is an unexpected error; --debug shows where it happened."),
        (KeyboardInterrupt(), 130, "Interrupted. Earlier results are unchanged"),
    ],
)
def test_every_error_is_one_block_with_its_exit_code(job, monkeypatch, error, code, said):
    def fail(*arguments, **settings):
        raise error

    monkeypatch.setattr("cagp_dist.service.run.ingest_all", fail)
    result = cagp("run", job)
    assert result.exit_code == code
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    if code != 130:
        debugged = cagp("run", job, "--debug")
        assert debugged.exit_code == code
        assert "Traceback" in debugged.stderr


def test_a_solve_that_breaks_down_exits_with_3(job, tmp_path, monkeypatch, page_not_drawn):
    import dataclasses

    from cagp_dist.pipeline.steps import solve
    from cagp_dist.solvers import Status

    monkeypatch.setattr(
        "cagp_dist.pipeline.solve_task.solve",
        lambda *arguments, **settings: dataclasses.replace(
            solve(*arguments, **settings), status=Status.BREAKDOWN
        ),
    )
    refused = cagp("run", job)
    assert refused.exit_code == 3, refused.output
    assert "not published; --publish-unconverged" in refused.stdout
    assert not (tmp_path / "out" / "CURRENT").exists()
    asked = cagp("run", job, "--publish-unconverged")
    assert asked.exit_code == 3
    assert "report  " in asked.stdout


@pytest.mark.exhaustive
def test_an_interrupt_leaves_nothing_half_written(tmp_path):
    """Ctrl-C in the middle of a long solve, in a real process."""
    job = tmp_path / "job.toml"
    long = JOB.replace("count = 300", "count = 6000").replace("iterations = 2", "iterations = 500")
    job.write_text(f'{long}[output]\nroot = "{tmp_path}/out"\n')
    process = subprocess.Popen(
        [CAGP, "run", str(job), "--scheduler", "local"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell in the background leaves SIGINT ignored, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "Gram matrix" in line:
            break
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "Interrupted." in err
    assert "Traceback" not in err
    assert out == ""
    assert not (tmp_path / "out" / "CURRENT").exists()
    assert list((tmp_path / "out" / "runs").iterdir()) == []


@pytest.fixture
def terminal(monkeypatch):
    """A display that believes to be in a terminal, and its clock."""
    from rich.console import Console

    import cagp_dist.cli.display as module
    from cagp_dist import headway

    clock = SimpleNamespace(now=100.0)
    for timed in (module, headway):
        monkeypatch.setattr(timed, "monotonic", lambda: clock.now)
    monkeypatch.setattr(
        module,
        "Console",
        lambda stderr: Console(force_terminal=True, width=120, record=True, file=StringIO()),
    )
    return module.Display(), clock


def test_a_terminal_sees_a_bar_with_the_time_left(terminal):
    from cagp_dist.service.events import Event

    display, clock = terminal
    with display:
        display(Event("Solve", "start"))
        display(Event("Solve", "note", "[2 threads]"))
        display._bars.refresh()
        for seconds, fraction, left in (
            (200.0, 0.25, "iteration"),  # what came before was preparation, as compiling is
            (30.0, 0.5, "1:00 left"),
            (220.0, 0.9, "38 s left"),
        ):
            clock.now += seconds
            display(Event("Solve", "progress", f"iteration {fraction}", fraction))
            display._bars.refresh()
            shown = display._console.export_text()
            assert f"iteration {fraction}" in shown
            assert left in shown
        display(Event("Solve", "progress", "some more"))  # how much is left is not known
        display._bars.refresh()
        assert "some more" in display._console.export_text()
        display(Event("Solve", "note", "[late] note"))
        display(Event("Solve", "done", "completed"))
    shown = display._console.export_text()
    assert "[late] note" in shown
    assert "done  Solve         completed" in shown
    assert "%" not in shown  # the lines of a log file are not for a terminal


@pytest.mark.parametrize("fraction", [None, 0.5])
def test_no_name_in_what_a_bar_of_the_display_says_is_markup_or_obeyed(terminal, fraction):
    from cagp_dist.service.events import Event

    display, _ = terminal
    with display:
        display(Event("Read", "start"))
        display(Event("Read", "progress", "b[/red]\x1b[31m\n2026.nc", fraction))
        display._bars.refresh()
        shown = display._console.export_text()
    assert r"b[/red]\x1b[31m 2026.nc" in shown


def test_no_name_in_a_log_begins_a_line_or_is_obeyed_by_a_terminal(capsys):
    """Escapes of colours and titles, carriage returns, and lines as if the program had written them."""
    name = "a\x1b]0;title\x07b\r\x9b31m.nc\n2026-01-01T00:00:00Z ERROR: all is lost\u202e"
    listen(as_json=False, debug=False)
    logging.getLogger("cagp_dist").warning("left out: %s", name)
    display_of_log = Display()
    display_of_log(Event("note", "Times", name))
    display_of_log(Event("done", "Times", name))
    said = capsys.readouterr().err
    assert "all is lost" in said
    assert not any(letter in said for letter in "\x1b\x07\r\x9b\u202e")
    assert not any(line.startswith("2026-01-01") for line in said.splitlines())
    assert json_line({"text": name}).isprintable()
    assert json.loads(json_line({"text": name})) == {"text": name}
    found = cagp("status", f"{name}/out")
    assert (found.exit_code, "all is lost" in found.stderr) == (2, True)
    assert not any(line.startswith("2026-01-01") for line in found.stderr.splitlines())


@pytest.mark.parametrize(("mode", "warned"), [(0o700, False), (0o777, True), (0o775, True)])
def test_a_folder_of_compiled_functions_that_others_may_write_to_is_warned_of(
    tmp_path, monkeypatch, mode, warned
):
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba").chmod(mode)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    found = cagp("list", tmp_path)
    assert ("NUMBA_CACHE_DIR" in found.stderr) is warned
