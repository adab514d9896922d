"""Arrays come back as they were written, and what is damaged or missing is an error that names the chunk."""

import errno
import json
import warnings
from itertools import product

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.errors import ZarrUserWarning

from cagp_dist.errors import ArgumentError, StoreError
from cagp_dist.store.durable_files import files_below
from cagp_dist.store.zarr_arrays import (
    chunk_shape,
    content_sha256,
    missing_chunks,
    open_group,
    read_group,
    verify_chunks,
    write_group,
)
from cagp_dist.store.zarr_files import consolidate


@pytest.fixture
def dataset():
    rng = np.random.default_rng(0)
    times = np.array(["2020-01-01T00", "2020-01-01T06", "2020-01-02"], dtype="datetime64[ns]")
    return xr.Dataset(
        {
            "t2m": (("time", "point"), rng.normal(280.0, 10.0, (3, 40)).astype("float32"), {"units": "K"}),
            "count": ("time", np.array([1, 2, 3])),
            "kept": ("time", np.array([True, False, True])),
            "label": ("time", np.array(["a", "bb", "ccc"])),
            "score": ((), 3.5),
            "nothing": ("empty", np.zeros(0)),
            "issued": ((), np.datetime64("2020-01-03T00:00:00.000000001", "ns")),
        },
        coords={"time": times, "point": np.arange(40.0), "name": ("time", np.array(["x", "y", "z"]))},
        attrs={"title": "numbers", "levels": [0.5, 0.9], "seconds": np.float64(2.5)},
    )


def test_every_kind_of_variable_comes_back_as_it_was(tmp_path, dataset):
    write_group(tmp_path / "s.zarr", "posterior", dataset, chunks={"time": 2, "point": 16})
    back = read_group(tmp_path / "s.zarr", "posterior")
    text = ["label", "name"]
    xr.testing.assert_identical(back.drop_vars(text), dataset.drop_vars(text))
    assert back.label.values.tolist() == ["a", "bb", "ccc"]
    assert set(back.coords) == {"time", "point", "name"}
    assert back.t2m.encoding["chunks"] == (2, 16)


def test_every_array_has_zstd_a_checksum_and_nan_fill(tmp_path, dataset):
    write_group(tmp_path, "/", dataset)
    for name in dataset.variables:
        metadata = json.loads((tmp_path / str(name) / "zarr.json").read_text())
        assert metadata["zarr_format"] == 3
        assert [codec["name"] for codec in metadata["codecs"]][-2:] == ["zstd", "crc32c"], name
        if metadata["data_type"].startswith("float"):
            assert metadata["fill_value"] == "NaN", name
    assert "consolidated_metadata" not in json.loads((tmp_path / "zarr.json").read_text())
    assert json.loads((tmp_path / "issued" / "zarr.json").read_text())["data_type"] == "int64"


def test_files_are_those_that_xarray_and_the_zarr_library_write(tmp_path, dataset):
    """The same chunks, byte for byte, and metadata; also what is consolidated."""
    dataset["old"] = ("point", np.arange(40.0).astype(">f8"), {"scale": np.float32(0.5), "of": np.arange(2)})
    chunks, encoding = {"time": 2, "point": 16}, {}
    for name, variable in dataset.variables.items():
        encoding[name] = {
            "compressors": (ZstdCodec(level=3), Crc32cCodec()),
            "chunk_key_encoding": {"name": "default", "separator": "."},
            "chunks": tuple(max(1, min(chunks.get(at, 1), size)) for at, size in variable.sizes.items()),
        }
        if variable.dtype.kind == "f":
            encoding[name]["fill_value"] = np.nan
            if name in dataset.coords:
                encoding[name]["_FillValue"] = None
    encoding["time"] |= {"units": "seconds since 1970-01-01", "dtype": "int64"}
    encoding["issued"] |= {"units": "nanoseconds since 1970-01-01", "dtype": "int64"}
    plain = dataset.assign({name: dataset[name].astype(object) for name in ("label", "name")})
    plain.to_zarr(
        tmp_path / "theirs", group="a/b", encoding=encoding, consolidated=False, write_empty_chunks=True
    )
    write_group(tmp_path / "ours", "a/b", dataset, chunks=chunks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZarrUserWarning)
        zarr.consolidate_metadata(tmp_path / "theirs")
    consolidate(tmp_path / "ours")
    files = {each: sorted(files_below(tmp_path / each)) for each in ("ours", "theirs")}
    assert files["ours"] == files["theirs"]
    for file in files["ours"]:
        ours, theirs = ((tmp_path / each / file).read_bytes() for each in ("ours", "theirs"))
        if file.endswith("zarr.json"):
            ours, theirs = json.loads(ours), json.loads(theirs)
        assert ours == theirs, file


def test_chunks_of_a_variable_share_files(tmp_path, monkeypatch):
    """What is missing or damaged of them is named by the file."""
    values = np.random.default_rng(0).normal(size=(23, 300, 70))
    dataset = xr.Dataset({"a": (("time", "y", "x"), values), "b": ("x", values[0, 0])})
    for shard_bytes, files in ((2**30, 1), (2**21, 2)):
        monkeypatch.setattr("cagp_dist.store.zarr_arrays.SHARD_BYTES", shard_bytes)
        path = tmp_path / str(files)
        write_group(path, "/", dataset, chunks={"time": 3}, sharded=True)
        xr.testing.assert_identical(read_group(path), dataset)
        assert len([*path.glob("a/c.*")]) == files
        assert (missing_chunks(path), verify_chunks(path)) == ([], files + 1)
    last = tmp_path / "2" / "a" / "c.1.0.0"
    for place in (5, -50, -2):  # of a chunk, of the list of chunks, of its checksum
        content = bytearray(last.read_bytes())
        content[place] ^= 1
        last.write_bytes(content)
        with pytest.raises(StoreError) as refusal:
            verify_chunks(tmp_path / "2")
        assert refusal.value.key == "damaged"
        content[place] ^= 1
        last.write_bytes(content)
    last.unlink()
    assert missing_chunks(tmp_path / "2") == ["a/c.1.0.0"]


@pytest.mark.parametrize("sharded", [False, True])
def test_parts_of_an_array_are_read_as_numpy_gives_them(tmp_path, sharded):
    values = np.random.default_rng(0).normal(size=(7, 30, 11)).astype(">f4")
    dataset = xr.Dataset({"a": (("time", "y", "x"), values)})
    write_group(tmp_path, "g", dataset, chunks={"time": 2, "y": 8, "x": 4}, sharded=sharded)
    places = [3, slice(2, 9), slice(None), slice(None, None, -2), slice(4, 4), [5, 0, 5], np.array([], int)]
    for turn, (y, x) in enumerate(product(places, places)):
        where = {"time": places[turn % 6], "y": y, "x": x}
        xr.testing.assert_equal(open_group(tmp_path, "g").isel(where).load(), dataset.isel(where))


def test_inherited_packing_does_not_round_the_values(tmp_path):
    variance = xr.Dataset({"t2m_std": ("point", np.array([0.001, 0.0123456789]))})
    variance.t2m_std.encoding = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 273.0, "chunks": (1,)}
    write_group(tmp_path, "posterior", variance)
    np.testing.assert_array_equal(read_group(tmp_path, "posterior").t2m_std, variance.t2m_std)


def test_a_group_is_written_once_and_others_may_follow(tmp_path, dataset):
    write_group(tmp_path, "/", xr.Dataset(attrs={"run_key": "k"}))
    write_group(tmp_path, "posterior", dataset)
    write_group(tmp_path, "calibration", dataset[["count"]])
    assert read_group(tmp_path).attrs == {"run_key": "k"}
    with pytest.raises(StoreError) as refused:
        write_group(tmp_path, "posterior", dataset)
    assert refused.value.key == "group-exists"


def test_chunks_equal_to_the_fill_are_written_too(tmp_path):
    write_group(tmp_path, "map", xr.Dataset({"t2m": ("point", np.full(10, np.nan))}), chunks={"point": 3})
    assert missing_chunks(tmp_path) == []
    assert len(list((tmp_path / "map" / "t2m").glob("c.*"))) == 4


@pytest.mark.parametrize("victim", ["posterior/t2m/c.0.1", "posterior/score/c", "posterior/label/c.0"])
def test_a_missing_chunk_is_named(tmp_path, dataset, victim):
    write_group(tmp_path, "posterior", dataset, chunks={"point": 16})
    assert verify_chunks(tmp_path) == 3 + 3 + 7
    (tmp_path / victim).unlink()
    assert missing_chunks(tmp_path) == [victim]
    assert missing_chunks(tmp_path, "posterior") == [victim]
    with pytest.raises(StoreError) as refusal:
        read_group(tmp_path, "posterior")
    assert refusal.value.key == "damaged"


@pytest.mark.parametrize("victim", ["posterior/t2m/c.0.0", "posterior/score/c", "posterior/label/c.0"])
def test_any_flipped_bit_or_cut_of_a_chunk_is_found(tmp_path, dataset, victim):
    write_group(tmp_path, "posterior", dataset)
    where = tmp_path / victim
    good = where.read_bytes()
    rng = np.random.default_rng(1)
    for bit in rng.integers(0, 8 * len(good), 25):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << (bit % 8)
        where.write_bytes(bad)
        with pytest.raises(StoreError) as refusal:
            verify_chunks(tmp_path)
        assert refusal.value.key == "damaged"
    for length in (0, 3, len(good) - 1):
        where.write_bytes(good[:length])
        with pytest.raises(StoreError) as refusal:
            read_group(tmp_path, "posterior")
        assert refusal.value.key == "damaged"


def test_damaged_metadata_or_no_store_is_an_error(tmp_path, dataset):
    with pytest.raises(StoreError) as refusal:
        missing_chunks(tmp_path / "absent")
    assert refusal.value.key == "unreadable"
    with pytest.raises(StoreError) as refused:
        read_group(tmp_path / "absent", "posterior")
    assert refused.value.key == "no-group"
    write_group(tmp_path, "posterior", dataset)
    (tmp_path / "posterior" / "t2m" / "zarr.json").write_text("{")
    with pytest.raises(StoreError) as refusal:
        verify_chunks(tmp_path)
    assert refusal.value.key == "unreadable"


def test_what_a_store_cannot_hold_is_refused_before_anything_is_written(tmp_path):
    where = tmp_path / "s.zarr"
    time = np.array(["2020-01-01", "NaT"], dtype="datetime64[ns]")
    for values, key in [
        (time, "times"),
        (np.array([1, None], dtype=object), "no-numbers"),
        (np.array([1j]), "no-numbers"),
    ]:
        with pytest.raises(ArgumentError) as refusal:
            write_group(where, "g", xr.Dataset({"v": ("x", values)}))
        assert refusal.value.key == key
    with pytest.raises(ArgumentError) as refused:
        write_group(where, "g", xr.Dataset({"v": ("x", np.zeros(2))}), chunks={"x": 0})
    assert refused.value.key == "chunks"
    assert not where.exists()


def test_a_full_disk_names_the_store(tmp_path, dataset, monkeypatch):
    def full(*arguments, **settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.mkdir", full)
    with pytest.raises(StoreError) as refusal:
        write_group(tmp_path, "g", dataset)
    assert refusal.value.key == "disk-full"


@given(
    shape=st.lists(st.integers(0, 3000), min_size=0, max_size=4).map(tuple),
    item_bytes=st.sampled_from([1, 4, 8]),
    limit_bytes=st.integers(8, 2**24),
)
def test_a_chunk_never_exceeds_its_bound(shape, item_bytes, limit_bytes):
    chunks = chunk_shape(shape, item_bytes=item_bytes, limit_bytes=limit_bytes)
    assert len(chunks) == len(shape)
    assert all(1 <= chunk <= max(1, length) for chunk, length in zip(chunks, shape, strict=True))
    assert item_bytes * int(np.prod(chunks, dtype=np.int64)) <= max(limit_bytes, item_bytes)


def test_a_group_is_opened_lazily_and_a_flipped_bit_is_found_on_reading(tmp_path, dataset):
    write_group(tmp_path, "posterior", dataset, chunks={"time": 1})
    chunk = tmp_path / "posterior" / "t2m" / "c.1.0"
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 16
    chunk.write_bytes(data)
    with open_group(tmp_path, "posterior") as opened:
        np.testing.assert_array_equal(opened.t2m[0].values, dataset.t2m[0])
        with pytest.raises(ValueError, match="checksum"):
            opened.t2m[1].load()
    (tmp_path / "posterior" / "t2m" / "zarr.json").write_text("{}")
    with pytest.raises(StoreError) as refusal:
        open_group(tmp_path, "posterior")
    assert refusal.value.key == "unreadable"


def test_the_content_hash_follows_every_number_and_nothing_else(dataset):
    numbers = dataset.drop_vars(["label", "name"])
    stored = numbers.assign_attrs(title="other").copy(deep=True)
    stored.t2m.encoding = {"dtype": "int16"}
    assert content_sha256(stored) == content_sha256(numbers)
    stored.t2m[0, 0] += np.float32(0.001)
    assert content_sha256(stored) != content_sha256(numbers)
    assert content_sha256(numbers.rename(t2m="d2m")) != content_sha256(numbers)
    moved = numbers.assign_coords(time=numbers.time + np.timedelta64(1, "h"))
    assert content_sha256(moved) != content_sha256(numbers)
    named = numbers.assign_coords(label=("time", np.array(["a", "b", "c"])))
    wider = numbers.assign_coords(label=("time", np.array(["a", "b", "c"], dtype="U12")))
    other = numbers.assign_coords(label=("time", np.array(["a", "b", "d"])))
    assert content_sha256(wider) == content_sha256(named)
    assert len({content_sha256(field) for field in (numbers, named, other)}) == 3
    with pytest.raises(ArgumentError) as refusal:
        content_sha256(numbers.assign_coords(name=dataset["name"].astype(object)))
    assert refusal.value.key == "no-numbers"
