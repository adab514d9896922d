"""The commands of docker-compose.yml as local processes run the main job; the image holds what it needs."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import jsonschema
import numpy as np
import pytest
import xarray as xr
import yaml

import cagp_dist
from cagp_dist.store.publish import current_run

from ..ports import closed_port

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "cagp_dist" / "view" / "page"

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def compose(repository: Path) -> dict[str, Any]:
    """docker-compose.yml, its variables replaced by their defaults."""
    text = (repository / "docker-compose.yml").read_text()
    loaded = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text).replace("$$", "$"))
    assert isinstance(loaded, dict)
    return loaded


class _Services:
    """Services of the compose file as processes, started in the order of their needs. A context manager."""

    def __init__(self, compose: dict[str, Any], folder: Path, environment: dict[str, str]) -> None:
        self._services, self._folder, self._environment = compose["services"], folder, environment
        self.scheduler_port = closed_port()
        self._containers: dict[str, list[_Container]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        (self._folder / "spill").mkdir()
        for name in ("scheduler", "worker"):
            for _ in range(self._services[name]["deploy"].get("replicas", 1)):
                self.start(name).wait_until_healthy()
        assert len(self._containers["worker"]) == 2
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start(self, name: str) -> "_Container":
        """Start a service; those that it needs are healthy."""
        service = self._services[name]
        for other in service.get("depends_on", {}):
            assert all(container.is_healthy() for container in self._containers[other])
        container = _Container(service, self._folder, self._environment, self.scheduler_port, closed_port())
        self._stack.enter_context(container)
        self._containers.setdefault(name, []).append(container)
        return container

    @property
    def scheduler(self) -> "_Container":
        """The scheduler of the cluster."""
        (found,) = self._containers["scheduler"]
        return found


@pytest.mark.exhaustive
def test_commands_run_the_main_job_with_the_serial_result_though_the_scheduler_is_killed(
    compose: dict[str, Any],
    environment: dict[str, str],
    tmp_path: Path,
    write_job: Callable[..., Path],
    assert_same_result: Callable[..., None],
) -> None:
    iterations = 150  # some ten seconds of work, so that the scheduler is killed before its end
    write_job(tmp_path / "jobs", iterations).rename(tmp_path / "jobs" / "sample.toml")
    with _Services(compose, tmp_path, environment) as services:
        job, scheduler = services.start("job"), services.scheduler
        job.wait_for(f"on Dask cluster tls://127.0.0.1:{services.scheduler_port}")
        scheduler.kill()
        assert job.exit_code(timeout=600) == 0, job.log() + scheduler.log()
        assert scheduler.starts == 2
        assert "Traceback" not in job.log()
        assert "attempt 1 of 3 ended" in job.log()
        assert_same_result(tmp_path / "out", iterations)
        schedule = services.start("schedule")
        schedule.wait_for("exit code 0; the next one begins in 3600 s")
        assert "2017-04-27T12:00: completed, in version 1 of the series" in schedule.log()
        assert "undecided: 1 of the 12 times" in schedule.log(), "the error bars were looked at"
        assert schedule.is_healthy()
        viewer = services.start("viewer")
        viewer.wait_until_healthy()
        key = (tmp_path / "out" / "CURRENT").read_text().strip()
        assert f"{key}/report.html" in viewer.page("index.html")
        assert viewer.page(f"{key}/report.html").startswith("<!doctype html>")
        assert json.loads(viewer.page("maps/view.json"))["path"].endswith(f"{key}.zarr")
        assert viewer.page("maps/index.html") == (PAGE / "index.html").read_text()
    assert schedule.exit_code(timeout=1.0) == 143


@pytest.mark.exhaustive
def test_the_default_job_is_done_by_its_services(
    compose: dict[str, Any], environment: dict[str, str], repository: Path, tmp_path: Path
) -> None:
    """As it is: 10,000 points, two workers; its error bars hold."""
    shutil.copytree(repository / "deploy" / "jobs", tmp_path / "jobs")
    with _Services(compose, tmp_path, environment) as services:
        job = services.start("job")
        assert job.exit_code(timeout=1800) == 0, job.log()
        assert "2 workers, 2 threads" in job.log()
    run = current_run(tmp_path / "out")
    assert run is not None
    with xr.open_zarr(run, group="calibration", consolidated=False) as scores:
        inside = float(scores.coverage.sel(level=0.9).load())
    assert inside == pytest.approx(0.9, abs=3.0 * np.sqrt(0.9 * 0.1 / 1000))  # of 1,000 held out
    assert (tmp_path / "out" / "report").is_dir()


def test_compose_file_keeps_to_the_schema(compose: dict[str, Any], repository: Path) -> None:
    # docker/compose 1.29.2, compose/config/compose_spec.json, Apache License 2.0; later ones have "name"
    schema = json.loads((repository / "tests" / "data" / "compose_spec.json").read_text())
    schema["properties"]["name"] = {"type": "string"}
    validator = jsonschema.Draft7Validator(schema)
    assert [error.message for error in validator.iter_errors(compose)] == []
    wrong = deepcopy(compose)
    wrong["services"]["worker"]["cap_dropped"] = ["ALL"]
    assert not validator.is_valid(wrong)


@pytest.mark.parametrize("name", ["scheduler", "worker", "job", "schedule", "viewer"])
def test_no_container_has_rights_that_it_does_not_need(compose: dict[str, Any], name: str) -> None:
    service = compose["services"][name]
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert [mount.split(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
    assert "size=" in service["tmpfs"][0]
    assert not {"privileged", "cap_add", "devices", "network_mode", "pid", "ipc"} & service.keys()
    assert not any("docker.sock" in volume for volume in service["volumes"])
    assert service["restart"] == ("no" if name == "job" else "unless-stopped")
    assert ("test" in service["healthcheck"]) is (name != "job")
    assert ("secrets" in service) == (name in ("job", "schedule"))
    assert not any("KEY" in variable for variable in service.get("environment", {}))


def test_all_that_is_named_is_there(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert services.keys() == {"scheduler", "worker", "job", "schedule", "viewer"}
    for service in services.values():
        assert set(service.get("secrets", [])) <= compose["secrets"].keys()
        assert set(service.get("networks", [])) <= compose["networks"].keys()
        for other, wanted in service.get("depends_on", {}).items():
            assert wanted == {"condition": "service_healthy"}
            assert "test" in services[other]["healthcheck"]
    assert services["viewer"]["networks"] == ["viewer"]
    assert services["viewer"]["volumes"] == ["out:/srv/cagp/out:ro"]
    assert compose["secrets"] == {"cdsapirc": {"file": "/dev/null"}}
    assert services["job"]["environment"]["CDSAPI_RC"] == "/run/secrets/cdsapirc"


@pytest.mark.parametrize("name", ["scheduler", "worker", "viewer"])
def test_health_check_fails_while_nobody_listens(
    compose: dict[str, Any],
    environment: dict[str, str],
    free_port: Callable[[], int],
    tmp_path: Path,
    name: str,
) -> None:
    assert not _Container(
        compose["services"][name], tmp_path, environment, scheduler_port=1, port=free_port()
    ).is_healthy()


@pytest.mark.parametrize(
    ("code", "healthy"),
    [
        pytest.param("0", True, marks=pytest.mark.exhaustive),
        ("75", True),
        pytest.param("1", False, marks=pytest.mark.exhaustive),
        pytest.param("175", False, marks=pytest.mark.exhaustive),
    ],
)
def test_schedule_is_healthy_after_a_run_that_ended_well_or_has_no_data_yet(
    compose: dict[str, Any], environment: dict[str, str], tmp_path: Path, code: str, healthy: bool
) -> None:
    schedule = _Container(compose["services"]["schedule"], tmp_path, environment, scheduler_port=1, port=1)
    assert not schedule.is_healthy()
    (tmp_path / "last-exit-code").write_text(code + "\n")
    assert not schedule.is_healthy(), "there is no output folder"
    (tmp_path / "out").mkdir()
    assert not schedule.is_healthy(), "nothing has been written there"
    (tmp_path / "out" / "runs").mkdir()
    assert schedule.is_healthy() is healthy


def test_only_loopback_is_published_and_every_service_has_limits(compose: dict[str, Any]) -> None:
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:8787:8787", "127.0.0.1:8080:8080"]
    for service in compose["services"].values():
        assert service["image"] == f"cagp-dist:{cagp_dist.__version__}"
        limits = service["deploy"]["resources"]["limits"]
        assert float(limits["cpus"]) > 0.0
        assert service["pids_limit"] == 512
        assert re.fullmatch(r"\d+[GM]", service["deploy"]["resources"]["limits"]["memory"])


def test_workers_stop_before_the_container_does(compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    limit = re.search(r"--memory-limit (\d+)MiB", worker["command"])
    assert limit is not None
    wall = int(worker["deploy"]["resources"]["limits"]["memory"].removesuffix("G")) * 1024
    assert int(limit[1]) <= 0.9 * wall


def test_services_see_the_folders_that_the_job_names(compose: dict[str, Any], repository: Path) -> None:
    for name, service in compose["services"].items():
        if name == "viewer":
            continue
        jobs, out, certificates, *spill = service["volumes"]
        assert spill == (["spill:/srv/cagp/spill"] if name == "worker" else [])
        assert certificates == "certificates:/srv/cagp/certificates"
        assert jobs == "./deploy/jobs:/srv/cagp/jobs:ro"
        assert out.split(":")[0] in compose["volumes"]
        assert out.split(":")[1] == "/srv/cagp/out"
    assert (repository / "deploy" / "jobs" / "sample.toml").is_file()
    assert 'root = "out"' in (repository / "deploy" / "jobs" / "sample.toml").read_text()


def test_the_base_of_the_image_can_be_given_by_its_digest(compose: dict[str, Any], repository: Path) -> None:
    first = (repository / "deploy" / "Dockerfile").read_text().splitlines()
    usual, start = (line for line in first if line.startswith(("ARG BASE=", "FROM ")))
    assert start == "FROM ${BASE}"
    assert compose["services"]["scheduler"]["build"]["args"] == {"BASE": usual.removeprefix("ARG BASE=")}
    assert "BASE: ${CAGP_BASE:-" in (repository / "docker-compose.yml").read_text()


def test_image_has_no_rights_and_its_build_finds_every_file(repository: Path) -> None:
    lines = (repository / "deploy" / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    instructions = [line.split() for line in lines if re.match(r"[A-Z]+ ", line)]
    assert ["USER", "10001:10001"] in instructions
    copied = [name for words in instructions if words[0] == "COPY" for name in words[1:-1]]
    let_through = (repository / ".dockerignore").read_text().splitlines()
    assert copied
    for name in copied:
        assert (repository / name).exists()
        assert f"!{name}" in let_through


class _Container:
    """A service as processes of this machine, started again as it says; use as a context manager.

    Loopback and free ports stand for names and fixed ports, one folder for the volumes and /tmp.
    """

    def __init__(
        self,
        service: dict[str, Any],
        folder: Path,
        environment: dict[str, str],
        scheduler_port: int,
        port: int,
    ) -> None:
        self._folder, self._port, self._scheduler_port = folder, port, scheduler_port
        own = {name: value.replace("/srv/cagp", str(folder)) for name, value in _variables(service)}
        self._environment = {**environment, **own, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
        self._command = self._localised(shlex.split(service["command"]))
        self._check = self._localised(service["healthcheck"].get("test", ["CMD", "false"])[1:])
        self._restarts = service["restart"] == "unless-stopped"
        self._log = folder / f"{port}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._started, self._stopping = threading.Event(), threading.Event()
        self._keeper = threading.Thread(target=self._keep)
        self.starts = 0

    def __enter__(self) -> Self:
        self._keeper.start()
        assert self._started.wait(60.0)
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._keeper.join()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, cwd=self._folder, env=self._environment, stdout=log, stderr=log
                )
            self.starts += 1
            self._started.set()
            self._process.wait()
            if not self._restarts:
                return
            self._stopping.wait(0.5)

    def kill(self) -> None:
        """SIGKILL, as if out of memory."""
        assert self._process is not None
        self._process.kill()

    def exit_code(self, *, timeout: float) -> int:
        assert self._process is not None
        return self._process.wait(timeout)

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def is_healthy(self) -> bool:
        run = subprocess.run(
            self._check,
            cwd=self._folder,
            env=self._environment,
            check=False,
            capture_output=True,
            timeout=600,
        )
        return run.returncode == 0

    def wait_until_healthy(self) -> None:
        self._wait(self.is_healthy)

    def wait_for(self, text: str) -> None:
        """Wait until a text stands in the log."""
        self._wait(lambda: text in self.log())

    def page(self, name: str) -> str:
        """What a browser is shown."""
        with urlopen(f"http://127.0.0.1:{self._port}/{name}", timeout=600) as answer:
            return str(answer.read().decode())

    def _wait(self, there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300.0
        while not there():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def _localised(self, words: Sequence[str]) -> list[str]:
        replaced = [self._replaced(word) for word in words]
        match replaced[0]:
            case "python":
                replaced[0] = sys.executable
                if "http.server" in replaced:
                    replaced += ["--bind", "127.0.0.1"]
            case "dask":
                replaced += ["--host", "127.0.0.1"]
            case "sh" if "dask scheduler" in replaced[-1]:
                replaced[-1] += " --host 127.0.0.1"
        return replaced

    def _replaced(self, word: str) -> str:
        word = word.replace("tls://scheduler:8786", f"tls://127.0.0.1:{self._scheduler_port}")
        word = re.sub(r"^/tmp\b", str(self._folder), word)
        word = word.replace("/usr/local/share/cagp", str(REPOSITORY / "deploy"))
        word = re.sub(r"(?<![:\d])8786\b", str(self._scheduler_port), word)
        word = re.sub(r"(?:127\.0\.0\.1)?:878[78]\b", f"127.0.0.1:{self._port}", word)
        return re.sub(r"\b8080\b", str(self._port), word)


def _variables(service: dict[str, Any]) -> list[tuple[str, str]]:
    """The environment of a service, without the secret that is not mounted here."""
    return [(name, value) for name, value in service.get("environment", {}).items() if name != "CDSAPI_RC"]
