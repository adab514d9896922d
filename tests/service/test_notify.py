"""Hooks hear of success, failure and drift; whatever they do, the pass ends as without them."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.errors import BusyError, ConfigurationError, StoreError
from cagp_dist.service import notify
from cagp_dist.service.daily import Day
from cagp_dist.service.day_records import DAMAGED, NOT_READY, FailedDay
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.notify import notifying

from ..jobs import job_text
from ..joined import one_after_another

EVERY = ["success", "failure", "drift"]


def failed(kind, *, waits=False):
    record = FailedDay("2020-01-02T00:00:00", kind, "of https://user:word@host/x?token=1", 1, "2020", "job")
    return Day(np.datetime64("2020-01-02", "ns"), failed=record, waits=waits)


def job_with(root="out", **table):
    return parse_job(job_text(output={"root": root}, notify={"on": EVERY, "timeout_seconds": 5.0, **table}))


@pytest.fixture
def server():
    """A server on loopback; what was posted to it, and how it answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.posted.append((self.path, self.headers["Authorization"], json.loads(body)))
            found.answer(self)

        def log_message(self, *arguments):
            pass

    def answer(handler, code=204, **headers):
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.posted, found.answer, found.with_code = [], answer, answer
    found.url = f"http://127.0.0.1:{found.server_port}"
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def test_a_webhook_hears_once_of_each_occasion(server, monkeypatch, tmp_path):
    monkeypatch.setenv("HOOK_TOKEN", "s3cret")
    monkeypatch.setattr(notify, "_drift", lambda job: "drift: the error bars are too narrow")
    job = job_with(
        tmp_path,
        url=f"{server.url}/x?token=${{HOOK_TOKEN}}",
        headers={"Authorization": "Bearer ${HOOK_TOKEN}"},
    )
    with notifying(job) as notes:
        notes.done.append(notify.ToldDay("2020-01-01T00:00:00", "exact", run="ab" * 16))
        for day in (failed(DAMAGED), failed(DAMAGED, waits=True), failed(NOT_READY)):
            notes.add(day)
    assert {(path, header) for path, header, _ in server.posted} == {("/x?token=s3cret", "Bearer s3cret")}
    told = {body["event"]: body for *_, body in server.posted}
    assert len(server.posted) == len(told) == 3
    assert told["success"]["days"] == [
        {"day": "2020-01-01T00:00:00", "status": "exact", "reason": "", "run": "ab" * 16}
    ]
    (day,) = told["failure"]["days"]
    assert (day["status"], day["reason"]) == ("damaged", "of https://host/x")
    assert told["failure"]["text"] == f"cagp {tmp_path}: 1 day failed"
    assert told["drift"]["text"].endswith("error bars are too narrow")
    with notifying(job):
        pass
    assert len(server.posted) == 3, "a pass with nothing to do says nothing"


def test_a_pass_that_ends_with_an_error_is_a_failure_but_not_one_that_waits(server):
    job = job_with(url=f"{server.url}/x", on=["failure"])
    with pytest.raises(StoreError), notifying(job):
        raise StoreError("the disk is full")
    with pytest.raises(BusyError), notifying(job):
        raise BusyError("another command")
    with notifying(job) as notes:
        notes.done.append(notify.ToldDay("2020-01-01", "exact"))
    assert [body["text"].partition(": ")[2] for *_, body in server.posted] == ["the disk is full"]


@pytest.mark.parametrize("way", ["error", "redirect", "slow", "closed", "unset", "plain"])
def test_a_webhook_that_fails_is_logged_without_its_secrets(server, monkeypatch, caplog, way):
    monkeypatch.setenv("HOOK_TOKEN", "s3cret")
    url, release = f"{server.url}/${{HOOK_TOKEN}}", threading.Event()
    if way == "error":
        server.answer = lambda handler: server.with_code(handler, 500)
    elif way == "redirect":
        server.answer = lambda handler: server.with_code(handler, 307, Location=f"{server.url}/elsewhere")
    elif way == "slow":
        server.answer = lambda handler: release.wait(10.0)
    elif way == "closed":
        url = "http://127.0.0.1:9/${HOOK_TOKEN}"
    elif way == "unset":
        url = f"{server.url}/${{NO_SUCH_NAME}}"
    else:
        url = "http://${HOOK_TOKEN}.example.org/"
    began = time.monotonic()
    with notifying(job_with(url=url, timeout_seconds=0.5)) as notes:
        notes.add(failed(DAMAGED))
    release.set()
    assert time.monotonic() - began < 5.0
    said = {
        "error": "HTTP Error 500",
        "redirect": "HTTP Error 307",
        "slow": "no answer within 0.5 s|timed out",
        "closed": "Connection refused",
        "unset": "NO_SUCH_NAME is not set",
        "plain": "expected https://",
    }
    (line,) = [line for line in caplog.messages if "was not told of failure" in line]
    assert any(part in line for part in said[way].split("|"))
    assert "s3cret" not in caplog.text
    assert all(path != "/elsewhere" for path, *_ in server.posted)


def test_the_path_of_a_webhook_is_in_no_log_and_a_token_of_letters_in_no_job(server, caplog):
    """Letters alone may be words: those that are short stay out of logs, as all paths do."""
    server.answer = lambda handler: server.with_code(handler, 500)
    with notifying(job_with(url=f"{server.url}/hooks/QwErTyUiOpAs")) as notes:
        notes.add(failed(DAMAGED))
    assert f"[notify] {server.url} was not told of failure" in caplog.text
    assert "QwErTy" not in caplog.text
    with pytest.raises(ConfigurationError):
        job_with(url="https://example.org/hooks/QwErTyUiOpAsDfGhJkLzXcVb")


def test_a_command_gets_json_and_one_that_fails_or_hangs_ends_no_pass(tmp_path, caplog):
    def told(code, *, seconds=20.0):
        command = [sys.executable, "-c", code, str(tmp_path / "told")]
        with notifying(job_with(command=command, timeout_seconds=seconds)) as notes:
            notes.add(failed(DAMAGED))

    told("import sys; open(sys.argv[1], 'w').write(sys.stdin.read())")
    found = json.loads((tmp_path / "told").read_text())
    assert (found["event"], found["days"][0]["day"]) == ("failure", "2020-01-02T00:00:00")
    assert caplog.text == ""
    told("import sys; sys.exit('no mail server')")
    assert "exit code 1. no mail server" in caplog.text
    began = time.monotonic()
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    told(child, seconds=0.5)
    assert time.monotonic() - began < 10.0
    assert "timed out after 0.5 seconds" in caplog.text
    with notifying(job_with(command=["/no/such/program"])) as notes:
        notes.add(failed(DAMAGED))
    assert "No such file" in caplog.text


def test_a_command_has_words_of_the_environment_which_are_not_logged(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("HOOK_TOKEN", "s3cret\n")
    code = "import sys; open(sys.argv[1], 'w').write(sys.argv[2]); sys.exit(sys.argv[2])"
    command = [sys.executable, "-c", code, str(tmp_path / "told"), "Authorization: Bearer ${HOOK_TOKEN}"]
    for words in (command, ["/no/such/${HOOK_TOKEN}"]):
        with notifying(job_with(command=words)) as notes:
            notes.add(failed(DAMAGED))
    assert (tmp_path / "told").read_text() == "Authorization: Bearer s3cret"
    assert "exit code 1." in caplog.text
    assert "FileNotFoundError: No such file" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("http://user:s3cret@host/", "HOOK_URL has a space or a login"),
        ("http://localhost:s3/cret@127.0.0.1/", "InvalidURL"),
        ("http://127.0.0.1/s3 cret", "HOOK_URL has a space or a login"),
        ("http://127.0.0.1/s3\ncret", "HOOK_URL has control characters"),
    ],
)
def test_an_address_of_the_environment_is_not_logged_even_in_part(monkeypatch, caplog, value, said):
    monkeypatch.setenv("HOOK_URL", value)
    with notifying(job_with(url="${HOOK_URL}")) as notes:
        notes.add(failed(DAMAGED))
    (line,) = [line for line in caplog.messages if "was not told of failure" in line]
    assert said in line
    assert "s3" not in line
    assert "cret" not in line


def test_a_value_that_ends_with_a_line_break_is_sent_without_it_and_past_a_proxy(server, monkeypatch):
    monkeypatch.setenv("HOOK_TOKEN", "s3cret\n")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with notifying(job_with(url=server.url, headers={"Authorization": "Bearer ${HOOK_TOKEN}"})) as notes:
        notes.add(failed(DAMAGED))
    assert [header for _, header, _ in server.posted] == ["Bearer s3cret"]


def test_children_of_a_command_end_with_it(tmp_path):
    code = (
        "import subprocess, sys; child = subprocess.Popen(['sleep', '60']); "
        "open(sys.argv[1], 'w').write(str(child.pid))"
    )
    with notifying(job_with(command=[sys.executable, "-c", code, str(tmp_path / "told")])) as notes:
        notes.add(failed(DAMAGED))
    child, until = int((tmp_path / "told").read_text()), time.monotonic() + 5.0
    while runs(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not runs(child)


def runs(process):
    return psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE


@one_after_another
@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({}, "notify"),
        ({"url": "https://user:word@host/"}, "notify"),
        ({"url": "https://host/?token=5"}, "notify"),
        ({"url": "https://hooks.host/services/B024BE7LH1abcdefghij"}, "notify"),
        ({"url": "https://host/?s3cr3tword@"}, "notify"),
        ({"url": "https://host/?${A}&b=5"}, "notify"),
        ({"command": "curl -H 'Authorization: Bearer word@'"}, "notify"),
        ({"command": ["page", "--token", "word@"]}, "notify"),
        ({"command": ["page", "--password=word@"]}, "notify"),
        ({"command": ["curl", "-u", "user:word@"]}, "notify"),
        ({"command": ["page", "ghp_0123456789abcdefghij"]}, "notify"),
        ({"command": ["curl", "https://user:word@host/"]}, "notify"),
        ({"url": "ftp://host/"}, "notify"),
        ({"url": "https://h/", "headers": {"X-Api-Key": "abc"}}, "notify"),
        ({"command": ["x"], "headers": {"A": "b"}}, "notify"),
        ({"command": ["x"], "on": ["sucess"]}, "notify.on"),
        ({"command": ["x"], "timeout_seconds": 0}, "notify.timeout_seconds"),
    ],
)
def test_a_table_that_tells_nobody_or_holds_secrets_is_refused(table, key):
    with pytest.raises(ConfigurationError) as refused:
        parse_job(job_text(notify=table))
    assert refused.value.key == key
    assert "word@" not in str(refused.value)


@pytest.mark.parametrize("name", ["daily", pytest.param("run", marks=pytest.mark.exhaustive)])
def test_the_commands_tell_of_what_they_did(tmp_path, name):
    command = [sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"]
    table = {"on": EVERY, "command": [*command, str(tmp_path / "told")]}
    text = job_text(output={"root": tmp_path / "out"}, notify=table)
    assert "notify" not in parse_job(text).canonical()
    (tmp_path / "job.toml").write_text(text)
    for _ in range(2):  # the second one has nothing to do, and nothing to tell
        result = CliRunner().invoke(app, [name, str(tmp_path / "job.toml")])
        assert result.exit_code == 0, result.output
    (line,) = (tmp_path / "told").read_text().splitlines()
    told = json.loads(line)
    assert (told["event"], told["days"][0]["day"]) == ("success", "2017-04-27T12:00:00")
    assert (tmp_path / "out/runs" / f"{told['days'][0]['run']}.zarr").is_dir()
