"""What refusals say, where people read it most: what came, what was expected, and what to do."""

import re

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import CagpError
from cagp_dist.service.jobfile.config import parse_job

from .jobs import job_text
from .joined import one_after_another

TABLE = {
    "lat": [48.1, 52.5, 50.1, 53.6],
    "lon": [11.6, 13.4, 8.7, 10.0],
    "t (degC)": [21.0, 18.5, 20.2, 16.9],
}
NUMBERS = {"noise_std": 0.3, "lengthscale_km": 400.0, "variance": 9.0}
X = np.random.default_rng(0).normal(size=(50, 3))
PRIOR = cagp.Prior(cagp.Matern32(0.5), noise_variance=0.1)
LEVELS = xr.DataArray(
    np.zeros((2, 2, 2)),
    dims=("level", "lat", "lon"),
    coords={"level": [850, 500], "lat": [0.0, 1.0], "lon": [0.0, 1.0]},
    name="z",
)


def krige(table=TABLE, **settings):
    return lambda: cagp.krige(table, **{"to": 1.0, **NUMBERS, **settings})


def solve(solver, X=X, y=X[:, 0], **settings):
    return lambda: cagp.condition(PRIOR, X, y, X, solver=solver, **settings)


def job(tables, **settings):
    return lambda: parse_job(job_text(**{tables: settings}))


@one_after_another
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            krige(to=None),
            "the observations are a table, so say where you want a map: to=0.25 (in degrees, over "
            'the region of the observations), to={"resolution": 0.25, "region": [north, west, south, '
            "east]}, a grid of xarray, or a table of places.",
        ),
        (
            krige(to={"region": [53, 8, 48, 13], "area": [53, 8, 48, 13]}),
            "to has the keys region and area, which mean the same; expected one of them.",
        ),
        (
            krige(to={"region": [48, 8, 53, 13]}),
            "the region is [48, 8, 53, 13]; expected [north, west, south, east] in degrees, -90 <= "
            "south < north <= 90, longitudes -180..180 or 0..360.",
        ),
        (krige(to=0.0), "the resolution is 0.0; expected degrees, above 0 and at most 90."),
        (
            krige(to={"resolution": 0.001, "region": [90, -180, -90, 180]}),
            "the map has 1.8e+05 x 3.6e+05 cells of 0.001 degrees; expected 10,000,000 at most. Take "
            "a coarser resolution or a smaller region.",
        ),
        (
            krige(to=TABLE, kind="cells"),
            'kind is "cells", but the targets are places, which have no cells; expected a '
            "resolution, a region or a grid with axes of latitude and longitude, or of x and y as "
            'the observations. Use kind="grid" for values at the places.',
        ),
        (krige(kind="cell"), 'kind is \'cell\'; expected "grid" or "cells".'),
        (
            krige(TABLE | {"lat": [48.1, 91.0, 50.1, 53.6]}),
            "column 'lat' of the table is 91 in row 1, counted from 0 (1 such row); expected -90..90 "
            "degrees. Check that latitude and longitude were not swapped.",
        ),
        (
            krige({"x": [1.0], "y": [2.0], "t": [3.0]}),
            "the table has no column for the latitude; it has 'x' and 'y'. If they are coordinates "
            'of a plane, say so, and which system they have, where it is known. Say columns={"x": '
            '"x", "y": "y"}.',
        ),
        (
            krige({"lat": [1.0, 2.0], "lon": [1.0, 2.0], "a": [1.0, 2.0], "b": [1.0, 3.0]}),
            "the table has several columns that may be the value; it has 'lat', 'lon', 'a', 'b'. Say "
            'value="a".',
        ),
        (krige(noise_std="err"), "the table has no column 'err'; it has 'lat', 'lon', 't (degC)'."),
        (
            krige(noise_std=None, nugget_std=0.1),
            "nugget_std is 0.1, which is added to a known noise, and none is known; expected "
            "noise_std beside it, a number or a column. Without either the noise is fitted.",
        ),
        (
            krige(at=["2020-01-01"]),
            "the observations have no times, and maps at times were asked for; expected a column or "
            'coordinate of times. Say columns={"time": "NAME"}.',
        ),
        (
            krige(LEVELS),
            "'z' has 2 levels along 'level': 850, 500; expected one. Say where={\"level\": 850}.",
        ),
        (
            lambda: cagp.Kriging(**NUMBERS).fit(TABLE).cross_validate(folds=9),
            "the 4 places lie in 2 blocks, which cannot be dealt to 9 folds: take 2 folds or make "
            "the blocks smaller.",
        ),
        (
            solve(cagp.BlockGaussSeidel(3, block_size=16), memory_limit_bytes=5000),
            "block Gauss-Seidel on 50 points needs 121 KiB even for 50 test points at once, more "
            "than the 4.88 KiB that may be used. Raise memory_limit_bytes, ask for fewer test "
            "points, or lower block_size.",
        ),
        (
            solve(cagp.Cholesky(), y=X[:3, 0]),
            "y has shape (3,) but X has 50 points; expected (50,), or (50, T) for T fields.",
        ),
        (
            solve(cagp.Cholesky(), X * np.nan),
            "X holds NaN or infinity (first in row 0); drop those points first.",
        ),
        (
            solve(cagp.Rings()),
            "X is an array of points, and Rings needs a cagp_dist.LatLonGrid. Use solver=cagp.Neighbours().",
        ),
        (lambda: cagp.Matern32(-1.0), "lengthscale is -1.0; expected a finite number above zero."),
        (
            job("runtime", attempts=0),
            "job: [runtime] attempts = 0 is not allowed; expected an integer from 1 to 100, for example 3.",
        ),
        (
            lambda: parse_job('[prior\nkernel = "matern32"'),
            "job is not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 7).",
        ),
    ],
)
def test_refusals_say_what_came_what_was_expected_and_what_to_do(call, text):
    with pytest.raises(CagpError) as refusal:
        call()
    assert str(refusal.value) == text


@one_after_another
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (krige(kernel="matern99"), "'matern99' is not a kernel; expected matern12, matern32"),
        (krige(solver="cholesk"), 'solver is \'cholesk\'; expected "auto", "cholesky", "rings"'),
        (krige(mean="constan"), 'mean has the term \'constan\'; expected "constant", "quadratic-latitude"'),
        (
            lambda: cagp.krige("zarr:weatherbench", to=1.0),
            "Check the path; public stores are zarr:arco-era5, zarr:weatherbench2.",
        ),
        (
            lambda: cagp.krige("file:nothing.nc", to=1.0),
            "cannot read nothing.nc (No such file or directory); expected a GRIB or NetCDF file. "
            "Check the path",
        ),
        (job("observations", region=[60, 0, 40, 20]), 'unknown key [observations] region; nearest: "area"'),
        (job("solver", name="gauss-seidelx"), 'nearest: "gauss-seidel".'),
        (
            job("prior", kernel="auto", lengthscale=0.3, variance=1.0, noise_variance=0.1),
            '[prior]: kernel = "auto" cannot be combined with lengthscale, variance and '
            "noise_variance; a kernel is chosen where these are fitted. Write the kernel that they "
            "belong to, or leave them out.",
        ),
        (
            job("design", map={"kind": "grid", "resolution_degrees": 2.0, "std_samples": 20}),
            "std_samples = 20 would leave a standard error of 16%; give at least 50",
        ),
    ],
)
def test_refusals_say_what_is_there_and_what_is_near(call, words):
    with pytest.raises(CagpError, match=re.escape(words)):
        call()
