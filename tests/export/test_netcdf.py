"""NetCDF files stand alone and hold what the run holds; other programs agree on where it is."""

import json
import shutil
import subprocess

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.export import FORMATS, export_run
from cagp_dist.store.publish import publish
from cagp_dist.store.zarr_arrays import read_group

from .make_group import KEY, NOISE, REGIONS, publish_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A recalibrated run of two times over Europe, across Greenwich."""
    latitude, longitude = REGIONS["europe"]
    return publish_run(
        tmp_path_factory.mktemp("europe"), latitude=latitude, longitude=longitude, recalibrated=True
    )


@pytest.fixture(scope="module")
def netcdf(run):
    return {path.stem: path for path in export_run(run, to="netcdf")}


def test_every_group_becomes_a_file_beside_the_runs(run, netcdf):
    assert set(netcdf) == {"map", "observations"}
    assert netcdf["map"] == run.parent.parent / "export" / KEY / "map.nc"


@pytest.mark.parametrize("group", ["map", "observations"])
def test_values_coordinates_and_times_are_those_of_the_run(run, netcdf, group):
    there = read_group(run, group)
    with xr.open_dataset(netcdf[group], engine="h5netcdf") as found:
        for name, variable in there.variables.items():
            assert found[name].dims == variable.dims
            np.testing.assert_array_equal(found[name].values, variable.values, strict=name != "time")


@pytest.mark.parametrize("group", ["map", "observations"])
def test_a_file_stands_alone(netcdf, group):
    with xr.open_dataset(netcdf[group], engine="h5netcdf") as found:
        attributes = found.attrs
    assert attributes["Conventions"] == "CF-1.11, ACDD-1.3"
    assert attributes["noise_variance"] == NOISE
    assert attributes["noise_variance_units"] == "K2"
    assert json.loads(attributes["prior"])["kernel"] == "matern32"
    assert attributes["license"] == "Apache-2.0"
    assert "European Centre for Medium-Range Weather Forecasts" in attributes["acknowledgement"]
    newest, first = attributes["history"].splitlines()
    assert f"group {group!r} of run {KEY} exported by cagp_dist" in newest
    assert first.endswith("created by cagp_dist")
    assert attributes["source"].startswith("Gaussian-process regression (cagp_dist ")
    assert attributes["title"]
    assert attributes["solver_calibrated"] == "true"
    assert attributes["time_coverage_end"] == "2019-03-01T06:00:00Z"


def test_extents_are_those_of_the_group(tmp_path):
    latitude, longitude = REGIONS["pacific"]
    run = publish_run(tmp_path, latitude=latitude, longitude=longitude)
    for name, east in (("map", longitude[-1]), ("observations", longitude[2])):
        path = export_run(run, to="netcdf", groups=[name])[0]
        with xr.open_dataset(path, engine="h5netcdf") as found:
            assert found.attrs["geospatial_lon_max"] == pytest.approx(east)


@pytest.mark.parametrize(
    "region",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if number > 2 else [])
        for number, name in enumerate(REGIONS)
    ],
)
def test_longitudes_are_monotonic_and_cells_equal(tmp_path, region):
    latitude, longitude = REGIONS[region]
    run = publish_run(tmp_path, latitude=latitude, longitude=longitude)
    path = export_run(run, to="netcdf", groups=["map"])[0]
    with xr.open_dataset(path, engine="h5netcdf") as found:
        for axis, centres in (("latitude", latitude), ("longitude", longitude)):
            values, bounds = found[axis].values, found[f"{axis}_bnds"].values
            width = centres[1] - centres[0]
            assert np.all(np.diff(values) > 0.0)
            np.testing.assert_allclose(np.diff(values), width, rtol=1e-12)
            np.testing.assert_allclose(np.diff(bounds, axis=1), width, rtol=1e-12)
            np.testing.assert_allclose(bounds[1:, 0], bounds[:-1, 1], rtol=1e-12)
            np.testing.assert_allclose(bounds.mean(axis=1), values, rtol=1e-12, atol=1e-12)
        assert -90.0 <= found["latitude_bnds"].values.min() <= found["latitude_bnds"].values.max() <= 90.0


def test_no_text_is_a_netcdf4_string_and_time_is_unlimited(netcdf):
    import h5py

    with h5py.File(netcdf["map"]) as file:
        places = [file, *(file[name] for name in file)]
        ours = [
            (place.name, name, place.attrs.get_id(name).dtype)
            for place in places
            for name in place.attrs
            if not name.startswith(("_", "DIMENSION", "REFERENCE"))
        ]
        assert [entry for entry in ours if entry[2].kind == "O"] == []
        assert file["time"].maxshape == (None,)


def test_missing_values_are_the_fill_value_of_the_netcdf_library(tmp_path, run):
    import h5py

    from cagp_dist.export.groups import open_for_export
    from cagp_dist.export.netcdf import FILL, write_netcdf

    with open_for_export(run, "map") as group:
        holed = group.load()
        holed["t2m_mean"].values[0, 0, 0] = np.nan
        path = write_netcdf(holed, tmp_path / "holed.nc")
    with h5py.File(path) as file:
        assert file["t2m_mean"][0, 0, 0] == FILL
    with xr.open_dataset(path, engine="h5netcdf") as found:
        assert np.isnan(found["t2m_mean"].values[0, 0, 0])
        assert "_FillValue" not in found["latitude"].encoding


def test_a_file_that_exists_is_refused_and_stays_as_it_was(run, netcdf, tmp_path):
    before = netcdf["map"].read_bytes()
    with pytest.raises(ConfigurationError) as refusal:
        export_run(run, to="netcdf")
    assert refusal.value.key == "output-exists"
    assert netcdf["map"].read_bytes() == before
    target = tmp_path / "here.nc"
    target.write_text("old")
    assert export_run(run, to="netcdf", groups=["map"], output=target, force=True) == [target]
    assert target.stat().st_size > 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.nc"]


def test_a_write_that_fails_leaves_nothing(run, tmp_path, monkeypatch):
    def fail(*arguments, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", fail)
    with pytest.raises(StoreError) as refusal:
        export_run(run, to="netcdf", groups=["map"], output=tmp_path)
    assert refusal.value.key == "disk-full"
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_done_is_said_before_anything_is_written(run, tmp_path):
    def refused(text, **settings):
        with pytest.raises(ConfigurationError, match=text):
            export_run(run, **{"to": "netcdf", "output": tmp_path / "new", **settings})

    refused("cannot export to 'netcfd'; expected .*Did you mean 'netcdf'", to="netcfd")
    refused('has no group \'trace\'; expected "map" or "observations"', groups=["trace"])
    refused("is one file, but there are 2 to write: map, observations", output=tmp_path / "one.nc")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError) as refusal:
        export_run(tmp_path / "none.zarr", to="netcdf")
    assert refusal.value.key == "no-run"


def test_a_damaged_run_is_not_exported(tmp_path):
    latitude, longitude = REGIONS["europe"]
    run = publish_run(tmp_path / "out", latitude=latitude, longitude=longitude)
    chunk = run / "map" / "t2m_std" / "c.0.0.0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreError) as refusal:
        export_run(run, to="netcdf", output=tmp_path / "new")
    assert refusal.value.key == "damaged"
    assert not (tmp_path / "new").exists()


def test_a_group_without_numbers_that_csv_holds_is_named(run, tmp_path):
    from cagp_dist.calibration.verification.scores import scores
    from cagp_dist.store.publish import output_lock
    from cagp_dist.store.scored_groups import trace_group

    step = scores(np.zeros((1, 9)), np.ones(9), np.linspace(-2.0, 2.0, 9)[None])
    with output_lock(tmp_path):
        traced = publish(tmp_path, {"trace": trace_group([step], seconds=[0.0])}, run_key=KEY, attributes={})
    with pytest.raises(ConfigurationError) as refusal:
        export_run(traced, to="csv")
    assert refusal.value.key == "format-unfit"
    assert export_run(traced, to="netcdf", output=tmp_path / "x")[0].name == "trace.nc"


def test_help_names_the_formats():
    from typer.testing import CliRunner

    from cagp_dist.cli import app

    shown = CliRunner().invoke(app, ["export", "--help"], env={"COLUMNS": "200"}).stdout
    assert all(name in shown for name in FORMATS)
    assert "cagp export out --to netcdf" in shown


def program(*command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", ["map", "observations"])
def test_the_compliance_checker_finds_no_error(netcdf, group):
    shown = program("compliance-checker", "--test=cf:1.11", "--criteria=strict", netcdf[group])
    assert "All tests passed!" in shown


def exported_map(folder, region):
    """A run with a map of the region, and the file of that map."""
    latitude, longitude = REGIONS[region]
    run = publish_run(folder / "out", latitude=latitude, longitude=longitude)
    return run, export_run(run, to="netcdf", groups=["map"], output=folder / "map.nc")[0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("region", REGIONS)
def test_cdo_sees_the_same_cells(tmp_path, region):
    latitude, longitude = REGIONS[region]
    run, path = exported_map(tmp_path, region)
    lines = program("cdo", "-s", "griddes", path).splitlines()
    grid = dict(line.split("=", 1) for line in lines if "=" in line)
    grid = {name.strip(): value.strip() for name, value in grid.items()}
    assert grid["gridtype"] == "lonlat"
    for axis, centres in (("x", longitude), ("y", latitude)):
        assert float(grid[f"{axis}first"]) == pytest.approx(centres[0])
        assert float(grid[f"{axis}inc"]) == pytest.approx(centres[1] - centres[0])
    mean = program("cdo", "-s", "outputf,%.9g", "-fldmean", "-selname,t2m_mean", "-seltimestep,1", path)
    half = 0.5 * (latitude[1] - latitude[0])
    area = np.sin(np.deg2rad(latitude + half)) - np.sin(np.deg2rad(latitude - half))
    expected = np.average(read_group(run, "map").t2m_mean.values[0].mean(axis=1), weights=area)
    # The edges of CDO's cells are great circles. A map half a cell off would have a mean half a kelvin off.
    assert float(mean) == pytest.approx(expected, abs=0.02)


@pytest.mark.exhaustive
def test_nco_puts_files_in_a_row(netcdf, tmp_path):
    joined = tmp_path / "joined.nc"
    program("ncrcat", "-h", netcdf["map"], netcdf["map"], joined)
    with xr.open_dataset(joined, engine="h5netcdf") as found:
        assert found.sizes["time"] == 4


@pytest.mark.exhaustive
@pytest.mark.parametrize("region", REGIONS)
def test_gdal_puts_the_map_where_it_is(tmp_path, region):
    latitude, longitude = REGIONS[region]
    _, path = exported_map(tmp_path, region)
    shown = json.loads(program("gdalinfo", "-json", f"NETCDF:{path}:t2m_mean"))
    dx, dy = longitude[1] - longitude[0], latitude[1] - latitude[0]
    west = longitude[0] - dx / 2
    if longitude[0] > 180.0:  # GDAL counts a map that is all west of the date line from there
        west -= 360.0
    expected = [west, dx, 0.0, latitude[-1] + dy / 2, 0.0, -dy]
    np.testing.assert_allclose(shown["geoTransform"], expected, atol=1e-9)
    assert 'ID["EPSG",4326]' in shown["coordinateSystem"]["wkt"]
    assert shown["size"] == [longitude.size, latitude.size]
