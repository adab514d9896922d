"""Files for cron, systemd, SLURM and Kubernetes keep to their formats and start commands that there are."""

import configparser
import json
import os
import shlex
import signal
import subprocess
import time
from copy import deepcopy
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.cli.daily_commands import SOME_FAILED
from cagp_dist.errors import NotReadyError

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def unit(name):
    """Sections of a file of systemd."""
    units = configparser.ConfigParser(interpolation=None, strict=False)
    units.optionxform = str
    units.read(DEPLOY / "systemd" / name)
    return units


@pytest.fixture(scope="module")
def objects():
    """Objects of Kubernetes by their names."""
    text = (DEPLOY / "kubernetes" / "cagp-daily.yaml").read_text()
    return {each["metadata"]["name"]: each for each in yaml.safe_load_all(text)}


def container_of(cron_job):
    (found,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return found


def test_schedules_start_a_command_that_there_is():
    names = ("cron/cagp-daily", "systemd/cagp-daily.service", "slurm/daily.scrontab")
    lines = [
        line
        for name in names
        for line in (DEPLOY / name).read_text().splitlines()
        if not line.startswith("#") and " daily " in line
    ]
    assert len(lines) == 3
    assert all(".venv/bin/cagp daily jobs/daily.toml" in line for line in lines)
    assert lines[0].startswith("0 6-12 * * *  cagp  cd ")
    assert lines[2].startswith("0 6-12 * * * cd ")
    service = unit("cagp-daily.service")["Service"]
    assert service["SuccessExitStatus"] == str(NotReadyError.exit_code)
    assert f"-E {NotReadyError.exit_code}" in lines[0]
    assert unit("cagp-daily.timer")["Timer"]["OnCalendar"] == "*-*-* 06..12:00"


def test_health_checks_are_commands_that_there_are(objects, tmp_path):
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    check = compose["services"]["schedule"]["healthcheck"]["test"]
    assert "&& cagp health out ${CAGP_HEALTH:---max-failed 0 --max-gaps 0 --max-unreadable 0}" in check[3]
    post = unit("cagp-daily.service")["Service"]["ExecStartPost"]
    commands = [
        shlex.split(post.replace("/srv/cagp/.venv/bin/", "")),
        container_of(objects["cagp-health"])["command"],
    ]
    (tmp_path / "out").mkdir()
    for program, command, folder, *limits in commands:
        assert (program, command, folder) == ("cagp", "health", "out")
        found = CliRunner().invoke(app, [command, str(tmp_path / "out"), *limits])
        assert (found.exit_code, found.stdout[:29]) == (1, "unhealthy: there is no time, ")


def test_objects_of_kubernetes_keep_to_the_schema_and_have_no_rights(objects):
    schema = json.loads((ROOT / "tests" / "data" / "kubernetes_jobs.json").read_text())
    validator = jsonschema.Draft7Validator(schema)
    assert list(objects) == ["cagp-out", "cagp-daily", "cagp-health"]
    for each in objects.values():
        assert [error.message for error in validator.iter_errors(each)] == []
    wrong = deepcopy(objects["cagp-daily"])
    container_of(wrong)["securityContext"]["privileged"] = True
    assert not validator.is_valid(wrong)
    for name in ("cagp-daily", "cagp-health"):
        pod = objects[name]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        container = container_of(objects[name])
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
        assert volumes["out"]["persistentVolumeClaim"]["claimName"] == "cagp-out"
        assert objects[name]["spec"]["concurrencyPolicy"] == "Forbid"
    job = objects["cagp-daily"]["spec"]["jobTemplate"]["spec"]
    given_up = job["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"]
    assert SOME_FAILED in given_up
    assert NotReadyError.exit_code not in given_up


@pytest.fixture
def container(objects, tmp_path):
    """Start the container of the daily job, with a command `cagp` that does as the test says."""
    program, folder = tmp_path / "bin" / "cagp", tmp_path / "work"
    program.parent.mkdir()
    folder.mkdir()

    def start(script):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}"
        command = container_of(objects["cagp-daily"])["command"]
        return subprocess.Popen(command, cwd=folder, env={"PATH": path})

    return start


@pytest.mark.parametrize(("code", "found"), [(0, 0), (75, 0), (6, 6), (1, 1)])
def test_a_pod_has_failed_unless_all_is_done_or_the_data_are_not_there_yet(container, tmp_path, code, found):
    assert container(f'echo "$@" > arguments; exit {code}').wait(60) == found
    said = (tmp_path / "work" / "arguments").read_text().split()
    assert said == ["daily", "jobs/daily.toml", "--log", "json", "--metrics", "out/cagp.prom"]


def test_a_pod_that_is_to_end_lets_the_pass_keep_what_it_has_done(container, tmp_path):
    work = tmp_path / "work"
    pod = container("trap 'sleep 0.2; touch kept; exit 143' TERM; touch began; while :; do sleep 0.05; done")
    until = time.monotonic() + 60.0
    while not (work / "began").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    pod.send_signal(signal.SIGTERM)
    assert pod.wait(60) == 143
    assert (work / "kept").exists()
