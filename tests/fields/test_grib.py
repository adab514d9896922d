"""Messages of GRIB: which make a field, what tells others apart, and where their values lie."""

import threading
import time

import eccodes
import numpy as np
import pytest

from cagp_dist.errors import DataError
from cagp_dist.fields.files import _decode, decoded_files, local_files
from cagp_dist.fields.files.local_files import file_times, open_file
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.sources import open_source
from cagp_dist.text import bytes_text

from ..joined import one_after_another

NORTH, EAST = np.array([52.0, 51.0, 50.0]), np.array([-2.0, -1.0, 0.0, 1.0])
FIELD = 280.0 + 10.0 * np.sin(NORTH)[:, None] + EAST
NOON, EVENING = (20200701, 1200), (20200701, 1800)


def message(values=FIELD, *, parameter=167, when=NOON, mode=0, **keys):
    """A message of GRIB 2 in a scanning mode; keys are set in their order."""
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    westward, northward, columns, alternating = (bool(mode >> bit & 1) for bit in (7, 6, 5, 4))
    north, east = NORTH[:: -1 if northward else 1], EAST[:: -1 if westward else 1] % 360.0
    settings = {
        "Ni": 4, "Nj": 3, "iDirectionIncrementInDegrees": 1.0, "jDirectionIncrementInDegrees": 1.0,
        "latitudeOfFirstGridPointInDegrees": north[0], "latitudeOfLastGridPointInDegrees": north[-1],
        "longitudeOfFirstGridPointInDegrees": east[0], "longitudeOfLastGridPointInDegrees": east[-1],
        "scanningMode": mode, "dataDate": when[0], "dataTime": when[1], "paramId": parameter,
        "bitsPerValue": 24, **keys,
    }  # fmt: skip
    for key, value in settings.items():
        eccodes.codes_set(handle, key, value)
    if values.ndim == 2:
        lines = values[:: -1 if northward else 1, :: -1 if westward else 1]
        lines = (lines.T if columns else lines).copy()
        if alternating:
            lines[1::2] = lines[1::2, ::-1]
        values = lines.ravel()
    eccodes.codes_set_values(handle, values)
    data = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return data


@pytest.fixture
def read(tmp_path):
    def field(*messages, **selection):
        path = tmp_path / "field.grib2"
        path.write_bytes(b"".join(messages))
        return open_file(path, Selection(**selection), scratch=tmp_path)

    return field


@one_after_another
@pytest.mark.parametrize("mode", range(0, 256, 16), ids="{:08b}".format)
def test_values_lie_where_every_scanning_mode_puts_them(read, mode):
    found = read(message(mode=mode), message(FIELD + 1.0, when=EVENING)).t2m
    assert found.shape == (2, 3, 4)
    placed = found.sel(latitude=NORTH, longitude=EAST % 360.0)
    np.testing.assert_allclose(placed, [FIELD, FIELD + 1.0], atol=1e-4)


def rain(steps, depth):
    start, end = map(int, steps.split("-"))
    return message(
        np.full((3, 4), depth),
        parameter=228,
        productDefinitionTemplateNumber=8,
        lengthOfTimeRange=end - start,
        stepRange=steps,
    )


def test_two_accumulations_that_end_together_are_refused_until_one_is_chosen(read, tmp_path):
    both = rain("0-5", 0.005), rain("4-5", 0.001)
    for order in (both, both[::-1]):
        with pytest.raises(
            DataError,
        ) as refusal:
            read(*order, value="tp")
        assert refusal.value.key == "several-values"
        for steps, depth in (("0-5", 0.005), ("4-5", 0.001)):
            found = read(*order, value="tp", where={"stepRange": steps})
            np.testing.assert_allclose(found.tp, depth, rtol=1e-3)
            assert found.tp.attrs["long_name"].endswith(f"(stepRange {steps})")
    assert file_times(tmp_path / "field.grib2", Selection(value="tp"), scratch=tmp_path).size == 1
    with pytest.raises(DataError) as refusal:
        read(*both[::-1], value="tp", where={"stepRange": "1-5"})
    assert refusal.value.key == "not-there"


def test_the_key_that_is_proposed_leaves_a_message_for_each_time(read):
    steps = ["0-1", "0-2", "1-2", "0-3", "2-3"]
    messages = [rain(each, 0.001 * (number + 1)) for number, each in enumerate(steps)]
    with pytest.raises(DataError) as refusal:
        read(*messages, value="tp")
    assert refusal.value.key == "several-values"
    found = read(*messages, value="tp", where={"startStep": 0})
    np.testing.assert_allclose(found.tp[:, 0, 0], [0.001, 0.002, 0.004], rtol=1e-3)
    assert read(*messages, value="tp", where={"stepRange": ["0-1", "1-2"]}).tp.shape[0] == 2


def test_messages_that_no_key_tells_apart_are_one_field_or_refused(read):
    assert read(message(), message()).t2m.shape == (1, 3, 4)
    with pytest.raises(DataError) as refusal:
        read(message(), message(FIELD + 1.0))
    assert refusal.value.key == "several-values"


def test_any_key_that_tells_messages_apart_is_named(read):
    with pytest.raises(DataError) as refusal:
        read(message(), message(FIELD + 1.0, generatingProcessIdentifier=7))
    assert refusal.value.key == "several-values"


MEMBER = {"productDefinitionTemplateNumber": 1}
LIGHT = {
    "parameter": 210207,
    "productDefinitionTemplateNumber": 48,
    "typeOfWavelengthInterval": 11,
    "scaleFactorOfFirstWavelength": 9,
}
OTHERS = {
    "types of level": (
        {"parameter": 130, "typeOfLevel": "isobaricInhPa", "level": 850},
        {"parameter": 130, "typeOfLevel": "hybrid", "level": 1},
        {"typeOfLevel": "hybrid"},
        "typeOfLevel (isobaricInhPa, hybrid); level (850, 1)",
    ),
    "members": (MEMBER | {"number": 0}, MEMBER | {"number": 1}, {"number": 1}, "number (0, 1)"),
    "wavelengths": (
        LIGHT | {"scaledValueOfFirstWavelength": 550},
        LIGHT | {"scaledValueOfFirstWavelength": 865},
        {"scaledValueOfFirstWavelength": 865},
        "scaledValueOfFirstWavelength (550, 865)",
    ),
    "grids": (
        {},
        {"longitudeOfFirstGridPointInDegrees": 8.0, "longitudeOfLastGridPointInDegrees": 11.0},
        {"longitudeOfFirstGridPointInDegrees": 8.0},
        "longitudeOfFirstGridPointInDegrees (358, 8)",
    ),
}


@pytest.mark.parametrize("when", [NOON, EVENING], ids=["one time", "two times"])
@pytest.mark.parametrize("kind", OTHERS)
def test_messages_of_different_kinds_are_told_apart_and_chosen(read, kind, when):
    first, second, select, said = OTHERS[kind]
    variable = {130: "t", 210207: "aod550"}.get(first.get("parameter"), "t2m")
    messages = message(**first), message(FIELD + 1.0, when=when, **second)
    with pytest.raises(DataError) as caught:
        read(*messages, value=variable)
    assert caught.value.key == "several-values"
    assert said in str(caught.value)
    (found,) = read(*messages, value=variable, where=select).data_vars.values()
    columns = EAST if kind != "grids" else EAST + 10.0
    placed = found[0].sel(latitude=NORTH, longitude=columns % 360.0)
    np.testing.assert_allclose(placed, FIELD + 1.0, atol=1e-3)


def test_the_layer_at_the_surface_is_chosen_by_its_level(read):
    layers = [
        message(FIELD + top, parameter=139, typeOfLevel="depthBelowLandLayer", topLevel=top) for top in (0, 7)
    ]
    with pytest.raises(DataError) as refusal:
        read(*layers, value="stl1")
    assert refusal.value.key == "several-levels"
    found = (
        read(*layers, value="stl1", where={"level": 0}).stl1[0].sel(latitude=NORTH, longitude=EAST % 360.0)
    )
    np.testing.assert_allclose(found, FIELD, atol=1e-3)


def test_reading_that_takes_long_says_which_message_it_is_at(tmp_path, monkeypatch):
    """The child writes how far it is, and the parent says it; the log is told where nobody else is."""
    path, said, written = tmp_path / "field.grib2", [], []
    path.write_bytes(b"".join(message(when=(20200701, 100 * hour)) for hour in range(5)))
    monkeypatch.setattr(_decode, "HEADWAY_SECONDS", 0.0)
    save = decoded_files.save_headway

    def saved(text, folder):
        save(text, folder)
        written.append(text)
        until = time.monotonic() + 5.0
        while not any(text in line for line in said) and time.monotonic() < until:
            time.sleep(0.001)

    monkeypatch.setattr(decoded_files, "save_headway", saved)
    monkeypatch.setattr(local_files, "SAID_SECONDS", 0.001)
    open_source(f"file:{path}", cache_directory=tmp_path, progress=said.append)
    assert written == [f"{count} of 5 messages decoded" for count in range(1, 6)]
    assert f"reading {path} ({bytes_text(path.stat().st_size)}): 5 of 5 messages decoded" in said


def test_files_that_are_read_are_counted_and_what_a_listener_raises_ends_the_reading(tmp_path, monkeypatch):
    paths = []
    for number, when in enumerate((NOON, EVENING)):
        paths.append(tmp_path / f"{number}.grib2")
        paths[-1].write_bytes(message(when=when))
    written, heard = [], threading.Event()

    def saved(text, folder):
        written.append(text)
        heard.wait(5.0)

    monkeypatch.setattr(decoded_files, "save_headway", saved)
    monkeypatch.setattr(local_files, "SAID_SECONDS", 0.001)

    def fails(text):
        heard.set()
        raise OSError("nobody listens")

    with pytest.raises(OSError, match="nobody listens"):
        open_file(tmp_path / "*.grib2", scratch=tmp_path, progress=fails)
    assert written[0] == "file 1 of 2"
    assert written[-1] == "file 2 of 2, 1 of 1 message decoded"
