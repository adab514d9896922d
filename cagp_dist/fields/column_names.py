"""Usual names of columns and coordinates, and how names are spelled."""

import re

from cagp_dist.variables import bare

ANY = "*"  # instead of a value in ``where``: all rows are meant, and the column does not count

LATITUDE = (
    *("latitude", "lat", "lat_deg", "latitude_deg", "decimal_latitude", "decimallatitude", "stn_lat"),
    *("lat_degrees", "latitude_degrees", "lat_degree", "latdeg", "latd", "lat_d"),
    *("gps_latitude", "gpslatitude", "gps_lat", "nav_lat", "lats", "xlat", "clat"),
)
LONGITUDE = (
    *("longitude", "lon", "long", "lng", "lon_deg", "longitude_deg", "decimal_longitude"),
    *("decimallongitude", "stn_lon", "lon_degrees", "longitude_degrees", "lon_degree", "long_deg"),
    *("long_degrees", "londeg", "longdeg", "lond", "longd", "lon_d", "long_d"),
    *("gps_longitude", "gpslongitude", "gps_lon", "nav_lon", "lons", "xlong", "clon"),
)
X_NAMES = (
    *("x", "easting", "east", "utm_x", "utm_e", "utm_easting"),
    *("x_coord", "x_coordinate", "coord_x", "rd_x", "rechtswert"),
)
Y_NAMES = (
    *("y", "northing", "north", "utm_y", "utm_n", "utm_northing"),
    *("y_coord", "y_coordinate", "coord_y", "rd_y", "hochwert"),
)
TIME = ("time", "date", "datetime", "date_time", "timestamp", "valid_time", "obs_time", "observation_time")
DATE = ("year", "month", "day", "hour", "minute")  # which make a time together, the first at least
DAY_OF_YEAR = (
    *("doy", "day_of_year", "dayofyear", "yday", "yearday", "ordinal_day"),
    *("julian_day", "julianday", "julday", "jday"),
)
PART_OF_YEAR = (
    *("week", "iso_week", "isoweek", "woy", "week_of_year", "week_number", "weeknumber"),
    *("season", "quarter", "dekad", "pentad", "trimester"),
)
"""Columns that say when in a year; only the day does so to the day."""

NOISE_STD = ("noise_std", "noise_sd", "noise_stddev", "noise_standard_deviation")
VALUE = ("value", "values", "data_value")
NAME = (
    *("name", "station_name", "station", "site_name", "site", "place", "city", "location"),
    *("station_id", "stationid", "station_code", "stn_id", "stn", "wmo_id", "wmo", "id"),
)
"""Usual names of columns, in lower case and without units; of several that name places the first is taken."""

EMPTY = ("", "nan", "na", "n/a", "null", "none", "<na>", "nat", "missing", "-")  # cells, in lower case


def plain(name: str) -> str:
    """Spell a column's name in lower case, without units in brackets, with single underscores."""
    return re.sub(r"[^a-z0-9]+", "_", bare(name).lower()).strip("_")


def units_in(name: str) -> str:
    """Give the units that stand in brackets behind the name of a column; empty if there are none."""
    found = re.search(r"[\[(]([^\])]*)[\])]\s*$", name)
    return found[1].strip() if found else ""
