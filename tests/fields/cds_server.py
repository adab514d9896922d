"""A Climate Data Store of one's own: the HTTP protocol of the real one, on the loopback interface.

It queues (accepted, running, successful), fails, refuses, expires and delivers whatever bytes a test asks
for, and notes every call.  The real client speaks to it.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COLLECTION = "reanalysis-era5-single-levels"
TOKEN = "11111111-2222-3333-4444-555555555555"


@dataclass
class Job:
    request: dict
    states: list[str]
    data: bytes = b""
    looks: int = 0

    def look(self) -> str:
        state = self.states[min(self.looks, len(self.states) - 1)]
        self.looks += 1
        return state

    @property
    def state(self) -> str:
        return self.states[min(self.looks, len(self.states) - 1)]


@dataclass
class Behaviour:
    """What the server does next; tests set the fields."""

    deliver: Callable[[dict], bytes] = lambda request: b""
    states: list[str] = field(default_factory=lambda: ["accepted", "running", "successful"])
    declared_size: int | None = None
    refuse: dict[str, tuple[int, dict]] = field(
        default_factory=dict
    )  # "submit" | "look" | "results" | "data"
    failure: dict = field(default_factory=lambda: {"title": "The job has failed", "traceback": "MARS error"})


class CdsServer(ThreadingHTTPServer):
    """Start with ``with CdsServer() as server``; ``server.url`` goes into CDSAPI_URL."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviour = Behaviour()
        self.jobs: dict[str, Job] = {}
        self.calls: list[str] = []
        self.tokens: set[str | None] = set()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def url(self) -> str:
        return f"{self.root}/api"

    def count(self, prefix: str) -> int:
        return sum(call.startswith(prefix) for call in self.calls)

    def __enter__(self) -> "CdsServer":
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    server: CdsServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._note()
        if self._refused("submit"):
            return
        if self.path != f"/api/retrieve/v1/processes/{COLLECTION}/execution":
            self._json(404, {"title": "not found"})
            return
        request = json.loads(body)["inputs"]
        name = f"job-{len(self.server.jobs) + 1}"
        behaviour = self.server.behaviour
        self.server.jobs[name] = Job(request, list(behaviour.states), behaviour.deliver(request))
        self._json(201, self._job(name, "accepted"))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self._note()
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts == ["api", "catalogue", "v1", "messages"]:
            self._json(200, {"messages": []})
        elif parts == ["api", "retrieve", "v1", "processes", COLLECTION]:
            self._json(200, {"id": COLLECTION})
        elif parts[:4] == ["api", "retrieve", "v1", "jobs"] and parts[4] in self.server.jobs:
            if not self._refused("look"):
                self._look(parts[4], wants_results=parts[5:] == ["results"])
        elif parts[0] == "data" and parts[1] in self.server.jobs:
            if not self._refused("data"):
                self._bytes(self.server.jobs[parts[1]].data)
        else:
            self._json(404, {"title": "not found", "detail": self.path})

    def _look(self, name: str, *, wants_results: bool) -> None:
        job = self.server.jobs[name]
        if not wants_results:
            # the client looks twice, once for the state and once for the links: only the first moves on
            self._json(200, self._job(name, job.look() if "log=" in self.path else job.state))
        elif self._refused("results"):
            return
        elif job.state != "successful":
            self._json(400, {"type": "job failed", "status": 400} | self.server.behaviour.failure)
        else:
            size = self.server.behaviour.declared_size or len(job.data)
            value = {
                "type": "application/x-grib",
                "href": f"{self.server.root}/data/{name}",
                "file:size": size,
            }
            self._json(200, {"asset": {"value": value}})

    def _job(self, name: str, state: str) -> dict:
        href = f"{self.server.url}/retrieve/v1/jobs/{name}"
        links = [{"rel": rel, "href": href} for rel in ("self", "monitor")]
        links.append({"rel": "results", "href": f"{href}/results"})
        return {
            "jobID": name,
            "processID": COLLECTION,
            "status": state,
            "links": links,
            "metadata": {"log": []},
        }

    def _note(self) -> None:
        self.server.calls.append(f"{self.command} {self.path}")
        if self.path.startswith("/api/retrieve"):
            self.server.tokens.add(self.headers.get("PRIVATE-TOKEN"))

    def _refused(self, step: str) -> bool:
        if step not in self.server.behaviour.refuse:
            return False
        self._json(*self.server.behaviour.refuse[step])
        return True

    def _json(self, status: int, value: dict) -> None:
        self._bytes(json.dumps(value).encode(), status=status, kind="application/json")

    def _bytes(self, data: bytes, *, status: int = 200, kind: str = "application/octet-stream") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Stay silent."""
