"""Small regional files of real fields: the one in `data`, and what can be made of it."""

from pathlib import Path

import eccodes
import numpy as np

DATA = Path(__file__).parent / "data"
WORLD = DATA / "ecmwf_2t_2017-04-27T12_0p75_global.grib"
EUROPE = DATA / "ecmwf_2t_2017-04-27T12_0p75_europe.grib"
GAPS = DATA / "ecmwf_2t_2017-04-27T12_0p75_europe_gaps.grib"

_STEP_DEGREES = 0.75


def corrupted() -> bytes:
    """A message of Europe that lost ten bytes on its way, and a whole one behind it."""
    whole = EUROPE.read_bytes()
    return whole[:1000] + whole[1010:] + whole


def day(date: str) -> bytes:
    """Twenty-four messages of one day on the area of Europe, as many hours as the Earth turns in a day.

    Each hour holds the real field of the band 30-60 N, one hour's turn (15 degrees) further east: a day as
    varied as one of the weather, with true temperatures at times and places where they were not measured.
    """
    source = eccodes.codes_new_from_message(WORLD.read_bytes())
    world = eccodes.codes_get_values(source).reshape(241, 480)
    eccodes.codes_release(source)
    handle = eccodes.codes_new_from_message(EUROPE.read_bytes())
    rows = slice(round(30 / _STEP_DEGREES), round(60 / _STEP_DEGREES) + 1)
    columns = np.arange(-13, 54)  # 9.75 W to 39.75 E
    parts = []
    for hour in range(24):
        turned = (columns + hour * round(15 / _STEP_DEGREES)) % 480
        eccodes.codes_set(handle, "dataDate", int(date.replace("-", "")))
        eccodes.codes_set(handle, "dataTime", 100 * hour)
        eccodes.codes_set_values(handle, world[rows][:, turned].ravel())
        parts.append(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    return b"".join(parts)
