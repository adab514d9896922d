"""How servers are read over HTTP: no more bytes than were expected, not for ever, and nowhere else.

A server may send its reader to another one, whom it must not show what it was given: credentials.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from zarr.abc.store import Store
from zarr.storage import FsspecStore

from cagp_dist.errors import StoreError
from cagp_dist.text import bytes_text

CONNECT_SECONDS = 15.0
SILENT_SECONDS = 20.0  # without a byte
GRACE_SECONDS, LEAST_RATE = 20.0, 1024  # bytes per second of one object, behind the first seconds

_SCHEMES = ("http", "https")
_CLOUDS = ("s3", "s3a", "gs", "gcs", "az", "abfs")
SCHEMES = (*_SCHEMES, *_CLOUDS, "memory")
"""Of addresses that stores are read from: others read local files through links, or wait for ever."""

_most_bytes = ContextVar("most bytes of the answer that is waited for", default=2**24)


def is_web(store: Store) -> bool:
    """Whether a store is read over HTTP by its address, as those of clouds are not."""
    if not isinstance(store, FsspecStore):
        return False
    named = store.fs.protocol
    return not set(_SCHEMES).isdisjoint([named] if isinstance(named, str) else named)


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """Take no more bytes of an answer than these."""
    before = _most_bytes.set(count)
    try:
        yield
    finally:
        _most_bytes.reset(before)


def settings(address: str) -> dict[str, dict[str, Any]]:
    """Give the settings of fsspec for the parts of an address that are of HTTP or a cloud, by their scheme.

    A list of names that fsspec has kept would hide what has come since, as long as a process lasts.
    """
    from fsspec.config import conf

    found: dict[str, dict[str, Any]] = {}
    for part in address.split("::"):
        scheme, _, rest = part.partition("://")
        if scheme in _SCHEMES:
            configured = dict(conf.get("http", {})) | dict(conf.get(scheme, {}))
            client = dict(configured.get("client_kwargs", {}))
            given = {*configured, *client} & {"headers", "auth", "cookies"} or "@" in rest.partition("/")[0]
            found[scheme] = {"client_kwargs": _limits(_only_here if given else _only_safe) | client}
        elif scheme in _CLOUDS:
            found[scheme] = {"use_listings_cache": False}
    return found


@cache  # equal settings share a session of fsspec
def _limits(redirected: Callable[..., Awaitable[None]]) -> dict[str, Any]:
    """Make what a session of ``aiohttp`` is to be made with."""
    import aiohttp

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(redirected)
    return {
        "timeout": aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS),
        "response_class": _bounded_response(),
        "trace_configs": [trace],
    }


async def _only_safe(session: Any, context: Any, request: Any) -> None:
    """Let a server send its reader to another one by encrypted ways alone."""
    to = _redirected(request)
    if (to.scheme, request.url.scheme) != ("https", "https") and _origin(to) != _origin(request.url):
        raise StoreError(
            f"{request.url.host} answers that the data is at {_origin(to)}; another server is followed from "
            "https to https alone. Write the address that it names, if you trust it.",
            key="elsewhere",
        )


async def _only_here(session: Any, context: Any, request: Any) -> None:
    """Let no server send its reader on with what was meant for it."""
    to = _redirected(request)
    if _origin(to) != _origin(request.url):
        raise StoreError(
            f"{request.url.host} answers that the data is at {_origin(to)}; another server is not shown the "
            "credentials of this one. Write the address that it names, if you trust it.",
            key="elsewhere",
        )


def _origin(url: Any) -> str:
    """Write scheme, host and port, of an address without a host, as ``file:///etc``, the scheme."""
    return str(url.origin()) if url.host else f"{url.scheme}:"


def _redirected(request: Any) -> Any:
    headers = request.response.headers
    return request.url.join(type(request.url)(headers.get("Location") or headers.get("URI") or ""))


def _bounded_response() -> Any:
    """Make the class of answers; ``aiohttp`` is there only where it is installed."""
    import aiohttp

    class BoundedResponse(aiohttp.ClientResponse):
        """An answer that is read up to a size, and at a least rate."""

        async def read(self) -> bytes:
            most, begun, body = _most_bytes.get(), time.monotonic(), bytearray()
            if self._body is None:
                try:
                    while part := await self.content.readany():
                        body += part
                        seconds = time.monotonic() - begun - GRACE_SECONDS
                        if len(body) > most:
                            raise StoreError(
                                f"{self.host} sends more than {bytes_text(most)} for {self.url.name}.",
                                key="too-large",
                            )
                        if seconds > 0.0 and len(body) < LEAST_RATE * seconds:
                            raise StoreError(
                                f"{self.host} sent {bytes_text(len(body))} of {self.url.name} in "
                                f"{seconds + GRACE_SECONDS:.0f} s. Try again when it is less busy.",
                                key="slow",
                            )
                except BaseException:
                    self.close()
                    raise
                self._body = bytes(body)
            return await super().read()

    return BoundedResponse
