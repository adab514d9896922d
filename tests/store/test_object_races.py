"""Publication and removal in an object store at the same time, request by request.

Two processes make their requests one at a time, in every order of which the first makes some, the other one
some, the first the rest and the other one the rest.
"""

import logging
import shutil
import threading
from datetime import timedelta

import pytest

from cagp_dist.errors import CagpError
from cagp_dist.store import bucket as bucket_module
from cagp_dist.store import manifest, uploads
from cagp_dist.store.bucket import Bucket
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
    monkeypatch.setattr(uploads, "MARGIN", timedelta(0))
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
    """Key of the current run, which must be whole."""
    there = {name.removeprefix("daily/"): data for name, (data, _) in server.objects.items()}
    upload = there["CURRENT"].decode().strip()
    assert f"runs/{upload}.sha256" in there, "CURRENT names a run that was removed"
    text, folder = there[f"runs/{upload}.sha256"], f"{upload}.zarr"
    stored = {name.removeprefix(f"runs/{folder}/") for name in there if name.startswith(f"runs/{folder}/")}
    assert stored == manifest.parse(text, name=folder, where="").keys(), "CURRENT names a run that has gaps"
    return upload.partition("-")[0]


def _race(server, connect, works, turns):
    """Do the two works at the same time; gives the requests of each. ``CURRENT`` is looked at after each."""
    failed = []

    def connection(who):
        def after():
            try:
                _whole(server)
            except AssertionError as error:
                failed.append(error)
            turns.done(who)

        return Connection(server, lambda: turns.wait(who), after)

    def work(who, doing, opened):
        with turns.thread(who):
            try:
                doing(opened)
            except CagpError as error:
                failed.append(error)

    connections = {who: connection(who) for who in works}
    opened = {who: connect(connections[who], PublishedObjects) for who in works}
    threads = [threading.Thread(target=work, args=(who, works[who], opened[who])) for who in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    return {who: connection.requests for who, connection in connections.items()}


def _orders(first, second, race):
    """Run a race in all orders; ``race`` gives the requests that each made."""
    i, mine = 0, 1
    while i <= mine:
        j, others = 1, 1
        while j <= others:
            made = race(Turns(first, second, i, j))
            mine, others, j = made[first], made[second], j + 1
        i += 1


def _publishing(folder, key):
    return lambda objects: objects.commit(folder / "runs" / f"{key}.zarr", folder)


def _removing(objects):
    prune_objects(objects.bucket, Retention(total=1))  # all that may go


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", ["publisher", "remover"])
@pytest.mark.parametrize(("key", "damaged"), [(OLD, False), (OLD, True), (NEW, False), (KEYS[2], False)])
def test_current_names_a_whole_run_while_others_are_removed(
    published, connect, folder, first, key, damaged, caplog
):
    caplog.set_level(logging.ERROR)
    if damaged:
        del published.objects[
            next(name for name in published.objects if key in name and name.endswith("zarr.json"))
        ]
    works = {"publisher": _publishing(folder, key), "remover": _removing}

    def race(turns):
        server = published.copy()
        made = _race(server, connect, works, turns)
        assert _whole(server) == key
        return made

    _orders(first, *({"publisher", "remover"} - {first}), race)


@pytest.mark.exhaustive
@pytest.mark.parametrize("others", [KEYS[1], NEW])
def test_of_two_publishers_one_is_current_and_both_are_published(
    published, connect, folder, others, caplog, tmp_path
):
    """Of the same run one upload is left."""
    caplog.set_level(logging.ERROR)
    shutil.copytree(folder, tmp_path / "other")  # of another machine
    works = {"one": _publishing(folder, NEW), "other": _publishing(tmp_path / "other", others)}

    def race(turns):
        server = published.copy()
        made = _race(server, connect, works, turns)
        assert _whole(server) in {NEW, others}
        objects = connect(Connection(server), PublishedObjects)
        assert set(objects.runs()) == {*KEYS[:3], NEW}
        for key in KEYS:
            assert objects.metadata(key, group="observations") is not None
        if others == NEW:
            assert len(uploads.published_uploads(objects.bucket, NEW)) == 1
        return made

    _orders("one", "other", race)
