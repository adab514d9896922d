"""Folders, patterns and lists of files; steps, versions and regions of GRIB; all with the right values."""

from pathlib import Path

import eccodes
import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.fields.canonical import canonical
from cagp_dist.fields.files import local_files
from cagp_dist.fields.files.file_catalogue import FOLDER
from cagp_dist.fields.files.local_files import file_times, files_at, open_file
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.sources import open_source, source_times
from cagp_dist.fields.stores import remote
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import ingest_only

from .fields import netcdf3, netcdf4, raw_dataset, zipped

pytestmark = pytest.mark.exhaustive

DAYS = ("2020-01-31", "2020-02-01", "2020-02-02", "2020-03-01")
FIELDS = Path(__file__).parents[3] / "shared" / "data" / "fields"  # as beside a checkout; absent elsewhere
ROWS, COLUMNS = np.array([52.0, 51.0, 50.0]), np.array([-2.0, -1.0, 0.0, 1.0])


def pressure(raw):
    return raw.assign(msl=(raw.t2m * 350.0).assign_attrs(units="Pa")).drop_vars("t2m")


@pytest.fixture
def months(tmp_path):
    """A folder with a file for each month, one of another variable and a text."""
    raw = raw_dataset(times=DAYS)
    folder = tmp_path / "era5"
    folder.mkdir()
    for month in ("2020-01", "2020-02", "2020-03"):
        part = raw.sel(valid_time=month)
        write = netcdf3 if month == "2020-02" else netcdf4
        (folder / f"t2m_{month}.nc").write_bytes(write(part))
    (folder / "msl_2020-01.nc").write_bytes(netcdf4(pressure(raw)))
    (folder / "README.txt").write_text("fields")
    return folder, raw


@pytest.mark.parametrize("address", ["{0}", "{0}/t2m_*.nc", "{0}/../**/t2m*.nc",
                                     "{0}/t2m_2020-01.nc;{0}/t2m_2020-0[23].nc"])  # fmt: skip
def test_files_are_joined_along_time(months, tmp_path, address):
    folder, raw = months
    where = address.format(folder)
    field = open_file(where, scratch=tmp_path / "scratch")
    xr.testing.assert_identical(field.drop_attrs(), canonical(raw).drop_attrs())
    assert field.attrs["source"] == f"file:{where}"
    np.testing.assert_array_equal(file_times(where, scratch=tmp_path / "scratch"), field.time)
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == [FOLDER]
    box = {"times": ["2020-03-01", "2020-01-31"], "area": (55.0, 0.0, 35.0, 180.0)}
    chosen = open_file(where, Selection(**box), scratch=tmp_path / "scratch")
    xr.testing.assert_identical(chosen.drop_attrs(), canonical(raw, selection=Selection(**box)).drop_attrs())


def test_other_variables_of_a_folder_are_taken_when_asked_for(months, tmp_path):
    folder, raw = months
    field = open_source(f"file:{folder}", variable="msl", cache_directory=tmp_path)
    np.testing.assert_array_equal(field.msl, canonical(pressure(raw), selection=Selection(value="msl")).msl)
    assert source_times(f"file:{folder}", Selection(value="msl"), cache_directory=tmp_path).size == 4
    with pytest.raises(DataError) as refusal:
        open_source(f"file:{folder}", variable="tas", cache_directory=tmp_path)
    assert refusal.value.key == "absent-variable"


def test_many_files_are_decoded_in_batches(months, tmp_path, monkeypatch):
    monkeypatch.setattr(local_files, "BATCH_FILES", 2)
    folder, raw = months
    field = open_file(str(folder), scratch=tmp_path)
    np.testing.assert_array_equal(field.t2m, canonical(raw).t2m)
    only = open_file(str(folder), Selection(times=["2020-03-01"]), scratch=tmp_path)
    np.testing.assert_array_equal(only.t2m, canonical(raw).t2m[3:])


def test_what_is_wrong_with_several_files_is_named(months, tmp_path):
    folder, raw = months
    with pytest.raises(DataError) as refusal:
        open_file(str(folder), Selection(times=["2021-01-01"]), scratch=tmp_path)
    assert refusal.value.key == "absent-times"
    (folder / "t2m_again.nc").write_bytes(netcdf4(raw.isel(valid_time=[1]) + 1.0))
    with pytest.raises(DataError) as refusal:
        open_file(str(folder), scratch=tmp_path)
    assert refusal.value.key == "several-values"
    (folder / "t2m_again.nc").write_bytes(netcdf4(raw.isel(valid_time=[1])))
    np.testing.assert_array_equal(open_file(str(folder), scratch=tmp_path).t2m, canonical(raw).t2m)
    data = netcdf4(raw)
    (folder / "t2m_cut.nc").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError) as refusal:
        open_file(str(folder), scratch=tmp_path)
    assert refusal.value.key == "damaged"
    said = r"are not in the source: 2021-01-01T00:00\. .* 1 file of it cannot be read\."
    with pytest.raises(DataError, match=said):
        open_file(str(folder), Selection(times=["2020-01-31", "2021-01-01"]), scratch=tmp_path)
    (folder / "t2m_cut.nc").write_bytes(netcdf4(raw.isel(latitude=[0, 1])))
    with pytest.raises(DataError) as refusal:
        open_file(str(folder), scratch=tmp_path)
    assert refusal.value.key == "parts"


def test_addresses_without_a_file_are_refused(tmp_path):
    with pytest.raises(DataError) as refusal:
        files_at(f"{tmp_path}/x_*.nc", scratch=tmp_path / "scratch")
    assert refusal.value.key == "no-file"
    with pytest.raises(DataError) as refusal:
        files_at(str(tmp_path), scratch=tmp_path / "scratch")
    assert refusal.value.key == "no-field-file"
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(DataError) as refusal:
        files_at(str(tmp_path), scratch=tmp_path / "scratch")
    assert refusal.value.key == "no-field-file"
    with pytest.raises(DataError) as refusal:
        files_at(f"{tmp_path}/*.txt", scratch=tmp_path / "scratch")
    assert refusal.value.key == "not-a-field"
    odd = tmp_path / "a;b [1].nc"
    odd.write_bytes(netcdf3(raw_dataset()))
    assert list(files_at(str(odd), scratch=tmp_path / "scratch")) == [odd]


def test_the_first_bytes_of_a_file_whose_name_does_not_tell_are_read_once(tmp_path, monkeypatch):
    scratch, field, words = tmp_path / "scratch", tmp_path / "files" / "field", tmp_path / "files" / "README"
    field.parent.mkdir()
    field.write_bytes(netcdf3(raw_dataset()))
    words.write_text("words")
    assert list(files_at(str(field.parent), scratch=scratch)) == [field]
    checked = []
    monkeypatch.setattr(local_files, "check_file", checked.append)
    assert list(files_at(str(field.parent), scratch=scratch)) == [field]
    assert checked == []
    words.write_bytes(netcdf3(raw_dataset()))
    assert list(files_at(str(field.parent), scratch=scratch)) == [words, field]
    assert checked == [words]


def test_a_job_takes_a_list_of_files_a_level_and_a_unit(tmp_path):
    raw = raw_dataset(times=DAYS).rename(t2m="z") * 100.0
    raw.z.attrs["units"] = "m**2 s**-2"
    levels = xr.concat([raw, raw + 1e4], dim="pressure_level").assign_coords(pressure_level=[850.0, 500.0])
    for number, part in enumerate((levels.isel(valid_time=[0, 1]), levels.isel(valid_time=[2, 3]))):
        part.to_netcdf(tmp_path / f"{number}.nc", engine="h5netcdf")
    text = f"""
[observations]
source = ["file:{tmp_path}/0.nc", "file:{tmp_path}/1.nc"]
variable = "z"
level = 500
times = ["2020-01-31", "2020-03-01"]
[design]
train = {{ kind = "random", count = 5 }}
test = {{ kind = "random", count = 5, seed = 1 }}
[prior]
[output]
root = "{tmp_path}/out"
"""
    job = parse_job(text)
    assert job.observations.source == f"file:{tmp_path}/0.nc;{tmp_path}/1.nc"
    ingest_only(job)
    (store,) = (tmp_path / "out" / "observations").glob("*.zarr")
    (batch,) = (each for each in store.iterdir() if each.is_dir())
    stored = xr.open_zarr(batch, consolidated=False)
    np.testing.assert_array_equal(stored.z, canonical(raw + 1e4, selection=Selection(value="z")).z[[0, 3]])
    assert stored.z.attrs["long_name"] == "geopotential at 500 hPa"
    with pytest.raises(DataError) as refusal:
        ingest_only(parse_job(text.replace("level = 500\n", "")))
    assert refusal.value.key == "several-levels"
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(text.replace(f'"file:{tmp_path}/1.nc"', '"cds"'))
    assert refusal.value.key == "observations.source"


def test_old_jobs_keep_their_canonical_form():
    text = '[observations]\nsource = "sample"\n[design]\ntrain = { kind = "random", count = 5 }\n'
    text += 'test = { kind = "random", count = 5 }\n[prior]\n'
    table = parse_job(text).canonical()["observations"]
    assert not {"level", "units", "check_range"} & table.keys()
    table = parse_job(text.replace('"sample"', '"file:a"\nlevel = 850\ncheck_range = false')).canonical()
    assert (table["observations"]["level"], table["observations"]["check_range"]) == (850.0, False)


def grib(fields):
    """Messages of a region: parameter, start, step in hours, values (3, 4) and other keys."""
    parts = []
    for parameter, start, step, values, keys in fields:
        handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
        settings = {
            "Ni": COLUMNS.size, "Nj": ROWS.size,
            "latitudeOfFirstGridPointInDegrees": ROWS[0], "latitudeOfLastGridPointInDegrees": ROWS[-1],
            "longitudeOfFirstGridPointInDegrees": COLUMNS[0] % 360.0,
            "longitudeOfLastGridPointInDegrees": COLUMNS[-1],
            "iDirectionIncrementInDegrees": 1.0, "jDirectionIncrementInDegrees": 1.0,
            "dataDate": int(start[:10].replace("-", "")), "dataTime": 100 * int(start[11:13]),
            "paramId": parameter, "bitsPerValue": 24, "stepRange": step, **keys,
        }  # fmt: skip
        for key, value in settings.items():
            eccodes.codes_set(handle, key, value)
        eccodes.codes_set_values(handle, values.ravel())
        parts.append(eccodes.codes_get_message(handle))
        eccodes.codes_release(handle)
    return b"".join(parts)


def regional(count, *, level=280.0, spread=5.0):
    return np.random.default_rng(1).normal(level, spread, (count, ROWS.size, COLUMNS.size))


def test_steps_of_several_starts_become_the_times_at_which_they_hold(tmp_path):
    values = regional(5)
    starts = ["2020-01-01T06"] * 3 + ["2020-01-01T18"] * 2
    steps = [6, 9, 12, 9, 12]  # of the second start, the first step was never fetched
    path = tmp_path / "steps.grib"
    path.write_bytes(grib([(167, a, b, c, {}) for a, b, c in zip(starts, steps, values, strict=True)]))
    field = open_file(str(path), scratch=tmp_path)
    expected = np.array(["2020-01-01T12", "2020-01-01T15", "2020-01-01T18", "2020-01-02T03", "2020-01-02T06"])
    np.testing.assert_array_equal(field.time, expected.astype("datetime64[ns]"))
    assert field.longitude.values.tolist() == [0.0, 1.0, 358.0, 359.0]
    assert field.latitude.values.tolist() == [50.0, 51.0, 52.0]
    np.testing.assert_allclose(field.t2m, values[:, ::-1][..., [2, 3, 0, 1]], atol=1e-3)
    one = open_file(str(path), Selection(times=["2020-01-02T03"]), scratch=tmp_path)
    np.testing.assert_array_equal(one.t2m, field.t2m[3:4])
    with pytest.raises(DataError) as refusal:
        open_file(str(path), Selection(times=["2020-01-02T00"]), scratch=tmp_path)
    assert refusal.value.key == "absent-times"


def test_steps_of_one_start_are_times(tmp_path):
    values = regional(3)
    path = tmp_path / "steps.grib"
    path.write_bytes(grib([(167, "2020-01-01T00", step, values[step], {}) for step in range(3)]))
    field = open_file(str(path), scratch=tmp_path)
    np.testing.assert_array_equal(
        field.time, np.array(["2020-01-01T00", "2020-01-01T01", "2020-01-01T02"], dtype="datetime64[ns]")
    )
    np.testing.assert_allclose(field.t2m, values[:, ::-1][..., [2, 3, 0, 1]], atol=1e-3)


@pytest.mark.parametrize(
    ("asked", "published"), [("10u", "u10"), ("u10", "u10"), ("swh", "swh"), ("SWH", "SWH")]
)
def test_grib_fields_are_found_by_their_short_names(tmp_path, asked, published):
    values = regional(2, level=3.0, spread=1.0)
    path = tmp_path / "both.grib"
    path.write_bytes(
        grib([(165, "2020-01-01T00", 0, values[0], {}), (140229, "2020-01-01T00", 0, values[1], {})])
    )
    field = open_file(str(path), Selection(value=asked), scratch=tmp_path)
    found = values[0 if published == "u10" else 1, ::-1][:, [2, 3, 0, 1]]
    np.testing.assert_allclose(field[published][0], found, atol=1e-3)
    assert field[published].attrs["units"] == ("m s-1" if published == "u10" else "m")
    with pytest.raises(DataError) as refusal:
        open_file(str(path), Selection(value="msl"), scratch=tmp_path)
    assert refusal.value.key == "absent-variable"


def test_a_level_of_a_grib_file(tmp_path):
    values = regional(3, level=250.0)
    on_levels = [
        (130, "2020-01-01T00", 0, field, {"typeOfLevel": "isobaricInhPa", "level": level})
        for level, field in zip((500, 850, 1000), values, strict=True)
    ]
    path = tmp_path / "levels.grib"
    path.write_bytes(grib(on_levels))
    field = open_file(str(path), Selection(value="t", where={"level": 850.0}), scratch=tmp_path)
    np.testing.assert_allclose(field.t[0], values[1, ::-1][:, [2, 3, 0, 1]], atol=1e-3)
    with pytest.raises(DataError) as refusal:
        open_file(str(path), Selection(value="t"), scratch=tmp_path)
    assert refusal.value.key == "several-levels"


@pytest.mark.parametrize("layout", ["expver dimension", "expver beside the time"])
def test_hours_of_final_and_preliminary_versions(tmp_path, layout):
    raw = raw_dataset(times=[f"2020-03-31T{hour:02d}" for hour in range(20, 24)] + ["2020-04-01T00"])
    mixed = raw.assign_coords(expver=("valid_time", ["0001"] * 3 + ["0005"] * 2))
    if layout == "expver dimension":
        final = raw.drop_vars("expver").rename(valid_time="time")
        hours = np.arange(5)
        parts = [
            final.where(xr.DataArray(hours < 3, dims="time")),
            final.where(xr.DataArray(hours >= 3, dims="time")),
        ]
        mixed = xr.concat(parts, dim="expver").assign_coords(expver=[1, 5]).transpose("time", "expver", ...)
    mixed.to_netcdf(tmp_path / "field.nc", engine="h5netcdf")
    field = open_file(str(tmp_path / "field.nc"), scratch=tmp_path)
    np.testing.assert_array_equal(field.t2m, canonical(raw).t2m)
    assert field.attrs["preliminary_times"] == "2020-03-31T23:00:00 2020-04-01T00:00:00"


def counted(calendar, days):
    """A field whose two times are counted in another calendar, packed as files are."""
    raw = raw_dataset().drop_vars("expver").assign_coords(valid_time=("valid_time", days))
    raw.valid_time.attrs = {"units": "days since 2004-01-01 12:00", "calendar": calendar, "bounds": "bnds"}
    raw["bnds"] = (("valid_time", "nv"), np.zeros((2, 2)))
    raw.t2m.encoding = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
    return raw


NOLEAP = ("noleap", [58.5, 59.0], ["2004-03-01T00", "2004-03-01T12"])


@pytest.mark.parametrize(
    ("kind", "calendar", "days", "dates"),
    [
        ("one", *NOLEAP),
        ("several", *NOLEAP),
        ("zarr", *NOLEAP),
        ("one", "360_day", [15.5, 359.0], ["2004-01-17T00", "2004-12-30T12"]),
    ],
)
def test_dates_of_other_calendars_are_taken_as_they_are(tmp_path, kind, calendar, days, dates):
    raw, expected = counted(calendar, days), raw_dataset()
    if kind == "one":
        (tmp_path / "one.nc").write_bytes(netcdf3(raw))
        field = open_file(str(tmp_path / "one.nc"), scratch=tmp_path)
    elif kind == "several":
        for part in (0, 1):
            raw.isel(valid_time=[part]).to_netcdf(tmp_path / f"{part}.nc", engine="h5netcdf")
        field = open_file(str(tmp_path / "?.nc"), scratch=tmp_path)
    else:
        raw.to_zarr(tmp_path / "store.zarr", zarr_format=2)
        field = open_source("zarr:" + str(tmp_path / "store.zarr"), cache_directory=tmp_path)
    np.testing.assert_array_equal(field.time, np.array(dates, dtype="datetime64[ns]"))
    np.testing.assert_allclose(field.t2m, canonical(expected).t2m, atol=0.006)  # packed
    assert field.attrs["source"].endswith(f" (calendar {calendar}, dates taken as they are)")


@pytest.mark.parametrize(
    ("calendar", "days"),
    [
        ("360_day", [58.0, 59.0]),
        ("julian", [59.0, 60.0]),
    ],
)
def test_dates_that_do_not_exist_are_refused_with_a_remedy(tmp_path, calendar, days):
    counted(calendar, days).to_netcdf(tmp_path / "cmip.nc", engine="h5netcdf")
    with pytest.raises(DataError) as refusal:
        open_file(str(tmp_path / "cmip.nc"), scratch=tmp_path)
    assert refusal.value.key == "calendar"


def test_a_zip_among_several_files(tmp_path):
    raw = raw_dataset(times=DAYS)
    folder = tmp_path / "fields"
    folder.mkdir()
    (folder / "a.zip").write_bytes(zipped(one=netcdf4(raw.isel(valid_time=[3])), two=b"words"))
    (folder / "b.nc").write_bytes(netcdf4(raw.isel(valid_time=[0, 1, 2])))
    np.testing.assert_array_equal(
        open_file(str(folder), scratch=tmp_path / "scratch").t2m, canonical(raw).t2m
    )


def test_public_stores_have_short_names_and_one_that_cannot_be_reached_is_a_clear_error(
    tmp_path, monkeypatch
):
    opened = []

    def unreachable(address, **options):
        opened.append((address, options))
        raise ConnectionError("network is unreachable")

    monkeypatch.setattr(remote, "plain_store", unreachable)
    for name, start in (
        ("arco-era5", "gs://gcp-public-data-arco-era5/"),
        ("weatherbench2", "gs://weatherbench2/"),
    ):
        with pytest.raises(DataError) as refusal:
            open_source(f"zarr:{name}", variable="msl", times=["2020-01-01"], cache_directory=tmp_path)
        assert refusal.value.key == "unreadable"
        assert opened[-1][0].startswith(start)
        assert opened[-1][1]["options"] == {"token": "anon"}
        with pytest.raises(DataError) as refusal:
            source_times(f"zarr:{name}", cache_directory=tmp_path)
        assert refusal.value.key == "unreadable"
    with pytest.raises(ConfigurationError) as refusal:
        open_source("weatherbench2", cache_directory=tmp_path)
    assert refusal.value.key == "source"


@pytest.mark.skipif(not FIELDS.is_dir(), reason="the folder of shared fields is not here")
def test_a_month_of_hours_and_a_part_of_europe_from_elsewhere(tmp_path):
    month = "era5_2t_2019-03_hourly_0p25_uk.grib"
    times = file_times(f"{FIELDS}/*_uk.grib", scratch=tmp_path)
    assert times.size == 744
    hour = open_file(str(FIELDS / month), Selection(times=["2019-03-31T23:00"], value="2t"), scratch=tmp_path)
    assert hour.t2m.shape == (1, 33, 49)
    assert 270.0 < float(hour.t2m.min()) < float(hour.t2m.max()) < 300.0
    europe = open_file(f"{FIELDS}/*europe*", scratch=tmp_path)
    assert europe.t2m.shape == (1, 121, 201)
