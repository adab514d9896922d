"""Tasks as futures of a Dask cluster. The only module that imports `distributed`."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, WeakSet

from cagp_dist.errors import ArgumentError, BudgetError, ClusterError, ClusterLostError, ConfigurationError
from cagp_dist.memory import PROCESS_BYTES, WORKER_JOB_BYTES, available_bytes
from cagp_dist.remedies import Remedy
from cagp_dist.runtime.batch_system import (
    BATCH_SYSTEMS,
    WORKER_JOBS,
    check_batch_system,
    wait_for_jobs,
    worker_jobs,
)
from cagp_dist.runtime.counting import array_bytes, count
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.runtime.executor import Handle, single_threaded_blas
from cagp_dist.runtime.spilling import Spilling, free_bytes, spilling_of
from cagp_dist.runtime.supervision import Watch, call_in_thread, connection_broke, has_ended, within
from cagp_dist.text import bytes_text, counted
from cagp_dist.versions import version

if TYPE_CHECKING:
    from distributed import Client, Future, Worker

T = TypeVar("T")

_log = logging.getLogger(__name__)

CONNECT_SECONDS = 20  # how long to wait for a scheduler to answer
ANSWER_SECONDS = 60  # to wait for what workers say of themselves: they import the package for it

SETTLE_SECONDS = 0.5  # how long no further worker must join before work begins
WATCH_SECONDS = 1.0  # to wait for results before looking whether somebody still computes them
CLOSE_SECONDS = 5.0  # how long to wait until a scheduler takes leave


NUMERICAL = ("numpy", "scipy", "numba")
"""Packages of whose versions the last digits of results depend."""

SMALL_WORKER_BYTES = 2**29
"""What a worker should have at least: half of it is left for data."""

NO_PACKAGE = "No module named 'cagp_dist'"

PLANNED_SIZE = {"distributed.admin.large-graph-warning-threshold": "1 GiB"}
"""Of the arguments of a task: they are planned, and travel with it so that it can be done again."""

# Only one thread at a time sets that: each gives back what it found, which must not be what another one set
_submitting = threading.Lock()

# Bytes that workers may put on disks, of those whose versions were found to be right: a client is asked once
_found: "WeakKeyDictionary[Client, dict[str, Spilling | None]]" = WeakKeyDictionary()


class DaskExecutor:
    """Runs tasks on the workers of a Dask client; use as a context manager.

    Nothing is scattered: arrays travel inside tasks or as results of tasks, so whatever a dead worker
    held can be computed again. ``home`` is a wish, not an order: a task moves when its worker is gone.
    At the end, whatever the reason, all that was submitted is released, and the cluster stops computing it.
    """

    shares_memory = False

    def __init__(self, client: "Client", deadlines: Deadlines | None = None) -> None:
        _check_open(client)
        deadlines = deadlines or Deadlines()
        self._client, self._sent_bytes = client, dict[str, int]()
        # a task whose result is held: a cluster that follows its work starts a worker for it, and keeps one
        self._held = client.submit(int, pure=False)
        self._submitted: WeakSet[Future[Any]] = WeakSet([self._held])
        try:
            info = _checked_workers(client, deadlines)
        except BaseException:
            self.__exit__()
            raise
        workers, address = info["workers"], info["address"]
        self._addresses: list[str] = sorted(workers)
        self._watch = Watch(client, deadlines, self._addresses)
        # a cluster that follows its work is planned for at its largest, and grows only with tasks for more
        self.processes = max(len(workers), _most_workers(client))
        more = self.processes / len(workers)
        limits = [worker["memory_limit"] or available_bytes() for worker in workers.values()]
        self.memory_bytes = int(more * sum(map(_usable_bytes, limits)))
        if not self.memory_bytes:
            self.__exit__()
            raise BudgetError(
                f"a worker of {address} may take {bytes_text(max(limits))}, and its process takes "
                f"{bytes_text(PROCESS_BYTES)} before any data. Give workers {bytes_text(SMALL_WORKER_BYTES)} "
                "or more: memory_limit of a cluster, --memory-limit of dask worker.",
                key="small-workers",
            )
        self.spill_bytes = free_bytes([disk for worker, disk in _found[client].items() if worker in workers])
        threads = sum(worker["nthreads"] for worker in workers.values())
        self.workers = int(more * threads)
        self.description = (
            f"Dask cluster {address}, {counted(len(workers), 'worker')}, {counted(threads, 'thread')}"
        )
        if more > 1:
            self.description += f", up to {counted(self.processes, 'worker')}"
        self.dashboard: str | None = _dashboard(client, address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for future in list(self._submitted):
            future.release()

    def part(self) -> Self:
        """Give the same executor for a part of the work, at whose end what was submitted for it goes."""
        found = copy(self)
        found._submitted = WeakSet()
        return found

    def submit(
        self, function: Callable[..., T], *arguments: object, priority: int = 0, home: int = 0
    ) -> Handle[T]:
        """Send ``function`` to the cluster; see `cagp_dist.runtime.executor.Executor.submit`."""
        import dask.config
        from distributed.client import ClosedClientError

        count(tasks=1, moved_bytes=array_bytes(arguments))
        try:
            with _submitting, dask.config.set(PLANNED_SIZE):
                future = self._client.submit(
                    _run,
                    version("cagp-dist"),
                    function,
                    *arguments,
                    pure=False,
                    key=None,
                    priority=priority,
                    workers=[self._address(home)],
                    allow_other_workers=True,
                )
        except ClosedClientError as error:
            raise connection_broke(error) from error
        self._submitted.add(future)
        return cast("Handle[T]", future)

    def sent_bytes(self) -> int:
        """Bytes that the workers have sent since they were started; of lost ones, when last asked."""
        with suppress(Exception):  # a count is worth no result, and a client that is closed raises many kinds
            found = within(CONNECT_SECONDS, lambda: self._client.run(_sent_bytes, on_error="ignore"))
            self._sent_bytes |= found
        return sum(self._sent_bytes.values())

    def _address(self, home: int) -> str:
        """Go through the workers there and back: work that falls or grows with ``home`` is shared evenly."""
        turn, place = divmod(home, len(self._addresses))
        return self._addresses[place if turn % 2 == 0 else -1 - place]

    def _replace_lost(self, workers: list[str]) -> None:
        """Let new workers have the places of lost ones, or of their own, so that all get their share."""
        new = [address for address in workers if address not in self._addresses]
        for place, address in enumerate(self._addresses):
            if address not in workers and new:
                self._addresses[place] = new.pop(0)
        self._addresses += new

    def gather(self, handles: Sequence[Handle[T]]) -> list[T]:
        """Fetch the values, in order, as long as somebody computes them."""
        from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        futures = list(handles)
        try:
            call = call_in_thread(lambda: cast("list[T]", self._client.gather(futures)))
            self._watch.begin()
            while not has_ended(call, WATCH_SECONDS):
                self._replace_lost(self._watch.look())
            return call.result()
        except KilledWorker as error:
            self._watch.check_disks()
            raise ClusterLostError(
                f"a task was lost with several workers in a row: {str(error).rstrip('.')}. Workers probably "
                "run out of memory.",
                remedies=(Remedy.LARGER_WORKERS, Remedy.SMALLER_BLOCKS),
                key="task-lost",
            ) from error
        except (FutureCancelledError, FuturesCancelledError, CommClosedError, ClosedClientError) as error:
            raise connection_broke(error) from error
        except Exception as error:
            _name_missing(error)
            raise


@contextmanager
def executor_of(given: Any, deadlines: Deadlines | None = None) -> Iterator[DaskExecutor]:
    """Give the executor of a Dask client, or of a cluster of any library, which stays open."""
    from distributed import Client

    _check_open(given)
    with ExitStack() as stack:
        if not isinstance(given, Client):
            opened = Client(given, timeout=CONNECT_SECONDS, set_as_default=False)
            given = stack.enter_context(_closing(opened))
        yield stack.enter_context(DaskExecutor(given, deadlines))


def _check_open(given: Any) -> None:
    """Refuse a client or cluster that answers later, or not at all."""
    kind, status = type(given).__name__, str(getattr(given.status, "name", given.status))
    if status in ("closed", "closing", "failed"):
        raise ArgumentError(
            f"executor is a {kind} that was closed; expected an open one.", key="executor-closed"
        )
    if given.asynchronous:
        raise ArgumentError(
            f"executor is an asynchronous {kind}, whose calls are to be awaited; expected one without "
            "asynchronous=True, used outside of the event loop.",
            key="executor-asynchronous",
        )


def _checked_workers(client: "Client", deadlines: Deadlines) -> dict[str, Any]:
    """Say who is there; of workers that this client has not asked before, make sure that they can work."""
    info = _wait_for_worker(client, deadlines)
    if not info["workers"].keys() <= _found.get(client, {}).keys():
        _check_versions(client)
        _found[client] = _asked(client, lambda: client.run(spilling_of))
    return info


def _wait_for_worker(client: "Client", deadlines: Deadlines) -> dict[str, Any]:
    """Wait for the first worker, and for those that come with it; say who is there."""
    cluster, known = client.cluster, 0
    address = client.scheduler_info(n_workers=0)["address"]
    queued = type(cluster).__module__.startswith("dask_jobqueue")
    # a cluster of this process knows whether it has asked for any
    if getattr(cluster, "worker_spec", None) == {} and getattr(cluster, "_adaptive", None) is None:
        most = 0.0
    else:
        most = deadlines.queue_seconds if queued else deadlines.worker_seconds

    def say(waited: float) -> None:
        _log.warning(
            "the Dask cluster at %s has no worker yet, after %.0f s of at most %.0f s", address, waited, most
        )

    for looked, _ in enumerate(deadlines.looks(most, say)):
        info = cast("dict[str, Any]", client.scheduler_info(n_workers=-1))
        found = len(info["workers"])
        if found and (looked == 0 or found == known):
            return info
        known = found
    if known:
        return info
    raise ClusterError(
        f"the Dask cluster at {address} has no workers after {most:g} s; start some with `dask worker`, "
        "cluster.scale(2) or cluster.adapt(maximum=2), or wait longer: [runtime] "
        f"{'queue_seconds' if queued else 'worker_seconds'} of a job. If they were asked for, the logs of "
        "the batch system or of the workers say why they did not come.",
        key="no-workers",
    )


def _most_workers(client: "Client") -> int:
    """Count the workers that a cluster may come to have, where it follows its work and that is known."""
    adaptive = getattr(client.cluster, "_adaptive", None)
    most = getattr(adaptive, "maximum", 0)
    return int(most) if getattr(adaptive, "minimum", 0) < most < float("inf") else 0


def _usable_bytes(limit: int) -> int:
    """Bytes that a worker takes: Dask spills results above 60 % of its limit, and pauses it at 80 %."""
    return max(0, min(limit * 6 // 10, limit * 8 // 10 - PROCESS_BYTES))


def _check_versions(client: "Client") -> None:
    """Raise `ClusterError` unless all workers have this version of the package."""
    packages = ["cagp-dist", *NUMERICAL]
    found = _asked(client, lambda: cast("dict[str, Any]", client.get_versions(packages=packages)))
    here = found["client"]["packages"]
    others = {"scheduler": found["scheduler"], **found["workers"]}
    of_package = {name: each["packages"]["cagp-dist"] for name, each in others.items()}
    if missing := [name for name, there in of_package.items() if there is None]:
        raise _package_missing(", ".join(missing))
    if wrong := {name: there for name, there in of_package.items() if there != here["cagp-dist"]}:
        raise ClusterError(
            f"{wrong} have versions of cagp-dist other than {here['cagp-dist']}, the version here. Install "
            "the same version everywhere; otherwise results would depend on which worker computed what.",
            key="versions-differ",
        )
    for name in NUMERICAL:
        if there := {each["packages"][name] for each in found["workers"].values()} - {here[name]}:
            _log.warning(
                "workers have %s %s, and here it is %s: last digits may depend on who computes them",
                *(name, ", ".join(map(str, there)), here[name]),
            )


def _package_missing(who: str) -> ClusterError:
    return ClusterError(
        f"{who} cannot import cagp_dist. Scheduler and workers need it where they run: install version "
        f"{version('cagp-dist')} there, the version here, or have them started by this Python "
        "(dask-jobqueue: python=sys.executable; dask-gateway: another image or environment).",
        key="not-installed",
    )


def _name_missing(error: Exception) -> None:
    """Raise `ClusterError` where it is the package that is missing, of which Dask gives a text alone."""
    if NO_PACKAGE in f"{error} {error.__cause__}":
        raise _package_missing("the scheduler or a worker") from error


def _asked(client: "Client", ask: Callable[[], T]) -> T:
    """Ask all workers, once more where one has left meanwhile; `ClusterLostError` if one does not answer."""
    while True:
        asked = client.scheduler_info(n_workers=-1)["workers"].keys()
        try:
            return within(ANSWER_SECONDS, ask)
        except (TimeoutError, OSError) as error:
            if asked <= client.scheduler_info(n_workers=-1)["workers"].keys():
                raise ClusterLostError(
                    f"a worker of the Dask cluster does not answer ({error}); stop it, or start it again.",
                    key="worker-silent",
                ) from error
        except Exception as error:
            _name_missing(error)
            raise


def _sent_bytes(dask_worker: "Worker") -> int:
    """Count the bytes that a worker has sent; called on it."""
    return int(dask_worker.transfer_outgoing_bytes_total)


def _run(asked: str, function: Callable[..., T], *arguments: object) -> T:
    """Call a function for one who has this version: workers may have joined after all were checked."""
    if asked != (here := version("cagp-dist")):
        raise ClusterError(
            f"a worker that has joined since has version {here} of cagp-dist, and the caller has {asked}. "
            "Install the same version everywhere; otherwise results would depend on which worker computed "
            "what.",
            key="versions-differ",
        )
    with single_threaded_blas():
        return function(*arguments)


@contextmanager
def connect(
    scheduler: str,
    *,
    workers: int | None = None,
    threads: int = 1,
    memory_limit_bytes: int | None = None,
    deadlines: Deadlines | None = None,
    insecure: bool = False,
) -> Iterator[DaskExecutor]:
    """Connect to a cluster by address or scheduler file, or start one through SLURM or PBS.

    Beyond this machine connections are encrypted, with certificates of the Dask configuration or new ones.
    """
    from distributed import Client

    with ExitStack() as stack:
        if scheduler in BATCH_SYSTEMS:
            jobs = WORKER_JOBS if workers is None else workers
            memory = memory_limit_bytes or WORKER_JOB_BYTES
            cluster = stack.enter_context(
                worker_jobs(
                    scheduler, workers=jobs, threads=threads, memory_limit_bytes=memory, insecure=insecure
                )
            )
            client = stack.enter_context(_closing(Client(cluster, set_as_default=False)))
            wait_for_jobs(client, scheduler, jobs, deadlines or Deadlines())
        else:
            client = stack.enter_context(_closing(_client(scheduler, insecure)))
        known = 0  # until no more workers join: work is split for those that are there at the begin
        while (found := len(client.scheduler_info(n_workers=-1)["workers"])) > known:
            known = found
            time.sleep(SETTLE_SECONDS)
        yield stack.enter_context(DaskExecutor(client, deadlines))


def check_cluster(scheduler: str, insecure: bool = False) -> None:
    """Make sure that a cluster can be had, before any other work: its workers may still be starting."""
    if scheduler in BATCH_SYSTEMS:
        check_batch_system(scheduler)
    else:
        with _closing(_client(scheduler, insecure)):
            pass


@contextmanager
def _closing(client: "Client") -> "Iterator[Client]":
    """Close a client at the end, also where its scheduler does not answer any more."""
    try:
        yield client
    finally:
        with suppress(TimeoutError, OSError):
            client.close(timeout=CLOSE_SECONDS)


def _client(scheduler: str, insecure: bool) -> "Client":
    """Connect to a scheduler that answers, whether it has workers or not."""
    from distributed import Client

    address = _address_in(Path(scheduler)) if scheduler.endswith(".json") else scheduler
    _check_encryption(address, insecure)
    try:
        _greet(address)
        return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {scheduler} ({error}). Check that `dask scheduler` runs there and "
            "that its port is open.",
            key="no-scheduler",
        ) from error


def _check_encryption(address: str, insecure: bool) -> None:
    """Raise `ConfigurationError` where plain TCP leaves this machine, or there is no certificate to show."""
    from distributed import Security

    protocol = address.partition("://")[0]
    if protocol == "tcp" and not insecure and not on_loopback(address):
        raise ConfigurationError(
            f"connections to {address} are not encrypted and leave this machine: others may read the data, "
            "and anyone who reaches that port can run programs as its owner. Start scheduler and workers "
            "with "
            "certificates (`cagp certificates DIR` makes them) and write tls:// here; or, on a network "
            "where you trust everybody, use --insecure.",
            key="not-encrypted",
        )
    if protocol == "tcp" and Security().require_encryption:
        raise ConfigurationError(
            "the Dask configuration requires encryption (distributed.comm.require-encryption), which "
            f"{address} has not; write tls:// where scheduler and workers have certificates.",
            key="not-encrypted",
        )
    if protocol == "tls" and Security().get_connection_args("client")["ssl_context"] is None:
        raise ConfigurationError(
            f"{address} asks for a certificate and the Dask configuration names none; expected ca-file and "
            "client.cert in distributed.comm.tls. `cagp certificates DIR` writes DIR/dask.yaml for scheduler "
            "and workers; set DASK_CONFIG to that file here as well.",
            key="certificate",
        )


def on_loopback(address: str) -> bool:
    """Whether an address such as ``tcp://127.0.0.1:8786`` can be reached from its own machine alone."""
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _dashboard(client: "Client", address: str) -> str | None:
    """Say where the dashboard is; that of another machine is on its loopback, at the end of a tunnel."""
    link: str | None = client.dashboard_link
    if link is None or address.startswith("inproc://") or on_loopback(address):
        return link
    there = urlsplit(link)
    return (
        f"http://127.0.0.1:{there.port}{there.path} after `ssh -N -L {there.port}:127.0.0.1:{there.port} "
        f"{there.hostname}`"
    )


def _greet(address: str) -> None:
    """Raise `TimeoutError` or `OSError` unless Dask answers in time; a client waits longer, and logs more."""
    from distributed import Security
    from distributed.comm.core import connect as connection

    async def greet() -> None:
        credentials = Security().get_connection_args("client")
        comm = await asyncio.wait_for(
            connection(address, timeout=CONNECT_SECONDS, **credentials), CONNECT_SECONDS + 0.5
        )
        comm.abort()

    # in a thread of its own, which has no event loop yet
    try:
        within(CONNECT_SECONDS + 1.0, lambda: asyncio.run(greet()))
    except TimeoutError as error:
        raise TimeoutError(f"nothing was said within {CONNECT_SECONDS} s") from error


def _address_in(scheduler_file: Path) -> str:
    """Address that a scheduler left in its file; waits where it is still being written."""
    if not scheduler_file.is_file():
        raise ClusterError(
            f"scheduler file {scheduler_file} does not exist. Check that `dask scheduler --scheduler-file` "
            "runs and that this machine sees its folder.",
            key="no-scheduler-file",
        )
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return str(json.loads(scheduler_file.read_text())["address"])
        except (ValueError, KeyError, TypeError) as error:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"scheduler file {scheduler_file} names no scheduler ({error!r}); expected what "
                    "`dask scheduler --scheduler-file` writes. Delete it and start the scheduler again.",
                    key="no-scheduler-file",
                ) from error
        time.sleep(0.1)
