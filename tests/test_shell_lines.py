"""Every shell line of the pages of operation is run by a test, or the table here says why it is not."""

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import typer

from cagp_dist.cli import app
from cagp_dist.store.series import runs_of_times

from .shell_lines import DOCS, inline_commands, lines_of, run_line
from .sources import temperature

ROOT = DOCS.parent
HOW_TO = DOCS / "how-to"
SCHEDULE = HOW_TO / "schedule.md"

HERE = "tests/test_shell_lines.py"
STATE = "tests/service/test_daily.py::test_an_operator_and_monitoring_see_the_state_of_a_folder"
OF_SCHEDULE = f"{HERE}::test_the_schedule_s_own_job_does_what_its_commands_say"
UNIT = (
    "needs systemd as the first process, and root; the unit is verified by "
    "tests/service/test_schedules.py::test_the_unit_is_confined_as_systemd_sees_it"
)
SLURM = "tests/cluster/test_slurm.py"
OF_SLURM = f"{SLURM}::test_job_script_gives_the_serial_result_and_cleans_up"
FOUR_NODES = f"needs four nodes, or as many cores; with fewer tasks the same script is run by {OF_SLURM}"
MONTHS = (
    f"needs as many months of data; two elements are run by {SLURM}::test_array_does_a_month_in_each_element"
)
DOCKER = (
    "needs a Docker engine, which builds from the network; commands of the services are run as processes by "
    "tests/cluster/test_compose.py::test_the_default_job_is_done_by_its_services"
)
PBS = "tests/service/test_schedules.py::test_the_script_for_pbs_runs_a_job_on_its_own_cluster"
BENCHMARK = "a benchmark of some minutes, whose figures the page has"

# Of each page, by a line or by the beginning of lines (with *): a test that runs it; or a reason, with the
# test of what comes nearest.
TABLE = {
    "runbook": {"*": "tests/service/test_runbook.py::test_every_command_prints_and_does_what_the_page_says"},
    "schedule": {
        "cd /srv/cagp": OF_SCHEDULE,
        "cagp daily jobs/daily.toml": OF_SCHEDULE,
        "cagp daily jobs/daily.toml --dry-run": OF_SCHEDULE,
        "cagp daily jobs/daily.toml --times 2024-07-01..2024-07-31": OF_SCHEDULE,
        "cagp daily JOB --times A..B": OF_SCHEDULE,
        "cagp view out/series.zarr": OF_SCHEDULE,
        "cagp status out": OF_SCHEDULE,
        "cagp health out --max-age 36h --max-failed 0 --min-free 10GiB": STATE,
        "cagp health OUT --min-free 10GiB": STATE,
        "cagp drift out": (
            "tests/service/test_drift.py::test_errors_as_large_as_stated_are_no_alarm_and_larger_ones_are"
        ),
        "cagp daily jobs/daily.toml; code=$?; cagp drift out && exit $code": (
            f"{HERE}::test_a_line_that_checks_the_error_bars_ends_with_the_code_of_the_pass_or_of_the_drift"
        ),
        "cagp export OUT --to netcdf --force": OF_SCHEDULE,
        "cagp run --log-format json": (
            "tests/test_cli.py::test_json_log_and_metrics_tell_programs_what_people_are_told"
        ),
        "cagp run --times latest": OF_SCHEDULE,
        "install --directory --owner=cagp --mode=750 /srv/cagp/out": "needs root, and a user cagp",
        "journalctl *": UNIT,
        "systemctl *": UNIT,
        "python -m pipelines.benchmarks.passes": BENCHMARK,
        "python -m pipelines.daily": "tests/service/test_month.py::test_a_month_of_jobs_that_are_killed",
    },
    "slurm": {
        "export CAGP_VENV=*": OF_SLURM,
        "sbatch deploy/slurm/job.sbatch": OF_SLURM,
        "sbatch --n*": FOUR_NODES,
        "CAGP_JOB=job.toml CAGP_FROM=2017-01 sbatch *": MONTHS,
        "cagp plan job.toml --workers 512 --threads 8": (
            "tests/test_cli.py::test_plan_says_what_each_of_many_workers_gets"
        ),
        "cagp run job.toml --scheduler slurm": (
            f"{SLURM}::test_worker_jobs_give_the_serial_result_and_leave_nothing"
        ),
        "make install": "installs from the network",
        "pip install *": "installs from the network",
        "python -m pipelines.benchmarks*": BENCHMARK,
        "qsub *": f"needs PBS; the script itself is run by {PBS}",
    },
    "first-hour": {
        "make install": "installs from the network",
        ".venv/bin/cagp example > job.toml": "tests/test_cli.py::test_example_prints_a_job",
        ".venv/bin/cagp plan job.toml --workers 2": (
            "tests/test_cli.py::test_plan_says_what_each_of_many_workers_gets"
        ),
        "cagp plan job.toml --workers 32": "tests/test_cli.py::test_plan_says_what_each_of_many_workers_gets",
        "CAGP_VENV=$PWD/.venv CAGP_JOB=job.toml sbatch deploy/slurm/job.sbatch": OF_SLURM,
        "CAGP_VENV=$PWD/.venv CAGP_JOB=job.toml sbatch --ntasks-per-node=32 *": FOUR_NODES,
        "cagp run job.toml*": "tests/cluster/test_compose.py::test_the_default_job_is_done_by_its_services",
        "docker *": DOCKER,
        "qsub *": f"needs PBS; the script itself is run by {PBS}",
    },
    "docker-compose": {
        "docker *": DOCKER,
        "CAGP_JOBS=$PWD/myjobs CAGP_JOB=job.toml docker *": DOCKER,
        "cagp view out --export out/report/maps": (
            "tests/cluster/test_compose.py::test_commands_run_the_main_job_with_the_serial_result"
        ),
    },
}
WORDS = re.compile(r"cagp [a-z]+(?: (?:[A-Z]+|out|--[a-z-]+(?: [A-Z]+| \d+|\.\.\.)?))*")
"""A command that is named in a sentence, with what stands for its arguments: no line to type as it is."""


def lines_to_type(page):
    """Give all lines of a page that a reader may type."""
    named = {each for each in inline_commands(page) if not WORDS.fullmatch(each) or " --to " in each}
    return {line.command for line in lines_of(page)} | named


@pytest.mark.parametrize("name", TABLE)
def test_every_line_is_run_by_a_test_or_it_is_said_why_not(name):
    lines, table = lines_to_type(HOW_TO / f"{name}.md"), TABLE[name]
    assert len(lines) >= 5

    def covers(key, line):
        return line.startswith(key.removesuffix("*")) if key.endswith("*") else line == key

    assert [line for line in sorted(lines) if not any(covers(key, line) for key in table)] == []
    assert [key for key in table if not any(covers(key, line) for line in lines)] == []
    for said in table.values():
        for file, test in re.findall(r"(tests/\S+\.py)::(\w+)", said):
            assert re.search(rf"^def {test}\w*\(", (ROOT / file).read_text(), flags=re.MULTILINE), test
        assert "::" in said or said.startswith(("needs ", "installs ", "a benchmark "))


def test_every_command_and_option_of_the_pages_exists():
    commands = typer.main.get_command(app).commands
    found = set()
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md"]:
        for line in {line.command for line in lines_of(page)} | inline_commands(page):
            for command, words in re.findall(r"\bcagp ([a-z]+)\b([^;&|`]*)", line):
                assert command in commands, f"{page.name}: {line}"
                known = {option for each in commands[command].params for option in each.opts}
                known |= {option for each in commands[command].params for option in each.secondary_opts}
                named = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", words))
                assert named <= known | {"--help"}, f"{page.name}: {line}"
                found.add(command)
    assert {"run", "daily", "health", "status", "prune", "plan", "drift", "view"} <= found


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A command `cagp` that ends with the codes that a test says, in .venv/bin of the working folder."""
    program = tmp_path / ".venv" / "bin" / "cagp"
    program.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    def become(**codes):
        cases = "".join(f"{name}) echo {name} said so; exit {code};;\n" for name, code in codes.items())
        program.write_text(f'#!/bin/sh\necho "$@" >> typed\ncase "$1" in\n{cases}esac\n')
        program.chmod(0o755)
        return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}

    return become


@pytest.mark.parametrize(("code", "drift", "ends"), [(0, 0, 0), (75, 0, 75), (6, 0, 6), (0, 4, 4), (6, 4, 4)])
def test_a_line_that_checks_the_error_bars_ends_with_the_code_of_the_pass_or_of_the_drift(
    stand_in, code, drift, ends
):
    (line,) = (each for each in inline_commands(SCHEDULE) if "code=$?" in each)
    environment = stand_in(daily=code, drift=drift)
    assert subprocess.run(["sh", "-c", line], env=environment, check=False, timeout=60).returncode == ends
    assert Path("typed").read_text().splitlines() == ["daily jobs/daily.toml", "drift out"]


@pytest.mark.parametrize(
    ("code", "mail"), [(0, ""), (75, ""), (6, "daily said so\n"), (1, "daily said so\n")]
)
@pytest.mark.parametrize("place", ["page", "file"])
def test_a_line_of_cron_mails_the_end_of_the_log_of_a_pass_that_failed(stand_in, tmp_path, place, code, mail):
    environment = stand_in(daily=code, health=0)
    if place == "page":
        (line,) = re.findall(r"^0 6-12 \* \* \*  (.*)$", SCHEDULE.read_text(), flags=re.MULTILINE)
    else:
        text = (ROOT / "deploy" / "cron" / "cagp-daily").read_text()
        line, health = re.findall(r"^\d\S* \S+ \* \* \*  cagp  (.*)$", text, flags=re.MULTILINE)
        for unhealthy, told in ((0, ""), (1, "health said so\n")):
            found = _shell(health, stand_in(daily=code, health=unhealthy), tmp_path)
            assert found == told
    assert _shell(line, environment, tmp_path) == mail
    assert Path("daily.log").read_text() == "daily said so\n"


def _shell(line, environment, folder):
    """What cron would mail."""
    line = line.replace("/srv/cagp", shlex.quote(str(folder)))
    done = subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout + done.stderr


@pytest.mark.exhaustive
def test_the_schedule_s_own_job_does_what_its_commands_say(tmp_path, monkeypatch):
    """With fewer points, on coarse fields of five days of July."""
    page = SCHEDULE.read_text()
    job = page.partition("```toml\n")[2].partition("```")[0]
    job = job.replace("count = 1500", "count = 200").replace("count = 300", "count = 40")
    job = job.replace("resolution_degrees = 2.0", "resolution_degrees = 30.0")
    monkeypatch.chdir(tmp_path)
    for folder in ("era5", "jobs"):
        Path(folder).mkdir()
    Path("jobs/daily.toml").write_text(f'{job}\n[cluster]\nscheduler = "serial"\n')
    latitude, longitude = np.arange(-85.0, 90.0, 10.0), np.arange(0.0, 360.0, 10.0)
    waves = np.cos(np.deg2rad(latitude))[:, None] * np.sin(np.deg2rad(2.0 * longitude))
    days = [f"2024-06-{day:02d}" for day in (1, 11, 21)] + [f"2024-07-{day:02d}" for day in range(27, 32)]
    for index, day in enumerate(days):
        values = 280.0 + 9.0 * waves + np.random.default_rng(index).normal(size=(1, 18, 36))
        field = temperature(values, latitude=latitude, longitude=longitude, times=[f"{day}T12:00"])
        field.to_netcdf(f"era5/t2m_{day.replace('-', '')}.nc", engine="h5netcdf")
    change, dry, one_pass, status, period, view = (
        line.command for line in lines_of(SCHEDULE) if line.section == "Run from a scheduler"
    )
    assert change == "cd /srv/cagp"
    code, printed = run_line(dry)
    assert (code, printed.count(": new")) == (0, 5)
    assert not Path("out/runs").exists()
    code, printed = run_line(one_pass)
    assert (code, printed.count("in version")) == (0, 5), printed
    code, printed = run_line(status)
    assert (code, printed.splitlines()[0]) == (0, "done         5 times, newest 2024-07-31T12:00")
    assert run_line("cagp export out --to netcdf --force")[0] == 0
    assert run_line("cagp run jobs/daily.toml --times latest")[0] == 0
    code, printed = run_line(period)
    assert (code, printed.count("source missing")) == (75, 26), "the noons of July that are not there"
    assert len(runs_of_times(Path("out"))) == 5
    command = [sys.executable, "-m", "cagp_dist", *shlex.split(view)[1:], "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(url, timeout=600) as answer:
            assert b"<title>cagp view</title>" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) == 0
