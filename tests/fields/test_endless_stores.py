"""Zarr stores that would fill the memory or never end are refused by name, in seconds and little memory."""

import gzip
import json
import lzma
import os
import re
import shutil
import zipfile
import zlib

import eccodes
import h5py
import numcodecs
import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import DataError, StoreError
from cagp_dist.fields.files import local_files
from cagp_dist.fields.stores.remote import open_zarr
from cagp_dist.store.bounded_codecs import unpacked_chunk
from cagp_dist.store.plain import check_metadata
from cagp_dist.store.zarr_arrays import content_sha256

from ..bombs import GIB, read_all, sparse, zstd_of_zeros

GIGABYTES = 3_400_000_000


def field():
    return xr.Dataset(
        {"t2m": (("time", "latitude", "longitude"), np.full((1, 3, 4), 280.0, "f4"), {"units": "K"})},
        coords={
            "time": np.array(["2020-01-01"], dtype="datetime64[ns]"),
            "latitude": [-60.0, 0.0, 60.0],
            "longitude": [0.0, 90.0, 180.0, 270.0],
        },
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    for number in (2, 3):
        field().to_zarr(folder / f"v{number}.zarr", zarr_format=number, consolidated=False)
    return folder


def changed(path, **values):
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, **values}))


def grid(*lengths):
    return {"name": "regular", "configuration": {"chunk_shape": lengths}}


def unpacks_to_gigabytes(root):
    (root / "t2m/c/0/0/0").write_bytes(zstd_of_zeros(GIGABYTES))


def gzip_of_gigabytes(root):
    changed(root / "t2m/.zarray", compressor={"id": "gzip", "level": 1})
    (root / "t2m/0.0.0").write_bytes(gzip.compress(bytes(100_000_000), 9) * 10)


def says_gigabytes(root):
    changed(root / "t2m/zarr.json", shape=[1, 30_000, 30_000], chunk_grid=grid(1, 30_000, 30_000))


def says_gigabytes_in_format_2(root):
    changed(root / "t2m/.zarray", shape=[1, 30_000, 30_000], chunks=[1, 30_000, 30_000])


def endless_axis(root):
    changed(root / "time/zarr.json", shape=[200_000_000], chunk_grid=grid(10))
    changed(root / "t2m/zarr.json", shape=[200_000_000, 3, 4], chunk_grid=grid(10_000, 3, 4))


def long_axis(root):
    changed(root / "time/.zarray", shape=[200_000_000], chunks=[50_000_000])


def endless_file(root):
    (root / "t2m/c/0/0/0").unlink()
    (root / "t2m/c/0/0/0").symlink_to("/dev/zero")


def secret_of_the_reader(root):
    (root / "t2m/c/0/0/0").unlink()
    (root / "t2m/c/0/0/0").symlink_to("/etc/passwd")


def pipe(root):
    (root / "t2m/c/0/0/0").unlink()
    os.mkfifo(root / "t2m/c/0/0/0")


def pipe_of_metadata(root):
    (root / "time/.zarray").unlink()
    os.mkfifo(root / "time/.zarray")


def loop(root):
    for name in "abcd":
        (root / name).symlink_to(".")


def sparse_chunk(root):
    sparse(root / "t2m/c/0/0/0", 10**12)


def gigabyte_of_metadata(root):
    sparse(root / "time/zarr.json", GIB)


def shard_of_many(root):
    codecs = [
        {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": [1, 1, 1],
                "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            },
        }
    ]
    shape = [1, 10**5, 10**5]
    changed(root / "t2m/zarr.json", shape=shape, chunk_grid=grid(*shape), codecs=codecs)


def field_without_end(root):
    changed(root / "t2m/zarr.json", shape=[1, 10**6, 10**6], chunk_grid=grid(1, 1, 1))


UNPACKS = "unpacks to more than the .* that its array says"
BOMBS = [
    (unpacks_to_gigabytes, 3, rf"a chunk of 101 KiB {UNPACKS}"),
    (gzip_of_gigabytes, 2, rf"a chunk of \d+ KiB {UNPACKS}"),
    (says_gigabytes, 3, r"array 't2m' has chunks of 3\.35 GiB; expected 512 MiB at most"),
    (says_gigabytes_in_format_2, 2, r"array 't2m' has chunks of 3\.35 GiB; expected 512 MiB at most"),
    (endless_axis, 3, "array 'time' has 200,000,000 values in 20,000,000 chunks of 80 B"),
    (long_axis, 2, "array 'time' has 200,000,000 values in 4 chunks"),
    (endless_file, 3, "not a regular file, but a pipe, a socket or a device"),
    (secret_of_the_reader, 3, "is a link, or lies behind one"),
    (pipe, 3, "not a regular file, but a pipe, a socket or a device"),
    (pipe_of_metadata, 2, "not a regular file, but a pipe, a socket or a device"),
    (loop, 3, "is a link, or lies behind one"),
    (sparse_chunk, 3, "has more than 1 MiB, the most that such a file"),
    (gigabyte_of_metadata, 3, "has more than 16 MiB, the most that such a file"),
    (shard_of_many, 3, "array 't2m' has shards of more than 1,048,576 chunks"),
    (field_without_end, 3, r"array 't2m' has 1,000,000,000,000 values in 1,000,000,000,000 chunks of 4 B"),
]


def test_each_is_refused_in_seconds_and_within_a_gibibyte(template, tmp_path):
    for make, version, _ in BOMBS:
        root = shutil.copytree(template / f"v{version}.zarr", tmp_path / f"{make.__name__}.zarr")
        make(root)
    sources = [str(tmp_path / f"{make.__name__}.zarr") for make, _, _ in BOMBS]
    found, peak = read_all(
        "open_zarr(source)",
        "from cagp_dist.fields.stores.remote import open_zarr",
        [*sources, str(template / "v3.zarr")],
    )
    for (said, seconds), (make, _, expected) in zip(found, BOMBS, strict=False):
        assert re.match(rf"DataError: .*{make.__name__}\.zarr", said), said
        assert re.search(expected, said), said
        assert seconds < 30.0, make.__name__
    assert found[-1][0] == "read"
    assert peak < GIB


def packed(codec, data):
    return numcodecs.get_codec(codec).encode(data)


@pytest.mark.parametrize(
    "codec",
    [
        {"id": "blosc", "cname": "zstd"},
        {"id": "bz2"},
        {"id": "gzip"},
        {"id": "lz4"},
        {"id": "lzma"},
        {"id": "lzma", "format": 3, "filters": [{"id": 33, "preset": 6}]},
        {"id": "zlib"},
        {"id": "zstd"},
    ],
    ids=lambda codec: f"{codec['id']}-{len(codec)}",
)
def test_compressors_give_their_bytes_and_no_more(codec):
    data = np.random.default_rng(0).normal(size=1000).astype("f4").tobytes()
    inner = numcodecs.get_codec(codec)
    assert bytes(unpacked_chunk(inner, packed(codec, data), len(data))) == data
    with pytest.raises(StoreError, match=UNPACKS):
        unpacked_chunk(inner, packed(codec, bytes(2**24)), 4000)
    with pytest.raises((OSError, ValueError, RuntimeError, EOFError, zlib.error, lzma.LZMAError)):
        unpacked_chunk(inner, packed(codec, data)[:-100], len(data))


def test_frames_of_zstd_in_a_row_are_counted_together():
    zstd = numcodecs.get_codec({"id": "zstd"})
    frame = zstd.encode(bytes(2**20))
    skipped = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"xyz"
    assert unpacked_chunk(zstd, frame, 2**20) == bytes(2**20)
    assert unpacked_chunk(zstd, zstd_of_zeros(2**20), 2**20) == bytes(2**20)
    with pytest.raises(StoreError, match=UNPACKS):
        unpacked_chunk(zstd, frame + skipped + 3 * frame, 2**20)


@pytest.mark.parametrize("version", [2, 3])
def test_what_was_read_is_written_again_with_its_own_compressors(template, tmp_path, version):
    from cagp_dist.store.plain import plain_store

    with xr.open_zarr(
        plain_store(str(template / f"v{version}.zarr")), chunks=None, consolidated=False
    ) as opened:
        opened.load().to_zarr(tmp_path / "again.zarr", zarr_format=version, consolidated=False)
    name = "zarr.json" if version == 3 else ".zarray"
    before, after = (
        json.loads((root / "t2m" / name).read_text())
        for root in (template / f"v{version}.zarr", tmp_path / "again.zarr")
    )
    assert before == after
    assert content_sha256(open_zarr(str(tmp_path / "again.zarr"))) == content_sha256(field())


def long_netcdf(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("time", (200_000_000,), "f8", chunks=(10,)).make_scale()


def packed_netcdf(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("t2m", (1, 30_000, 30_000), "f4", chunks=(1, 30_000, 30_000), compression="gzip")


def wide_grib(path):
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    for key, value in {"paramId": 167, "Ni": 30_000, "Nj": 30_000, "numberOfDataPoints": 900_000_000}.items():
        eccodes.codes_set(handle, key, value)
    path.write_bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)


def zip_of_zeros(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.grib", "w") as member:
        member.write(b"GRIB")
        for _ in range(300):
            member.write(bytes(2**20))


FILES = [
    (long_netcdf, "'/time' has 1.49 GiB, which are decoded at once; expected 256 MiB"),
    (packed_netcdf, "a chunk of '/t2m' has 3.35 GiB, which are decoded at once; expected 512 MiB"),
    (wide_grib, "a message says that it has 900000000 points"),
    (zip_of_zeros, "'x.grib' in the zip unpacks from 299 KiB to 300 MiB, as no data does"),
]


@pytest.mark.exhaustive
def test_so_are_files(tmp_path):
    for make, _ in FILES:
        make(tmp_path / f"{make.__name__}.data")
    found, peak = read_all(
        "open_file(source, scratch=Path(source).parent / 'scratch')",
        "from pathlib import Path\nfrom cagp_dist.fields.files.local_files import open_file",
        [str(tmp_path / f"{make.__name__}.data") for make, _ in FILES],
    )
    for (said, seconds), (make, expected) in zip(found, FILES, strict=True):
        assert re.match(rf"DataError: .*{make.__name__}\.data: {expected}", said), said
        assert seconds < 30.0
    assert peak < GIB
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.exhaustive
@pytest.mark.usefixtures("decoder_in_a_child")
def test_a_decoder_has_a_limit_of_memory(tmp_path, monkeypatch):
    large = field().isel(latitude=[0] * 3000, longitude=[0] * 9000)
    large = large.assign_coords(latitude=np.linspace(-90, 90, 3000), longitude=np.linspace(0, 359, 9000))
    large.to_netcdf(tmp_path / "x.nc", engine="h5netcdf", encoding={"t2m": {"zlib": True}})
    monkeypatch.setattr(local_files, "available_bytes", lambda: -(2**27))
    with pytest.raises(DataError) as refusal:
        local_files.open_file(tmp_path / "x.nc", scratch=tmp_path)
    assert refusal.value.key == "memory"


def test_shards_may_be_larger_than_their_numbers(tmp_path):
    """The list of chunks and the heads of compressed ones outweigh the numbers of small chunks."""
    encoding = {"t2m": {"chunks": (1, 1, 1), "shards": (1, 3, 4)}}
    field().to_zarr(tmp_path / "x.zarr", zarr_format=3, consolidated=False, encoding=encoding)
    assert content_sha256(open_zarr(str(tmp_path / "x.zarr"))) == content_sha256(field())
    numbers = field().t2m.nbytes
    excess = (tmp_path / "x.zarr/t2m/c/0/0/0").stat().st_size - numbers
    assert excess > numbers
    document = json.loads((tmp_path / "x.zarr/t2m/zarr.json").read_text())
    document["chunk_grid"] = grid(1, 1000, 1000)
    _, sizes = check_metadata("t2m/zarr.json", json.dumps(document).encode())
    assert sizes["t2m"] > 1_000_000 * (excess / field().t2m.size + 4)
