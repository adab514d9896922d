"""Random spellings of one table: how people write places, times, values, units, gaps and files.

`spelled` draws a table whose meaning is known. Whatever door reads it must give that meaning or refuse it;
where a column makes the rows mean something else, it must refuse. Run as
``python -m tests.fields.spellings COUNT SEED`` to try many, and print what went wrong.
"""

import gzip
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import CagpError
from cagp_dist.kriging.given_observations import read

Generator = np.random.Generator
Columns = dict[str, Any]


@dataclass
class Spelled:
    """A table as it is written, and what it means."""

    columns: Columns
    north: np.ndarray  # (n,) degrees, of the rows that have a value
    east: np.ndarray
    celsius: np.ndarray
    times: np.ndarray | None
    how: dict[str, Any]
    words: list[str]  # what was chosen
    harmful: bool = False  # whether a column makes its rows mean something else


def spelled(rng: Generator) -> Spelled:
    """Draw a table."""
    n = int(rng.integers(6, 30))
    days = int(rng.choice([1, 1, 3]))
    places_north, places_east = rng.uniform(-60.0, 60.0, n).round(4), rng.uniform(-179.0, 179.0, n).round(4)
    when = np.datetime64("2021-03-04T06", "s") + np.arange(days) * np.timedelta64(86_400, "s")
    north, east = np.tile(places_north, days), np.tile(places_east, days)
    times = np.repeat(when, n)
    celsius = (
        25.0 - 0.3 * np.abs(north) + 2.0 * np.sin(np.deg2rad(3.0 * east)) + 0.1 * np.arange(n * days)
    ).round(1)
    order = rng.permutation(north.size)
    north, east, times, celsius = north[order], east[order], times[order], celsius[order]
    words: list[str] = []
    columns: Columns = {}
    how: dict[str, Any] = {"value": "temperature"}

    def one_of(choices: dict[str, Callable[[], Columns]]) -> None:
        word = str(rng.choice(list(choices)))
        words.append(word)
        columns.update(choices[word]())

    one_of({"name": lambda: {"station": [f"S {place}" for place in order % n]}, "no name": dict})
    one_of(_places(rng, north, east))
    one_of({} | _times(times, needed=days > 1))
    dated = words[-1] != "no time"
    _values(rng, celsius, columns, how, words)
    if rng.random() < 0.3:
        _gaps(rng, columns, how, words)
    missed = _missing(columns, how)
    one_of(_beside(rng, north, order % n))
    harmful = bool(rng.random() < 0.2)
    if harmful:
        columns = {name: np.concatenate([held, held]) for name, held in columns.items()}
        value = next(name for name in columns if name.startswith("temperature"))
        half = len(order)
        other = rng.choice(
            ["pres (dbar)", "depth", "level", "member", "element", "wavelength", "sample_depth"]
        )
        shifted = columns[value].astype(object)
        shifted[half:] = [_shifted(cell) for cell in shifted[half:]]
        columns[value] = pd.Series(shifted.tolist()).to_numpy()
        texts = other == "element"
        columns[str(other)] = np.repeat(np.array(["TMAX", "TMIN"]) if texts else np.array([5.4, 100.3]), half)
        words.append(f"rows differ in {other}")
    keys = list(columns)
    rng.shuffle(keys)
    kept = ~missed
    when = times[kept] if dated else None
    columns = {key: columns[key] for key in keys}
    return Spelled(columns, north[kept], east[kept], celsius[kept], when, how, words, harmful)


def _shifted(cell: Any) -> Any:
    """Write a value of another level: 5 units more."""
    if isinstance(cell, str):
        text = cell.replace(",", ".")
        return f"{float(text) + 5.0:.2f}" if text.replace(".", "").replace("-", "").isdigit() else cell
    return cell + 5.0 if cell != -9999.0 else cell


def _parts(degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Degrees, minutes and seconds of sizes, to a thousandth of a second."""
    total = np.rint(np.abs(degrees) * 3_600_000.0)
    return total // 3_600_000, (total // 60_000) % 60, (total % 60_000) / 1000.0


def _places(rng: Generator, north: np.ndarray, east: np.ndarray) -> dict[str, Callable[[], Columns]]:
    names = ("lat", "lon"), ("Latitude", "Longitude"), ("LATITUDE", "LONGITUDE"), ("Lat (deg)", "Lon (deg)")
    lat, lon = names[int(rng.integers(len(names)))]
    south, west = np.where(north < 0, "S", "N"), np.where(east < 0, "W", "E")
    (dn, mn, sn), (de, me, se) = _parts(north), _parts(east)

    def signed(degrees: np.ndarray, sign: np.ndarray) -> np.ndarray:
        return np.where(sign < 0, -degrees, degrees)

    return {
        "decimal": lambda: {lat: north, lon: east},
        "to 360": lambda: {lat: north, lon: np.mod(east, 360.0)},
        "letters": lambda: {
            "lat": np.array([f"{abs(v):.4f}{s}" for v, s in zip(north, south, strict=True)]),
            "lon": np.array([f"{abs(v):.4f} {s}" for v, s in zip(east, west, strict=True)]),
        },
        "degrees, minutes and seconds": lambda: {
            "lat": _written("{:.0f}d{:02.0f}m{:06.3f}s{}", dn, mn, sn, south),
            "lon": _written("{:.0f}°{:02.0f}'{:06.3f}\"{}", de, me, se, west),
        },
        "hemisphere columns": lambda: {
            "lat": np.abs(north), "lat_dir": south, "lon": np.abs(east), "lon_dir": west,
        },
        "minutes columns": lambda: {
            "lat_deg": dn, "lat_min": mn + sn / 60.0, "lat_hem": south,
            "lon_deg": de, "lon_min": me + se / 60.0, "lon_hem": west,
        },
        "radians": lambda: {"lat (rad)": np.deg2rad(north), "lon (rad)": np.deg2rad(east)},
    }  # fmt: skip


def _written(form: str, *parts: np.ndarray) -> np.ndarray:
    return np.array([form.format(*row) for row in zip(*parts, strict=True)])


def _times(times: np.ndarray, *, needed: bool) -> dict[str, Callable[[], Columns]]:
    stamps = [pd.Timestamp(time) for time in times]
    found: dict[str, Callable[[], Columns]] = {
        "iso": lambda: {"time": np.array([f"{t:%Y-%m-%dT%H:%M:%S}" for t in stamps])},
        "zone": lambda: {
            "timestamp": np.array([f"{t + timedelta(hours=2):%Y-%m-%d %H:%M}+02:00" for t in stamps])
        },
        "dots": lambda: {"date": np.array([f"{t:%d.%m.%Y %H:%M}" for t in stamps])},
        "date and hour": lambda: {
            "date": np.array([f"{t:%Y-%m-%d}" for t in stamps]), "hour": np.array([t.hour for t in stamps]),
        },
        "date and clock": lambda: {
            "date": np.array([f"{t:%Y%m%d}" for t in stamps]),
            "time": np.array([f"{t:%H:%M}" for t in stamps]),
        },
        "parts": lambda: {
            name: np.array([getattr(t, name) for t in stamps]) for name in ("year", "month", "day", "hour")
        },
        "epoch": lambda: {"time": np.array([int(t.timestamp()) for t in stamps])},
        "day of year": lambda: {
            "year": np.array([t.year for t in stamps]), "doy": np.array([t.day_of_year for t in stamps]),
            "hour": np.array([t.hour for t in stamps]),
        },
        "datetime64": lambda: {"time": times.astype("datetime64[ns]")},
    }  # fmt: skip
    return found if needed else found | {"no time": dict}


def _values(
    rng: Generator, celsius: np.ndarray, columns: Columns, how: dict[str, Any], words: list[str]
) -> None:
    spellings = {
        "temperature (degC)": celsius,
        "temperature (K)": celsius + 273.15,
        "temperature [°F]": 1.8 * celsius + 32.0,
        "temperature (0.1 degC)": np.rint(10.0 * celsius),
    }
    name = str(rng.choice(list(spellings)))
    columns[name] = spellings[name].round(3)
    words.append(name)
    if rng.random() < 0.3:
        columns["noise_std"] = np.full(celsius.size, 0.2)
        words.append("noise")


def _gaps(rng: Generator, columns: Columns, how: dict[str, Any], words: list[str]) -> None:
    value = next(name for name in columns if name.startswith("temperature"))
    gone = rng.random(len(columns[value])) < 0.2
    gone[0], gone[1] = False, True
    kind = str(rng.choice(["nan", "mark", "mark not said"]))
    words.append(kind)
    columns[value] = np.where(gone, np.nan if kind == "nan" else -9999.0, columns[value])
    if kind == "mark":
        how["missing"] = -9999


def _missing(columns: Columns, how: dict[str, Any]) -> np.ndarray:
    value = next(held for name, held in columns.items() if name.startswith("temperature"))
    return np.isnan(value) | (value == -9999.0)


def _beside(rng: Generator, north: np.ndarray, place: np.ndarray) -> dict[str, Callable[[], Columns]]:
    """Columns that change nothing."""
    return {
        "nothing": dict,
        "a flag": lambda: {"qc_flag": np.zeros(north.size, dtype=int)},
        "elevations": lambda: {"elevation (m)": np.round(500.0 + 3.0 * north, 1)},
        "numbers of stations": lambda: {"wmo_id": 10_000 + place},
        "a constant level": lambda: {"level": np.full(north.size, 2.0)},
    }


def as_frame(table: Spelled) -> pd.DataFrame:
    return pd.DataFrame({name: np.asarray(held) for name, held in table.columns.items()})


def as_points(table: Spelled) -> xr.Dataset:
    """Rows along a dimension; units are attributes."""
    found = {}
    for name, held in table.columns.items():
        bare, _, unit = name.replace("[", "(").replace("]", ")").partition(" (")
        values = np.asarray(held)
        found[bare] = xr.Variable(
            "row", values.astype(object) if values.dtype.kind == "U" else values,
            {"units": unit.rstrip(")")} if unit else {},
        )  # fmt: skip
    return xr.Dataset(found)


def as_text(table: Spelled, folder: Path, rng: Generator) -> str:
    """Write it as text in one of the ways of text files."""
    frame, way = (
        as_frame(table),
        str(rng.choice(["comma", "semicolon", "tab", "decimal comma", "packed", "mark"])),
    )
    table.words.append(way)
    separator = {"semicolon": ";", "tab": "\t", "decimal comma": ";"}.get(way, ",")
    text = frame.to_csv(index=False, sep=separator, decimal="," if way == "decimal comma" else ".")
    if way == "mark":
        text = f"# a comment\n{text}"
    path = folder / ("t.csv.gz" if way == "packed" else "t.csv")
    path.write_bytes(gzip.compress(text.encode()) if way == "packed" else text.encode("utf-8-sig"))
    return str(path)


DOORS: dict[str, Callable[[Spelled, Path, Generator], Any]] = {
    "mapping": lambda table, folder, rng: table.columns,
    "frame": lambda table, folder, rng: as_frame(table),
    "polars": lambda table, folder, rng: polars.from_pandas(as_frame(table)),
    "arrow": lambda table, folder, rng: pyarrow.Table.from_pandas(as_frame(table)),
    "text": as_text,
    "points": lambda table, folder, rng: as_points(table),
}


def outcome(table: Spelled, door: str, folder: Path, rng: Generator) -> str:
    """Say what a door makes of a table: ``right``, ``refused`` and by which key, or ``wrong``."""
    source = DOORS[door](table, folder, rng)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            observed, _ = read(cagp.Kriging(**table.how), source)
    except CagpError as error:
        return f"refused {error.key or error}"
    except Exception as error:
        return f"crashed {type(error).__name__}: {error}"
    points, units = observed.points, observed.attributes.get("units", "")
    factor, offset = {"degC": (1.0, 0.0), "K": (1.0, -273.15), "degF": (1 / 1.8, -32 / 1.8)}.get(
        units, (0.1, 0.0) if units.startswith("0.1") else (np.nan, np.nan)
    )
    field, place = np.nonzero(points.present)
    moments = points.times[field] if table.times is not None else np.zeros(field.size, dtype="datetime64[s]")
    found = _sorted(
        points.north[place],
        points.east[place],
        moments,
        factor * points.values[field, place] + offset,
    )
    own = np.zeros(table.north.size, dtype="datetime64[s]") if table.times is None else table.times
    expected = _sorted(table.north, table.east, own, table.celsius)
    if found.shape != expected.shape or not np.allclose(found, expected, atol=2e-3):
        return "wrong"
    return "right"


def damaged(rng: Generator, data: bytes) -> bytes:
    """Damage a text anywhere: other bytes, a cut, a piece twice or gone, lines in another order."""
    for _ in range(int(rng.integers(1, 4))):
        at, width = int(rng.integers(len(data))), int(rng.integers(1, 40))
        lines = data.splitlines(keepends=True)
        ways = (
            data[:at] + rng.bytes(width) + data[at + width :],
            data[:at],
            data[:at] + 2 * data[at : at + width] + data[at + width :],
            data[:at] + data[at + width :],
            b"".join(lines[each] for each in rng.permutation(len(lines))),
            data.replace(
                *[(b",", b";"), (b".", b","), (b"\n", b"\r"), (b"e", b"\x00"), (b"1", b"\xff")][at % 5]
            ),
        )
        data = ways[int(rng.integers(len(ways)))] or b","
    return data


def survived(count: int, seed: int) -> list[str]:
    """Read so many damaged texts; what went wrong that is no error of the package."""
    rng, wrong = np.random.default_rng(seed), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        for _ in range(count):
            table = spelled(rng)
            path.write_bytes(damaged(rng, as_frame(table).to_csv(index=False).encode()))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    read(cagp.Kriging(**table.how), str(path))
            except CagpError:
                continue
            except Exception as error:
                wrong.append(f"{type(error).__name__}: {error} of {path.read_bytes()!r}")
    return wrong


def _sorted(north: np.ndarray, east: np.ndarray, moments: np.ndarray, values: np.ndarray) -> np.ndarray:
    hours = moments.astype("datetime64[s]").astype(np.int64) / 3600.0
    rows = np.column_stack([hours, north, np.mod(east, 360.0), values])
    return rows[np.lexsort(np.round(rows[:, ::-1], 3).T)]


def tried(count: int, seed: int) -> list[tuple[str, Spelled, str]]:
    """Try so many random tables at random doors: the outcome, the table, and the door."""
    rng, found = np.random.default_rng(seed), []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(count):
            table = spelled(rng)
            door = str(rng.choice(list(DOORS)))
            found.append((outcome(table, door, Path(folder), rng), table, door))
    return found


if __name__ == "__main__":
    results = tried(int(sys.argv[1]), int(sys.argv[2]))
    for said, table, door in results:
        if said == "wrong" or said.startswith("crashed") or (table.harmful and said == "right"):
            print(said, door, table.words)
    print("\n".join(survived(int(sys.argv[1]), int(sys.argv[2]))))
    counts = Counter(f"{'harmful' if table.harmful else 'plain'}: {said}" for said, table, _ in results)
    print("\n".join(f"{number:6d} {said}" for said, number in counts.most_common()))
