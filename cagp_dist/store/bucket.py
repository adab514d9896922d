"""Whole objects below one address of an S3 store: put, read, listed and deleted, with every error named.

The connection is that of ``s3fs``: credentials, region and endpoint come from where AWS and fsspec look for
them (``AWS_ACCESS_KEY_ID``, ``AWS_PROFILE``, ``AWS_ENDPOINT_URL``, ``FSSPEC_S3``, ...), never from an
address, which jobs record. ``obstore`` has conditional puts of its own, but reads neither profiles nor the
settings of fsspec, lists no names by how they begin, and takes a missing bucket for a missing object.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from cagp_dist.errors import BusyError, CagpError, ConfigurationError, StoreError
from cagp_dist.extras import from_extra
from cagp_dist.store.addresses import SCHEME, parse_address
from cagp_dist.text import without_secrets

PARALLEL = 16  # objects that are on their way at once; of a run each has 8 MiB at most

_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}
_NOT_MET = {"PreconditionFailed", "412", "NoSuchKey", "404"}
_UNDECIDED = {"ConditionalRequestConflict", "OperationAborted", "409"}
_WAITS_SECONDS = (0.1, 0.3, 1.0, 3.0)
_CONNECT_SECONDS, _READ_SECONDS = 10, 60

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Marker:
    """A small object as it was read, and the tag by which its next writer says that it has seen it."""

    data: bytes
    tag: str
    modified: datetime  # by the clock of the server


@dataclass(frozen=True)
class Stored:
    """An object of a listing."""

    size: int
    modified: datetime


class Bucket:
    """Objects below an address ``s3://BUCKET/PATH``."""

    def __init__(self, address: str) -> None:
        try:
            self.name, path = parse_address(address)
        except ValueError as error:
            raise ConfigurationError(f"the output: {error}.", key="address") from None
        self.address = f"{SCHEME}{self.name}/{path}".rstrip("/")
        self._prefix = f"{path}/" if path else ""
        self._files = _connection(self.address)

    def put(self, name: str, data: bytes) -> None:
        """Write an object in one request; the server refuses data that changed on its way."""
        with self._named("write", name):
            self._put(name, data)

    def put_marker(self, name: str, data: bytes, *, instead_of: Marker | None) -> bool:
        """Write an object if it is still as it was read, or still absent; False if another writer was first.

        The answer 412 says that the condition does not hold: another writer was first, unless the object is
        what was to be written, by a request that was sent again after its answer was lost. 409 says that
        another request for the object was under way and nothing was written: the same condition is put
        again, five times in all, and never a weaker one.

        A server that says that it knows no conditional writes (``NotImplemented``) is refused; one that
        ignores conditions cannot be told from others: there the last of several writers wins.
        """
        condition = {"IfNoneMatch": "*"} if instead_of is None else {"IfMatch": instead_of.tag}
        for wait_seconds in (*_WAITS_SECONDS, None):
            with self._named("write", name):
                try:
                    self._put(name, data, **condition)
                    return True
                except OSError as error:
                    code = _code(error)
                    if code == "NotImplemented":
                        raise ConfigurationError(
                            f"cannot write {self.address}/{name}: the server does not write an object on the "
                            "condition that it is as it was (If-Match), without which a run could replace a "
                            "newer one. Publish into a folder, or on a server that does, as Amazon's.",
                            key="no-conditional-write",
                        ) from None
                    if code in _NOT_MET:
                        now = self.marker(name)
                        return now is not None and now.data == data
                    if code not in _UNDECIDED:
                        raise
            if wait_seconds is not None:
                time.sleep(wait_seconds)
        raise BusyError(
            f"cannot write {self.address}/{name}: each of {len(_WAITS_SECONDS) + 1} times the server said "
            f"that another request for it was under way ({code}). Run the same command again.",
            key="server-busy",
        )

    def marker(self, name: str) -> Marker | None:
        """Read an object with its tag; None if there is none."""
        with self._named("read", name):
            try:
                head = self._files.call_s3("head_object", **self._key(name))
                return Marker(self._content(name), str(head["ETag"]), head["LastModified"])
            except FileNotFoundError:
                return None

    def read(self, name: str) -> bytes | None:
        """Read an object; None if there is none."""
        with self._named("read", name):
            try:
                return self._content(name)
            except FileNotFoundError:
                return None

    def listed(self, folder: str, *, deep: bool, begins: str = "") -> tuple[dict[str, Stored], list[str]]:
        """List objects of a folder whose names begin so, and its folders; if ``deep`` all objects below."""
        below = f"{self._prefix}{folder}/"
        asked = {"Bucket": self.name, "Prefix": below + begins, **({} if deep else {"Delimiter": "/"})}
        objects, folders = dict[str, Stored](), list[str]()
        with self._named("list", folder):
            while True:
                page = self._files.call_s3("list_objects_v2", **asked)
                for entry in page.get("Contents", ()):
                    objects[entry["Key"].removeprefix(below)] = Stored(entry["Size"], entry["LastModified"])
                folders += [
                    entry["Prefix"].removeprefix(below).rstrip("/")
                    for entry in page.get("CommonPrefixes", ())
                ]
                if not page.get("IsTruncated"):
                    return objects, folders
                asked["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are gone already do not matter."""

        def remove(name: str) -> None:
            with self._named("delete", name):
                self._files.call_s3("delete_object", **self._key(name))

        in_parallel(remove, names)

    def _put(self, name: str, data: bytes, **condition: str) -> None:
        digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        self._files.call_s3("put_object", **self._key(name), Body=data, ContentMD5=digest, **condition)

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self.name, "Key": self._prefix + name}

    def _content(self, name: str) -> bytes:
        data: bytes = self._files.cat_file(f"{self.name}/{self._prefix}{name}")
        return data

    @contextmanager
    def _named(self, doing: str, name: str) -> Iterator[None]:
        """Turn whatever the library raises into an error that says what to do."""
        try:
            yield
        except CagpError:
            raise
        except Exception as error:  # s3fs, aiobotocore and aiohttp each have their own family
            raise self._explained(error, f"cannot {doing} {self.address}/{name}") from None

    def _explained(self, error: Exception, what: str) -> CagpError:
        code = _code(error)
        if _NO_CREDENTIALS & {type(found).__name__ for found in _chain(error)}:
            return ConfigurationError(
                f"{what}: there are no credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "AWS_PROFILE, in the environment, or run it where a role gives them.",
                key="credentials",
            )
        if code == "NoSuchBucket":
            return ConfigurationError(
                f"{what}: there is no bucket {self.name!r} on this server. Make it, or correct the address; "
                "a server that is not Amazon's is named by AWS_ENDPOINT_URL.",
                key="no-bucket",
            )
        if isinstance(error, PermissionError):
            return ConfigurationError(
                f"{what}: the server refuses it ({code or 'no permission'}). Check that the credentials in "
                "the environment are those of this bucket, and may list, read, write and delete there.",
                key="no-permission",
            )
        return StoreError(
            f"{what} ({type(error).__name__}: {without_secrets(str(error))[:300]}). What was published "
            "before is unchanged. Check the network and the server, then run the same command again.",
            key="server",
        )


def in_parallel(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Do one thing to many objects, some of them at a time; after an error no other is begun."""
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="objects") as pool:
        return list(pool.map(work, items))


def _connection(address: str) -> Any:
    """Open a file system of s3fs that remembers no listing, and gives up in time."""
    from fsspec.config import conf

    s3fs = from_extra("s3", "s3fs", f"the output {address}")
    configured = conf.get("s3", {}).get("config_kwargs", {})
    patience = {
        "connect_timeout": _CONNECT_SECONDS,
        "read_timeout": _READ_SECONDS,
        "retries": {"max_attempts": 2, "mode": "standard"},
    }
    return s3fs.S3FileSystem(
        skip_instance_cache=True, use_listings_cache=False, config_kwargs={**patience, **configured}
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Give an error and those that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def _code(error: BaseException) -> str:
    """Give what S3 calls the error; empty where it did not answer."""
    for found in _chain(error):
        response = getattr(found, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""
