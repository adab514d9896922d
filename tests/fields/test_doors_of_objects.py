"""One reader for all doors: an object of xarray, and the file that it is written to, give the same.

Each layout goes into a call, in memory and as a NetCDF file, and in one of these ways into a job, by turns.
All find the same values at the same places and times, or refuse it by the same key.
"""

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import CagpError
from cagp_dist.fields.canonical import observation_points
from cagp_dist.fields.observed_objects import read
from cagp_dist.fields.sources import open_source
from cagp_dist.service.in_memory import observations_of, written_observations
from cagp_dist.service.ingest import ingest
from cagp_dist.service.jobfile.config import parse_job

from ..jobs import job_text

NORTH, EAST = np.array([40.0, 45.0, 50.0]), np.array([0.0, 90.0, 180.0, 270.0])
DAYS = np.array(["2020-07-01T12", "2020-07-02T12"], dtype="datetime64[ns]")
FIELD = 270.0 + np.arange(24.0).reshape(2, 3, 4)
LATITUDE = {"standard_name": "latitude", "units": "degrees_north"}
LONGITUDE = {"standard_name": "longitude", "units": "degrees_east"}


def grid(values=FIELD, dims=("time", "latitude", "longitude"), **coordinates):
    """Values in kelvin on a grid of two days, or on other axes."""
    usual = {
        "time": ("time", DAYS),
        "latitude": ("latitude", NORTH, LATITUDE),
        "longitude": ("longitude", EAST, LONGITUDE),
    }
    held = {name: axis for name, axis in usual.items() if name in dims} | coordinates
    return xr.Dataset({"t": (dims, values, {"units": "K"})}, coords=held)


def of_grid(values=FIELD, days=DAYS):
    """What the grid holds: value by latitude, longitude and time."""
    return {
        (north, east, day): values[t, i, j]
        for t, day in enumerate(days)
        for i, north in enumerate(NORTH)
        for j, east in enumerate(EAST)
        if np.isfinite(values[t, i, j])
    }


def rows(**more):
    """Six points along one dimension, three on each day."""
    return xr.Dataset(
        {"t": ("obs", 280.0 + np.arange(6.0), {"units": "K"}), **more},
        coords={
            "time": ("obs", np.repeat(DAYS, 3)),
            "lat": ("obs", np.tile(NORTH, 2), LATITUDE),
            "lon": ("obs", np.tile(EAST[:3], 2), LONGITUDE),
        },
        attrs={"featureType": "point"},
    )


OF_ROWS = {(NORTH[k % 3], EAST[k % 3], DAYS[k // 3]): 280.0 + k for k in range(6)}
HOUR = np.timedelta64(1, "h")
NO_TIME = np.datetime64("NaT")


def ragged(kind):
    """Write the points as three stations with two times each: what is known of a station stands once."""
    order = [0, 3, 1, 4, 2, 5]
    values = ("obs", (280.0 + np.arange(6.0))[order], {"units": "K"})
    told = (
        {"row_size": ("station", [2, 2, 2], {"sample_dimension": "obs"})}
        if kind == "contiguous"
        else {"which": ("obs", [0, 0, 1, 1, 2, 2], {"instance_dimension": "station"})}
    )
    return xr.Dataset(
        {"t": values, **told},
        coords={
            "time": ("obs", np.repeat(DAYS, 3)[order]),
            "lat": ("station", NORTH, LATITUDE),
            "lon": ("station", EAST[:3], LONGITUDE),
            "station_name": ("station", ["a", "b", "c"]),
        },
        attrs={"featureType": "timeSeries"},
    )


def by_station(moving):
    """Write the points as stations, or drifters, by samples: each sample has a time of its own."""
    values = (280.0 + np.arange(6.0)).reshape(2, 3).T
    dims = ("station", "sample")
    north, east = (np.repeat(axis[:, None], 2, axis=1) for axis in (NORTH, EAST[:3]))
    places = {"lat": (dims, north, LATITUDE), "lon": (dims, east, LONGITUDE)}
    if not moving:
        places = {"lat": ("station", NORTH, LATITUDE), "lon": ("station", EAST[:3], LONGITUDE)}
    time = (dims, np.repeat(DAYS[None], 3, axis=0))
    return xr.Dataset({"t": (dims, values, {"units": "K"})}, coords={"time": time, **places})


def versions():
    """Give the first day as final and preliminary, the second as preliminary alone."""
    final, early = FIELD.copy(), FIELD + 100.0
    final[1] = np.nan
    early[1] = FIELD[1]
    stacked = np.stack([early, final], axis=1)
    return grid(stacked, ("time", "expver", "latitude", "longitude"), expver=[5, 1])


def forecast(step, **more):
    """Start a forecast on the day before, with a step ahead."""
    start = ("time", DAYS - np.timedelta64(1, "D"), {"standard_name": "forecast_reference_time"})
    return grid(time=start, step=step, **more)


def swath():
    """Give places two dimensions, a corner without coordinates."""
    north, east = (axis.copy() for axis in np.meshgrid(NORTH, EAST, indexing="ij"))
    north[0, 0] = east[0, 0] = np.nan
    values = np.where(np.isnan(north), np.nan, FIELD)
    places = {"lat": (("y", "x"), north, LATITUDE), "lon": (("y", "x"), east, LONGITUDE)}
    return grid(values, ("time", "y", "x"), **places)


def raster(mapping, **attributes):
    """Name the axes y and x, and say the system."""
    axes = {"y": ("y", NORTH, attributes), "x": ("x", EAST, attributes)}
    found = grid(FIELD, ("time", "y", "x"), **axes).assign(spatial_ref=((), 0, mapping))
    found.t.attrs["grid_mapping"] = "spatial_ref"
    return found


ROTATED = {"grid_mapping_name": "rotated_latitude_longitude", "grid_north_pole_latitude": 39.0,
           "grid_north_pole_longitude": -162.0}  # fmt: skip
LEVELS = grid(
    np.stack([FIELD, FIELD + 50.0], axis=1), ("time", "plev", "latitude", "longitude"),
    plev=("plev", [85000.0, 50000.0], {"units": "Pa"}),
)  # fmt: skip
MEMBERS = grid(
    np.stack([FIELD, FIELD + 50.0], axis=1), ("time", "number", "latitude", "longitude"), number=[0, 1]
)
CYCLIC = {"longitude": ("longitude", [*EAST, 360.0], LONGITUDE)}
TWICE = {"latitude": ("latitude", [40.0, 45.0, 45.0 + 1e-9, 50.0], LATITUDE)}
RADIANS = {
    "latitude": ("latitude", np.deg2rad(NORTH), {"units": "radian"}),
    "longitude": ("longitude", np.deg2rad(EAST), {"units": "radian"}),
}
WRF = {
    "XLAT": (("time", "y", "x"), np.tile(NORTH[:, None], (2, 1, 4)), {"units": "degree_north"}),
    "XLONG": (("time", "y", "x"), np.tile(EAST, (2, 3, 1)), {"units": "degree_east"}),
}
HOURS = {"units": "hours", "standard_name": "forecast_period"}

EASTING, NORTHING = 1e5 * np.arange(1.0, 5.0), 5e6 + 1e5 * np.arange(3.0)
SATELLITE = {
    "grid_mapping_name": "geostationary",
    "perspective_point_height": 35_786_023.0,
    "longitude_of_projection_origin": 0.0,
    "semi_major_axis": 6_378_137.0,
    "semi_minor_axis": 6_356_752.31414,
    "sweep_angle_axis": "y",
}
LAMBERT = {
    "grid_mapping_name": "lambert_conformal_conic",
    "standard_parallel": [38.5, 38.5],
    "latitude_of_projection_origin": 38.5,
    "longitude_of_central_meridian": -97.5,
    "earth_radius": 6371229.0,
}
NAMED = {"columns": {"x": "easting", "y": "northing"}, "crs": 32632}


def in_plane(scale=1.0, unit="m", mapping=None):
    """Put the grid on x and y in metres, or in units of so many, from north to south."""
    axes = {
        name: (name, axis / scale, {"units": unit, "standard_name": f"projection_{name}_coordinate"})
        for name, axis in (("y", NORTHING[::-1]), ("x", EASTING))
    }
    found = grid(FIELD[:, ::-1], ("time", "y", "x"), **axes)
    if mapping:
        found = found.assign_coords(crs=((), np.int32(0), mapping))
        found.t.attrs["grid_mapping"] = "crs"
    return found


def of_plane(scale=1.0):
    """What that grid holds."""
    return {
        (NORTHING[i] / scale, EASTING[j] / scale, day): FIELD[t, i, j]
        for t, day in enumerate(DAYS)
        for i in range(3)
        for j in range(4)
    }


def places_in_plane(dims, **coordinates):
    """Name where stations, or rows, lie by easting and northing."""
    along = dims[-1]
    values = FIELD[:, :, 0] if len(dims) == 2 else FIELD[0, :, 0]
    places = {"northing": (along, NORTHING, {"units": "m"}), "easting": (along, EASTING[:3], {"units": "m"})}
    return grid(values, dims, **places, **coordinates)


FOUND = {
    "plain": (grid(), {}, of_grid()),
    "other order": (
        grid().isel(latitude=[2, 0, 1][::-1]).transpose("longitude", ...).sortby("latitude", ascending=False),
        {},
        of_grid(),
    ),
    "westward": (
        grid().assign_coords(longitude=("longitude", [0.0, 90.0, 180.0, -90.0], LONGITUDE)),
        {},
        of_grid(),
    ),
    "radians": (grid(**RADIANS), {}, of_grid()),
    "column 360": (grid(np.concatenate([FIELD, FIELD[..., :1]], axis=2), **CYCLIC), {}, of_grid()),
    "a row twice": (grid(FIELD[:, [0, 1, 1, 2]], **TWICE), {}, of_grid()),
    "versions": (versions(), {}, of_grid()),
    "days": (grid(FIELD, ("day", "latitude", "longitude"), day=("day", DAYS)), {}, of_grid()),
    "no time": (grid(FIELD[0], ("latitude", "longitude")), {}, of_grid(FIELD[:1], [NO_TIME])),
    "scalar time": (grid(FIELD[0], ("latitude", "longitude"), time=DAYS[0]), {}, of_grid(FIELD, DAYS[:1])),
    "valid time": (
        forecast(((), 24.0, HOURS), valid_time=("time", DAYS, {"standard_name": "time"})),
        {},
        of_grid(),
    ),
    "start and step": (forecast(((), 24.0, HOURS)), {}, of_grid()),
    "one start, two steps": (
        grid(
            FIELD,
            ("step", "latitude", "longitude"),
            time=DAYS[0],
            step=("step", [0.0, 24.0], HOURS),
        ),
        {},
        of_grid(),
    ),
    "a level": (LEVELS, {"level": 850}, of_grid()),
    "a member": (MEMBERS, {"number": 0}, of_grid()),
    "raster in degrees": (raster({"grid_mapping_name": "latitude_longitude"}), {}, of_grid()),
    "swath": (swath(), {}, of_grid(np.where(np.arange(12).reshape(3, 4) == 0, np.nan, FIELD))),
    "WRF": (grid(FIELD, ("time", "y", "x"), time=("time", DAYS), **WRF), {}, of_grid()),
    "stations": (
        grid(
            FIELD[:, :, 0],
            ("time", "station"),
            lat=("station", NORTH, LATITUDE),
            lon=("station", EAST[:3], LONGITUDE),
        ),
        {},
        {(NORTH[k], EAST[k], day): FIELD[t, k, 0] for t, day in enumerate(DAYS) for k in range(3)},
    ),
    "a plane": (in_plane(), {}, of_plane()),
    "a projection in km": (in_plane(1e3, "km", LAMBERT), {}, of_plane(1e3)),
    "a plane that is named": (
        in_plane().rename(x="easting", y="northing").drop_attrs(),
        NAMED,
        of_plane(),
    ),
    "scan angles": (in_plane(SATELLITE["perspective_point_height"], "rad", SATELLITE), {}, of_plane()),
    "stations in a plane": (
        places_in_plane(("time", "station")),
        NAMED,
        {(NORTHING[k], EASTING[k], day): FIELD[t, k, 0] for t, day in enumerate(DAYS) for k in range(3)},
    ),
    "rows in a plane": (
        places_in_plane(("obs",), time=("obs", DAYS[[0, 0, 0]])),
        NAMED,
        {(NORTHING[k], EASTING[k], DAYS[0]): FIELD[0, k, 0] for k in range(3)},
    ),
    "points": (rows(), {}, OF_ROWS),
    "points of a level": (
        rows(pres=("obs", [5.0, 5.0, 5.0, 9.0, 9.0, 9.0])),
        {"pres": 5},
        {key: value for key, value in OF_ROWS.items() if key[2] == DAYS[0]},
    ),
    "times of a zone": (grid(time=("time", DAYS + 2 * HOUR, {"time_zone": "UTC+2"})), {}, of_grid()),
    "times counted": (
        grid(time=("time", [0.0, 24.0], {"units": "hours since 2020-07-01 12:00"})),
        {},
        of_grid(),
    ),
    "times counted in a zone": (
        grid(time=("time", [0.0, 24.0], {"units": "hours since 2020-07-01 17:00", "time_zone": "UTC+5"})),
        {},
        of_grid(),
    ),
    "points of a zone": (
        rows().assign_coords(time=("obs", np.repeat(DAYS, 3) + HOUR, {"timezone": "CET"})),
        {},
        OF_ROWS,
    ),
    "contiguous ragged": (ragged("contiguous"), {}, OF_ROWS),
    "indexed ragged": (ragged("indexed"), {}, OF_ROWS),
    "stations by samples": (by_station(moving=False), {}, OF_ROWS),
    "drifters by samples": (by_station(moving=True), {}, OF_ROWS),
}

REFUSED = {
    "local times": (grid(time=("time", DAYS, {"long_name": "local time"})), "time-zone"),
    "column 360 differs": (grid(np.concatenate([FIELD, FIELD[..., 1:2]], axis=2), **CYCLIC), "place-twice"),
    "a row twice differs": (grid(FIELD[:, [0, 1, 2, 2]], **TWICE), "place-twice"),
    "step without a unit": (forecast(((), 24.0, {"standard_name": "forecast_period"})), "forecast-step"),
    "a start or not": (grid(step=((), 6.0, {"units": "hours"})), "forecast-step"),
    "levels": (LEVELS, "several-levels"),
    "rotated by its mapping": (raster(ROTATED, units="degrees"), "rotated"),
    "rotated by its names": (
        grid().rename(latitude="rlat", longitude="rlon").assign_coords(
            rlat=("rlat", NORTH, {"units": "degrees", "axis": "Y"}),
            rlon=("rlon", EAST, {"units": "degrees", "axis": "X"}),
        ),
        "rotated",
    ),
    "no places": (grid().drop_vars("latitude"), "no-places"),
    "axes swapped": (grid(latitude=("latitude", 2.0 * NORTH, LATITUDE)), "degrees"),
    "dates": (grid().assign(t=grid().t.astype("datetime64[s]").drop_attrs()), "no-numbers"),
    "truth": (grid() > 280.0, "no-numbers"),
    "infinity": (grid(np.where(FIELD > 290.0, np.inf, FIELD)), "infinite"),
    "a mark": (grid(np.where(FIELD == 275.0, -9999.0, FIELD)), "missing-mark"),
    "a direction": (
        grid().t.assign_attrs(standard_name="wind_from_direction", units="degree").to_dataset(name="wd"),
        "direction",
    ),
    "a direction of points": (
        rows().t.assign_attrs(standard_name="wind_from_direction", units="degree").to_dataset(name="wd"),
        "direction",
    ),
    "nothing": (grid(np.full_like(FIELD, np.nan)), "nothing-observed"),
    "ragged that does not fit": (
        ragged("contiguous").assign(row_size=("station", [2, 2, 1], {"sample_dimension": "obs"})),
        "ragged",
    ),
}  # fmt: skip


def variable_of(given):
    return "wd" if "wd" in given else "t"


def as_array(given, select, folder):
    """Take the variable alone, with the coordinates that it has."""
    return as_object(given[variable_of(given)], select, folder)


def as_object(given, select, folder):
    """Values by place and time of an object, as a call takes it."""
    value = None if isinstance(given, xr.DataArray) else variable_of(given)
    return of_points(read(given, value=value, **asked(select)).points)


def asked(select):
    """Say what is chosen, and where things stand."""
    where = {key: choice for key, choice in select.items() if key not in NAMED}
    return {key: select.get(key) for key in NAMED} | {"where": where or None}


def as_file(given, select, folder):
    """Values of the file of an object, in a call."""
    given.to_netcdf(folder / "given.nc", engine="h5netcdf")
    source = f"file:{folder / 'given.nc'}"
    return of_points(read(source, value=variable_of(given), **asked(select)).points)


def as_file_of_a_job(given, select, folder):
    """Values of the file of an object, as a job takes it."""
    given.to_netcdf(folder / "given.nc", engine="h5netcdf")
    source = f"file:{folder / 'given.nc'}"
    said = {"variable": variable_of(given), **asked(select)}
    field = open_source(source, **said, undated=True, cache_directory=folder)
    return of_points(observation_points(field))


def as_object_of_a_job(given, select, folder):
    """Values of an object that a job is given in memory."""
    said = {"source": "file:other.nc", "variable": variable_of(given)}
    said |= {key: held for key, held in asked(select).items() if held}
    job = parse_job(job_text(observations=said, output={"root": folder / "out"}))
    with written_observations(job, observations_of(job, given)) as job:
        return of_points(observation_points(ingest(job, report=print)))


def doors_of(given, turn):
    """Doors that can take an object: an array does not have the other variables of its dataset."""
    of_jobs = (as_file_of_a_job, as_object_of_a_job)[turn % 2]
    return (*([as_array] if len(given.data_vars) == 1 else []), as_object, as_file, of_jobs)


def of_points(points):
    times = points.times.astype("datetime64[ns]")
    north, east = points.space.keys(points.north, points.east).T.round(6).tolist()
    return {
        (north[k], east[k], str(times[t])): value
        for t, row in enumerate(points.values)
        for k, value in enumerate(row.tolist())
        if np.isfinite(value)
    }


def keyed(found):
    return {(*place, str(np.datetime64(time, "ns"))): value for (*place, time), value in found.items()}


@pytest.mark.parametrize("layout", FOUND)
def test_all_doors_find_the_same(layout, tmp_path):
    given, select, expected = FOUND[layout]
    for door in doors_of(given, [*FOUND].index(layout)):
        assert door(given, select, tmp_path) == pytest.approx(keyed(expected), rel=1e-6), door.__name__


@pytest.mark.parametrize("layout", REFUSED)
def test_all_doors_refuse_by_the_same_key(layout, tmp_path):
    given, key = REFUSED[layout]
    for door in doors_of(given, [*REFUSED].index(layout)):
        with pytest.raises(CagpError) as refused:
            door(given, {}, tmp_path)
        assert refused.value.key == key, (door.__name__, str(refused.value))


def test_groups_are_those_of_a_tree(tmp_path):
    tree = xr.DataTree.from_dict({"/PRODUCT": grid(), "/METADATA": xr.Dataset({"quality": 1})})
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    source = f"file:{tmp_path / 'tree.nc'}"
    field = open_source(source, variable="t", cache_directory=tmp_path)
    for points in (read(tree, value="t").points, observation_points(field)):
        assert of_points(points) == pytest.approx(keyed(of_grid()), rel=1e-6)
    several = xr.DataTree.from_dict({"/A": grid(), "/B": grid(FIELD + 1.0)})
    several.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    for door in (
        lambda **select: read(several, value="t", where=select or None).points,
        lambda **select: observation_points(
            open_source(source, variable="t", select=select or None, cache_directory=tmp_path)
        ),
    ):
        with pytest.raises(CagpError) as refused:
            door()
        assert (refused.value.key, refused.value.remedies[0].value) == ("several-groups", {"group": "A"})
        assert of_points(door(group="B")) == pytest.approx(keyed(of_grid(FIELD + 1.0)), rel=1e-6)


def test_points_whose_times_all_differ_are_one_field_if_that_is_said(tmp_path):
    ship = rows().isel(obs=[0] * 20)
    ship = ship.assign_coords(
        lat=("obs", 40.0 + np.arange(20.0), LATITUDE),
        time=("obs", DAYS[0] + np.arange(20) * np.timedelta64(1, "h")),
    )
    ship.to_netcdf(tmp_path / "ship.nc", engine="h5netcdf")
    said = {"variable": "t", "times": ["2020-07-01"], "cache_directory": tmp_path}
    columns = {"time": "none"}
    field = open_source(f"file:{tmp_path / 'ship.nc'}", columns=columns, **said)
    called = read(ship, value="t", columns=columns).points
    assert observation_points(field).values.shape == called.values.shape == (1, 20)
    grid().to_netcdf(tmp_path / "grid.nc", engine="h5netcdf")
    with pytest.raises(CagpError) as refused:
        open_source(f"file:{tmp_path / 'grid.nc'}", columns=columns, variable="t", cache_directory=tmp_path)
    assert refused.value.key == "columns"


@pytest.mark.parametrize(("unit", "per_radian"), [("rad", 1.0), ("microradian", 1e6)])
def test_scan_angles_of_a_satellite_are_a_plane(unit, per_radian):
    mapping = {"grid_mapping_name": "geostationary", "perspective_point_height": 35786023.0,
               "longitude_of_projection_origin": 0.0, "sweep_angle_axis": "y", "semi_major_axis": 6378137.0,
               "semi_minor_axis": 6356752.31414}  # fmt: skip
    angles = {"x": np.array([-0.02, 0.0, 0.02, 0.03]), "y": np.array([0.01, 0.1, 0.12])}
    axes = {
        name: (name, axis * per_radian, {"units": unit, "standard_name": f"projection_{name}_coordinate"})
        for name, axis in angles.items()
    }
    given = grid(FIELD, ("time", "y", "x"), **axes).assign(proj=((), 0, mapping))
    given.t.attrs["grid_mapping"] = "proj"
    points = read(given, value="t").points
    assert points.space.unit == "m"
    np.testing.assert_allclose(np.unique(points.east), angles["x"] * 35786023.0)
    np.testing.assert_allclose(np.unique(points.north), angles["y"] * 35786023.0)


@pytest.mark.parametrize("steps", [np.array([0.0, 24.0]), np.array([0, 24], "m8[h]").astype("m8[ns]")])
def test_a_call_takes_one_step_of_several_starts(steps):
    given = grid(
        np.stack([FIELD, FIELD + 50.0], axis=1),
        ("time", "step", "latitude", "longitude"),
        step=("step", steps, {"units": "hours"} if steps.dtype.kind == "f" else {}),
    )
    with pytest.raises(CagpError) as refused:
        read(given)
    assert refused.value.key == "several-values"
    points = read(given, where=refused.value.remedies[0].value).points
    assert of_points(points) == pytest.approx(keyed(of_grid()), rel=1e-6)
