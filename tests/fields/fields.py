"""Small ERA5-like files, made on the spot."""

import io
import zipfile

import eccodes
import numpy as np
import xarray as xr

from ..regional import WORLD


def raw_dataset(
    *,
    times=("2020-01-01T00:00", "2020-01-01T12:00"),
    latitude=(60.0, 50.0, 40.0, 30.0),
    longitude=(0.0, 90.0, 180.0, 270.0),
    seed=0,
):
    """The layout of the store since 2024: valid_time, scalar number, expver along time, north first."""
    moments = np.array(times, dtype="datetime64[ns]")
    rng = np.random.default_rng(seed)
    shape = (moments.size, len(latitude), len(longitude))
    values = rng.normal(280.0, 5.0, shape).astype("float32")
    poles = [row for row, degrees in enumerate(latitude) if abs(degrees) == 90.0]
    values[:, poles] = values[:, poles, :1]
    return xr.Dataset(
        {
            "t2m": (
                ("valid_time", "latitude", "longitude"),
                values,
                {"units": "K", "standard_name": "unknown"},
            )
        },
        coords={
            "valid_time": moments,
            "latitude": np.array(latitude, dtype="float64"),
            "longitude": np.array(longitude, dtype="float64"),
            "number": 0,
            "expver": ("valid_time", np.full(moments.size, "0001")),
        },
    )


def grib(times, *, version="0001", warmer=0.0, step=0):
    """The message of the built-in field, once for each start, of an experiment version, some hours ahead."""
    message = WORLD.read_bytes()
    handle = eccodes.codes_new_from_message(message)
    if warmer:
        eccodes.codes_set_values(handle, eccodes.codes_get_values(handle) + warmer)
    parts = []
    for time in times:
        eccodes.codes_set(handle, "dataDate", int(time[:10].replace("-", "")))
        eccodes.codes_set(handle, "dataTime", int(time[11:13]) * 100)
        eccodes.codes_set(handle, "stepRange", step)
        eccodes.codes_set(handle, "expver", version)
        parts.append(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    return b"".join(parts)


def netcdf4(dataset):
    buffer = io.BytesIO()
    dataset.to_netcdf(buffer, engine="h5netcdf")
    return buffer.getvalue()


def netcdf3(dataset):
    plain = dataset.drop_vars(["expver"], errors="ignore")
    return bytes(plain.to_netcdf(None, engine="scipy", format="NETCDF3_64BIT"))


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()
