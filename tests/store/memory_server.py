"""A server of S3 in memory, whose requests two processes make in an order that is chosen."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta


def _refused(code: str) -> OSError:
    error = FileNotFoundError(code) if code in ("NoSuchKey", "404") else OSError(code)
    error.response = {"Error": {"Code": code}}
    return error


class MemoryServer:
    """Objects of a bucket. Each request is one step; each write is a second later than the one before."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self._writes, self._lock = 0, threading.Lock()

    def copy(self) -> "MemoryServer":
        """Another server with the same objects."""
        other = MemoryServer()
        other.objects, other._writes = dict(self.objects), self._writes
        return other

    def request(self, method: str, asked: dict) -> object:
        with self._lock:
            return getattr(self, method)(**asked)

    def put_object(self, Bucket, Key, Body, ContentMD5, IfMatch=None, IfNoneMatch=None):
        if IfNoneMatch == "*" and Key in self.objects:
            raise _refused("PreconditionFailed")
        if IfMatch is not None and Key not in self.objects:
            raise _refused("NoSuchKey")
        if IfMatch is not None and self._tag(Key) != IfMatch:
            raise _refused("PreconditionFailed")
        self._writes += 1
        self.objects[Key] = bytes(Body), datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._writes)

    def head_object(self, Bucket, Key):
        if Key not in self.objects:
            raise _refused("404")
        return {"ETag": self._tag(Key), "LastModified": self.objects[Key][1]}

    def get_object(self, Key):
        if Key not in self.objects:
            raise _refused("NoSuchKey")
        return self.objects[Key][0]

    def delete_object(self, Bucket, Key):
        self.objects.pop(Key, None)

    def list_objects_v2(self, Bucket, Prefix, Delimiter=None):
        contents, folders = [], {}
        for key, (data, modified) in sorted(self.objects.items()):
            if not key.startswith(Prefix):
                continue
            first, cut, _ = key.removeprefix(Prefix).partition("/")
            if Delimiter and cut:
                folders[f"{Prefix}{first}/"] = None
            else:
                contents.append({"Key": key, "Size": len(data), "LastModified": modified})
        return {"Contents": contents, "CommonPrefixes": [{"Prefix": folder} for folder in folders]}

    def _tag(self, key):
        return hashlib.md5(self.objects[key][0], usedforsecurity=False).hexdigest()


class Connection:
    """What a `Bucket` calls of s3fs; ``before`` and ``after`` are called around each request."""

    def __init__(
        self,
        server: MemoryServer,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._server, self._before, self._after, self.requests = server, before, after, 0

    def call_s3(self, method, **asked):
        self._before()
        self.requests += 1
        try:
            return self._server.request(method, asked)
        finally:
            self._after()

    def cat_file(self, path):
        return self.call_s3("get_object", Key=path.partition("/")[2])


class Turns:
    """Two threads of which one makes requests at a time.

    ``first`` makes ``i`` of them, then the other one ``j``, then ``first`` all that it has left.
    """

    def __init__(self, first: str, second: str, i: int, j: int) -> None:
        self._turns = [(first, i), (second, j), (first, None), (second, None)]
        self._changed = threading.Condition()
        with self._changed:
            self._go_on()

    def wait(self, who: str) -> None:
        """Call it before each request."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._turns[0][0] == who, timeout=600)

    def done(self, who: str) -> None:
        """Call it after each request."""
        with self._changed:
            _, left = self._turns[0]
            if left is not None:
                self._turns[0] = (who, left - 1)
            self._go_on()

    @contextmanager
    def thread(self, who: str) -> Iterator[None]:
        """Around all that a thread does; when it is over, its turns are."""
        try:
            yield
        finally:
            with self._changed:
                self._turns = [turn for turn in self._turns if turn[0] != who]
                self._go_on()

    def _go_on(self) -> None:
        while self._turns and self._turns[0][1] == 0:
            del self._turns[0]
        self._changed.notify_all()
