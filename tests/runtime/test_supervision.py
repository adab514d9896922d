"""Clusters that are lost, frozen or idle: a result, or a named error by its deadline."""

import os
import signal
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster

import cagp_dist as cagp
from cagp_dist.errors import ClusterError, ClusterLostError, TimeLimitError
from cagp_dist.runtime import SerialExecutor, open_executor, supervision
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.runtime.spilling import Spilling, disk_of, free_bytes, spilling_of
from cagp_dist.runtime.supervision import Watch

from ..clusters import Processes
from ..oracle import assert_same_bits
from ..problems import regression_problem

pytestmark = pytest.mark.cluster

SOLVER = cagp.BlockGaussSeidel(6, 100)


def worker(*, status="running", seen=0.0, **counts):
    """What a scheduler says of a worker."""
    return {"status": status, "last_seen": seen, "metrics": {"task_counts": counts}}


class Stub:
    """A client whose scheduler says of its workers what a test says."""

    def __init__(self, workers):
        self.workers, self.status, self.dropped = dict(workers), "running", []
        self.scheduler = types.SimpleNamespace(address="tcp://stub", unregister="unregister")
        self.futures = {"a": types.SimpleNamespace(status="pending")}
        self.disks = {}

    def run(self, function, *, on_error, workers=(), gone=()):
        assert function == (supervision._cut_off if gone else spilling_of)
        assert on_error == "ignore"
        return {address: disk for address, disk in self.disks.items() if address in workers}

    def scheduler_info(self, n_workers):
        return {"workers": dict(self.workers)}

    def processing(self):
        return {}

    def sync(self, function, *, address, **_):
        assert function == "unregister"
        self.dropped.append(address)
        del self.workers[address]


class Clock:
    """Stands still but when it is told to go on."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def look_on(self, watch, *, seconds, step=0.05, before=lambda: None):
        """Look again and again, for so long; first do what happens at each look."""
        until = self.now + seconds
        while self.now < until:
            before()
            watch.look()
            self.now += step


@pytest.fixture
def clock(monkeypatch):
    """The clock by which a watch counts."""
    made = Clock()
    monkeypatch.setattr(supervision, "time", made)
    return made


@pytest.mark.parametrize(
    ("workers", "key"),
    [
        (
            {"a": worker(status="paused")},
            "workers-idle",
        ),
        ({"a": worker(), "b": worker()}, "workers-idle"),
        ({"a": worker(executing=1)}, "stalled"),
        ({"new": worker()}, "workers-lost"),
    ],
)
def test_a_cluster_that_makes_no_headway_is_an_error_that_says_why(workers, key, clock):
    watch = Watch(Stub(workers), Deadlines(idle_seconds=0.2, stall_seconds=0.4), ["a", "b"])
    with pytest.raises(ClusterLostError) as refusal:
        clock.look_on(watch, seconds=5.0)
    assert refusal.value.key == key
    assert clock.now < 0.5


FULL = Spilling("/spill/a", ("machine", "8:1", 0), free_bytes=2**20, due_bytes=5 * 2**20)


@pytest.mark.parametrize("then", ["paused", "lost"])
def test_a_full_disk_of_a_worker_is_an_error_that_names_its_folder(then, clock):
    """While it is paused, and also where it is lost for it later. Another attempt would fill it, too."""
    client = Stub({"a": worker(status="paused"), "b": worker()})
    client.disks = {"a": FULL, "b": FULL}
    watch = Watch(client, Deadlines(idle_seconds=0.2), ["a", "b"])
    watch.look()
    if then == "lost":
        client.workers.clear()
    text = (
        r"/spill/a on worker a has 1 MiB free, and 5 MiB are to be put there\. Free space .* Give the workers"
    )
    with pytest.raises(ClusterError, match=text) as caught:
        clock.look_on(watch, seconds=5.0)
    assert not isinstance(caught.value, ClusterLostError)
    assert "worker b" not in str(caught.value), "which is not paused"


def test_a_worker_that_goes_on_has_no_full_disk_any_more():
    client = Stub({"a": worker(status="paused")})
    client.disks = {"a": FULL}
    watch = Watch(client, Deadlines(), ["a"])
    watch.look()
    client.workers = {"a": worker(executing=1)}
    watch.look()
    client.workers = {}
    with pytest.raises(ClusterLostError) as refusal:
        watch.look()
    assert refusal.value.key == "workers-lost"


def test_a_worker_that_never_answers_is_asked_once_and_given_up(monkeypatch, clock):
    """Whatever it is asked hangs: it is asked anew only after 40.05 s, and the looks go on meanwhile."""
    monkeypatch.setattr(supervision, "ASK_SECONDS", 0.05)
    client, answers, asked = Stub({"a": worker(status="paused")}), threading.Event(), threading.Semaphore(0)
    client.disks = {"a": FULL}
    answer, calls = client.run, []
    watch = Watch(client, Deadlines(silence_seconds=20.0, idle_seconds=1e6), ["a"])

    def run(function, **settings):
        calls.append(clock.now)
        asked.release()
        assert answers.wait(60.0)
        return answer(function, **settings)

    def be_heard():
        client.workers["a"]["last_seen"] = clock.now

    monkeypatch.setattr(client, "run", run)
    clock.look_on(watch, seconds=120.0, step=1.0, before=be_heard)
    for _ in range(3):
        assert asked.acquire(timeout=30.0)
    assert calls == [0.0, 42.0, 84.0], "given up at the first look after 40.05 s, asked at the next"
    answers.set()
    assert supervision.has_ended(watch._question, 30.0)
    with pytest.raises(ClusterError) as refusal:
        clock.look_on(watch, seconds=1.0, before=be_heard)
    assert refusal.value.key == "worker-memory"


def test_a_disk_that_takes_what_is_due_is_not_full(clock):
    client = Stub({"a": worker(status="paused")})
    client.disks = {"a": Spilling("/spill/a", FULL.disk, free_bytes=5 * 2**20, due_bytes=5 * 2**20)}
    with pytest.raises(ClusterLostError) as refusal:
        clock.look_on(Watch(client, Deadlines(idle_seconds=0.2), ["a"]), seconds=5.0)
    assert refusal.value.key == "workers-idle"


def test_the_disk_of_several_workers_is_counted_once():
    assert free_bytes([FULL, Spilling("/spill/b", FULL.disk, 2**20, 0)]) == 2**20
    assert free_bytes([FULL, Spilling("/spill/a", ("other", "8:1", 0), 2**20, 0)]) == 2**21
    assert free_bytes([None, FULL, None]) == 2**20, "the others put nothing on a disk"


@pytest.mark.parametrize(
    ("mounted", "shared"),
    [
        ("nfs4 server:/export/scratch rw,vers=4.2", ("nfs4", "server:/export/scratch", 0)),
        ("lustre 10.0.0.1@tcp:10.0.0.2@tcp:/work rw", ("lustre", "10.0.0.1@tcp:10.0.0.2@tcp:/work", 0)),
        ("cifs //server/share rw", ("cifs", "//server/share", 0)),
        ("fuse.sshfs me@server:/data rw", ("fuse.sshfs", "me@server:/data", 0)),
        ("gpfs gpfs0 rw", ("gpfs", "gpfs0", 2**40)),
        ("ext4 /dev/vda1 rw", None),
        ("tmpfs tmpfs rw,size=1024k", None),
    ],
)
def test_a_disk_that_machines_share_is_one_and_their_own_are_not(mounted, shared):
    """Each machine has numbers of its own for devices; of one that no server names the capacity counts."""
    found = []
    for machine, device in (("here", os.makedev(0, 41)), ("there", os.makedev(0, 53))):
        at = f"{os.major(device)}:{os.minor(device)}"
        mounts = [
            "22 1 254:9 / / rw shared:1 - ext4 /dev/root rw",
            f"36 22 {at} /a /spill rw,noatime shared:2 master:1 - {mounted}",
        ]
        found.append(disk_of(device, mounts, machine=machine, total_bytes=2**40))
    assert found == ([shared, shared] if shared else [("here", "0:41", 0), ("there", "0:53", 0)])


def test_where_nothing_says_what_is_mounted_a_disk_is_that_of_its_machine():
    assert disk_of(os.makedev(8, 1), (), machine="here", total_bytes=2**40) == ("here", "8:1", 0)


@pytest.mark.parametrize(("spill", "counted"), [(False, 0), (0.7, 1)])
def test_a_worker_that_puts_nothing_on_its_disk_is_not_counted(spill, counted):
    settings = {"distributed.worker.memory.target": False, "distributed.worker.memory.spill": spill}
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, processes=False, dashboard_address=":0", memory_limit="2 GiB") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        found = client.run(spilling_of).values()
        assert sum(spilling is not None for spilling in found) == 2 * counted
        assert (DaskExecutor(client).spill_bytes > 0) == bool(counted)


def test_headway_is_fewer_tasks_that_wait_than_ever(clock):
    """A storm of kills makes tasks wait again and again, which is none."""
    client = Stub({"a": worker(executing=1)})
    watch = Watch(client, Deadlines(stall_seconds=0.3), ["a"])

    def count_down():
        for count in (5, 4, 3, 2, 1):
            client.futures = {key: types.SimpleNamespace(status="pending") for key in range(count)}
            watch.look()
            clock.now += 0.1

    count_down()
    with pytest.raises(ClusterLostError) as refusal:
        count_down()
    assert refusal.value.key == "stalled"


def test_a_worker_without_a_sign_of_life_loses_its_tasks_to_the_others(clock):
    client = Stub({"a": worker(executing=1), "b": worker(executing=1)})
    watch = Watch(client, Deadlines(silence_seconds=0.2), ["a", "b"])
    for beat in range(5):
        client.workers["b"]["last_seen"] = beat
        watch.look()
        clock.now += 0.1
    assert client.dropped == ["a"]


def test_the_others_have_time_to_begin_with_the_tasks_of_a_silent_worker(clock):
    client = Stub({"a": worker(), "b": worker()})
    watch = Watch(client, Deadlines(silence_seconds=0.3, idle_seconds=0.4), ["a", "b"])

    def be_heard():
        client.workers["b"]["last_seen"] = clock.now

    with pytest.raises(ClusterLostError) as refusal:
        clock.look_on(watch, seconds=20.0, step=0.02, before=be_heard)
    assert refusal.value.key == "workers-idle"
    assert client.dropped == ["a"]
    assert 0.7 < clock.now < 0.8, "0.4 s after the tasks were given to the other one"


def test_what_this_process_stood_still_is_no_silence(clock):
    """Stopped by its user, or with the whole machine, whose scheduler has heard of nobody meanwhile."""
    client = Stub({"a": worker(), "b": worker(executing=1)})
    deadlines = Deadlines(silence_seconds=60.0, idle_seconds=60.0, stall_seconds=100.0)
    watch = Watch(client, deadlines, ["a", "b"])

    def be_heard():
        client.workers["b"]["last_seen"] = clock.now

    clock.look_on(watch, seconds=50.0, step=1.0, before=be_heard)
    client.workers["b"] = worker(seen=clock.now - 1.0)  # between two tasks
    clock.now += 1000.0
    assert watch.look() == ["a", "b"]
    client.workers["b"] = worker(executing=1)
    clock.look_on(watch, seconds=8.0, step=1.0, before=be_heard)
    assert client.dropped == []
    clock.look_on(watch, seconds=6.0, step=1.0, before=be_heard)
    assert client.dropped == ["a"], "silent for 60 s while somebody looked"
    clock.now += 1000.0
    watch.begin()
    with pytest.raises(ClusterLostError) as refusal:
        clock.look_on(watch, seconds=102.0, step=1.0, before=be_heard)
    assert refusal.value.key == "stalled"


@pytest.mark.exhaustive
def test_a_pause_of_this_process_while_it_asks_is_no_silence_of_the_scheduler(monkeypatch, clock):
    client = Stub({"a": worker()})

    def scheduler_info(n_workers):
        clock.now += 1000.0
        time.sleep(2.0 * supervision.POLL_SECONDS)
        return {"workers": dict(client.workers)}

    monkeypatch.setattr(client, "scheduler_info", scheduler_info)
    assert Watch(client, Deadlines(), ["a"]).look() == ["a"]


def test_workers_that_are_replaced_one_after_the_other_are_no_lost_cluster():
    """As those of batch jobs with a limited lifetime are; all at once is another matter."""
    client = Stub({"a": worker(), "b": worker()})
    watch = Watch(client, Deadlines(), ["a", "b"])
    for workers in (["b", "c"], ["c", "d"]):
        client.workers = {address: worker() for address in workers}
        assert watch.look() == workers
    client.workers = {"e": worker()}
    assert watch.look() == ["e"], "it may be about to begin"
    with pytest.raises(ClusterLostError) as refusal:
        watch.look()
    assert refusal.value.key == "workers-lost"
    client.workers = {}
    with pytest.raises(ClusterLostError) as refusal:
        Watch(client, Deadlines(), ["a"]).look()
    assert refusal.value.key == "workers-lost"


def test_a_scheduler_that_does_not_answer_is_lost(monkeypatch):
    client, ended = Stub({"a": worker()}), threading.Event()
    monkeypatch.setattr(client, "scheduler_info", lambda n_workers: ended.wait(60.0))
    with pytest.raises(ClusterLostError) as refusal:
        Watch(client, Deadlines(silence_seconds=0.1), ["a"]).look()
    assert refusal.value.key == "no-scheduler"
    client.status = "connecting"
    with pytest.raises(ClusterLostError) as refusal:
        Watch(client, Deadlines(), ["a"]).look()
    assert refusal.value.key == "connection-lost"
    ended.set()


def test_the_time_of_a_whole_job_is_looked_at_whatever_the_cluster_does():
    watch = Watch(Stub({"a": worker(executing=1)}), Deadlines(total_seconds=0.01), ["a"])
    time.sleep(0.02)
    with pytest.raises(TimeLimitError) as refusal:
        watch.look()
    assert refusal.value.key == "time-limit"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "scheduler.json") as started:
        yield started


def signalled(processes: Processes, hit: Callable[[], None]):
    """The posterior of a solve after whose second iteration something is hit, and that of a serial one."""
    problem = regression_problem(900, q=60, lengthscale=0.1)

    def strike(progress):
        if progress.iteration == 2:
            hit()

    deadlines = Deadlines(silence_seconds=3.0, idle_seconds=5.0)
    with open_executor(processes.file, deadlines=deadlines) as executor:
        return problem.condition(SOLVER, executor=executor, progress=strike), problem.condition(
            SOLVER, executor=SerialExecutor()
        )


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_frozen_worker_costs_time_and_no_bit(processes):
    assert_same_bits(*signalled(processes, lambda: os.kill(processes.workers[0].pid, signal.SIGSTOP)))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("number", "key", "seconds"),
    [
        (signal.SIGKILL, "connection-lost", 5.0),
        (signal.SIGSTOP, "no-scheduler", 10.0),
    ],
)
def test_a_scheduler_that_is_killed_or_frozen_is_noticed(processes, number, key, seconds):
    """A broken connection at once, and not by its silence."""
    struck: list[float] = []

    def hit() -> None:
        struck.append(time.monotonic())
        os.kill(processes.scheduler.pid, number)

    with pytest.raises(ClusterLostError) as refusal:
        signalled(processes, hit)
    assert refusal.value.key == key
    assert time.monotonic() - struck[0] < seconds


@pytest.mark.slow
@pytest.mark.exhaustive
def test_workers_that_are_all_frozen_are_lost(processes):
    def hit() -> None:
        for process in processes.workers:
            os.kill(process.pid, signal.SIGSTOP)

    with pytest.raises(ClusterLostError) as refusal:
        signalled(processes, hit)
    assert refusal.value.key == "workers-lost"
