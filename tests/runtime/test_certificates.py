"""Who may connect to a cluster: with its certificate, or from its own machine; and what is said to others."""

import asyncio
import os
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import dask
import psutil
import pytest
import yaml
from distributed import Client, LocalCluster, Security
from distributed.comm.core import connect

from cagp_dist.errors import ClusterError, ConfigurationError
from cagp_dist.runtime import certificates, open_executor
from cagp_dist.runtime import dask as runtime_dask
from cagp_dist.runtime.certificates import make_certificates
from cagp_dist.runtime.dask import on_loopback

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    make_certificates(folder)
    return folder


def configured(folder):
    """Dask as it is when ``DASK_CONFIG`` names the file in a folder."""
    comm = yaml.safe_load((folder / "dask.yaml").read_text())["distributed"]["comm"]
    roles = {f"{role}.cert": comm["tls"][role]["cert"] for role in ("scheduler", "worker", "client")}
    files = {"ca-file": comm["tls"]["ca-file"], **roles}
    settings = {f"distributed.comm.tls.{key}": value for key, value in files.items()}
    return dask.config.set({"distributed.comm.require-encryption": True, **settings})


@pytest.fixture(scope="module")
def cluster(folder):
    """A cluster of this process whose owner set ``DASK_CONFIG``."""
    with configured(folder):
        security = Security()
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tls",
        security=security,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        yield cluster


def test_who_has_the_certificate_works_there(cluster, folder):
    with configured(folder), open_executor(cluster.scheduler_address) as executor:
        assert executor.submit(pow, 2, 10).result() == 1024
        assert executor.description.startswith("Dask cluster tls://127.0.0.1:")


def test_plain_tcp_another_certificate_and_none_are_refused(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(runtime_dask, "CONNECT_SECONDS", 2)
    address = cluster.scheduler_address
    with pytest.raises(ClusterError) as refusal:
        open_executor(address.replace("tls", "tcp")).__enter__()
    assert refusal.value.key == "no-scheduler"
    make_certificates(tmp_path)
    with configured(tmp_path), pytest.raises(ClusterError) as refusal:
        open_executor(address).__enter__()
    assert refusal.value.key == "no-scheduler"
    with pytest.raises(ConfigurationError) as refusal:
        open_executor(address).__enter__()
    assert refusal.value.key == "certificate"
    with pytest.raises(OSError, match=r"(?i)tls|ssl|closed"):  # has nothing to show
        asyncio.run(greet(address, ssl._create_unverified_context()))
    with pytest.raises(ClusterError) as refusal, configured(tmp_path):
        open_executor(cluster.workers[0].address).__enter__()  # a worker does not let others in either
    assert refusal.value.key == "no-scheduler"


async def greet(address, context):
    comm = await connect(address, timeout=60, ssl_context=context, require_encryption=True)
    try:
        return await asyncio.wait_for(comm.read(), 60)
    finally:
        comm.abort()


def test_plain_tcp_where_the_configuration_requires_encryption(folder):
    with configured(folder), pytest.raises(ConfigurationError) as refusal:
        open_executor("tcp://127.0.0.1:8786").__enter__()
    assert refusal.value.key == "not-encrypted"


def test_certificates_belong_to_their_owner_and_are_kept_until_their_last_week(tmp_path, monkeypatch):
    path = make_certificates(tmp_path / "new" / "folder")
    assert [stat.S_IMODE(entry.stat().st_mode) for entry in (path, path.parent)] == [0o600, 0o700]
    before = path.read_bytes()
    assert make_certificates(path.parent).read_bytes() == before
    monkeypatch.setattr(certificates, "RENEWAL_DAYS", certificates.DAYS + 1)
    assert make_certificates(path.parent).read_bytes() != before
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["cluster.pem", "dask.yaml"]


def test_without_openssl_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError) as refusal:
        make_certificates(tmp_path)
    assert refusal.value.key == "certificate"


def test_openssl_that_fails_is_quoted(tmp_path, monkeypatch):
    (tmp_path / "openssl").write_text("#!/bin/sh\necho no randomness >&2\nexit 1\n")
    (tmp_path / "openssl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ConfigurationError) as refusal:
        make_certificates(tmp_path)
    assert refusal.value.key == "certificate"


@pytest.mark.parametrize("form", ["address", "file"])
def test_plain_tcp_to_another_machine_is_refused_unless_allowed(form, tmp_path, monkeypatch):
    monkeypatch.setattr(runtime_dask, "CONNECT_SECONDS", 0.3)
    address = scheduler = "tcp://192.0.2.1:8786"  # of no machine (RFC 5737)
    if form == "file":
        scheduler = str(tmp_path / "scheduler.json")
        Path(scheduler).write_text(f'{{"address": "{address}"}}')
    with pytest.raises(ConfigurationError) as refusal:
        open_executor(scheduler).__enter__()
    assert refusal.value.key == "not-encrypted"
    with pytest.raises(ClusterError) as refusal:
        open_executor(scheduler, insecure=True).__enter__()
    assert refusal.value.key == "no-scheduler"


@pytest.mark.parametrize(
    ("address", "stays"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.8.8.8:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://localhost:1", True),
        ("tcp://10.0.0.1:1", False),
        ("tcp://[2001:db8::1]:1", False),
        ("tcp://localhost.example.org:1", False),
        ("tcp://127.0.0.1.example.org:1", False),
        ("tcp://127.0.0.1@example.org:1", False),
        ("tcp://0.0.0.0:1", False),
    ],
)
def test_addresses_of_this_machine(address, stays):
    assert on_loopback(address) is stays


def test_dashboard_of_another_machine_is_at_the_end_of_a_tunnel(cluster, folder):
    with configured(folder), Client(cluster.scheduler_address, set_as_default=False) as client:
        port = client.dashboard_link.rpartition(":")[2].partition("/")[0]
        link = runtime_dask._dashboard(client, "tls://10.0.0.1:8786")
        assert link.startswith(f"http://127.0.0.1:{port}/status after `ssh -N -L {port}:127.0.0.1:{port} ")
        assert runtime_dask._dashboard(client, client.scheduler.address) == client.dashboard_link


def test_command_prints_what_to_set(tmp_path):
    run = subprocess.run(
        [Path(sys.executable).with_name("cagp"), "certificates", "a folder"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert run.stdout == f"export DASK_CONFIG='{tmp_path}/a folder/dask.yaml'\n"
    read = yaml.safe_load((tmp_path / "a folder" / "dask.yaml").read_text())
    assert read["distributed"]["comm"]["require-encryption"] is True


@pytest.mark.parametrize("scheduler", ["local", "serial"])
def test_work_of_this_process_listens_nowhere(scheduler):
    here = psutil.Process()
    before = {found.laddr for found in here.net_connections() if found.status == psutil.CONN_LISTEN}
    with open_executor(scheduler) as executor:
        executor.gather([executor.submit(pow, 2, 3)])
        during = {found.laddr for found in here.net_connections() if found.status == psutil.CONN_LISTEN}
    assert during <= before
