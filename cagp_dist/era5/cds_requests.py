"""What to ask the Climate Data Store for: pure functions from times to requests and their cache keys."""

import json
from collections import defaultdict

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.digest import text_sha256
from cagp_dist.era5.selection import Area, check_area, shown_time
from cagp_dist.errors import ConfigurationError
from cagp_dist.variables import variable_named

COLLECTION = "reanalysis-era5-single-levels"

Request = dict[str, str | list[str] | list[float]]


def requests_for(
    times: Times, *, variable: str = "t2m", area: Area | None = None, grid_degrees: float | None = None
) -> list[Request]:
    """Split times into requests for exactly these: days of one month with the same hours share one."""
    hours = times.astype("datetime64[h]")
    for time in times[hours != times][:1]:
        raise ConfigurationError(f"time {shown_time(time)} is not on the hour; ERA5 is hourly.")
    common: Request = {
        "product_type": ["reanalysis"],
        "variable": [variable_named(variable).cds or variable],
        "data_format": "grib",
        "download_format": "unarchived",
    }
    if area is not None:
        check_area(area)
        common["area"] = [float(edge) for edge in area]
    if grid_degrees is not None:
        if not grid_degrees > 0.0:
            raise ConfigurationError(
                f"grid_degrees is {grid_degrees}; expected a positive number of degrees."
            )
        common["grid"] = [float(grid_degrees)] * 2

    hours_of_day: dict[str, list[str]] = defaultdict(list)
    for hour in np.unique(hours):
        day, clock = str(hour).split("T")
        hours_of_day[day].append(f"{clock}:00")
    days_of: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for day, clocks in hours_of_day.items():
        days_of[day[:7], tuple(clocks)].append(day[8:])
    return [
        common | {"year": [month[:4]], "month": [month[5:]], "day": days, "time": list(clocks)}
        for (month, clocks), days in days_of.items()
    ]


def requested_times(request: Request) -> Times:
    """List the times that a request asks for."""
    year, month = request["year"][0], request["month"][0]
    texts = [f"{year}-{month}-{day}T{clock}" for day in request["day"] for clock in request["time"]]
    return np.sort(np.array(texts, dtype="datetime64[ns]"))


def request_key(request: Request) -> str:
    """Name a request by its content."""
    text = json.dumps({"collection": COLLECTION, "request": request}, sort_keys=True, separators=(",", ":"))
    return text_sha256(text)
