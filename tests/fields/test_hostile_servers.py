"""Zarr stores over HTTP: servers that never end, lie about lengths or send their readers elsewhere."""

import asyncio
import gzip
import json
import re
import threading
import time
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import xarray as xr
from yarl import URL

from cagp_dist.errors import DataError, StoreError
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.stores.remote import open_zarr
from cagp_dist.store import web
from cagp_dist.store.zarr_arrays import content_sha256

from ..bombs import GIB, read_all


def field():
    values = 280.0 + np.arange(48, dtype="f4").reshape(2, 4, 6)
    return xr.Dataset(
        {"t2m": (("time", "latitude", "longitude"), values, {"units": "K"})},
        coords={
            "time": np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]"),
            "latitude": [-60.0, -20.0, 20.0, 60.0],
            "longitude": np.arange(0.0, 360.0, 60.0),
        },
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web")
    field().to_zarr(folder / "x.zarr", zarr_format=2, consolidated=True)
    return folder


@contextmanager
def serving(folder, answer=lambda handler, path, body: False):
    """Serve a folder at loopback; ``answer`` may answer instead. Gives the address and what was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *message):
            pass

        def do_GET(self):
            asked.append((self.path, dict(self.headers)))
            path = folder / self.path.lstrip("/")
            body = path.read_bytes() if path.is_file() else None
            try:
                if answer(self, self.path, body):
                    return
                self.send(404 if body is None else 200, body or b"", {})
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        do_HEAD = do_GET  # noqa: N815

        def send(self, code, body, headers):
            self.send_response(code)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def is_chunk(path):
    return "/t2m/" in path and not path.rpartition("/")[2].startswith(".")


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(web, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(web, "GRACE_SECONDS", 0.5)
    web._limits.cache_clear()
    yield
    web._limits.cache_clear()


def test_a_redirect_within_a_server_is_followed(store):
    def answer(handler, path, body):
        if path.startswith("/old"):
            handler.send(302, b"", {"Location": "/x.zarr" + path.removeprefix("/old.zarr")})
            return True
        return False

    with serving(store, answer) as (address, _):
        assert content_sha256(open_zarr(f"{address}/old.zarr")) == content_sha256(field())


@pytest.mark.parametrize("credentials", ["", "me:s3cret@"])
def test_a_redirect_to_another_server_is_refused_and_shows_it_nothing(store, credentials):
    with serving(store) as (elsewhere, seen):

        def answer(handler, path, body):
            handler.send(302, b"", {"Location": elsewhere + path})
            return True

        with serving(store, answer) as (address, asked), pytest.raises(DataError) as told:
            open_zarr(f"{address.replace('//', '//' + credentials)}/x.zarr")
    assert re.search(
        rf"127\.0\.0\.1 answers that the data is at {elsewhere}; another server is", str(told.value)
    )
    assert "s3cret" not in str(told.value)
    assert seen == []
    assert bool(credentials) == any("Authorization" in headers for _, headers in asked)


def redirect(start, to):
    class Request:
        url = URL(start)

        class response:  # noqa: N801
            headers = {"Location": to}  # noqa: RUF012

    return Request


@pytest.mark.parametrize(
    ("start", "to", "safe", "here"),
    [
        ("https://a/x", "https://b/x", True, False),
        ("https://a/x", "/y", True, True),
        ("https://a/x", "http://a/x", False, False),
        ("https://a/x", "http://169.254.169.254/secret", False, False),
        ("http://a/x", "https://a/x", False, False),
        ("http://a/x", "//b/x", False, False),
        ("http://a/x", "http://a:81/x", False, False),
        ("https://a/x", "file:///etc/passwd", False, False),
        ("http://a/x", "file:///etc/passwd", False, False),
        ("https://a/x", "github://owner:name@/x", False, False),
    ],
)
def test_other_servers_are_followed_by_encrypted_ways_and_without_credentials_alone(start, to, safe, here):
    for rule, followed in ((web._only_safe, safe), (web._only_here, here)):
        with nullcontext() if followed else pytest.raises(StoreError, match="answers that the data is at"):
            asyncio.run(rule(None, None, redirect(start, to)))


def test_a_chunk_without_end_and_one_that_unpacks_to_gigabytes(store):
    packed = gzip.compress(bytes(100_000_000), 9) * 34

    def answer(handler, path, body):
        if not is_chunk(path):
            return False
        if "endless" in path:
            handler.send(200, b"", {"Content-Length": str(10**15)})
            while True:
                handler.wfile.write(bytes(2**20))
        handler.send(200, packed, {"Content-Encoding": "gzip"})
        return True

    for name in ("endless.zarr", "packed.zarr"):
        if not (store / name).exists():
            field().to_zarr(store / name, zarr_format=2, consolidated=True)
    with serving(store, answer) as (address, _):
        sources = [f"{address}/{name}.zarr" for name in ("endless", "packed")]
        found, peak = read_all(
            "open_zarr(source)", "from cagp_dist.fields.stores.remote import open_zarr", sources
        )
    for said, seconds in found:
        assert re.match(r"DataError: .*: 127\.0\.0\.1 sends more than 1 MiB for 0\.0\.0", said), said
        assert seconds < 30.0
    assert peak < GIB


def test_parts_of_an_address_have_the_settings_of_their_own():
    assert web.settings("memory://x") == {}
    assert web.settings("zip://x::s3://bucket/x.zip") == {"s3": {"use_listings_cache": False}}
    plain, guarded = (web.settings(f"zip://x::https://{name}host/x.zip")["https"] for name in ("", "me:s3@"))
    rules = [found["client_kwargs"]["trace_configs"][0].on_request_redirect for found in (plain, guarded)]
    assert [list(rule) for rule in rules] == [[web._only_safe], [web._only_here]]


def test_metadata_without_end(store):
    def answer(handler, path, body):
        if not path.endswith(".zmetadata"):
            return False
        handler.send(200, b"", {"Content-Length": str(10**15)})
        while True:
            handler.wfile.write(b" " * 2**20)

    with (
        serving(store, answer) as (address, _),
        pytest.raises(DataError) as refusal,
    ):
        open_zarr(f"{address}/x.zarr")
    assert refusal.value.key == "damaged"


@pytest.mark.parametrize("kind", ["silent", "dribbling", "unanswered"])
def test_a_server_that_is_too_slow_is_left_in_time(store, impatient, kind):
    done = threading.Event()

    def answer(handler, path, body):
        if not is_chunk(path):
            return False
        if kind != "unanswered":
            handler.send(200, body[:1], {"Content-Length": str(len(body))})
        while not done.wait(0.1 if kind == "dribbling" else 60.0):
            handler.wfile.write(b"x")
        return True

    begun = time.monotonic()
    with serving(store, answer) as (address, _):
        said = r"sent \d+ B of 0\.0\.0 in 1 s" if kind == "dribbling" else "Timeout"
        with pytest.raises(DataError, match=rf"x\.zarr.*{said}"):
            open_zarr(f"{address}/x.zarr")
        done.set()
    assert time.monotonic() - begun < 10.0


@pytest.mark.parametrize("more", [10, -10])
def test_a_wrong_length_is_an_error(store, more):
    def answer(handler, path, body):
        if not is_chunk(path):
            return False
        handler.send(200, body, {"Content-Length": str(len(body) + more)})
        handler.close_connection = True
        return True

    with (
        serving(store, answer) as (address, _),
        pytest.raises(DataError) as refusal,
    ):
        open_zarr(f"{address}/x.zarr")
    assert refusal.value.key == "unreadable"


def test_a_server_that_knows_no_ranges_is_named_for_shards(tmp_path):
    encoding = {"t2m": {"chunks": (1, 2, 3), "shards": (2, 4, 6)}}
    field().to_zarr(tmp_path / "s.zarr", zarr_format=3, consolidated=False, encoding=encoding)
    document = json.loads((tmp_path / "s.zarr" / "zarr.json").read_text())
    document["consolidated_metadata"] = {
        "kind": "inline",
        "must_understand": False,
        "metadata": {
            name: json.loads((tmp_path / "s.zarr" / name / "zarr.json").read_text())
            for name in ("t2m", "time", "latitude", "longitude")
        },
    }
    (tmp_path / "s.zarr" / "zarr.json").write_text(json.dumps(document))
    with serving(tmp_path) as (address, _):
        with pytest.raises(DataError) as refusal:
            open_zarr(f"{address}/s.zarr", Selection(times=["2020-01-02"]))
        assert refusal.value.key == "damaged"
        assert content_sha256(open_zarr(f"{address}/s.zarr")) == content_sha256(field())
