"""Worker jobs of SLURM and PBS: what is submitted, how long is waited, and when a worker takes leave."""

import fcntl
import logging
import os
import platform
import re
import subprocess
import sys
import time
import types
from contextlib import contextmanager
from pathlib import Path

import dask
import pytest
from distributed import LocalCluster, Security

from cagp_dist.errors import ClusterError, ConfigurationError, TimeLimitError
from cagp_dist.runtime import batch_system as batch
from cagp_dist.runtime import deadlines, open_executor
from cagp_dist.runtime.batch_system import (
    BATCH_SYSTEMS,
    check_batch_system,
    lifetime_seconds,
    walltime_seconds,
    worker_arguments,
    worker_jobs,
)
from cagp_dist.runtime.deadlines import Deadlines

pytestmark = pytest.mark.cluster


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """A stand-in for dask-jobqueue whose jobs are workers of this process; what was asked of it."""
    monkeypatch.chdir(tmp_path)
    asked = {"most": 10}

    class Jobs(LocalCluster):
        def __init__(self, *, cores, processes, memory, security, **settings):
            asked.update(settings, cores=cores, processes=processes, memory=memory, security=security)
            super().__init__(
                n_workers=0,
                threads_per_worker=cores,
                processes=False,
                host="127.0.0.1",
                protocol="tls" if security else "tcp",
                security=security or Security(),
                dashboard_address=settings["scheduler_options"]["dashboard_address"],
            )

        def scale(self, n=0, *, jobs=None):
            if jobs is not None:
                asked["jobs"] = jobs
            super().scale(min(n if jobs is None else jobs, asked["most"]))

        def _correct_state(self):
            if "refusal" in asked and "jobs" in asked:
                raise RuntimeError(asked.pop("refusal"))
            return super()._correct_state()

        def adapt(self, *, minimum_jobs, maximum_jobs):
            asked["kept"] = (minimum_jobs, maximum_jobs)

    module = types.SimpleNamespace(SLURMCluster=Jobs, PBSCluster=Jobs)
    monkeypatch.setitem(sys.modules, "dask_jobqueue", module)
    return asked


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("scheduler", "settings", "jobs", "memory"),
    [
        ("slurm", {}, 2, "4096MiB"),
        ("pbs", {"workers": 3, "threads": 2, "memory_limit_bytes": 2**30, "insecure": True}, 3, "1024MiB"),
    ],
)
def test_batch_systems_start_worker_jobs_and_keep_their_number(
    scheduler, settings, jobs, memory, asked, tmp_path
):
    with open_executor(scheduler, **settings) as executor:
        assert executor.submit(abs, -3).result() == 3
        assert executor.workers == jobs * settings.get("threads", 1)
        encrypted = not settings.get("insecure", False)
        assert executor.description.startswith(f"Dask cluster {'tls' if encrypted else 'tcp'}://")
        assert len(list(tmp_path.glob(".cagp-*/cluster.pem"))) == encrypted
    assert (asked["cores"], asked["processes"]) == (settings.get("threads", 1), 1)
    assert asked["memory"] == memory
    assert asked["jobs"] == jobs
    assert asked["kept"] == (jobs, jobs)
    assert asked["job_script_prologue"] == [
        *(f"export {variable}=1" for variable in batch.THREADS),
        *batch.spill_folder("${TMPDIR:-/tmp}"),
    ]
    assert asked["scheduler_options"] == {"dashboard_address": "127.0.0.1:0"}
    assert list(tmp_path.iterdir()) == [], "the certificate goes with the cluster"


def test_jobs_that_are_not_taken_are_an_error_that_quotes_why(asked, monkeypatch, tmp_path):
    asked["refusal"] = "sbatch: error: invalid partition specified: nowhere"
    with pytest.raises(ClusterError) as refusal:
        open_executor("slurm").__enter__()
    assert refusal.value.key == "job-refused"


def test_the_wait_for_jobs_is_spoken_of_and_ends(asked, monkeypatch, caplog):
    asked["most"] = 0
    with pytest.raises(TimeLimitError) as refusal:
        open_executor("slurm", deadlines=Deadlines(total_seconds=1e-9)).__enter__()
    assert refusal.value.key == "time-limit"
    pauses: list[float] = []  # only they take time, and nobody waits for them
    clock = types.SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(deadlines, "time", clock)
    monkeypatch.setattr(deadlines, "POLL_SECONDS", 5.0)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ClusterError) as refusal,
    ):
        open_executor("pbs", deadlines=Deadlines(queue_seconds=100.0)).__enter__()
    assert refusal.value.key == "no-workers"
    assert sum(pauses) == 105.0
    assert [record.getMessage() for record in caplog.records if record.name == batch.__name__] == [
        f"waiting for worker jobs of PBS: 0 of 2 have begun after {seconds} s of at most 100 s; "
        "`qstat -u $USER` shows them"
        for seconds in (10, 20, 40, 80)
    ]


def test_work_begins_on_the_jobs_that_have_begun(asked, caplog):
    """After a while, and not only when the wait for the first one is over."""
    asked["most"], began = 1, time.monotonic()
    with open_executor("slurm", deadlines=Deadlines(start_after_seconds=0.1)) as executor:
        assert executor.submit(abs, -3).result() == 3
    assert time.monotonic() - began < 60.0
    assert "work begins on 1 of 2 worker jobs of SLURM" in caplog.text


@pytest.mark.parametrize("name", BATCH_SYSTEMS)
def test_a_machine_that_submits_no_jobs_is_found_out_first(name, asked, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError) as refusal:
        check_batch_system(name)
    assert refusal.value.key == "no-batch-system"


@pytest.mark.parametrize(
    ("text", "slurm", "pbs"),
    [
        ("90", 5400, 90),
        ("30:15", 1815, 1815),
        ("10:30:15", 37815, 37815),
        ("2-3", 183600, 183600),
        ("2-3:30", 185400, 185400),
        ("2-3:30:05", 185405, 185405),
        ("UNLIMITED", None, None),
        ("None", None, None),
    ],
)
def test_walltimes(text, slurm, pbs):
    assert walltime_seconds(text, BATCH_SYSTEMS["slurm"].unit_seconds) == slurm
    assert walltime_seconds(text, BATCH_SYSTEMS["pbs"].unit_seconds) == pbs


@pytest.mark.parametrize("walltime", [60, 1800, 3600, 86400, 7 * 86400])
def test_workers_leave_before_their_walltime_and_not_all_at_once(walltime):
    lifetime, stagger = lifetime_seconds(walltime)
    assert lifetime + stagger <= walltime - min(walltime / 20, 300)
    assert lifetime - stagger >= 0.75 * walltime
    assert stagger > 0


def test_options_of_a_worker():
    always = ["--preload", "cagp_dist.preload", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    given = worker_arguments({"walltime": "01:00:00", "worker-extra-args": ["--resources", "GPU=1"]}, 60)
    assert given == [*always, "--resources", "GPU=1", "--lifetime", "3060s", "--lifetime-stagger", "360s"]
    assert worker_arguments({"walltime": None}, 60) == always
    own = ["--lifetime", "8s"]
    assert worker_arguments({"walltime": "01:00:00", "worker-extra-args": own}, 60) == [*always, *own]


PBS_SCRIPT = """#!/usr/bin/env bash

#PBS -N dask-worker
#PBS -q long
#PBS -A climate
#PBS -l select=1:ncpus=1:mem=2048MB
#PBS -l walltime=02:00:00
export OMP_NUM_THREADS=1
export MKL_NUM_THREADS=1
export OPENBLAS_NUM_THREADS=1
export NUMBA_NUM_THREADS=1
module load python
CAGP_SPILLS="cagp-spill-$(hostname -s)-"
CAGP_SPILL=$(mktemp -d "/scratch/${CAGP_SPILLS}XXXXXXXX") || exit 1
exec 9<"$CAGP_SPILL"; flock -s 9
find -H "/scratch" -maxdepth 1 -type d -user "$(id -un)" -name "$CAGP_SPILLS????????" -mmin +10 \
-exec flock -n -x {} rm -rf {} ';' 2>/dev/null
trap 'rm -rf "$CAGP_SPILL"' EXIT
PYTHON -m distributed.cli.dask_worker tls://ADDRESS --name dummy-name --nthreads 1 --memory-limit 2.00GiB \
--nanny --death-timeout 60 --local-directory "$CAGP_SPILL" --preload cagp_dist.preload --no-dashboard \
--dashboard-address 127.0.0.1:0 \
--lifetime 6300s --lifetime-stagger 600s --protocol tls:// --tls-ca-file PEM --tls-cert PEM --tls-key PEM
"""


def test_the_script_of_a_pbs_job(tmp_path, monkeypatch):
    pytest.importorskip("dask_jobqueue")
    for command in ("qsub", "qdel"):  # takes every job, and never begins it
        (tmp_path / command).write_text(f"#!/bin/sh\ncp $1 {tmp_path}/submitted 2>/dev/null\necho 1.server\n")
        (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(tmp_path)
    settings = {
        "queue": "long",
        "account": "climate",
        "walltime": "02:00:00",
        "local-directory": "/scratch",
        "job-script-prologue": ["module load python"],
    }
    with (
        dask.config.set({f"jobqueue.pbs.{key}": value for key, value in settings.items()}),
        worker_jobs("pbs", workers=2, memory_limit_bytes=2 * 2**30) as cluster,
    ):
        script = cluster.job_script()
        (pem,) = map(str, tmp_path.glob(".cagp-*/cluster.pem"))
        assert "tls://" in Path("submitted").read_text()
    script = script.replace(sys.executable, "PYTHON").replace(pem, "PEM")
    assert re.sub(r"tls://[0-9.]+:\d+", "tls://ADDRESS", script) == PBS_SCRIPT


def test_the_page_prints_a_batch_script_and_submits_nothing(tmp_path, monkeypatch, capsys):
    pytest.importorskip("dask_jobqueue")
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\ntouch {tmp_path}/submitted\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "slurm.md").read_text()
    lines = re.search(r"```python\n(from dask_jobqueue .*?)```", page, re.DOTALL)
    with dask.config.set({"jobqueue.slurm.queue": "compute", "jobqueue.slurm.walltime": "02:00:00"}):
        exec(lines[1], {})
    said = capsys.readouterr().out
    assert {"#SBATCH -p compute", "#SBATCH -t 02:00:00", "#SBATCH --mem=4G"} <= set(said.splitlines())
    assert not (tmp_path / "submitted").exists()


def test_the_folder_of_a_worker_is_its_own_and_goes_with_it(tmp_path):
    script = "\n".join([*batch.spill_folder(str(tmp_path)), 'ls -ld "$CAGP_SPILL"'])
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.startswith("drwx------")
    assert not any(tmp_path.iterdir())
    assert subprocess.run(["bash", "-c", "\n".join(batch.spill_folder("/nowhere"))], check=False).returncode


def test_folders_of_workers_that_were_killed_go_with_the_next_one_and_others_stay(tmp_path):
    own = f"cagp-spill-{platform.node().partition('.')[0]}-"
    names = (
        f"{own}live0000",
        f"{own}dead0000",
        f"{own}new00000",
        "else",
        "cagp-dead0000",
        "cagp-spill-x-dead0000",
    )
    there = tmp_path / "there"
    live, dead, young, *others = (there / name for name in names)
    there.mkdir()
    for folder in (live, dead, young, *others):
        folder.mkdir()
        (folder / "spilled").write_bytes(b"0")
        if folder is not young:
            os.utime(folder, (1.6e9, 1.6e9))
    (there / f"{own}link0000").symlink_to(others[0])
    (tmp_path / "scratch").symlink_to(there)
    with open_directory(live) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        script = "\n".join(batch.spill_folder(str(tmp_path / "scratch")))
        subprocess.run(["bash", "-c", script], check=True, timeout=60)
    assert {path.name for path in there.iterdir()} == {*names, f"{own}link0000"} - {dead.name}
    assert all((folder / "spilled").exists() for folder in (live, young, *others))


@contextmanager
def open_directory(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
