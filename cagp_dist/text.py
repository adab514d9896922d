"""Numbers and names as people write them: bytes, durations, lists of names."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def bytes_text(count: float) -> str:
    """Write an amount of memory with three digits."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 999.5:  # above, three digits would need a power of ten
            return f"{count:.3g} {unit}"
    return f"{count / 1024:.3g} TiB"


def are_days(times: "NDArray[np.datetime64]") -> bool:
    """Whether all times are midnight, so that they can be written as days."""
    return bool((times == times.astype("datetime64[D]")).all())


def shown_time(time: "np.datetime64") -> str:
    """Write a time as messages show it, to the minute where that is exact."""
    exact = time.astype("datetime64[ns]")
    minute = exact.astype("datetime64[m]")
    return str(minute if minute == exact else exact)


def duration(seconds: float) -> str:
    """Write a duration with three digits at most."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def rough_duration(seconds: float) -> str:
    """Write an estimated duration, which is known to a digit or two."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def place_text(latitude_degrees: float, longitude_degrees: float) -> str:
    """Write a place as people do, whatever convention its longitude has: ``48.1 N, 12 W``."""
    east = (float(longitude_degrees) + 180.0) % 360.0 - 180.0
    north = f"{abs(latitude_degrees):.6g} {'S' if latitude_degrees < 0.0 else 'N'}"
    return f"{north}, {abs(east):.6g} {'W' if east < 0.0 else 'E'}"


def digits_text(number: float, digits: int) -> str:
    """Write a number rounded to so many digits, without a power of ten unless it is tiny or huge."""
    rounded = f"{number:.{digits}g}"
    if "e" not in rounded or not 1e-4 <= abs(number) < 1e9:
        return rounded
    return f"{float(rounded):.0f}"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun, in the plural unless it is one."""
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def missed(count: int, of: int) -> str:
    """Begin a sentence about selected times of which some, or the only one, are missing."""
    if of == 1:
        return "the selected time is"
    return f"{count:,} of {of:,} selected times {'is' if count == 1 else 'are'}"


def alternatives(names: Iterable[str], *others: str) -> str:
    """Write names in quotes, and other things as they are, with "or" before the last."""
    words = [*(f'"{name}"' for name in names), *others]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def degrees_label(value: float, *, axis: str) -> str:
    """``30°N``, ``0°``, ``10.5°W``: degrees as a map has them; ``axis`` is "latitude" or "longitude"."""
    signed = value if axis == "latitude" else (value + 180.0) % 360.0 - 180.0
    size = f"{abs(signed):.6g}°"
    if signed == 0.0 or abs(signed) == 180.0:
        return size
    return size + (("N" if signed > 0 else "S") if axis == "latitude" else ("E" if signed > 0 else "W"))


def printable(text: str) -> str:
    r"""Write control characters as escapes, so that a terminal does not obey them."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def in_one_line(text: str) -> str:
    """Write a text on one line, without anything that a terminal obeys: no name in it begins another line."""
    return printable(" ".join(text.splitlines()))


def json_line(found: Mapping[str, object]) -> str:
    """Write an object as JSON on one line, without anything that a terminal obeys."""
    text = json.dumps(found, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def is_loopback(host: str | None) -> bool:
    """Whether the name of a host is that of this machine."""
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False


_LOGIN = re.compile(  # a password may have slashes, a port has none
    r"(?<=://)(?:[^\s/?#'\"]*|[^\s/:@?#'\"]+:(?!:|\d+[/?#])[^\s'\"]*)@"
)
_QUERY = re.compile(r"(://[^\s?#'\"]*)[?#][^\s'\"]*")


def without_secrets(text: str, address: str = "") -> str:
    """Strip logins, queries and fragments of the addresses in a text: passwords, tokens, signatures."""
    if re.search(r"://.*[\s'\"]", address):
        scheme, _, rest = address.partition("://")
        text = text.replace(address, f"{scheme}://{re.split('[?#]', rest.rpartition('@')[2])[0]}")
    return _QUERY.sub(r"\1", _LOGIN.sub("", text))


def nearest(word: str, valid: Iterable[str], *, least: float = 0.5) -> str | None:
    """Find the valid word that resembles ``word`` most, if one does by ``least`` of 1 or more."""
    close = difflib.get_close_matches(word, list(valid), n=1, cutoff=least)
    return close[0] if close else None
