"""What others see of a run: its sockets, and a key that it uses; and a run with as few rights as can be."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import psutil
import pytest
import xarray as xr

from ..clusters import wait_until
from ..fields.cds_server import TOKEN, CdsServer
from ..fields.fields import netcdf3, raw_dataset
from ..jobs import job_text

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
NOBODY = 65534
NOT_ALLOWED = 77

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def started(folder: Path, *command: str | Path, **environment: str) -> subprocess.Popen[bytes]:
    """A process in a folder, whose output goes to a log there."""
    with (folder / f"{Path(command[0]).name}-{command[1]}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1", **environment},
            stdout=log,
            stderr=log,
        )


NOTING = """
import os, socket, sys

def note(event, arguments):
    internet = (socket.AF_INET, socket.AF_INET6)
    if event in ("socket.bind", "socket.connect") and arguments[0].family in internet:
        stream = arguments[0].type == socket.SOCK_STREAM
        line = f"{os.environ['NOTED_AS']} {event} {'tcp' if stream else 'udp'} {arguments[1][0]}\\n"
        descriptor = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line.encode())
        os.close(descriptor)

sys.addaudithook(note)
"""
"""What every Python process of the test does first: it notes each address that a socket of it takes."""


@pytest.fixture
def noted(tmp_path: Path) -> dict[str, str]:
    """What is added to the environment of a process whose sockets are noted, and those of its children."""
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(NOTING)
    path = os.pathsep.join([str(tmp_path / "python"), str(REPOSITORY)])
    return {"PYTHONPATH": path, "NOTES": str(tmp_path / "notes")}


@pytest.fixture
def cluster(tmp_path: Path, noted: dict[str, str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A scheduler and a worker with its nanny, on loopback."""
    noted = {**noted, "NOTED_AS": "cluster"}
    file = str(tmp_path / "scheduler.json")
    common = ("--scheduler-file", file, "--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")
    scheduler = started(tmp_path, BIN / "dask", "scheduler", "--port", "0", *common, **noted)
    worker = started(tmp_path, BIN / "dask", "worker", "--nthreads", "1", *common, **noted)
    try:
        wait_until(Path(file).is_file, scheduler)  # for which `cagp run` does not wait
        yield [scheduler, worker]
    finally:
        for process in (worker, scheduler):
            process.terminate()
        for process in (worker, scheduler):
            process.wait(120)


def family(processes: list[subprocess.Popen[bytes]]) -> Iterator[psutil.Process]:
    """Processes and all that they started."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(process.pid)
            yield own
            yield from own.children(recursive=True)


@pytest.mark.cluster
def test_a_run_on_a_cluster_takes_no_socket_beyond_loopback_and_its_key_is_nowhere(tmp_path, cluster, noted):
    """Every address that a Python process binds or connects to counts.

    What the run listens at, and the arguments of all processes, is looked at every 0.3 s.
    """
    with CdsServer() as server:
        latitude, longitude = np.arange(90.0, -90.1, -7.5), np.arange(0.0, 360.0, 7.5)
        server.behaviour.deliver = lambda request: netcdf3(
            raw_dataset(times=["2020-01-01T00:00"], latitude=latitude, longitude=longitude)
        )
        observations = {"source": "cds", "times": ["2020-01-01T00:00"], "grid_degrees": 7.5}
        job = job_text(observations=observations, cluster=None, output={"root": "out"})
        (tmp_path / "job.toml").write_text(job)
        options = ("--scheduler", "scheduler.json", "--log-format", "json", "--metrics", "cagp.prom")
        key = {"CDSAPI_KEY": TOKEN, "CDSAPI_URL": server.url, "CDSAPI_RC": "nowhere"}
        run = started(tmp_path, BIN / "cagp", "run", "job.toml", *options, **key, **noted, NOTED_AS="run")
        listening, arguments = list[object](), set[str]()
        while run.poll() is None:
            for process in family([*cluster, run]):
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    arguments |= {*process.cmdline()}
            for process in family([run]):
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    sockets = process.net_connections()
                    listening += [each for each in sockets if each.status == psutil.CONN_LISTEN]
            time.sleep(0.3)
    logs = {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    assert run.returncode == 0, logs["cagp-run.log"]
    assert server.tokens == {TOKEN}
    taken = {tuple(line.split()) for line in Path(noted["NOTES"]).read_text().splitlines()}
    assert ("cluster", "socket.bind", "tcp", "127.0.0.1") in taken
    assert ("run", "socket.connect", "tcp", "127.0.0.1") in taken
    assert listening == []
    assert {each for each in taken if not ip_address(each[-1]).is_loopback} == set()
    assert "job.toml" in arguments
    assert not [word for word in arguments if TOKEN in word]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"CURRENT", "cagp.prom", "report.html", "cagp-run.log"} <= {path.name for path in files}
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []
    for store in (tmp_path / "out").rglob("*.zarr"):
        for group in {path.parent.parent for path in store.rglob("zarr.json")}:
            with suppress(FileNotFoundError), xr.open_zarr(group, consolidated=False) as found:
                assert TOKEN not in repr(found.to_dict())


CONFINED = """
refuse() {{ echo "$1" >&2; exit {not_allowed}; }}
mount --make-rprivate / || refuse "mounts cannot be changed"
if [ -n "{closed}" ]; then
    mkdir -p "{folder}/python" && mount --bind "{base}" "{folder}/python" || refuse "no bind mounts"
    mount -t tmpfs -o mode=755 none "{closed}" || refuse "no tmpfs"
    mkdir -p "{base}" && mount --bind "{folder}/python" "{base}" || refuse "no bind mounts"
fi
mount --bind "{writable}" "{writable}" && mount -o remount,ro,bind / || refuse "the root stays writable"
cd "{writable}" && exec setpriv --reuid {nobody} --regid {nobody} --clear-groups --no-new-privs \
    --bounding-set=-all "$@"
"""


@pytest.fixture
def writable() -> Iterator[Path]:
    """A folder of nobody's, in one that everybody may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        place = Path(folder) / "writable"
        place.mkdir()
        if os.geteuid() == 0:
            os.chown(place, NOBODY, NOBODY)
        yield place


def confined(writable: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run as nobody where everything but one folder is read-only; skip where that cannot be had."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        pytest.skip("mounts and users can be changed by root alone, with unshare and setpriv")
    base = Path(sys.base_prefix)
    closed = [folder for folder in (base, *base.parents) if not folder.stat().st_mode & 0o001]
    script = CONFINED.format(
        folder=writable.parent,
        writable=writable,
        base=base,
        closed=closed[-1] if closed else "",
        nobody=NOBODY,
        not_allowed=NOT_ALLOWED,
    )
    own = {name: str(writable) for name in ("HOME", "TMPDIR", "MPLCONFIGDIR", "NUMBA_CACHE_DIR")}
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *command],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1", **own},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode == NOT_ALLOWED or "unshare failed" in run.stderr:
        pytest.skip(f"no mounts of one's own here: {run.stderr.strip()}")
    return run


def test_a_run_needs_one_writable_folder_and_no_rights(writable):
    (writable / "job.toml").write_text(job_text(output={"root": "out"}))
    probe = "import os; print(os.getuid(), [p for p in ('/', {!r}) if os.access(p, os.W_OK)])"
    shown = confined(writable, sys.executable, "-c", probe.format(str(REPOSITORY)))
    assert shown.stdout.split(maxsplit=1) == [str(NOBODY), "[]\n"], shown.stderr
    run = confined(writable, BIN / "cagp", "run", "job.toml")
    assert run.returncode == 0, run.stderr
    assert (writable / "out" / "CURRENT").stat().st_uid == NOBODY
    assert confined(writable, BIN / "cagp", "verify", "out").stdout.startswith("undamaged  out/runs/")
