"""The commands of docker-compose.yml as local processes run the main job; the image holds what it needs."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def compose(repository: Path) -> dict[str, Any]:
    """docker-compose.yml, its variables replaced by their defaults."""
    text = (repository / "docker-compose.yml").read_text()
    loaded = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.exhaustive
def test_commands_run_the_main_job_with_the_serial_result(
    compose: dict[str, Any],
    environment: dict[str, str],
    free_port: Callable[[], int],
    tmp_path: Path,
    write_job: Callable[[Path], Path],
    assert_same_result: Callable[[Path], None],
) -> None:
    write_job(tmp_path / "jobs").rename(tmp_path / "jobs" / "sample.toml")
    services = compose["services"]
    (configuration,) = {service["environment"]["DASK_CONFIG"] for service in services.values()}
    environment = {**environment, "DASK_CONFIG": configuration.replace("/srv/cagp", str(tmp_path))}
    scheduler_port = free_port()
    with ExitStack() as stack:
        started: list[str] = []
        for name in ("scheduler", "worker"):
            for _ in range(services[name].get("deploy", {}).get("replicas", 1)):
                health_port = free_port()
                command, check = (
                    _localised(words, scheduler_port=scheduler_port, health_port=health_port)
                    for words in (
                        shlex.split(services[name]["command"]),
                        services[name]["healthcheck"]["test"],
                    )
                )
                command[-1] += " --host 127.0.0.1" if command[0] == "sh" else ""
                loopback = [] if command[0] == "sh" else ["--host", "127.0.0.1"]
                stack.enter_context(_process([*command, *loopback], tmp_path, environment))
                _wait_until_healthy(check, tmp_path, environment)
                started.append(name)
        assert started == ["scheduler", "worker", "worker"]
        job = _localised(shlex.split(services["job"]["command"]), scheduler_port=scheduler_port)
        run = subprocess.run(
            job, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=240
        )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"on Dask cluster tls://127.0.0.1:{scheduler_port}" in run.stderr
    assert_same_result(tmp_path / "out")


def test_health_check_fails_while_nobody_listens(
    compose: dict[str, Any], environment: dict[str, str], free_port: Callable[[], int], tmp_path: Path
) -> None:
    check = _localised(
        compose["services"]["worker"]["healthcheck"]["test"], scheduler_port=1, health_port=free_port()
    )
    assert not _is_healthy(check, tmp_path, environment)


def test_only_loopback_is_published_and_every_service_has_limits(compose: dict[str, Any]) -> None:
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:8787:8787"]
    for service in compose["services"].values():
        assert service["image"] == "cagp-dist"
        assert re.fullmatch(r"\d+G", service["deploy"]["resources"]["limits"]["memory"])


def test_workers_stop_before_the_container_does(compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    limit = re.search(r"--memory-limit (\d+)MiB", worker["command"])
    assert limit is not None
    wall = int(worker["deploy"]["resources"]["limits"]["memory"].removesuffix("G")) * 1024
    assert int(limit[1]) <= 0.9 * wall


def test_services_see_the_folders_that_the_job_names(compose: dict[str, Any], repository: Path) -> None:
    for service in compose["services"].values():
        jobs, out, certificates = service["volumes"]
        assert certificates == "certificates:/srv/cagp/certificates"
        assert jobs == "./deploy/jobs:/srv/cagp/jobs:ro"
        assert out.split(":")[0] in compose["volumes"]
        assert out.split(":")[1] == "/srv/cagp/out"
    assert (repository / "deploy" / "jobs" / "sample.toml").is_file()
    assert 'root = "out"' in (repository / "deploy" / "jobs" / "sample.toml").read_text()


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


def _localised(words: Sequence[str], *, scheduler_port: int, health_port: int | None = None) -> list[str]:
    """A command of a container as one of this machine: loopback and free ports for names and fixed ports."""
    replaced = list(words[1:] if words[0] == "CMD" else words)
    for i, word in enumerate(replaced):
        word = word.replace("tls://scheduler:8786", f"tls://127.0.0.1:{scheduler_port}")
        word = re.sub(r"(?<![:\d])8786\b", str(scheduler_port), word)
        replaced[i] = re.sub(r"(?:127\.0\.0\.1)?:878[78]\b", f"127.0.0.1:{health_port}", word)
    if replaced[0] == "python":
        replaced[0] = sys.executable
    return replaced


@contextmanager
def _process(command: Sequence[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A process for the length of a with block, stopped the way a container is."""
    with (folder / "cluster.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_healthy(check: Sequence[str], folder: Path, environment: dict[str, str]) -> bool:
    run = subprocess.run(check, cwd=folder, env=environment, check=False, capture_output=True, timeout=30)
    return run.returncode == 0


def _wait_until_healthy(check: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    deadline = time.monotonic() + 60.0
    while not _is_healthy(check, folder, environment):
        assert time.monotonic() < deadline, (folder / "cluster.log").read_text()
        time.sleep(0.3)
