"""Files of every layout are decoded, whatever they are called; whatever else comes is one clear error."""

import hashlib
import os
import select
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import eccodes
import h5py
import numpy as np
import pytest
import xarray as xr
from xarray.backends import H5NetCDFStore

import cagp_dist as cagp
from cagp_dist.errors import ConfigurationError, DataError, FullDiskError, TimeLimitError
from cagp_dist.fields.canonical import canonical, observation_points
from cagp_dist.fields.files import _decode, decoded_files, local_files
from cagp_dist.fields.files import local_files as files
from cagp_dist.fields.files.file_catalogue import FOLDER
from cagp_dist.fields.files.local_files import file_times, open_file, run_child
from cagp_dist.fields.files.sniff import FileKind, file_kind
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.sources import open_source

from ..mounts import needs_mounts, small_file_system
from ..regional import EUROPE, GAPS, corrupted, day
from .fields import grib, netcdf3, netcdf4, raw_dataset, zipped

in_a_child = pytest.mark.usefixtures("decoder_in_a_child")


@pytest.fixture
def write(tmp_path):
    def write_file(data, name="data.nc"):
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return write_file


@pytest.fixture
def scratch(tmp_path):
    return tmp_path / "cache" / "deep"


@in_a_child
def test_netcdf4_of_the_new_layout(write, scratch):
    raw = raw_dataset()
    path = write(netcdf4(raw), "misnamed.grib")
    field = open_file(path, scratch=scratch)
    expected = canonical(raw)
    xr.testing.assert_equal(field, expected)
    assert field.attrs["source"] == f"file:{path}"
    assert field.attrs["source_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [path.name for path in scratch.iterdir()] == [FOLDER]


def test_netcdf3_and_a_selection(write, scratch):
    raw = raw_dataset()
    field = open_file(
        write(netcdf3(raw)),
        Selection(times=["2020-01-01T12"], area=(55.0, 0.0, 35.0, 180.0)),
        scratch=scratch,
    )
    xr.testing.assert_equal(
        field, canonical(raw, selection=Selection(times=["2020-01-01T12"], area=(55.0, 0.0, 35.0, 180.0)))
    )


def test_a_zip_of_several_files_is_joined_and_other_members_are_ignored(write, scratch):
    raw = raw_dataset(times=("2020-01-01", "2020-01-02"))
    rain = raw.rename(t2m="tp")
    archive = zipped(
        **{
            "../../data_stream-oper_stepType-instant.nc": netcdf4(raw.isel(valid_time=[1])),
            "data_stream-oper_stepType-accum.nc": netcdf4(rain),
            "earlier.nc": netcdf3(raw.isel(valid_time=[0])),
            "licence.txt": b"words",
        }
    )
    xr.testing.assert_equal(open_file(write(archive), scratch=scratch), canonical(raw))
    assert [path.name for path in scratch.iterdir()] == [FOLDER]


def test_grib_times_are_found_by_their_headers(write, scratch):
    path = write(grib(["2020-02-01T06:00", "2020-01-31T18:00", "2020-02-01T00:00"]))
    (path.parent / f"{path.name}.idx").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")  # never unpickled
    field = open_file(path, Selection(times=["2020-02-01T06:00", "2020-01-31T18:00"]), scratch=scratch)
    np.testing.assert_array_equal(
        field.time, np.array(["2020-01-31T18", "2020-02-01T06"], dtype="datetime64[ns]")
    )
    assert field.t2m.shape == (2, 241, 480)
    assert 206.9 < field.t2m.min() < 207.0
    assert 316.0 < field.t2m.max() < 316.1


def test_all_times_of_a_file_are_listed_whichever_are_asked_for(write, scratch, monkeypatch):
    days = ["2020-01-01", "2020-01-02"]
    paths = [write(grib([f"{day}T00:00", f"{day}T12:00"]), f"{day}.grib") for day in days]
    address = os.fspath(paths[0].parent / "*.grib")
    for moment in ("2020-01-01T12", "2020-01-01T00", "2020-01-02T12"):
        field = open_file(address, Selection(times=[moment]), scratch=scratch)
        assert field.time.values.tolist() == [np.datetime64(moment, "ns").astype(int)]
        held = paths[0] if moment.startswith(days[0]) else paths[1]
        assert field.attrs["source_sha256"] == hashlib.sha256(held.read_bytes()).hexdigest()
    assert file_times(address, scratch=scratch).size == 4
    with monkeypatch.context() as patch:
        patch.setattr(local_files, "run_child", None)
        assert file_times(address, scratch=scratch).size == 4
    paths[1].write_bytes(grib([f"{days[1]}T06:00"]))
    assert file_times(address, scratch=scratch).size == 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n <!DOCTYPE html><html>",
        b"<?xml version='1.0'?>",
        b'{"title": "forbidden"}',
        b"\x1f\x8b\x08",
        b"PK\x05\x06" + b"\0" * 18,
        b"CDF\x05rest",
        b"version https://git-lfs.github.com/spec/v1",
        b"station,latitude\nS1,48.1",
        b"PAR1\x15\x04",
        b"\x00\x01\x02",
    ],
)
def test_what_is_no_data_is_told_by_its_first_bytes(write, scratch, data):
    path = write(data)
    with pytest.raises(DataError) as refused:
        open_file(path, scratch=scratch)
    assert refused.value.key == "not-a-field"
    assert not scratch.exists()


def test_kinds_are_told_by_first_bytes():
    raw = raw_dataset()
    assert file_kind(netcdf4(raw), name="x") is FileKind.NETCDF4
    assert file_kind(netcdf3(raw), name="x") is FileKind.NETCDF3
    assert file_kind(zipped(a=b""), name="x") is FileKind.ZIP
    assert file_kind(grib(["2020-01-01T00:00"]), name="x") is FileKind.GRIB


@pytest.mark.parametrize("make", ["netcdf4", "netcdf3", "grib", "zip"])
def test_a_truncated_file_is_an_error_that_names_it(write, scratch, make):
    raw = raw_dataset()
    data = {
        "netcdf4": lambda: netcdf4(raw),
        "netcdf3": lambda: netcdf3(raw),
        "grib": lambda: grib(["2020-01-01T00:00"]),
        "zip": lambda: zipped(a=netcdf3(raw)),
    }[make]()
    path = write(data[: len(data) * 2 // 3])
    with pytest.raises(DataError) as refusal:
        open_file(path, scratch=scratch)
    assert refusal.value.key == "damaged"
    assert list(scratch.iterdir()) == []


def test_a_damaged_member_of_a_zip_is_found(write, scratch):
    data = bytearray(zipped(a=netcdf3(raw_dataset())))
    data[300] ^= 4
    with pytest.raises(DataError) as refusal:
        open_file(write(bytes(data)), scratch=scratch)
    assert refusal.value.key == "damaged"


def test_a_zip_without_data_is_an_error(write, scratch):
    with pytest.raises(DataError) as refusal:
        open_file(write(zipped(a=b"words", b=zipped(c=b"x"))), scratch=scratch)
    assert refusal.value.key == "no-field-file"


def test_a_zip_that_would_fill_the_disk_is_not_unpacked(write, tmp_path, monkeypatch):
    monkeypatch.setattr(_decode.shutil, "disk_usage", lambda folder: SimpleNamespace(total=10**6, free=4000))
    for size, kind in {1998: FullDiskError, 600_000: DataError}.items():  # which never fits
        with pytest.raises(kind) as refusal:
            list(_decode._unpacked(write(zipped(a=b"GRIB" + b"x" * size, b=bytes(9000))), tmp_path))
        assert refusal.value.key == "disk"


@needs_mounts
def test_a_full_disk_is_no_fault_of_a_file(write, tmp_path):
    """Where nothing can be written, its error neither; with a page, what has its times alone."""
    paths = [write(netcdf3(raw_dataset()))]
    with small_file_system(tmp_path / "scratch") as change:
        (tmp_path / "scratch" / "other").write_bytes(bytes(4096))
        for pages, ask in ((0, file_times), (1, open_file)):
            change(size=pages * 4096)
            with pytest.raises(FullDiskError) as refusal:
                ask(paths[0], scratch=tmp_path / "scratch")
            assert refusal.value.key == "disk-full"
            assert f"are free in {tmp_path}/scratch" in str(refusal.value)


def test_a_wrong_variable_is_named_in_grib_too(write, scratch):
    import eccodes

    handle = eccodes.codes_new_from_message(grib(["2020-01-01T00:00"]))
    eccodes.codes_set(handle, "paramId", 168)
    path = write(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    with pytest.raises(DataError) as refusal:
        open_file(path, scratch=scratch)
    assert refusal.value.key == "absent-variable"


def test_errors_of_the_selection_keep_their_kind(write, scratch):
    path = write(netcdf3(raw_dataset()))
    with pytest.raises(ConfigurationError) as refusal:
        open_file(path, Selection(grid_degrees=3.0), scratch=scratch)
    assert refusal.value.key == "grid-degrees"
    with pytest.raises(DataError) as refusal:
        open_file(path, Selection(times=["1999-01-01"]), scratch=scratch)
    assert refusal.value.key == "absent-times"


def test_an_absent_file_and_a_folder_are_data_errors(tmp_path):
    with pytest.raises(DataError) as refusal:
        open_file(tmp_path / "no.grib", scratch=tmp_path)
    assert refusal.value.key == "unreadable"
    (tmp_path / "zarr.json").write_text("{}")
    with pytest.raises(DataError) as refusal:
        open_file(tmp_path, scratch=tmp_path)
    assert refusal.value.key == "folder"


def test_a_cache_folder_that_cannot_be_made_is_a_configuration_error(write, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigurationError) as refusal:
        open_file(write(netcdf3(raw_dataset())), scratch=tmp_path / "file" / "deep")
    assert refusal.value.key == "cache-folder"


@in_a_child
@pytest.mark.parametrize(
    ("script", "seconds", "message"),
    [
        ("kill -SEGV $$", 60.0, "was ended by SIGSEGV. The file is damaged .* Its message: nothing"),
        ("echo one >&2; echo two >&2; exit 7", 60.0, "ended with exit code 7.* Its message: two"),
        ("exec sleep 600", 0.5, r"took longer than 0\.5 s and was stopped"),
    ],
)
def test_a_decoder_that_dies_or_hangs_costs_one_error(
    write, scratch, tmp_path, monkeypatch, script, seconds, message
):
    decoder = tmp_path / "decoder"
    decoder.write_text(f"#!/bin/sh\n{script}\n")
    decoder.chmod(0o755)
    monkeypatch.setattr(files.sys, "executable", os.fspath(decoder))
    monkeypatch.setattr(files, "DECODE_SECONDS", seconds)
    path = write(netcdf3(raw_dataset()))
    with pytest.raises(DataError, match=f"{path} {message}"):
        open_file(path, scratch=scratch)
    assert list(scratch.iterdir()) == []


@in_a_child
@pytest.mark.parametrize("listed", [False, True])
def test_reading_ends_at_the_time_limit_of_a_call_and_leaves_nothing_behind(
    write, tmp_path, monkeypatch, caplog, listed
):
    """In a call that decodes one file, or first lists the times of several."""
    decoder, pid = tmp_path / "decoder", tmp_path / "pid"
    decoder.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 30\n")
    decoder.chmod(0o755)
    monkeypatch.setattr(files.sys, "executable", os.fspath(decoder))
    paths = [write(netcdf3(raw_dataset()), f"{number}.nc") for number in range(2)]
    source, where = (
        (f"file:{tmp_path}/*.nc", {"times": "2020-01-01T12"}) if listed else (f"file:{paths[0]}", {})
    )
    threads, began = set(threading.enumerate()), time.monotonic()
    with pytest.raises(TimeLimitError) as refusal:
        cagp.krige(source, to=5.0, where=where, time_limit_seconds=1.0, lengthscale=0.1, variance=1.0)
    assert 1.0 <= time.monotonic() - began < 3.0
    assert refusal.value.key == "time-limit"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert set(threading.enumerate()) <= threads
    assert not caplog.records  # a word every ten seconds, and no more


@in_a_child
def test_an_interrupt_ends_the_child_process(tmp_path, monkeypatch):
    decoder, pid = tmp_path / "decoder", tmp_path / "pid"
    decoder.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 30\n")
    decoder.chmod(0o755)
    monkeypatch.setattr(files.sys, "executable", os.fspath(decoder))

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_child({"folder": os.fspath(tmp_path)}, "it", 60.0, interrupted)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@in_a_child
def test_a_request_that_no_pipe_holds_comes_to_the_child_process(tmp_path):
    """Its first byte is read long after the first look at the child process."""
    paths = [os.fspath(tmp_path / f"{number:0100}.nc") for number in range(2000)]
    request = {"paths": paths, "folder": os.fspath(tmp_path), "selection": {}, "limits": [9] * len(paths)}
    run_child(request, "it", 60.0)
    assert len(decoded_files.saved_listings(tmp_path)) == len(paths)


JOB_THAT_IS_KILLED = """
import os, sys
from pathlib import Path
from cagp_dist.fields.files.local_files import run_child
folder = Path(sys.argv[1])
job = {"paths": [str(folder / "pipe")], "folder": str(folder), "selection": {}}
run_child(job, "a pipe that nobody writes to", 60.0)
"""


@pytest.mark.exhaustive
def test_a_decoder_ends_with_the_job_that_started_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen([sys.executable, "-c", JOB_THAT_IS_KILLED, tmp_path]) as job:
        pipe = os.open(tmp_path / "pipe", os.O_WRONLY)  # waits until the decoder opens it
        job.kill()
    gone = select.poll()
    gone.register(pipe, 0)  # tells when nobody reads any more
    assert gone.poll(30_000) == [(pipe, select.POLLERR)]
    os.close(pipe)


@in_a_child
def test_the_decoder_is_not_given_the_key(write, scratch, tmp_path, monkeypatch):
    decoder = tmp_path / "decoder"
    decoder.write_text("#!/bin/sh\nenv >&2; echo last $CDSAPI_KEY $PYTHONPATH >&2; exit 1\n")
    decoder.chmod(0o755)
    monkeypatch.setattr(files.sys, "executable", os.fspath(decoder))
    monkeypatch.setenv("CDSAPI_KEY", "secret-key")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    with pytest.raises(DataError) as caught:
        open_file(write(netcdf3(raw_dataset())), scratch=scratch)
    assert "secret-key" not in str(caught.value)
    assert str(caught.value).endswith(":/somewhere")


def scanned_westward():
    """Europe in GRIB 2, each row from east to west: the decoder lists its longitudes in another order."""
    handle = eccodes.codes_new_from_message(EUROPE.read_bytes())
    values = eccodes.codes_get_values(handle).reshape(41, 67)[:, ::-1]
    east, west = (
        eccodes.codes_get(handle, f"longitudeOf{end}GridPointInDegrees") for end in ("Last", "First")
    )
    keys = {
        "edition": 2,
        "iScansNegatively": 1,
        "longitudeOfFirstGridPointInDegrees": east,
        "longitudeOfLastGridPointInDegrees": west % 360.0,
    }
    for key, value in keys.items():
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set_values(handle, values.ravel())
    message = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return message


@pytest.mark.parametrize("message", [EUROPE.read_bytes, scanned_westward])
def test_a_regional_file_across_greenwich_is_the_part_of_the_global_field(write, scratch, message):
    sample = open_source("sample", area=(60.0, -10.0, 30.0, 40.0), cache_directory=scratch)
    field = open_file(write(message(), "europe.grib"), scratch=scratch)
    assert field.t2m.shape == (1, 41, 67)
    np.testing.assert_allclose(field.t2m, sample.t2m, atol=2e-3)  # 24 bits of a smaller range
    for name in ("time", "latitude", "longitude"):
        np.testing.assert_array_equal(field[name], sample[name])


@pytest.mark.parametrize("order", [1, -1], ids=["final first", "preliminary first"])
def test_of_two_versions_of_a_time_in_grib_the_final_one_is_taken(write, scratch, order):
    """Whatever the decoder does with several messages of a time, it never sees two."""
    noon, evening = "2020-01-01T12", "2020-01-01T18"
    messages = [grib([noon]), grib([noon, evening], version="0005", warmer=1.0)]
    field = open_file(write(b"".join(messages[::order]), "both.grib"), scratch=scratch)
    assert field.attrs["preliminary_times"] == "2020-01-01T18:00:00"
    sample = open_source("sample", cache_directory=scratch).t2m[0]
    for at, warmer in enumerate([0.0, 1.0]):
        np.testing.assert_allclose(field.t2m[at], sample + warmer, atol=2e-3)


@pytest.mark.parametrize("order", [1, -1])
def test_versions_of_a_table_of_starts_and_steps_are_those_of_its_messages(write, scratch, order):
    starts = ["2020-01-01T00", "2020-01-01T12"]
    parts = [
        grib([start], version=version, step=step)
        for start, version in zip(starts, ["0001", "0005"], strict=True)
        for step in (0, 1)
    ]
    parts.append(grib(starts[1:], warmer=1.0))  # the final one of this hour came meanwhile
    field = open_file(write(b"".join(parts[::order]), "steps.grib"), scratch=scratch)
    assert field.attrs["preliminary_times"] == "2020-01-01T13:00:00"
    warmer = field.t2m - open_source("sample", cache_directory=scratch).t2m.values
    np.testing.assert_allclose(warmer.mean(("latitude", "longitude")), [0.0, 0.0, 1.0, 0.0], atol=1e-3)


def test_a_corrupted_grib_message_is_refused(write, scratch):
    with pytest.raises(DataError) as refusal:
        open_file(write(corrupted(), "corrupted.grib"), scratch=scratch)
    assert refusal.value.key == "damaged"


def test_missing_values_of_grib_are_dropped_and_counted(scratch):
    points = observation_points(open_file(GAPS, scratch=scratch))
    assert points.values.shape == (1, 2376)
    assert points.dropped_missing == 371
    assert points.values.min() >= 280.0


@pytest.mark.exhaustive
def test_of_a_month_the_hours_that_are_asked_for_are_decoded(write, scratch, tmp_path, monkeypatch):
    """In this process, so that it is counted of which messages the values are unpacked."""
    month = write(b"".join(day(f"2019-03-{number:02d}") for number in range(1, 32)), "month.grib")
    hours = [f"2019-03-05T{hour:02d}:00" for hour in range(24)]
    field = open_file(month, Selection(times=hours), scratch=scratch)
    assert field.t2m.shape == (24, 41, 67)
    assert field.longitude.values[[0, -1]].tolist() == [0.0, 359.25]
    unpacked, get_array = [], eccodes.codes_get_array

    def counted(handle, key, *arguments, **settings):
        if key == "values":
            unpacked.append(int(eccodes.codes_get(handle, "dataDate")))
        return get_array(handle, key, *arguments, **settings)

    monkeypatch.setattr(eccodes, "codes_get_array", counted)
    job = {"paths": [str(month)], "folder": str(tmp_path), "selection": Selection(times=hours)}
    _decode._decode(job, tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "values.npy"), field.t2m.values)
    assert unpacked == 24 * [20190305]


def test_of_many_single_numbers_only_those_that_may_be_asked_for_are_opened(tmp_path, monkeypatch):
    """The place and the height of a station and what is chosen by, and not the 300 others."""
    path, opened = tmp_path / "station.nc", []
    times = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]")
    held = xr.Dataset({"t2m": ("time", np.array([280.0, 281.0]), {"units": "K"})}, coords={"time": times})
    held.to_netcdf(path, engine="h5netcdf")
    wanted = {"lat": 52.0, "lon": 13.0, "height": 2.0, "chosen": 1.0}
    with h5py.File(path, "a") as file:
        for name, value in {**wanted, **{f"scalar_{number}": 0.0 for number in range(300)}}.items():
            file.create_dataset(name, data=value)

    def open_variable(self, name, variable, original=H5NetCDFStore.open_store_variable):
        opened.append(name)
        return original(self, name, variable)

    monkeypatch.setattr(H5NetCDFStore, "open_store_variable", open_variable)
    with _decode._open_netcdf(path, Selection(where={"chosen": 1.0})) as found:
        assert {*opened} == {*found.variables} == {"t2m", "time", *wanted}
        assert float(found.lat) == 52.0
    monkeypatch.setattr(_decode, "MANY_SCALARS", 400)
    with _decode._open_netcdf(path, Selection()) as found:
        assert len(found.variables) == 306
