"""Worker jobs of a batch system, through dask-jobqueue: submitted, waited for, replaced when they end."""

import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from cagp_dist.errors import ClusterError, ConfigurationError
from cagp_dist.extras import from_extra
from cagp_dist.runtime.certificates import make_certificates
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.text import counted

if TYPE_CHECKING:
    from dask_jobqueue.core import JobQueueCluster
    from distributed import Client, Security

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchSystem:
    """A batch system that worker jobs are asked of."""

    title: str  # For people
    cluster_class: str  # In dask-jobqueue
    submit: str  # The program that takes jobs
    queue: str  # The command that shows the jobs of a user
    unit_seconds: int  # Of a walltime that is a single number


BATCH_SYSTEMS = {
    "slurm": BatchSystem("SLURM", "SLURMCluster", "sbatch", "squeue --me", unit_seconds=60),
    "pbs": BatchSystem("PBS", "PBSCluster", "qsub", "qstat -u $USER", unit_seconds=1),
}

WORKER_JOBS = 2
"""Worker jobs that are asked for, where nothing else is said."""

UNLOCKED_MINUTES = 10  # age of a spill folder without a lock that is left: a younger one may just be locked
REPLACE_SECONDS = "1s"  # how long after a worker has gone its job is replaced
PRELOAD = "cagp_dist.preload"  # module that makes a worker ready before it takes tasks

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def check_batch_system(name: str) -> None:
    """Raise `ConfigurationError` unless jobs can be submitted from here."""
    system = BATCH_SYSTEMS[name]
    _cluster_class(name)
    if shutil.which(system.submit) is None:
        raise ConfigurationError(
            f'scheduler = "{name}" submits jobs with {system.submit}, which is not on PATH. Run the same '
            f"where jobs of {system.title} are submitted, such as on a login node.",
            key="no-batch-system",
        )


@contextmanager
def worker_jobs(
    name: str, *, workers: int, threads: int = 1, memory_limit_bytes: int, insecure: bool = False
) -> "Iterator[JobQueueCluster]":
    """Submit worker jobs; one that ends is replaced as long as the context is open.

    Queue, account and walltime come from the Dask configuration (``jobqueue.slurm``, ``jobqueue.pbs``).
    """
    import dask

    cluster_class = _cluster_class(name)  # which brings the defaults of the configuration
    settings = dask.config.get(f"jobqueue.{name}", {})
    shared = settings.get("shared-temp-directory")  # that the nodes see as well
    place = os.path.expanduser(os.path.expandvars(str(shared))) if shared else os.getcwd()
    with TemporaryDirectory(prefix=".cagp-", dir=place) as folder:
        cluster = cluster_class(
            cores=threads,
            processes=1,
            memory=f"{memory_limit_bytes // 2**20}MiB",
            security=None if insecure else _security(Path(folder)),
            worker_extra_args=worker_arguments(settings, BATCH_SYSTEMS[name].unit_seconds),
            # a folder of others in a shared /tmp could be exchanged, and what is read from it is unpickled
            local_directory='"$CAGP_SPILL"',
            job_script_prologue=[
                *(f"export {variable}=1" for variable in THREADS),
                *(settings.get("job-script-prologue") or ()),
                *spill_folder(settings.get("local-directory") or "${TMPDIR:-/tmp}"),
            ],
            scheduler_options={
                "dashboard_address": "127.0.0.1:0",
                **(settings.get("scheduler-options") or {}),
            },
        )
        try:
            with dask.config.set({"distributed.deploy.lost-worker-timeout": REPLACE_SECONDS}):
                _submit(cluster, name, workers)
                # replaces those that end, as scale alone does not
                cluster.adapt(minimum_jobs=workers, maximum_jobs=workers)
                yield cluster
        finally:
            with suppress(AssertionError):  # that of Dask about jobs that were not taken
                cluster.close()


def _submit(cluster: "JobQueueCluster", name: str, workers: int) -> None:
    async def submit() -> None:
        cluster.scale(jobs=workers)
        await cluster._correct_state()  # else nobody would hear of its errors

    try:
        cluster.sync(submit)
    except RuntimeError as error:
        raise ClusterError(
            f"{BATCH_SYSTEMS[name].title} did not take the worker jobs: {str(error).strip()}\nQueue, account "
            f"and walltime come from jobqueue.{name} of the Dask configuration.",
            key="job-refused",
        ) from error


def wait_for_jobs(client: "Client", name: str, workers: int, deadlines: Deadlines) -> None:
    """Wait until worker jobs have begun, saying so now and then; after a while any of them is enough.

    The others join as they come, and take tasks.
    """
    system, here, began = BATCH_SYSTEMS[name], 0, time.monotonic()

    def say(waited: float) -> None:
        _log.warning(
            "waiting for worker jobs of %s: %d of %d have begun after %.0f s of at most %.0f s; `%s` shows "
            "them",
            *(system.title, here, workers, waited, deadlines.queue_seconds, system.queue),
        )

    for _ in deadlines.looks(deadlines.queue_seconds, say):
        if (here := len(client.scheduler_info(n_workers=-1)["workers"])) >= workers:
            return
        if here and time.monotonic() - began >= deadlines.start_after_seconds:
            break
    if here == 0:
        raise ClusterError(
            f"none of {counted(workers, 'worker job')} of {system.title} began within "
            f"{deadlines.queue_seconds:g} s. `{system.queue}` shows those that wait; of others the logs "
            "say why they ended. Ask for another queue or a shorter walltime in the Dask configuration "
            f"(jobqueue.{name}), or wait longer: [runtime] queue_seconds.",
            key="no-workers",
        )
    text = "work begins on %d of %d worker jobs of %s; the others join as they begin"
    _log.warning(text, here, workers, system.title)


def worker_arguments(settings: dict[str, object], unit_seconds: int) -> list[str]:
    """Give the options of a worker: ready when it begins, gone before its walltime is over, no dashboard."""
    configured = settings.get("worker-extra-args") or []
    assert isinstance(configured, list)
    given = ["--preload", PRELOAD, "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    given += map(str, configured)
    walltime = walltime_seconds(str(settings.get("walltime")), unit_seconds)
    if walltime is None or "--lifetime" in given:
        return given
    lifetime, stagger = lifetime_seconds(walltime)
    return [*given, "--lifetime", f"{lifetime:.0f}s", "--lifetime-stagger", f"{stagger:.0f}s"]


def spill_folder(where: str) -> list[str]:
    """Give lines of shell that make a folder of its own for a worker, and remove it at the end.

    A worker holds a lock of its folder. Those without, of workers that were killed, are removed by the next
    worker of the same user on that host: locks of another one may not be seen here, and folders of another
    name have none.
    """
    return [
        'CAGP_SPILLS="cagp-spill-$(hostname -s)-"',
        f'CAGP_SPILL=$(mktemp -d "{where}/${{CAGP_SPILLS}}XXXXXXXX") || exit 1',
        'exec 9<"$CAGP_SPILL"; flock -s 9',
        f'find -H "{where}" -maxdepth 1 -type d -user "$(id -un)" -name "$CAGP_SPILLS????????" '
        f"-mmin +{UNLOCKED_MINUTES} "
        "-exec flock -n -x {} rm -rf {} ';' 2>/dev/null",
        """trap 'rm -rf "$CAGP_SPILL"' EXIT""",
    ]


def lifetime_seconds(walltime: float) -> tuple[float, float]:
    """Lifetime of a worker, over before its job is killed, and by how much it may differ from others."""
    stagger, farewell = min(walltime / 10, 600.0), min(walltime / 20, 300.0)
    return walltime - farewell - stagger, stagger


def walltime_seconds(text: str, unit_seconds: int) -> float | None:
    """Read a walltime; None if it has no end, or is written in a way that is not known."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        return None
    days, *clock = found.groups()
    numbers = [int(number) for number in clock if number is not None]
    if days is not None:
        units: tuple[int, ...] = (3600, 60, 1)
    else:
        units = {1: (unit_seconds,), 2: (60, 1), 3: (3600, 60, 1)}[len(numbers)]
    return float(86400 * int(days or 0) + sum(n * unit for n, unit in zip(numbers, units, strict=False)))


def _security(folder: Path) -> "Security":
    """Take the certificates of the Dask configuration, or make one."""
    import dask
    from distributed import Security

    if dask.config.get("distributed.comm.tls.ca-file"):
        return Security(require_encryption=True)
    certificate = str(make_certificates(folder))
    roles = ("scheduler", "worker", "client")
    files = {f"tls_{role}_{part}": certificate for role in roles for part in ("cert", "key")}
    return Security(require_encryption=True, tls_ca_file=certificate, **files)


def _cluster_class(name: str) -> "Callable[..., JobQueueCluster]":
    """Find the class of a batch system."""
    dask_jobqueue = from_extra("hpc", "dask_jobqueue", f'scheduler = "{name}"')
    found: Callable[..., JobQueueCluster] = getattr(dask_jobqueue, BATCH_SYSTEMS[name].cluster_class)
    return found
