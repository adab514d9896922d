"""Usual names of columns and coordinates, and how names are spelled."""

import re
from unicodedata import combining, normalize

from cagp_dist.variables import bare

ANY = "*"  # instead of a value in ``where``: all rows are meant, and the column does not count

LATITUDE = (
    *("latitude", "lat", "lat_deg", "latitude_deg", "decimal_latitude", "decimallatitude", "stn_lat"),
    *("lat_degrees", "latitude_degrees", "lat_degree", "latdeg", "latd", "lat_d"),
    *("gps_latitude", "gpslatitude", "gps_lat", "nav_lat", "lats", "xlat", "clat"),
    *("latitud", "latitudine", "breitengrad", "breddegrad", "geogr_breite", "geo_breite", "geobreite"),
    *("szerokosc_geograficzna",),
)
LONGITUDE = (
    *("longitude", "lon", "long", "lng", "lon_deg", "longitude_deg", "decimal_longitude"),
    *("decimallongitude", "stn_lon", "lon_degrees", "longitude_degrees", "lon_degree", "long_deg"),
    *("long_degrees", "londeg", "longdeg", "lond", "longd", "lon_d", "long_d"),
    *("gps_longitude", "gpslongitude", "gps_lon", "nav_lon", "lons", "xlong", "clon"),
    *("longitud", "longitudine", "laengengrad", "langengrad", "lengdegrad", "geogr_laenge", "geogr_lange"),
    *("geo_laenge", "geo_lange", "geolaenge", "geolange", "dlugosc_geograficzna"),
)
BREADTHS, LENGTHS = ("breite", "szerokosc"), ("laenge", "lange", "dlugosc")
"""Latitudes and longitudes, too, where no other columns are."""

_X = (
    *("x", "easting", "east", "utm_x", "utm_e", "utm_easting"),
    *("x_coord", "x_coordinate", "coord_x", "rd_x", "rechtswert"),
)
_Y = (
    *("y", "northing", "north", "utm_y", "utm_n", "utm_northing"),
    *("y_coord", "y_coordinate", "coord_y", "rd_y", "hochwert"),
)
X_NAMES, Y_NAMES = (
    (*names, *(f"{name}_{unit}" for unit in ("km", "m") for name in names)) for names in (_X, _Y)
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


_BACKWARD = {
    "west": r"(lon(g(itude)?)?|lng)_?(deg(rees?)?_?)?(w|west(ward|erly)?)|"
    r"(deg(rees?)?_)?w(est)?(ern)?_?(lon(g(itude)?)?|lng)|(.*_)?westing(_.*)?",
    "south": r"lat(itude)?_?(deg(rees?)?_?)?(s|south(ward|erly)?)|"
    r"(deg(rees?)?_)?s(outh)?(ern)?_?lat(itude)?|(.*_)?southing(_.*)?",
    "pole": r"(.*_)?(co_?lat(itude)?s?|polar_?(distance|angle))(_(deg(rees?)?|rad(ians?)?))?",
}  # fmt: skip
_COUNTED = {direction: re.compile(pattern) for direction, pattern in _BACKWARD.items()}


def plain(name: str) -> str:
    """Spell a column's name in lower case, without units in brackets or accents, with single underscores."""
    text = bare(name).lower()
    if not text.isascii():
        text = "".join(
            letter for letter in normalize("NFKD", text.translate(_LETTERS)) if not combining(letter)
        )
    return re.sub(r"[^a-z0-9]+", "_", text).strip("_")


_LETTERS = str.maketrans({"\u0142": "l", "\u00f8": "o", "\u00df": "ss", "\u0131": "i"})


def counted_from(name: str) -> str:
    """Say by the name of degrees, x or y where they count from, if not as usual: west, south or the pole."""
    spelled = plain(name)
    return next((direction for direction, held in _COUNTED.items() if held.fullmatch(spelled)), "")


def unit_of_length(name: str) -> str:
    """Give the unit that the name of x or y of a plane ends in, as ``x_km``; empty if it does not."""
    spelled = plain(name)
    return (
        spelled.rpartition("_")[2]
        if spelled in (*X_NAMES, *Y_NAMES) and spelled.endswith(("_km", "_m"))
        else ""
    )


def units_in(name: str) -> str:
    """Give the units that stand in brackets behind the name of a column; empty if there are none."""
    found = re.search(r"[\[(]([^\])]*)[\])]\s*$", name)
    return found[1].strip() if found else ""
