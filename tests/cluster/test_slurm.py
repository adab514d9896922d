"""deploy/slurm/job.sbatch on a one-node SLURM that this test starts: the result equals the serial one."""

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

CAGP = Path(sys.executable).with_name("cagp")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "sinfo")
# Daemons live in /usr/sbin, which is not on everybody's PATH.
MISSING = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
CONFIGURATION = "jobqueue.yaml"
ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"SLURM is not installed here, no {', '.join(MISSING)}"),
]

# No accounting, no cgroups, no task binding: what a machine without set-up and rights can do.
# config_overrides lets the node have the CPUs this file says, whatever the hardware.
SLURM_CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=16000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def slurm(free_port: Callable[[], int], environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """A running one-node SLURM, as the environment in which its commands work."""
    # A short path of its own: a socket's path has at most 107 characters, and munge wants an open folder.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    configuration = folder / "slurm.conf"
    configuration.write_text(
        SLURM_CONF.format(
            host=host,
            user=pwd.getpwuid(os.getuid()).pw_name,
            folder=folder,
            controller_port=free_port(),
            node_port=free_port(),
        )
    )
    inside = {**environment, "SLURM_CONF": str(configuration)}
    munged = ["munged", "--foreground", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munged += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    commands = [munged, ["slurmctld", "-D", "-c"], ["slurmd", "-D", "-c", "-N", host]]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        for command in commands:
            stack.enter_context(_daemon(command, folder, inside))
        _wait_for(lambda: "idle" in _output(["sinfo", "--noheader", "--format=%T"], inside), folder)
        stack.callback(_cancel_all, folder, inside)
        yield inside


def _cancel_all(folder: Path, environment: dict[str, str]) -> None:
    """End the jobs that are left, as those of a test that was interrupted."""
    subprocess.run(["scancel", "--user", pwd.getpwuid(os.getuid()).pw_name], env=environment, check=False)
    _wait_for(lambda: _output(["squeue", "--noheader"], environment) == "", folder)


@pytest.mark.parametrize(
    ("options", "tasks", "crew"),
    [
        ((), "2", "2 workers, 2 threads"),
        (("--ntasks-per-node=1", "--cpus-per-task=2"), "1", "1 worker, 2 threads"),
    ],
)
def test_job_script_gives_the_serial_result_and_cleans_up(
    options: tuple[str, ...],
    tasks: str,
    crew: str,
    slurm: dict[str, str],
    repository: Path,
    tmp_path: Path,
    write_job: Callable[[Path], Path],
    assert_same_result: Callable[[Path], None],
) -> None:
    job = write_job(tmp_path)
    spills = tmp_path / "tmp"
    spills.mkdir()
    environment = {**slurm, "CAGP_JOB": job.name, "TMPDIR": str(spills)}
    state = _submit(repository, environment, tmp_path, *options)
    log = (tmp_path / "cagp-job.log").read_text()
    assert state["JobState"] == "COMPLETED", log
    (cluster_log,) = tmp_path.glob("cagp-*.cluster.log")
    assert cluster_log.read_text().count(f"Local Directory: {spills}/cagp-spill-") == int(tasks)
    assert not any(spills.glob("cagp-spill-*"))
    assert "on Dask cluster tls://" in log
    assert state["NumTasks"] == tasks, "one worker for each of the tasks that are asked for"
    assert crew in log, "with a thread for each of its CPUs"
    assert_same_result(tmp_path / "out")
    _assert_nothing_left(tmp_path)


def test_job_script_returns_the_exit_code_of_a_bad_job(
    slurm: dict[str, str], repository: Path, tmp_path: Path, write_job: Callable[[Path], Path]
) -> None:
    job = write_job(tmp_path)
    job.write_text(job.read_text().replace("iterations", "iteratoins"))
    state = _submit(repository, {**slurm, "CAGP_JOB": job.name}, tmp_path)
    log = (tmp_path / "cagp-job.log").read_text()
    assert state["ExitCode"] == "2:0", log
    assert "iteratoins" in log
    assert not (tmp_path / "out").exists()
    _assert_nothing_left(tmp_path)


def test_job_script_without_a_job_file_says_which_variable_is_needed(
    slurm: dict[str, str], repository: Path, tmp_path: Path
) -> None:
    state = _submit(repository, slurm, tmp_path)
    assert state["JobState"] == "FAILED"
    assert "CAGP_JOB: name the job file" in (tmp_path / "cagp-job.log").read_text()


def test_cluster_of_one_node_listens_on_loopback_alone_and_a_cancelled_job_leaves_nothing(
    slurm: dict[str, str], repository: Path, tmp_path: Path, write_job: Callable[[Path], Path]
) -> None:
    job = write_job(tmp_path)
    job.write_text(job.read_text().replace("iterations = 3", "iterations = 100000"))  # works until cancelled
    number = _sbatch(repository, {**slurm, "CAGP_JOB": job.name}, tmp_path)
    cluster_log = tmp_path / f"cagp-{number}.cluster.log"
    _wait_for(lambda: cluster_log.exists() and cluster_log.read_text().count("Registered to") == 2, tmp_path)
    # the solve has begun: before, a child that decodes the field may outlive a cancelled job by a second
    job_log = tmp_path / "cagp-job.log"
    _wait_for(lambda: "on Dask cluster" in job_log.read_text(), tmp_path)
    listening = [
        (connection.laddr.ip, process["name"])
        for process in _working_in(tmp_path)
        for connection in process["net_connections"]
        if connection.status == psutil.CONN_LISTEN and process["name"] != "srun"  # that is SLURM's own
    ]
    assert len(listening) >= 5, "a scheduler, two workers and their nannies"
    assert [found for found in listening if found[0] != "127.0.0.1"] == []
    # What SLURM itself sends before the time limit, see --signal in the script.
    subprocess.run(["scancel", "--batch", "--signal=TERM", number], env=slurm, check=True, timeout=600)
    _wait_for(lambda: _state(number, slurm)["JobState"] not in ALIVE, tmp_path)
    assert _state(number, slurm)["ExitCode"] == "143:0", (tmp_path / "cagp-job.log").read_text()
    both = cluster_log.read_text()
    assert both.count("Registered to") == 2, (
        "what the scheduler said later is not written over the workers' lines"
    )
    assert "Stopped scheduler" in both
    _assert_nothing_left(tmp_path)


def test_array_does_a_month_in_each_element(
    slurm: dict[str, str], repository: Path, tmp_path: Path, write_job: Callable[[Path], Path]
) -> None:
    job = write_job(tmp_path)
    environment = {**slurm, "CAGP_JOB": job.name, "CAGP_FROM": "2017-03"}
    script = str(repository / "deploy" / "slurm" / "job.sbatch")
    command = ["sbatch", "--parsable", "--array=0-1", "--output=month-%a.log", script]
    number = _output(command, environment, tmp_path).strip()
    _wait_for(lambda: _output(["squeue", "--noheader", f"--jobs={number}"], slurm) == "", tmp_path)
    assert "the source has no time in 2017-03" in (tmp_path / "month-0.log").read_text()
    assert (tmp_path / "out" / "2017-04" / "CURRENT").is_file(), (tmp_path / "month-1.log").read_text()


def test_a_job_whose_time_is_over_is_queued_again_with_its_checkpoints(
    slurm: dict[str, str], repository: Path, tmp_path: Path, write_job: Callable[[Path], Path]
) -> None:
    job = write_job(tmp_path)
    text = job.read_text().replace("iterations = 3", "iterations = 60")
    job.write_text(f"{text}\n[runtime]\ncheckpoint_seconds = 0.0\n")
    number = _sbatch(repository, {**slurm, "CAGP_JOB": job.name, "CAGP_REQUEUE": "1"}, tmp_path)
    log = tmp_path / "cagp-job.log"
    _wait_for(lambda: any((tmp_path / "out").glob(".checkpoints/*/*")), tmp_path)
    subprocess.run(["scancel", "--batch", "--signal=TERM", number], env=slurm, check=True, timeout=600)
    _wait_for(lambda: _state(number, slurm).get("Restarts") == "1", tmp_path)
    assert "is queued again" in log.read_text()
    assert any((tmp_path / "out").glob(".checkpoints/*/*")), "what the second attempt goes on from"
    # SLURM waits two minutes before it begins a job again; less will do, but in the second in which the
    # first attempt ended the node takes the second for the first, whose credential has been revoked.
    _wait_for(lambda: _state(number, slurm)["JobState"] == "PENDING", tmp_path)
    soon = ["scontrol", "update", f"JobId={number}", "StartTime=now+5seconds"]
    subprocess.run(soon, env=slurm, check=True, timeout=600)
    _wait_for(lambda: _state(number, slurm)["JobState"] not in ALIVE, tmp_path)
    assert _state(number, slurm)["JobState"] == "COMPLETED", log.read_text()
    assert (tmp_path / "out" / "CURRENT").is_file()
    _assert_nothing_left(tmp_path)


def test_a_walltime_that_ends_within_the_iterations_is_continued_to_the_same_bits(
    slurm: dict[str, str],
    repository: Path,
    tmp_path: Path,
    write_job: Callable[..., Path],
    assert_same_result: Callable[..., None],
) -> None:
    """SLURM itself ends the job, at a time limit that is set when the first iterations are done."""
    iterations = 400  # each with a checkpoint: more than there are in the half minute until SLURM looks
    job = write_job(tmp_path, iterations)
    job.write_text(f"{job.read_text()}\n[runtime]\ncheckpoint_seconds = 0.0\n")
    environment = {**slurm, "CAGP_JOB": job.name, "CAGP_REQUEUE": "1"}
    number = _sbatch(repository, environment, tmp_path)
    _wait_for(lambda: any((tmp_path / "out").glob(".checkpoints/*/*")), tmp_path)
    hours, minutes, _ = map(int, _state(number, slurm)["RunTime"].split(":"))
    limit = 60 * hours + minutes + 1  # in minutes; the script asks for a signal a minute before
    change = ["scontrol", "update", f"JobId={number}", f"TimeLimit={limit}"]
    subprocess.run(change, env=slurm, check=True, timeout=600)
    _wait_for(
        lambda: (
            _state(number, slurm).get("Restarts") == "1" or _state(number, slurm)["JobState"] not in ALIVE
        ),
        tmp_path,
    )
    log = tmp_path / "cagp-job.log"
    assert _state(number, slurm).get("Restarts") == "1", log.read_text()
    assert "the time is over, job" in log.read_text()
    _wait_for(lambda: _state(number, slurm)["JobState"] == "PENDING", tmp_path)
    more = ["scontrol", "update", f"JobId={number}", "TimeLimit=120", "StartTime=now+5seconds"]
    subprocess.run(more, env=slurm, check=True, timeout=600)
    _wait_for(lambda: _state(number, slurm)["JobState"] not in ALIVE, tmp_path, seconds=3600.0)
    assert _state(number, slurm)["JobState"] == "COMPLETED", log.read_text()
    (done,) = re.findall(rf"continues from iteration (\d+) of {iterations}", log.read_text())
    assert 0 < int(done) < iterations
    assert_same_result(tmp_path / "out", iterations)
    _assert_nothing_left(tmp_path)


@pytest.fixture
def worker_jobs(slurm: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment in which `--scheduler slurm` submits jobs, of which this node holds two."""
    pytest.importorskip("dask_jobqueue")
    # one of two takes leave after 25 s, the other after 60 s
    _configure(tmp_path, ", worker-extra-args: [--lifetime, $((25 + 35 * (SLURM_JOB_ID % 2)))s]")
    return {**slurm, "DASK_CONFIG": str(tmp_path / CONFIGURATION)}


def _configure(folder: Path, of_workers: str = "") -> None:
    (folder / CONFIGURATION).write_text(
        f"jobqueue: {{slurm: {{queue: main, walltime: '00:10:00', log-directory: logs{of_workers}}}}}\n"
    )


def test_worker_jobs_give_the_serial_result_and_leave_nothing(
    worker_jobs: dict[str, str],
    tmp_path: Path,
    write_job: Callable[[Path], Path],
    assert_same_result: Callable[[Path], None],
) -> None:
    write_job(tmp_path)
    command = [CAGP, "run", "small.toml", "--scheduler", "slurm"]
    run = subprocess.run(
        command, cwd=tmp_path, env=worker_jobs, check=False, capture_output=True, text=True, timeout=1800
    )
    assert run.returncode == 0, run.stderr
    assert "on Dask cluster tls://" in run.stderr
    assert_same_result(tmp_path / "out")
    _wait_for(lambda: _output(["squeue", "--noheader"], worker_jobs) == "", tmp_path)
    _assert_nothing_left(tmp_path)


def test_work_begins_on_the_one_core_that_is_free(
    worker_jobs: dict[str, str],
    tmp_path: Path,
    write_job: Callable[[Path], Path],
    assert_same_result: Callable[[Path], None],
) -> None:
    """Three of four are taken by another job; two workers were asked for."""
    _configure(tmp_path)  # workers stay: a lone one that leaves takes all results with it
    job = write_job(tmp_path)
    job.write_text(f'{job.read_text()}\n[runtime]\nstart_after = "1min"\n')
    other = ["sbatch", "--parsable", "--cpus-per-task=3", "--mem=1G", "--output=/dev/null"]
    number = _output([*other, "--wrap=sleep 7200"], worker_jobs, tmp_path).strip()
    _wait_for(lambda: _state(number, worker_jobs)["JobState"] == "RUNNING", tmp_path)
    try:
        command = [CAGP, "run", job.name, "--scheduler", "slurm"]
        run = subprocess.run(
            command, cwd=tmp_path, env=worker_jobs, check=False, capture_output=True, text=True, timeout=1800
        )
        assert _state(number, worker_jobs)["JobState"] == "RUNNING"
    finally:
        subprocess.run(["scancel", number], env=worker_jobs, check=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert "work begins on 1 of 2 worker jobs of SLURM; the others join as they begin" in run.stderr
    assert_same_result(tmp_path / "out")
    _wait_for(lambda: _output(["squeue", "--noheader"], worker_jobs) == "", tmp_path)
    _assert_nothing_left(tmp_path)


OUTLIVES_ITS_WORKERS = """
import os, time
from cagp_dist.runtime import open_executor

def work(i):
    time.sleep(1.0)
    return i, os.environ["SLURM_JOB_ID"]

with open_executor("slurm", workers=2) as executor:
    found = executor.gather([executor.submit(work, i, home=i) for i in range(70)])
assert [i for i, _ in found] == list(range(70))
print(len({job for _, job in found}))
"""


def test_work_outlives_the_jobs_of_its_workers(worker_jobs: dict[str, str], tmp_path: Path) -> None:
    """70 s of work, on two workers of which one takes leave after 25 s."""
    run = subprocess.run(
        [sys.executable, "-c", OUTLIVES_ITS_WORKERS],
        cwd=tmp_path, env=worker_jobs, check=False, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 2, "workers of later jobs did some of it"


GIVEN = """
import numpy as np, cagp_dist as cagp
from dask_jobqueue import SLURMCluster

rng = np.random.default_rng(0)
X, X_test = rng.uniform(size=(3000, 2)), rng.uniform(size=(50, 2))
prior, solver = cagp.Prior(cagp.Matern32(0.2), 0.01), cagp.BlockGaussSeidel(2, block_size=256)
on = lambda executor: cagp.condition(prior, X, X[:, 0], X_test, solver=solver, executor=executor)
alone, options = on("serial"), {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
with SLURMCluster(cores=2, processes=1, memory="2GB", scheduler_options=options) as cluster:
    cluster.adapt(minimum=0, maximum=2)
    found = on(cluster)
assert np.array_equal(found.mean, alone.mean) and np.array_equal(found.variance, alone.variance)
print(found.stats.executor)
"""


def test_an_adaptive_cluster_of_dask_jobqueue_is_taken_as_it_is(
    worker_jobs: dict[str, str], tmp_path: Path
) -> None:
    """It begins without a worker, whose two threads share its memory; the bits are those of one thread."""
    run = subprocess.run(
        [sys.executable, "-c", GIVEN],
        cwd=tmp_path, env=worker_jobs, check=False, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "2 threads, up to 2 workers" in run.stdout
    _wait_for(lambda: _output(["squeue", "--noheader"], worker_jobs) == "", tmp_path)


def test_a_partition_that_is_not_there_is_an_error_at_once(
    worker_jobs: dict[str, str], tmp_path: Path, write_job: Callable[[Path], Path]
) -> None:
    write_job(tmp_path)
    text = Path(worker_jobs["DASK_CONFIG"]).read_text().replace("queue: main", "queue: nowhere")
    Path(worker_jobs["DASK_CONFIG"]).write_text(text)
    command = [CAGP, "run", "small.toml", "--scheduler", "slurm"]
    run = subprocess.run(
        command, cwd=tmp_path, env=worker_jobs, check=False, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 2, run.stderr
    assert "SLURM did not take the worker jobs" in run.stderr
    assert "invalid partition specified: nowhere" in run.stderr


def _sbatch(repository: Path, environment: dict[str, str], folder: Path, *options: str) -> str:
    """Submit the script of the repository from ``folder`` and return the number of the job."""
    script = repository / "deploy" / "slurm" / "job.sbatch"
    return _output(
        ["sbatch", "--parsable", "--output=cagp-job.log", *options, str(script)], environment, folder
    ).strip()


def _submit(repository: Path, environment: dict[str, str], folder: Path, *options: str) -> dict[str, str]:
    """Run the script to its end and return SLURM's record of the job."""
    number = _sbatch(repository, environment, folder, *options)
    _wait_for(lambda: _state(number, environment)["JobState"] not in ALIVE, folder)
    return _state(number, environment)


def _state(number: str, environment: dict[str, str]) -> dict[str, str]:
    fields = _output(["scontrol", "--oneliner", "show", "job", number], environment).split()
    return dict(field.split("=", 1) for field in fields if "=" in field)


def _output(command: Sequence[str], environment: dict[str, str], folder: Path | None = None) -> str:
    run = subprocess.run(
        command, env=environment, cwd=folder, check=False, capture_output=True, text=True, timeout=600
    )
    return run.stdout


def _wait_for(condition: Callable[[], bool], folder: Path, *, seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text(errors="replace")[-3000:] for path in folder.glob("*.log"))
            pytest.fail(f"nothing happened within {seconds:g} s\n{logs}")
        time.sleep(0.3)


@contextmanager
def _daemon(command: Sequence[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A process that runs in the foreground for the length of a with block, its output in a log file."""
    with (folder / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _assert_nothing_left(folder: Path) -> None:
    """No scheduler file and no process that works in the folder."""
    assert not list(folder.glob(".cagp-*"))
    assert [process["cmdline"] for process in _working_in(folder)] == []


def _working_in(folder: Path) -> list[dict[str, Any]]:
    """What there is to know of each process whose working directory is the folder."""
    found = [process.info for process in psutil.process_iter(["cwd", "name", "cmdline", "net_connections"])]
    return [process for process in found if process["cwd"] == str(folder)]
