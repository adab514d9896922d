"""Files for cron, systemd, SLURM and Kubernetes keep to their formats and start commands that there are."""

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from copy import deepcopy
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.cli.daily_commands import SOME_FAILED
from cagp_dist.errors import NotReadyError

from ..jobs import job_text, random_points

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
JOB = job_text(
    design={"train": random_points(300), "test": random_points(40, seed=1)},
    cluster=None,
    output={"root": "out"},
)


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
    assert "&& cagp health out ${CAGP_HEALTH:-" in check[3]
    usual = check[3].partition(":-")[2].removesuffix("}")
    assert "--min-free" in usual, "a full disk is exit code 75, which is healthy"
    post = unit("cagp-daily.service")["Service"]["ExecStartPost"]
    commands = [
        shlex.split(post.replace("/srv/cagp/.venv/bin/", "")),
        shlex.split(
            (DEPLOY / "cron" / "cagp-daily").read_text().rpartition(".venv/bin/")[2].partition(">")[0]
        ),
        container_of(objects["cagp-health"])["command"],
    ]
    (tmp_path / "out" / "runs").mkdir(parents=True)
    for program, command, folder, *limits in commands:
        assert (program, command, folder) == ("cagp", "health", "out")
        found = CliRunner().invoke(app, [command, str(tmp_path / "out"), *limits])
        assert (found.exit_code, found.stdout[:29]) == (1, "unhealthy: there is no time, ")
        assert "--min-free" in limits
    assert CliRunner().invoke(app, ["health", str(tmp_path / "out"), *shlex.split(usual)]).exit_code in (0, 1)


def test_objects_of_kubernetes_keep_to_the_schema_and_have_no_rights(objects):
    schema = json.loads((ROOT / "tests" / "data" / "kubernetes_jobs.json").read_text())
    validator = jsonschema.Draft7Validator(schema)
    assert list(objects) == ["cagp-out", "cagp-files", "cagp-daily", "cagp-health"]
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
    secret = {volume["name"]: volume for volume in job["template"]["spec"]["volumes"]}["cds"]["secret"]
    assert secret["optional"] is True, "most sources need no key"
    (near,) = objects["cagp-health"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["affinity"][
        "podAffinity"
    ]["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = near["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert job["template"]["metadata"]["labels"] == labels, "where the volume is"
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


def test_the_cluster_of_kubernetes_is_encrypted_confined_and_knows_its_parts():
    schema = json.loads((ROOT / "tests" / "data" / "kubernetes_jobs.json").read_text())
    validator = jsonschema.Draft7Validator(
        {**schema["definitions"]["PodSpec"], "definitions": schema["definitions"]}
    )
    text = (DEPLOY / "kubernetes" / "dask-cluster.yaml").read_text()
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}
    pods = {name: each["spec"]["template"] for (_, name), each in found.items() if "template" in each["spec"]}
    assert pods.keys() == {"cagp-scheduler", "cagp-worker", "cagp-run"}
    for name, pod in pods.items():
        spec = pod["spec"]
        assert [error.message for error in validator.iter_errors(spec)] == []
        assert pod["metadata"]["labels"] == {"app": name}
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        (container,) = spec["containers"]
        assert container["image"] == f"cagp-dist:{VERSION}"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        environment = {each["name"]: each["value"] for each in container["env"]}
        assert environment["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        assert set(map(os.path.dirname, set(environment.values()) - {"true"})) <= mounts
        assert {each["name"] for each in container["volumeMounts"]} == {
            each["name"] for each in spec["volumes"]
        }
    service = found["Service", "cagp-scheduler"]["spec"]
    assert service["selector"] == {"app": "cagp-scheduler"}
    address = f"tls://cagp-scheduler:{service['ports'][0]['port']}"
    assert all(
        address in pods[name]["spec"]["containers"][0]["command"] for name in ("cagp-worker", "cagp-run")
    )
    let_in = found["NetworkPolicy", "cagp-scheduler"]["spec"]["ingress"][0]["from"]
    assert {each["podSelector"]["matchLabels"]["app"] for each in let_in} == {"cagp-worker", "cagp-run"}
    limit = pods["cagp-worker"]["spec"]["containers"][0]
    assert (limit["resources"]["limits"]["memory"], "2500MiB" in limit["command"]) == ("3Gi", True)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_the_unit_is_confined_as_systemd_sees_it(tmp_path):
    text = (DEPLOY / "systemd" / "cagp-daily.service").read_text()
    (tmp_path / "cagp-daily.service").write_text(text.replace("/srv/cagp/.venv/bin/cagp", "/bin/true"))
    verify = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "cagp-daily.service")]
    found = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=60)
    assert (found.returncode, [line for line in found.stderr.splitlines() if "cagp-daily" in line]) == (0, [])
    look = ["systemd-analyze", "security", "--offline=yes", "--threshold=25", verify[-1]]
    found = subprocess.run(look, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 0, found.stdout
    service = unit("cagp-daily.service")["Service"]
    wanted = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "PrivateTmp": "yes", "UMask": "0027"}
    assert {name: service[name] for name in wanted} == wanted
    assert service["ReadWritePaths"] == "/srv/cagp/out"
    assert service["MemoryMax"]


SCRIPTS = ("slurm/job.sbatch", "pbs/job.pbs", "schedule.sh", "lock-image.sh")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_shell(name):
    script = str(DEPLOY / name)
    subprocess.run(["bash", "-n", script], check=True, timeout=60)
    if shutil.which("shellcheck") is not None:
        lint = ["shellcheck", "--severity=warning", script]
        found = subprocess.run(lint, capture_output=True, text=True, check=False, timeout=60)
        assert found.returncode == 0, found.stdout


def test_the_script_for_slurm_says_that_it_is_to_be_submitted(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    found = subprocess.run(
        ["bash", str(DEPLOY / "slurm" / "job.sbatch")],
        env={**environment, "CAGP_JOB": "job.toml"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert found.returncode == 1
    assert "sbatch job.sbatch" in found.stderr
    assert not list(tmp_path.iterdir())


def test_the_image_installs_locked_versions_with_their_digests():
    """Of what the lock files of the package have, and its build system; without the address of an index."""
    text = (ROOT / "requirements-image.lock").read_text()
    entries = re.split(r"\n(?=\w)", text.strip())
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert "://" not in text

    def versions(lines):
        found = (re.match(r"([\w.-]+)==([\w.+]+)", line) for line in lines)
        return {each[1].lower().replace("_", "-"): each[2] for each in found if each}

    locked = versions(
        line for name in ("", "-dev") for line in (ROOT / f"requirements{name}.lock").read_text().splitlines()
    )
    image = versions(entries)
    assert image.items() <= locked.items() | {("hatchling", image["hatchling"])}
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for name in ("cds", "dashboard", "grib") for each in wanted["optional-dependencies"][name]]
    needed = {
        re.match(r"[\w-]+", each)[0].lower().replace("_", "-") for each in wanted["dependencies"] + extras
    }
    assert needed <= image.keys()


@pytest.mark.exhaustive
@pytest.mark.cluster
@pytest.mark.parametrize(("job", "code"), [(JOB, 0), ("[nothing]\n", 2)])
def test_the_script_for_pbs_runs_a_job_on_its_own_cluster_and_leaves_nothing(tmp_path, job, code):
    """As the shell that PBS starts on a node; there is no PBS here. What a killed job left goes, too."""
    (tmp_path / "work").mkdir()
    left = tmp_path / "tmp" / f"cagp-spill-{socket.gethostname().partition('.')[0]}-abcdefgh"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    (tmp_path / "work" / "job.toml").write_text(job)
    own = {
        "PBS_O_WORKDIR": str(tmp_path / "work"),
        "NCPUS": "2",
        "CAGP_JOB": "job.toml",
        "TMPDIR": str(tmp_path / "tmp"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = ["bash", str(DEPLOY / "pbs" / "job.pbs")]
    found = subprocess.run(
        command, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=300
    )
    assert found.returncode == code, found.stderr
    assert ("on Dask cluster tls://127.0.0.1" in found.stderr) is (code == 0)
    assert (tmp_path / "work" / "out" / "CURRENT").exists() is (code == 0)
    assert not any(path.name.startswith("cagp-") for path in (tmp_path / "tmp").iterdir())
