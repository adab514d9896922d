"""The page of a run on the loopback interface: files to read, and nothing else.

Other pages that the browser has open must not read along: a name that was made to point at this machine is
refused by its ``Host``, and the policy of the page lets it fetch nothing from elsewhere.
"""

import re
import sys
import threading
from contextlib import AbstractContextManager, suppress
from functools import cache
from html import unescape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from urllib.parse import unquote

from cagp_dist.digest import open_regular
from cagp_dist.errors import CagpError, ConfigurationError
from cagp_dist.view.site_files import Site

ADDRESS = "127.0.0.1"

_BLOCK_BYTES = 2**20
_LOOK_SECONDS = 0.05  # how often it looks whether to stop
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
_LOOPBACK_FRAMES = "frame-ancestors 'self' http://127.0.0.1:* http://localhost:*"  # notebooks


class PageServer(AbstractContextManager["PageServer"]):
    """A server of a page, which runs in a thread until it is closed; a context manager."""

    def __init__(self, site: Site, port: int) -> None:
        try:
            self._server = _HTTPServer((ADDRESS, port), _Handler)
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen at port {port} of {ADDRESS} ({error.strerror}). Name another port, or leave "
                "it out: a free one is chosen.",
                key="port",
            ) from error
        self._server.site = site
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK_SECONDS,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{ADDRESS}:{self._server.server_port}/"

    def wait(self) -> None:
        """Wait until the server is closed, or Ctrl-C."""
        self._thread.join()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(out: Path | str, *, port: int = 0) -> PageServer:
    """Serve the page of a run at ``http://127.0.0.1:PORT/``, to this machine alone.

    ``out`` is as of `cagp view`: an output folder, whose current run is shown, ``OUT/KEY``, the Zarr store of
    a run, or ``s3://BUCKET/PATH``, of which a copy is made; port 0 has a free one chosen. ``close()`` of what
    is returned, or the end of a ``with`` block, stops it. Raises `ConfigurationError` if there is no such run
    or the port is in use, `StoreError` if the run cannot be read.

    Examples
    --------
    >>> with serve("out") as page:  # doctest: +SKIP
    ...     print(page.url)
    ...     page.wait()
    http://127.0.0.1:40123/
    """
    site = Site(out)
    site.find("view.json")  # raises where there is nothing to show
    return PageServer(site, port)


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    site: Site

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that has gone away."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "cagp", ""
    timeout = 60
    disable_nagle_algorithm = True  # else small answers wait for 40 ms
    server: _HTTPServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: the terminal belongs to the command."""

    def do_GET(self) -> None:
        """Answer, for ``HEAD`` without the content."""
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            self._say(HTTPStatus.FORBIDDEN, f"This page is at http://{ADDRESS}:{port}/ alone.")
            return
        address = unquote(self.path.partition("?")[0]).removeprefix("/")
        try:
            found = self.server.site.find(address)
        except CagpError as error:
            self._say(HTTPStatus.NOT_FOUND, str(error))
            return
        if found is None:
            self._say(HTTPStatus.NOT_FOUND, "There is nothing here.")
        elif isinstance(found, bytes):
            self._begin(HTTPStatus.OK, len(found), _KINDS[".json"])
            self._write(found)
        else:
            with suppress(ConnectionError):  # the browser has asked for something else meanwhile
                self._send(found)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, path: Path) -> None:
        """Send a file, or the range of it that was asked for."""
        try:
            stream = open_regular(path)
        except OSError as error:
            self._say(HTTPStatus.NOT_FOUND, f"It cannot be read: {error.strerror}.")
            return
        with stream:
            size = stream.seek(0, 2)
            span = byte_span(self.headers.get("Range"), size)
            if span is None:
                self._begin(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, 0, "", f"bytes */{size}")
                return
            start, stop = span
            partial = stop - start < size
            self._begin(
                HTTPStatus.PARTIAL_CONTENT if partial else HTTPStatus.OK,
                stop - start,
                _KINDS.get(path.suffix, "application/octet-stream"),
                f"bytes {start}-{stop - 1}/{size}" if partial else None,
            )
            stream.seek(start)
            left = stop - start if self.command == "GET" else 0
            while left > 0 and (block := stream.read(min(left, _BLOCK_BYTES))):
                self.wfile.write(block)
                left -= len(block)

    def _begin(self, status: HTTPStatus, length: int, kind: str, span: str | None = None) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(length),
            "Content-Range": span,
            "Accept-Ranges": "bytes",
            "Cache-Control": "no-store",
            "Content-Security-Policy": f"{page_policy()}; {_LOOPBACK_FRAMES}",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()

    def _say(self, status: HTTPStatus, text: str) -> None:
        body = f"{text}\n".encode()
        self._begin(status, len(body), _KINDS[".txt"])
        self._write(body)

    def _write(self, body: bytes) -> None:
        if self.command == "GET":
            self.wfile.write(body)


@cache
def page_policy() -> str:
    """Content security policy of the page, as the page itself states it for other servers."""
    text = (resources.files("cagp_dist.view") / "page" / "index.html").read_text(encoding="utf-8")
    found = re.search(r'"Content-Security-Policy" content="([^"]+)"', text)
    assert found is not None
    return unescape(found[1])


def byte_span(asked: str | None, size: int) -> tuple[int, int] | None:
    """First byte, and the one after the last, of a ``Range`` header; None if the file has none of them.

    All of them where there is no such header, or one of several ranges, which a server need not follow.
    """
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", asked or "")
    if found is None or not (found[1] or found[2]):
        return 0, size
    if not found[1]:
        start, stop = max(0, size - int(found[2])), size
    else:
        start, stop = int(found[1]), min(size, int(found[2]) + 1 if found[2] else size)
    return (start, stop) if start < stop else None
