"""Static fields as covariates of a prior mean."""

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.covariates import open_covariate

from ..oracle import assert_close

LATITUDE, LONGITUDE = np.linspace(90.0, -90.0, 37), np.arange(-180.0, 180.0, 5.0)


def plane(latitude, longitude):
    """Linear between grid points along each axis, and the same at all longitudes of a pole."""
    return np.abs(latitude) * (
        1.0 + 0.1 * np.minimum(np.mod(longitude, 360.0), 360.0 - np.mod(longitude, 360.0))
    )


def height(**changes):
    values = plane(LATITUDE[:, None], LONGITUDE)
    values[[0, -1]] = 5.0
    axes = {"latitude": LATITUDE, "longitude": LONGITUDE}
    return xr.DataArray(values, coords=axes, dims=list(axes), name="height", **changes)


def at(covariate, latitude, longitude):
    return covariate.at(cagp.unit_sphere(np.array(latitude), np.array(longitude)))


def test_it_is_interpolated_over_the_seam_and_to_the_poles():
    found = cagp.covariate(height())
    latitude, longitude = np.array([5.0, 12.5, -40.0, 42.5]), np.array([-180.0, 177.5, 2.5, 181.0])
    assert_close(at(found, latitude, longitude), plane(latitude, longitude))
    assert_close(at(found, [90.0, -90.0], [13.0, 200.0]), [5.0, 5.0])


def test_axes_may_be_in_any_order_and_convention():
    found = cagp.covariate(height())
    other = height().transpose().rename(latitude="lat", longitude="lon").expand_dims(time=1)
    other = cagp.covariate(other.isel(lat=slice(None, None, -1)).assign_coords(lon=np.mod(LONGITUDE, 360.0)))
    where = [3.0, -77.0, 10.0], [-3.0, 99.0, 359.0]
    assert_close(at(other, *where), at(found, *where))
    assert other.content_sha256 == found.content_sha256 != cagp.covariate(height() + 1.0).content_sha256


@pytest.mark.parametrize("kind", ["file", "zarr"])
def test_it_is_read_from_files_and_stores(tmp_path, kind):
    path = tmp_path / "static"
    dataset = height().to_dataset()
    if kind == "file":
        dataset.to_netcdf(path, engine="h5netcdf")
    else:
        dataset.to_zarr(path, zarr_format=3, consolidated=False)
    found = open_covariate(f"{kind}:{path}:height")
    assert found.name == "height"
    assert_close(at(found, [33.0], [44.0]), at(cagp.covariate(height()), [33.0], [44.0]))
    with pytest.raises(DataError) as refusal:
        open_covariate(f"{kind}:{path}:depth")
    assert refusal.value.key == "absent-variable"


def test_it_is_nan_where_it_is_not_known():
    """Outside, and between its points where one of them is NaN, but not on a point beside it."""
    part = height().sel(latitude=slice(60.0, 30.0), longitude=slice(0.0, 40.0))
    region = cagp.covariate(part, name="relief")
    assert np.isnan(at(region, [40.0, 20.0], [10.0, 10.0])).tolist() == [False, True]
    mean = cagp.mean_family("constant", covariates=[region])
    with pytest.raises(DataError) as refused:
        mean.basis_at(cagp.unit_sphere([40.0, 20.0], [10.0, 350.0]))
    assert refused.value.key == "covariate-unknown"
    assert "20 N, 10 W" in str(refused.value)
    lake = height()
    lake[5, 7] = np.nan
    where = [LATITUDE[5] + 1.0, LATITUDE[5], LATITUDE[6], 0.0], LONGITUDE[[7, 7, 7, 7]]
    assert np.isnan(at(cagp.covariate(lake), *where)).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda field: field.expand_dims(level=[1, 2]), "several-levels"),
        (lambda field: field.expand_dims(time=2), "no-dates"),
        (lambda field: field.drop_vars("latitude"), "no-places"),
        (lambda field: field.isel(latitude=[0]), "covariate"),
        (lambda field: field.isel(latitude=[3, 4]).assign_coords(latitude=[5.0, 5.0]), "place-twice"),
        (lambda field: field.assign_coords(latitude=2.0 * LATITUDE), "degrees"),
        (lambda field: field / 0.0, "infinite"),
    ],
)
def test_what_is_no_static_field_is_refused(change, key):
    with np.errstate(divide="ignore"):
        field = change(height() * np.nan_to_num(1.0))
    with pytest.raises(DataError) as refused:
        cagp.covariate(field, name="height")
    assert refused.value.key == key


def test_spellings_and_absent_files_are_refused(tmp_path):
    (tmp_path / "text.nc").write_text("no NetCDF")
    for spelling, kind, key in (
        ("file:static.nc", ArgumentError, "covariate"),
        (f"file:{tmp_path / 'absent.nc'}:height", DataError, "no-file"),
        (f"file:{tmp_path / 'text.nc'}:height", DataError, "damaged"),
    ):
        with pytest.raises(kind, match=spelling.split(":")[1]) as refused:
            open_covariate(spelling)
        assert refused.value.key == key


def test_a_mean_with_covariates_is_estimated():
    family = cagp.mean_family("quadratic-latitude", covariates=[cagp.covariate(height(), name="elevation")])
    assert family.coefficient_names == ("constant", "latitude", "latitude^2", "elevation")
    rng = np.random.default_rng(0)
    latitude, longitude = rng.uniform(-80.0, 80.0, 50), rng.uniform(0.0, 360.0, 50)
    X = cagp.unit_sphere(latitude, longitude)
    y = family.basis_at(X) @ [280.0, 1.0, -40.0, -0.0065]
    prior = cagp.Prior(cagp.Matern32(0.2, 4.0), 0.1, family)
    found = cagp.condition(prior, X, y, X[:5], solver=cagp.GaussSeidel(1))
    assert_close(found.mean, y[:5])
    assert_close(found.coefficients.values, [280.0, 1.0, -40.0, -0.0065], relative=1e-8)
    assert family.content_sha256 == cagp.covariate(height()).content_sha256


def test_families_that_take_no_covariates_refuse_them():
    relief = cagp.covariate(height())
    with pytest.raises(ArgumentError) as refusal:
        cagp.mean_family("climatology:x", covariates=[relief])
    assert refusal.value.key == "covariates-without-mean"
    with pytest.raises(ArgumentError) as refusal:
        cagp.mean_family("constant", covariates=[relief, relief])
    assert refusal.value.key == "covariate-twice"
