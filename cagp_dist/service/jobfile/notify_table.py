"""``[notify]``: who hears of the end of a pass. Secrets come from the environment, and are never written."""

import re
import shlex
from itertools import pairwise
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, model_validator

from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.fields import JobTable, key

Occasion = Literal["success", "failure", "drift"]

REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)\}")

_SECRET_HEADER = re.compile(r"auth|token|secret|key|password|cookie|signature", re.IGNORECASE)
_TOKEN = re.compile(r"(?=[^/]*\d)[\w.~-]{20,}|[A-Za-z]{20,}")
_QUERY_PART = re.compile(r"([\w.-]*=)?\$+|")  # of an address, with $ for each reference
_SECRET_WORD = re.compile(
    r"(auth|token|secret|key|passw|cookie|signature)[\w-]*\s*[:=]\s*[^\s/.]|\b(bearer|basic)\s+\S",
    re.IGNORECASE,
)
_SECRET_OPTION = re.compile(r"--?[\w-]*(token|secret|passw|api-?key|bearer)[\w-]*", re.IGNORECASE)
_TOKEN_WORD = re.compile(r"(?=.*\d)[\w-]{20,}|eyJ[\w.-]+")
_HOW = "write ${NAME} in its place, and set NAME in the environment of the command"


def _words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


class NotifyTable(JobTable):
    """``[notify]``: a command or a web address that is told of success, failure and drift."""

    on: Annotated[tuple[Occasion, ...], BeforeValidator(values.as_tuple)] = key(
        ("failure", "drift"), 'of what: a list of "success", "failure" and "drift"', ["failure"], min_length=1
    )
    command: Annotated[tuple[str, ...] | None, BeforeValidator(values.as_tuple), BeforeValidator(_words)] = (
        key(
            None,
            "a command and its arguments, which gets JSON on standard input; ${NAME} as in url",
            ["mail-us"],
            min_length=1,
        )
    )
    url: str | None = key(
        None, "an address that JSON is posted to; ${NAME} is from the environment", "https://${HOST}/hook"
    )
    headers: dict[str, str] | None = key(
        None, "headers of the post; ${NAME} is from the environment", {"Authorization": "Bearer ${TOKEN}"}
    )
    timeout_seconds: float = key(10.0, "a number of seconds above 0, at most 600", 10.0, gt=0.0, le=600.0)
    """How long the command or the address may take."""

    @model_validator(mode="after")
    def _is_complete_and_holds_no_secret(self) -> Self:
        if self.command is None and self.url is None:
            raise ValueError("nobody is told; expected command, url, or both")
        if any(_holds_secret(*words) for words in pairwise(("", *(self.command or ())))):
            raise ValueError(
                f"command seems to hold a secret, and jobs are published with their runs; {_HOW}"
            )
        if self.url is None:
            if self.headers is not None:
                raise ValueError("headers given without url; expected both")
            return self
        if not self.url.startswith("${") and urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError('url is not a web address; expected "https://...", or "${NAME}" for all of it')
        if _address_holds_secret(self.url):
            raise ValueError(f"url seems to hold a secret, and jobs are published with their runs; {_HOW}")
        for name, value in (self.headers or {}).items():
            if _SECRET_HEADER.search(name) and not REFERENCE.search(value):
                raise ValueError(f"the header {name} holds a secret, and jobs are published; {_HOW}")
        return self


def _address_holds_secret(url: str) -> bool:
    parts = urlsplit(REFERENCE.sub("$", url))
    query = all(map(_QUERY_PART.fullmatch, parts.query.split("&")))
    return bool("@" in parts.netloc or not query or parts.fragment or _TOKEN.search(parts.path))


def _holds_secret(before: str, word: str) -> bool:
    """Whether a word of a command, after another one, looks like a password, a token or a header with one."""
    if "://" in word and any(_address_holds_secret(part) for part in word.split() if "://" in part):
        return True
    if any(map(_TOKEN_WORD.fullmatch, re.split(r"[\s:=]+", REFERENCE.sub(" ", word)))):
        return True
    if REFERENCE.search(word):
        return False
    if before in ("-u", "--user") and ":" in word:
        return True
    return bool(_SECRET_WORD.search(word) or (_SECRET_OPTION.fullmatch(before) and word[:1] not in "-/."))
