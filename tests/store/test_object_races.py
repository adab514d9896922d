"""Publication and removal in an object store at the same time, request by request.

A publisher and a remover make their requests one at a time, in every order of which the first makes some, the
other one some, the first the rest and the other one the rest.
"""

import logging
import threading
from datetime import timedelta

import pytest

from cagp_dist.errors import BusyError, CagpError
from cagp_dist.store import bucket as bucket_module
from cagp_dist.store import manifest, marks, object_removal
from cagp_dist.store import objects as objects_module
from cagp_dist.store.bucket import Bucket
from cagp_dist.store.marks import manifest_of, upload_in
from cagp_dist.store.object_removal import prune_objects
from cagp_dist.store.objects import PublishedObjects
from cagp_dist.store.retention import Retention

from . import publisher
from .memory_server import Connection, MemoryServer, Turns

ADDRESS = "s3://maps/daily"
KEYS = [publisher.key_of(index) for index in range(4)]
OLD, NEW = KEYS[0], KEYS[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An output folder with four runs."""
    root = tmp_path_factory.mktemp("races")
    for index in range(4):
        publisher.publish_index(root, index)
    return root


@pytest.fixture
def connect(monkeypatch):
    """Buckets that are opened next speak to a server by this connection."""
    monkeypatch.setattr(bucket_module, "PARALLEL", 1)
    monkeypatch.setattr(marks, "_PATIENCE_SECONDS", 0.0)
    opened = {}
    monkeypatch.setattr(bucket_module, "_connection", lambda address: opened["now"])

    def connected(connection, what=Bucket):
        opened["now"] = connection
        return what(ADDRESS)

    return connected


@pytest.fixture
def published(connect, folder):
    """A server with three runs, of which the last one is current."""
    server = MemoryServer()
    objects = connect(Connection(server), PublishedObjects)
    for key in KEYS[:3]:
        objects.commit(folder / "runs" / f"{key}.zarr", folder)
    return server


def _whole(server) -> str:
    """The current run, which must be whole."""
    there = {name.removeprefix("daily/"): data for name, (data, _) in server.objects.items()}
    key = there["CURRENT"].decode().strip()
    assert manifest_of(key) in there, "CURRENT names a run that was removed"
    text = there[manifest_of(key)]
    upload = upload_in(text)
    stored = {name.removeprefix(f"runs/{upload}/") for name in there if name.startswith(f"runs/{upload}/")}
    assert stored == manifest.parse(text, name=upload, where="").keys(), "CURRENT names a run that has gaps"
    return key


def _race(server, connect, folder, key, turns):
    """Publish a run while others are pruned; the error of each, their requests, and what was ever broken."""
    raised, broken = dict[str, CagpError](), []

    def connection(who):
        def after():
            try:
                _whole(server)
            except AssertionError as error:
                broken.append(error)
            turns.done(who)

        return Connection(server, lambda: turns.wait(who), after)

    def work(who, doing):
        with turns.thread(who):
            try:
                doing()
            except CagpError as error:
                raised[who] = error

    connections = {who: connection(who) for who in ("publisher", "remover")}
    objects = connect(connections["publisher"], PublishedObjects)
    bucket = connect(connections["remover"])
    run = folder / "runs" / f"{key}.zarr"
    threads = [
        threading.Thread(target=work, args=("publisher", lambda: objects.commit(run, folder))),
        threading.Thread(target=work, args=("remover", lambda: prune_objects(bucket, Retention(runs=1)))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised, {who: connection.requests for who, connection in connections.items()}, broken


def _orders(first, race):
    """Run a race in all orders; ``race`` gives the requests that each made."""
    second = {"publisher": "remover", "remover": "publisher"}[first]
    i, mine = 0, 1
    while i <= mine:
        j, others = 1, 1
        while j <= others:
            made = race(Turns(first, second, i, j))
            mine, others, j = made[first], made[second], j + 1
        i += 1


EXHAUSTIVE = pytest.mark.exhaustive


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("first", "conditional", "key", "damaged"),
    [
        ("publisher", False, OLD, False),
        pytest.param("remover", True, OLD, False, marks=EXHAUSTIVE),
        pytest.param("publisher", True, OLD, True, marks=EXHAUSTIVE),
        pytest.param("remover", True, OLD, True, marks=EXHAUSTIVE),
        pytest.param("publisher", True, NEW, False, marks=EXHAUSTIVE),
        pytest.param("remover", True, NEW, False, marks=EXHAUSTIVE),
    ],
)
def test_current_names_a_whole_run_at_every_moment(
    published, connect, folder, first, conditional, key, damaged, caplog
):
    caplog.set_level(logging.ERROR)
    if damaged:
        del published.objects[
            next(name for name in published.objects if key in name and name.endswith("zarr.json"))
        ]
    ended = []

    def race(turns):
        server = published.copy(conditional=conditional)
        raised, made, broken = _race(server, connect, folder, key, turns)
        assert not broken
        assert all(type(error) is BusyError for error in raised.values())
        assert "remover" not in raised
        assert "publisher" in raised or _whole(server) == key
        ended.append("publisher" in raised)
        assert not any(marks.is_mark(name.rpartition("/")[2]) for name in server.objects)
        return made

    _orders(first, race)
    assert {True, False} <= set(ended) or key == NEW


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", ["publisher", "remover"])
@pytest.mark.parametrize("key", [OLD, NEW])
def test_those_who_were_taken_for_dead_mend_what_they_did(
    published, connect, folder, first, key, caplog, monkeypatch
):
    """Each takes the marks of the other one for those of a dead process, at once."""
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr(marks, "ABANDONED", timedelta(seconds=-1000))
    for module in (objects_module, object_removal):  # for these a day has not passed
        monkeypatch.setattr(module, "remove_abandoned", lambda bucket: [])
    ever_broken = []

    def race(turns):
        server = published.copy()
        raised, made, broken = _race(server, connect, folder, key, turns)
        assert "remover" not in raised
        assert _whole(server) == key or "publisher" in raised
        ever_broken.append(bool(broken))
        return made

    _orders(first, race)
    assert any(ever_broken) == (key == OLD)
