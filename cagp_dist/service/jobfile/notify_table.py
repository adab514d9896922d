"""``[notify]``: who hears of the end of a pass. Secrets come from the environment, and are never written."""

import re
import shlex
from typing import Annotated, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import BeforeValidator, model_validator

from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.fields import JobTable, key

Occasion = Literal["success", "failure", "drift"]

REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)\}")

_SECRET_HEADER = re.compile(r"auth|token|secret|key|password|cookie|signature", re.IGNORECASE)
_TOKEN = re.compile(r"(?=[^/]*\d)[\w.~-]{20,}")
_HOW = "write ${NAME} in its place, and set NAME in the environment of the command"


def _words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


class NotifyTable(JobTable):
    """``[notify]``: a command or a web address that is told of success, failure and drift."""

    on: Annotated[tuple[Occasion, ...], BeforeValidator(values.as_tuple)] = key(
        ("failure", "drift"), 'of what: a list of "success", "failure" and "drift"', ["failure"], min_length=1
    )
    command: Annotated[tuple[str, ...] | None, BeforeValidator(values.as_tuple), BeforeValidator(_words)] = (
        key(None, "a command and its arguments, which gets JSON on standard input", ["mail-us"], min_length=1)
    )
    url: str | None = key(
        None, "an address that JSON is posted to; ${NAME} is from the environment", "https://${HOST}/hook"
    )
    headers: dict[str, str] | None = key(
        None, "headers of the post; ${NAME} is from the environment", {"Authorization": "Bearer ${TOKEN}"}
    )
    timeout_seconds: float = key(10.0, "a number of seconds above 0, at most 600", 10.0, gt=0.0, le=600.0)

    @model_validator(mode="after")
    def _is_complete_and_holds_no_secret(self) -> Self:
        if self.command is None and self.url is None:
            raise ValueError("nobody is told; expected command, url, or both")
        if self.url is None:
            if self.headers is not None:
                raise ValueError("headers came without url; expected both")
            return self
        parts = urlsplit(REFERENCE.sub("", self.url))
        if not self.url.startswith("${") and parts.scheme not in ("http", "https"):
            raise ValueError('url is no web address; expected "https://...", or "${NAME}" for all of it')
        if "@" in parts.netloc or parse_qsl(parts.query) or parts.fragment or _TOKEN.search(parts.path):
            raise ValueError(f"url seems to hold a secret, and jobs are published with their runs; {_HOW}")
        for name, value in (self.headers or {}).items():
            if _SECRET_HEADER.search(name) and not REFERENCE.search(value):
                raise ValueError(f"the header {name} holds a secret, and jobs are published; {_HOW}")
        return self
