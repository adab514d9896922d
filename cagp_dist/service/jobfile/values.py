"""Single values of the job file: instants, areas, sources, schedulers and amounts of memory.

Each function returns the canonical form of what the file says, or raises `ValueError` with the sentence that
follows ``key = value:`` in the error message. What is of the wrong type is passed on for the model to refuse.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterable
from math import pi, sin

from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.factors import check_shape
from cagp_dist.fields.column_names import ANY
from cagp_dist.fields.sources import SOURCE_FORMS, SOURCES
from cagp_dist.geometry import EARTH_RADIUS_KILOMETRES
from cagp_dist.kernels import KERNEL_FORMS, MOST_PARTS, RESERVED_AXES, family_of
from cagp_dist.means import MEANS, ReadFamily, spellings
from cagp_dist.pipeline import check_anisotropy
from cagp_dist.pipeline.defaults import TRANSFORMS
from cagp_dist.runtime.schedulers import EXPECTED_SCHEDULER, SCHEDULERS
from cagp_dist.store.addresses import in_object_store, parse_address
from cagp_dist.text import alternatives, nearest
from cagp_dist.variables import canonical_name

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
EXPECTED_SOURCE = alternatives(SOURCE_FORMS)
PREVIOUS = "previous"  # The mean of a job that is the posterior of its run before
ZERO = "zero"  # of innovations, which a background leaves

NO_PERSISTENCE = (
    "how the field persists is said by time_kernel. A whole grid goes on exactly from its previous run with "
    'time_kernel = "matern12" (time_lengthscale_hours = 108 is a persistence of 0.8 in a day). For stations, '
    'and fields with gaps, write a mean such as "quadratic-latitude", time_kernel = "auto", and in [design] '
    "window_hours = 72"
)

EXPECTED_KEEP = '"90d", "30 runs", "50GiB" or "finals", or several of them with commas between'
NO_PACK = (
    "runs are no longer packed, as each variable of a run is one file; leave pack out, and what does not "
    "stay is removed, or write a rule that keeps more"
)
_YEARS = 1700, 2250  # what datetime64[ns] holds, with a margin


def as_tuple(value: object) -> object:
    """Make a tuple of a TOML array."""
    return tuple(value) if isinstance(value, list) else value


def instant_of(value: object, spoken: str | None = None) -> str:
    """Write an instant as ISO 8601 text in UTC, to the minute where that is exact; TOML dates are welcome."""
    text = value.isoformat() if isinstance(value, dt.date) else value
    expected = "expected an ISO 8601 time in UTC, for example 2017-04-27T12:00"
    if not isinstance(text, str):
        raise ValueError(f"{value!r} is not a time; {expected}")
    named = repr(text if spoken is None else spoken)
    try:
        instant = dt.datetime.fromisoformat(text)
        if instant.tzinfo is not None:
            instant = instant.astimezone(dt.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise ValueError(f"{named} is not a time; {expected}") from None
    if not _YEARS[0] <= instant.year <= _YEARS[1]:
        raise ValueError(f"{named} lies outside the years {_YEARS[0]}..{_YEARS[1]}; {expected}")
    return instant.isoformat(timespec="auto" if instant.second or instant.microsecond else "minutes")


def kernel(value: object, handler: Callable[[object], str]) -> str:
    """Name of a kernel, or of a sum of kernels with one space on both sides of each plus."""
    if not isinstance(value, str) or not ("+" in value or "(" in value):
        return handler(value)
    parts = [part.strip() for part in value.split("+")]
    for part in parts:
        try:
            family = family_of(part)
        except ArgumentError as error:
            raise ValueError(str(error)) from None
        if family is None:
            close = resembling(part, list(KERNEL_FORMS))
            raise ValueError(
                f'"{part}" is not a kernel{close}; expected a sum of {alternatives(KERNEL_FORMS)}'
            )
    if len(parts) > MOST_PARTS:
        raise ValueError(f"a sum of {len(parts)} kernels; expected at most {MOST_PARTS}")
    return " + ".join(parts)


def anisotropy(value: object) -> object:
    """Ratio and azimuth of an ellipse from a table of both; a word as it is."""
    if isinstance(value, dict):
        if value.keys() != {"ratio", "azimuth_degrees"}:
            raise ValueError(f"has the keys {sorted(value)}; expected ratio and azimuth_degrees")
        value = (value["ratio"], value["azimuth_degrees"])
    try:
        asked = check_anisotropy(value)
        if not isinstance(asked, str):
            check_shape(*asked)
    except ArgumentError as error:
        raise ValueError(str(error)) from None
    return asked


def transform(value: object) -> object:
    """Name of a transform: objects are for calls."""
    if not isinstance(value, str) or "(" in value:
        raise ValueError(
            f"is {value!r}; expected {alternatives(TRANSFORMS)}. One with given numbers, or an object with "
            "forward, inverse and log_slope, is for cagp_dist.krige(transform=...)"
        )
    return value


def written_anisotropy(value: str | tuple[float, float]) -> object:
    """Write an ellipse as a job file does."""
    return value if isinstance(value, str) else {"ratio": value[0], "azimuth_degrees": value[1]}


def each_part(value: object, handler: Callable[[object], float | None]) -> object:
    """One number, or of a list every number."""
    return tuple(handler(item) for item in value) if isinstance(value, list) else handler(value)


def as_list(value: object) -> object:
    """Make a list of a tuple, as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def lengthscale(value: float | None) -> float | None:
    """Check a chord on the unit sphere; what is too long is probably kilometres or degrees."""
    if value is None or value <= 2.0:
        return value
    readings = [
        f"{value:g} {unit} are {2.0 * sin(0.5 * value / radius):.3g}"
        for unit, radius in (("km", EARTH_RADIUS_KILOMETRES), ("degrees", 180.0 / pi))
        if value <= pi * radius
    ]
    meant = f"; {', '.join(readings)}" if readings else ""
    raise ValueError(
        "a lengthscale is a chord on the unit sphere, whose diameter is 2; expected a number above 0 and at "
        f"most 2{meant}"
    )


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


def sources(value: object) -> object:
    """Make one address of a list of files, ``file:A;B``."""
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        return value
    if len(value) > 1 and not all(item.startswith("file:") for item in value):
        raise ValueError('a list of sources is of files alone, for example ["file:a.nc", "file:b.nc"]')
    return ";".join([value[0], *(item.removeprefix("file:") for item in value[1:])])


_TABLES = (".csv", ".csv.gz", ".tsv", ".txt", ".parquet", ".pq")


def source(value: str) -> str:
    """Where observations come from: a name, or a kind and its address."""
    kind, colon, address = value.partition(":")
    known = SOURCES.get(kind)
    if known is not None and known.address and not address:
        raise ValueError(f'the address is missing after "{kind}:", for example "{kind}:{known.example}"')
    if known is not None and bool(known.address) == bool(colon) and "\0" not in address:
        return value
    if not colon and "." in value:
        kind = "table" if value.lower().endswith(_TABLES) else "file"
        raise ValueError(f'expected {EXPECTED_SOURCE}; write "{kind}:{value}"')
    raise ValueError(f"expected {EXPECTED_SOURCE}{resembling(kind, SOURCES)}")


def variable(value: str) -> str:
    """Check the name of a variable; of the names of a known quantity, give the one that it is kept by."""
    try:
        return canonical_name(value)
    except ConfigurationError as error:
        raise ValueError(str(error).removesuffix(".")) from None


def variables(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Check the name of a variable, or those of several."""
    if isinstance(value, str):
        return variable(value)
    names = tuple(map(variable, value))
    made = {f"{name}_{kind}" for name in names for kind in ("mean", "std", "predictive_std")}
    if len(names) < 2 or len({*names}) < len(names) or made & {*names}:
        raise ValueError("expected one name, or a list of two and more different ones")
    return names


_PLACES_AND_TIMES = {"time": "times", "valid_time": "times", "latitude": "area", "longitude": "area"}


def select(value: object) -> object:
    """Check what is chosen of dimensions or keys: text, numbers, or lists of them."""
    if not isinstance(value, dict) or not value:
        raise ValueError("expected a table of at least one name and value, for example { number = 1 }")
    for key, choice in value.items():
        if key in _PLACES_AND_TIMES and choice != ANY:
            raise ValueError(f"{key} is not chosen here; use the key {_PLACES_AND_TIMES[key]}")
        several = isinstance(choice, (list, tuple)) and bool(choice)
        for each in choice if several else [choice]:
            if not isinstance(each, (str, int, float)):
                raise ValueError(f"{key} = {each!r}; expected text, a number, or a list of them")
    return value


def mean(value: object) -> str:
    """Check the name of a prior mean, or its kind and address."""
    expected = f"expected {alternatives((*spellings(), PREVIOUS))}"
    if not isinstance(value, str):
        raise ValueError(expected)
    kind, _, address = value.partition(":")
    family = MEANS.get(kind)
    if isinstance(family, ReadFamily):
        if address and "\0" not in address:
            return value
        raise ValueError(f'the address is missing after "{kind}:", for example "{kind}:monthly-means.zarr"')
    if value in MEANS or value in (PREVIOUS, ZERO):
        return value
    raise ValueError(f"{expected}{resembling(kind, (*MEANS, PREVIOUS))}")


def number_or_field(value: float | str) -> float | str:
    """Check a standard deviation: a number above zero, or how a field is spelled."""
    if isinstance(value, str):
        return checked_covariate(value)
    if not 0.0 < value < float("inf"):
        raise ValueError(f"expected a number above zero, or a field: {value:g}")
    return value


def checked_covariate(value: str) -> str:
    """Check how a covariate is spelled."""
    kind, _, rest = value.partition(":")
    address, _, variable = rest.rpartition(":")
    if kind in ("file", "zarr") and address and variable and "\0" not in value:
        return value
    raise ValueError(
        'expected "file:PATH:VARIABLE" or "zarr:ADDRESS:VARIABLE", for example "file:static.nc:elevation"'
    )


def axis_of_labels(value: str) -> str:
    """Check the name of a column that says which observations share an error."""
    from cagp_dist.store.published_variables import STATION_NAME

    taken = (*RESERVED_AXES, "point", "latitude", "longitude", "x", "y", STATION_NAME, "noise_std")
    if not value or value in taken or "/" in value or ", " in value:
        raise ValueError(
            "expected the name of a column without / and comma, and none of "
            f"{alternatives(taken)}, which have another meaning in a run; rename the column"
        )
    return value


def names_of_columns(value: object) -> object:
    """Take one name as a list of it."""
    return as_tuple([value] if isinstance(value, str) else value)


def scheduler(value: str | None) -> str | None:
    """Check a scheduler's name, address or file."""
    if value is None or value in SCHEDULERS or value.endswith(".json"):
        return value
    if re.fullmatch(r"(tcp|tls)://([^\s/:]+|\[[0-9a-fA-F:]+\]):\d{1,5}", value):
        return value
    raise ValueError(f"expected {EXPECTED_SCHEDULER}{resembling(value, SCHEDULERS)}")


def output(value: str) -> str:
    """Check that runs can be published at a path or address."""
    if in_object_store(value):
        parse_address(value)
    elif re.match(r"[A-Za-z][\w+.-]+:/", value):
        raise ValueError(
            "it is an address of a kind that is not known here; expected a folder or s3://BUCKET/PATH"
        )
    if "\0" in value:
        raise ValueError("it holds a NUL character; expected the path of a folder")
    return value


def places(value: str | None) -> str | None:
    """Check that a table of places is named."""
    if value is not None and not value.partition("table:")[2]:
        raise ValueError(f'expected "table:PATH"; write "table:{value}"')
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


def keep(value: object) -> object:
    """``"90d, 30 runs"`` as the table of which it is the short form; a number is one of runs."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"runs": value}
    if not isinstance(value, str):
        return value
    table: dict[str, object] = {}
    for word in (part.strip() for part in value.split(",")):
        number = re.fullmatch(r"(\d{1,9}) ?(d|days?|runs?)?", word)
        name: str = "total"
        given: object = word
        if word == "pack":
            raise ValueError(NO_PACK)
        if word == "finals":
            name, given = "finals_only", True
        elif number is not None:
            name, given = "days" if str(number[2]).startswith("d") else "runs", int(number[1])
        if name in table:
            raise ValueError(f"{word!r} is the second of its kind; expected each once, {EXPECTED_KEEP}")
        if name == "total":
            try:
                parse_bytes(word)
            except ValueError:
                raise ValueError(f"{word!r} is none of {EXPECTED_KEEP}") from None
        table[name] = given
    return table


def resembling(word: str, valid: Iterable[str]) -> str:
    """Name the valid word that resembles ``word`` most, as the end of a sentence; else say nothing."""
    close = nearest(word, valid)
    return "" if close is None else f'; nearest: "{close}"'
