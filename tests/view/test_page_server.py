"""The server hands out the page and its runs, to this machine, and nothing else."""

import http.client
import json
import os
import shutil
import socket
import tarfile
from pathlib import Path

import pytest

from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.store.publish import current_run, make_current, output_lock
from cagp_dist.view import serve
from cagp_dist.view.page_server import byte_span

from .viewed_runs import publish_viewed


@pytest.fixture(scope="module")
def page(world):
    with serve(world) as server:
        yield server


def ask(page, path, *, method="GET", **headers):
    """Status, headers and body of an answer."""
    port = int(page.url.rsplit(":", 1)[1].strip("/"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def test_the_page_and_the_run_are_there(page, world):
    status, headers, body = ask(page, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"<title>cagp view</title>" in body
    assert ask(page, "/vendor/maplibre-gl.js?v=1")[1]["Content-Type"].startswith("text/javascript")
    told = json.loads(ask(page, "/view.json")[2])
    run = current_run(world)
    assert told["path"] == f"data/{run.name}"
    assert told["live"] is True
    assert set(told["contents"]["map"]) == {path.parent.name for path in run.glob("map/*/zarr.json")}
    chunk = "map/t2m_mean/c.0.0.0"
    assert ask(page, f"/{told['path']}/{chunk}")[2] == (run / chunk).read_bytes()


def test_a_policy_keeps_the_page_to_this_machine(page):
    policy = dict(
        rule.strip().partition(" ")[::2] for rule in ask(page, "/")[1]["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self' data:"
    assert policy["script-src"] == "'self' 'wasm-unsafe-eval'"
    assert not any(
        "*" in text or "http" in text for rule, text in policy.items() if rule != "frame-ancestors"
    )


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/data/{run}/../{run}.sha256",
        "/data/{run}/%2e%2e/{run}.sha256",
        "/data/{run}/..%2f{run}.sha256",
        "/data/{run}//etc/passwd",
        "/data/{run}/map%5c..%5czarr.json",
        "/data/{run}/map%00/zarr.json",
        "/data/{run}/map",
        "/data/{run}/map/",
        "/data/{run}",
        "/data/other.zarr/zarr.json",
        "/data/../view.json",
        "/etc/passwd",
        "//etc/passwd",
        "/vendor",
        "/vendor/../index.html",
        "/__init__.py",
        f"/data/{{run}}/{'n' * 300}",
    ],
)
def test_nothing_else_is_there(page, world, path):
    ask(page, "/view.json")
    assert ask(page, path.format(run=current_run(world).name))[0] == 404


def test_links_lead_nowhere(tmp_path, world):
    run = tmp_path / "run.zarr"
    shutil.copytree(current_run(world), run)
    secret = tmp_path / "secret"
    secret.write_text("private")
    (run / "map" / "leak").symlink_to(secret)
    (run / "leaks").symlink_to(tmp_path)
    os.mkfifo(run / "map" / "pipe")
    with serve(run) as page:
        assert json.loads(ask(page, "/view.json")[2])["live"] is False
        assert ask(page, "/data/run.zarr/zarr.json")[0] == 200
        for name in ("map/leak", "leaks/secret", "map/pipe"):
            assert ask(page, f"/data/run.zarr/{name}")[0] == 404


def test_another_name_for_this_machine_is_refused(page):
    port = page.url.rsplit(":", 1)[1].strip("/")
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port}.evil.example", ""):
        status, _, body = ask(page, "/view.json", Host=host)
        assert status == 403
        assert b"contents" not in body
    assert ask(page, "/view.json", Host=f"localhost:{port}")[0] == 200


def test_files_are_read_only(page):
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(page, "/view.json", method=method)[0] == 501


def test_head_has_the_length_and_no_body(page, world):
    path = f"/data/{current_run(world).name}/zarr.json"
    size = (current_run(world) / "zarr.json").stat().st_size
    status, headers, body = ask(page, path, method="HEAD")
    assert (status, headers["Content-Length"], body) == (200, str(size), b"")


def test_ranges(page, world):
    path, content = (
        f"/data/{current_run(world).name}/zarr.json",
        (current_run(world) / "zarr.json").read_bytes(),
    )
    size = len(content)
    for asked, start, stop in (
        ("5-9", 5, 10),
        ("10-", 10, size),
        ("-7", size - 7, size),
        (f"3-{2 * size}", 3, size),
    ):
        status, headers, body = ask(page, path, Range=f"bytes={asked}")
        assert (status, body) == (206, content[start:stop])
        assert headers["Content-Range"] == f"bytes {start}-{stop - 1}/{size}"
    status, headers, body = ask(page, path, Range=f"bytes={size}-")
    assert (status, headers["Content-Range"], body) == (416, f"bytes */{size}", b"")
    for asked in ("bytes=0-1,4-5", "lines=0-1", "bytes=-", f"bytes={'9' * 5000}-"):
        assert ask(page, path, Range=asked)[::2] == (200, content)
    assert byte_span("bytes=5-4", 10) is None
    assert byte_span("bytes=-0", 10) is None


def test_a_newer_run_is_told_and_the_old_one_stays_readable(tmp_path, world):
    root = tmp_path / "out"
    shutil.copytree(world, root)
    before = current_run(root)
    with serve(root) as page:
        assert json.loads(ask(page, "/view.json")[2])["path"] == f"data/{before.name}"
        newer = before.with_name(f"{'f' * 32}.zarr")
        shutil.copytree(before, newer)
        with output_lock(root):
            make_current(root, run_key=newer.stem)
        assert json.loads(ask(page, "/view.json")[2])["path"] == f"data/{newer.name}"
        for run in (before, newer):
            assert ask(page, f"/data/{run.name}/zarr.json")[0] == 200
        (root / "CURRENT").unlink()
        status, _, body = ask(page, "/view.json")
        assert status == 404
        assert b"no published run" in body


def test_a_folder_of_an_earlier_version_is_served_with_its_series(tmp_path):
    with tarfile.open(Path(__file__).parents[1] / "data" / "store_0_1.tar.xz") as archive:
        # as an argument only from Python 3.11.4 on
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    with serve(tmp_path / "out") as page:
        told = json.loads(ask(page, "/view.json")[2])
        assert "t2m_mean" in told["contents"]["map"]
        series = told["series"]
        assert "t2m_mean" in series["contents"]["map"]
        found = ask(page, f"/{series['path']}/map/time/zarr.json")
        assert found[::2] == (
            200,
            (tmp_path / "out" / "series.zarr" / "map" / "time" / "zarr.json").read_bytes(),
        )
    with serve(tmp_path / "out" / "series.zarr") as page:
        assert json.loads(ask(page, "/view.json")[2])["path"] == series["path"]


def test_only_this_machine_can_connect(page):
    host, port = page.url.removeprefix("http://").strip("/").split(":")
    assert host == "127.0.0.1"
    with pytest.raises(OSError, match=r"refused|unreachable|assign"):
        socket.create_connection(("127.0.0.2", int(port)), timeout=2)


def test_what_cannot_be_served_is_said(tmp_path, world, page):
    port = int(page.url.rsplit(":", 1)[1].strip("/"))
    with pytest.raises(ConfigurationError) as refusal:
        serve(world, port=port)
    assert refusal.value.key == "port"
    with pytest.raises(ConfigurationError) as refusal:
        serve(tmp_path)
    assert refusal.value.key == "no-run"
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(StoreError) as refusal:
        serve(tmp_path / "empty.zarr")
    assert refusal.value.key == "no-run"


def test_a_run_without_map_or_points_is_refused(tmp_path, world):
    run = tmp_path / "run.zarr"
    shutil.copytree(current_run(world), run, ignore=shutil.ignore_patterns("map", "posterior"))
    with pytest.raises(StoreError) as refusal:
        serve(run)
    assert refusal.value.key == "nothing-to-show"


def test_a_run_without_map_is_served(tmp_path):
    import numpy as np

    publish_viewed(tmp_path, np.arange(0.0, 9.0), np.arange(0.0, 9.0), times=["2020-01-01"], with_map=False)
    with serve(tmp_path) as page:
        assert "map" not in json.loads(ask(page, "/view.json")[2])["contents"]
