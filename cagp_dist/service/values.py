"""Single values of the job file: times, areas, sources, schedulers and amounts of memory.

Each function takes what the file says and returns its canonical form, or raises `ValueError` with the
sentence that follows ``key = value:`` in the error message. What is of the wrong type altogether is
passed on unchanged, for the model to refuse.
"""

import datetime as dt
import difflib
import re
from collections.abc import Iterable

from cagp_dist.means import MEANS, SPELLINGS, ReadFamily

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SOURCES = "sample", "synthetic", "cds"
_SOURCE_KINDS = "file", "zarr"
_SCHEDULERS = "local", "serial", "slurm", "pbs"
_EXPECTED_SOURCE = 'expected "sample", "synthetic", "file:PATH", "zarr:URL" or "cds"'
_YEARS = 1700, 2250  # what datetime64[ns] holds, with a margin


def as_tuple(value: object) -> object:
    """Make a tuple of a TOML array."""
    return tuple(value) if isinstance(value, list) else value


def times(value: object) -> object:
    """Instants in UTC as ISO 8601 text, ascending; TOML dates and texts are both welcome."""
    if not isinstance(value, list):
        return value
    if not value:
        raise ValueError("the list is empty; leave the key out to take all times of the source")
    instants: set[str] = set()
    for item in value:
        instant = _instant(item)
        if instant in instants:
            raise ValueError(f"the time {item} is listed more than once; list each time once")
        instants.add(instant)
    return tuple(sorted(instants))


def _instant(value: object) -> str:
    text = value.isoformat() if isinstance(value, dt.date) else value
    expected = "expected an ISO 8601 time in UTC, for example 2017-04-27T12:00"
    if not isinstance(text, str):
        raise ValueError(f"{value!r} is not a time; {expected}")
    try:
        instant = dt.datetime.fromisoformat(text)
        if instant.tzinfo is not None:
            instant = instant.astimezone(dt.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time; {expected}") from None
    if not _YEARS[0] <= instant.year <= _YEARS[1]:
        raise ValueError(f"{text!r} lies outside the years {_YEARS[0]}..{_YEARS[1]}; {expected}")
    return instant.isoformat(timespec="auto" if instant.second or instant.microsecond else "minutes")


def area(value: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """``north, west, south, east`` in degrees."""
    north, west, south, east = value
    if not -90.0 <= south < north <= 90.0:
        raise ValueError(
            f"north is {north:g} and south is {south:g}; expected -90 <= south < north <= 90, "
            "in the order [north, west, south, east]"
        )
    if not (-180.0 <= west < 360.0 and -180.0 < east <= 360.0) or west == east:
        raise ValueError(
            f"west is {west:g} and east is {east:g}; expected two different longitudes in -180..360, "
            "in the order [north, west, south, east]"
        )
    return value


def source(value: str) -> str:
    """Where observations come from: a name, or a kind and its address."""
    kind, colon, address = value.partition(":")
    if value in _SOURCES or (kind in _SOURCE_KINDS and address and "\0" not in address):
        return value
    if kind in _SOURCE_KINDS and not address:
        example = "file:field.grib" if kind == "file" else "zarr:gs://bucket/era5.zarr"
        raise ValueError(f'the address is missing after "{kind}:", for example "{example}"')
    if not colon and "." in value:
        raise ValueError(f'{_EXPECTED_SOURCE}; write "file:{value}"')
    known = (*_SOURCES, *_SOURCE_KINDS)
    raise ValueError(_EXPECTED_SOURCE + nearest(kind, known))


def mean(value: str) -> str:
    """Check the name of a prior mean, or its kind and address."""
    kind, _, address = value.partition(":")
    family = MEANS.get(kind)
    if isinstance(family, ReadFamily):
        if address and "\0" not in address:
            return value
        raise ValueError(f'the address is missing after "{kind}:", for example "{kind}:monthly-means.zarr"')
    if value in MEANS:
        return value
    *names, last = (f'"{spelling}"' for spelling in SPELLINGS)
    raise ValueError(f"expected {', '.join(names)} or {last}" + nearest(kind, MEANS))


def scheduler(value: str | None) -> str | None:
    """Check a scheduler's name, address or file."""
    if value is None or value in _SCHEDULERS or value.endswith(".json"):
        return value
    if re.fullmatch(r"(tcp|tls)://([^\s/:]+|\[[0-9a-fA-F:]+\]):\d{1,5}", value):
        return value
    raise ValueError(
        'expected "local", "serial", "slurm", "pbs", an address such as "tcp://127.0.0.1:8786", '
        'or the path of a scheduler file that ends in ".json"' + nearest(value, _SCHEDULERS)
    )


def path(value: str) -> str:
    """Check that the file system can hold a path."""
    if "\0" in value:
        raise ValueError("it holds a NUL character; expected the path of a folder")
    return value


def parse_bytes(value: object) -> object:
    """``4GiB`` as a number of bytes."""
    example = 'for example "4GiB"'
    if not isinstance(value, str):
        raise ValueError(f"expected text with a unit, {example}")
    found = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,12})?)\s*([A-Za-z]+)\s*", value)
    if found is None or found[2].upper() not in _UNITS:
        raise ValueError(f"expected a number and a unit (B, kB, MB, GB, TB, KiB, MiB, GiB or TiB), {example}")
    amount = int(float(found[1]) * _UNITS[found[2].upper()])
    if amount < 2**20:
        raise ValueError(f"{amount} bytes are less than any work needs; expected at least 1MiB, {example}")
    return amount


def nearest(word: str, valid: Iterable[str]) -> str:
    """Name the valid word that resembles ``word`` most, as the end of a sentence; else say nothing."""
    close = difflib.get_close_matches(word, list(valid), n=1, cutoff=0.5)
    return f'; nearest: "{close[0]}"' if close else ""
