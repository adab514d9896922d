"""Which times, rows and columns of a field are wanted: pure functions of coordinates, before any read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np

from cagp_dist.arrays import Array, Indices, Marks, Mask, Times
from cagp_dist.errors import AbsentTimeError, ConfigurationError, DataError
from cagp_dist.remedies import Setting
from cagp_dist.space import CRSLike
from cagp_dist.space.systems import written_system
from cagp_dist.text import counted, missed, shown_time
from cagp_dist.variables import T2M, Transform

Area = tuple[float, float, float, float]

GapPolicy = Literal["keep", "drop"]  # what is done with places that have values at some of the times alone
Choice = str | float | Sequence[str | float]  # what is chosen of a key or a dimension: a value, or several


class Asked(NamedTuple):
    """What was said of a plane: names of x and y, and its system; nothing of places of the globe."""

    x: str | None = None
    y: str | None = None
    crs: CRSLike = None

    @classmethod
    def of(cls, columns: Mapping[str, str] | None, crs: CRSLike) -> Self:
        """Take it from names of columns by their roles."""
        named = columns or {}
        return cls(named.get("x"), named.get("y"), crs)

    @property
    def any(self) -> bool:
        """Whether a plane is meant."""
        return any(each is not None for each in self)


ANYWHERE = Asked()


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What is wanted of any source, and how it is read; a reader uses what concerns it."""

    value: str | None = None  # variable or column of the values
    columns: Mapping[str, str] = field(default_factory=dict)  # of coordinates, by their roles
    noise_std: str | float | None = None  # of points and tables: a column, or a number
    units: str | None = None  # of the values, whatever the source says
    missing: Marks = None
    where: Mapping[str, object] = field(default_factory=dict)  # ``level``, dimensions, keys of GRIB, columns
    crs: CRSLike = None  # of x and y of a plane
    times: Sequence[str] | None = None
    area: Area | None = None  # north, west, south, east
    grid_degrees: float | None = None
    check_range: bool = True
    transform: Transform = "none"
    static: Collection[str] = ()  # columns with a number for each place
    labels: Collection[str] = ()  # columns with a name for each, of those who share an error
    limits: bool = False  # whether values may be known only to be below a limit; else such cells are refused

    @property
    def variable(self) -> str:
        """Name of the variable of a field, which has one by default."""
        return self.value or T2M.name

    @property
    def level(self) -> float | None:
        """Which level, whatever its axis is called."""
        return cast("float | None", self.where.get("level"))

    @property
    def select(self) -> dict[str, Choice]:
        """What is chosen but the level."""
        return {key: cast("Choice", choice) for key, choice in self.where.items() if key != "level"}

    @property
    def asked(self) -> Asked:
        """What is said of a plane."""
        return Asked.of(self.columns, self.crs)

    def as_json(self) -> dict[str, Any]:
        """Arguments of this class as JSON has them."""
        return {
            **vars(self),
            "crs": written_system(self.crs),
            "static": [*self.static],
            "labels": [*self.labels],
        }


EVERYTHING = Selection()


def is_chosen(value: object, choice: Choice) -> bool:
    """Tell whether a value that a source has, a number or text, is one that was chosen."""
    if value is None:
        return False
    if not isinstance(choice, str) and isinstance(choice, Sequence):
        return any(is_chosen(value, each) for each in choice)
    text = value.decode() if isinstance(value, bytes) else str(value)
    if text.strip() == str(choice):
        return True
    try:
        return bool(np.isclose(float(text), float(choice), rtol=1e-9, atol=0.0))
    except ValueError:
        return False


def written_choice(choice: object) -> str:
    """Write what was chosen, or may be, as a job file has it."""
    if isinstance(choice, (bool, np.bool_)):
        return str(bool(choice)).lower()
    if isinstance(choice, (int, float, np.integer, np.floating)):
        return f"{choice:.12g}"
    if isinstance(choice, Sequence) and not isinstance(choice, str):
        return f"[{', '.join(map(written_choice, choice))}]"
    return f'"{choice}"'


def parse_times(times: Sequence[str]) -> Times:
    """Parse times written in ISO 8601; sorted, each once."""
    if isinstance(times, str) or len(times) == 0:
        raise ConfigurationError(
            f"times is {times!r}; expected a list of at least one ISO time.", key="times"
        )
    parsed = []
    for text in times:
        bare = str(text).strip().removesuffix("Z")
        try:
            if "+" in bare or bare.count("-") != 2:  # NumPy would shift other zones with a mere warning
                raise ValueError("expected year-month-day and no time zone")
            moment = np.datetime64(bare, "ns")
        except ValueError as error:
            raise ConfigurationError(
                f"time {text!r} cannot be read ({error}); expected UTC in ISO 8601: 2017-04-27T12:00.",
                key="times",
            ) from error
        parsed.append(moment)
    return np.unique(np.array(parsed, dtype="datetime64[ns]"))


def the_time(wanted: Times, what: str) -> Times:
    """Give the time that is said of what has none: a single one."""
    if wanted.size != 1:
        raise ConfigurationError(
            f"{what} has no times, so that it is one field, and {wanted.size:,} times are selected; expected "
            "the one when it was measured. Of a mean over years take any day of them.",
            key="no-times",
            remedies=(Setting("times", [shown_time(wanted[0])]),),
        )
    return wanted


def time_positions(available: Times, wanted: Times | None) -> Indices:
    """Where the wanted times are among the available ones (T,), repeated ones included."""
    if available.size == 0:
        raise DataError("the source holds no time at all; expected at least one field.", key="no-times")
    if wanted is None:
        return np.arange(available.size)
    absent = wanted[~np.isin(wanted, available)]
    if absent.size:
        examples = ", ".join(shown_time(time) for time in absent[:3]) + (", ..." if absent.size > 3 else "")
        there = counted(np.unique(available).size, "time")
        raise AbsentTimeError(
            f"{missed(absent.size, wanted.size)} not in the source: {examples}. It has "
            f"{there} from {shown_time(available.min())} to {shown_time(available.max())}.",
            key="absent-times",
        )
    return np.flatnonzero(np.isin(available, wanted))


def inside_area(latitude: Array, longitude: Array, area: Area) -> tuple[Indices, Indices]:
    """Rows and columns inside a box, boundaries included."""
    rows, columns = (np.flatnonzero(inside) for inside in area_masks(latitude, longitude, area))
    if rows.size == 0 or columns.size == 0:
        raise ConfigurationError(
            f"area {list(area)} (north, west, south, east) holds no grid point; expected some of latitudes "
            f"{latitude.min():g}..{latitude.max():g}, longitudes {longitude.min():g}..{longitude.max():g}.",
            key="empty-area",
        )
    return rows, columns


def no_area_in_plane(area: Area | None, names: tuple[str, str]) -> None:
    """Refuse a box of latitudes and longitudes where places have neither."""
    if area is not None:
        raise ConfigurationError(
            f"area is in degrees, and the places are {names[0]!r} and {names[1]!r} of a plane; leave it out, "
            "and cut the source before.",
            key="area-in-plane",
        )


def not_thinned(what: str) -> ConfigurationError:
    """Give the error of a spacing for places that are no grid of the globe."""
    return ConfigurationError(
        f"grid_degrees is for a grid with axes of latitude and longitude, and {what} lies on places of its "
        "own, or in a plane; leave it out.",
        key="grid-degrees",
    )


def check_spacing(grid_degrees: float) -> None:
    """Refuse what is no spacing of a grid."""
    if not grid_degrees > 0.0:
        raise ConfigurationError(
            f"grid_degrees is {grid_degrees}; expected a positive number of degrees.", key="grid-degrees"
        )


def area_masks(latitude: Array, longitude: Array, area: Area) -> tuple[Mask, Mask]:
    """Tell which latitudes and which longitudes lie inside a box; it may hold none."""
    check_area(area)
    north, west, south, east = area
    width = 360.0 if abs(east - west) >= 360.0 else (east - west) % 360.0
    return (
        (latitude <= north + 1e-6) & (latitude >= south - 1e-6),
        (longitude - west + 1e-6) % 360.0 <= width + 2e-6,
    )


def check_area(area: Sequence[float]) -> None:
    """Refuse a box that is not north, west, south, east."""
    if len(area) != 4 or not all(np.isfinite(area)) or not -90.0 <= area[2] < area[0] <= 90.0:
        raise ConfigurationError(
            f"area is {list(area)}; expected four degrees [north, west, south, east] with north above south.",
            key="area",
        )


def on_grid(coordinates: Array, grid_degrees: float) -> Indices:
    """Positions of the coordinates that are whole multiples of a coarser spacing."""
    check_spacing(grid_degrees)
    gaps = np.abs(np.diff(coordinates))
    spacing = float(gaps.min()) if gaps.size else grid_degrees
    ratio = grid_degrees / spacing if spacing > 0.0 else 0.0
    odd = (~np.isclose(gaps, spacing, atol=1e-4)).sum()  # one: where a box crosses the prime meridian
    positions = np.flatnonzero(
        np.abs(np.remainder(coordinates + 0.5 * grid_degrees, grid_degrees) - 0.5 * grid_degrees) < 1e-4
    )
    if odd > 1 or round(ratio) < 1 or abs(ratio - round(ratio)) > 1e-4 or positions.size == 0:
        raise ConfigurationError(
            f"grid_degrees is {grid_degrees:g}, and the field has a point every {spacing:g} degrees; "
            "expected a whole multiple of an equal spacing. A field is thinned, never interpolated.",
            key="grid-degrees",
        )
    return positions
