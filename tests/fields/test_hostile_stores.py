"""A Zarr store cannot run code where it is read: what is not plain is refused before it is decoded."""

import json
import os
import pickle
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import numcodecs.pickles
import numpy as np
import pytest
import xarray as xr
import zarr

from cagp_dist.errors import ConfigurationError, DataError, StoreError
from cagp_dist.fields.climatology import open_climatology
from cagp_dist.fields.sources import open_source
from cagp_dist.fields.stores.remote import open_zarr
from cagp_dist.store.plain import check_metadata
from cagp_dist.store.zarr_arrays import open_group, read_group, write_group

from ..joined import one_after_another

HOSTILE = {
    "zarr_format": 2,
    "shape": [1],
    "chunks": [1],
    "dtype": "|O",
    "order": "C",
    "fill_value": None,
    "compressor": None,
    "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}],
}
REFUSED = r"array '{name}' has dtype '\|O', codec 'vlen-utf8', codec 'pickle'.* nothing of it was decoded"


class Payload:
    """Unpickling it makes a file."""

    def __init__(self, evidence):
        self.evidence = evidence

    def __reduce__(self):
        return Path.touch, (self.evidence,)


@pytest.fixture(autouse=True)
def unpickling(monkeypatch):
    """What older versions of numcodecs do, and the newest with NUMCODECS_ALLOW_UNSAFE_PICKLE_DECODE=1."""
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True)


@pytest.fixture
def evidence(tmp_path):
    return tmp_path / "code-has-run"


def field(time="2020-01-01"):
    values = np.full((1, 3, 4), 280.0, dtype="f4")
    return xr.Dataset(
        {"t2m": (("time", "latitude", "longitude"), values, {"units": "K"})},
        coords={
            "time": np.array([time], dtype="datetime64[ns]"),
            "latitude": [-60.0, 0.0, 60.0],
            "longitude": [0.0, 90.0, 180.0, 270.0],
        },
    )


def hostile_store(root, name, evidence, *, consolidated=False, dimension="note"):
    """A good field in format 2, and beside it an array whose only chunk is the payload."""
    field().to_zarr(root, zarr_format=2, consolidated=False)
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    for group in folder.parents:
        if root in group.parents:
            (group / ".zgroup").write_text('{"zarr_format": 2}')
    (folder / ".zarray").write_text(json.dumps(HOSTILE))
    (folder / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": [dimension]}))
    (folder / "0").write_bytes(pickle.dumps(Payload(evidence)))
    if consolidated:
        documents = {
            path.relative_to(root).as_posix(): json.loads(path.read_text())
            for path in sorted(root.rglob(".z*"))
        }
        (root / ".zmetadata").write_text(json.dumps({"zarr_consolidated_format": 1, "metadata": documents}))
    return root


def test_the_payload_runs_where_nothing_is_checked(tmp_path, evidence):
    root = hostile_store(tmp_path / "x.zarr", "note", evidence)
    with pytest.raises(Exception, match=r"dtype|object|type|buffer"):
        zarr.open_group(root, mode="r")["note"][:]
    assert evidence.exists()


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize(
    ("name", "dimension"),
    [
        ("note", "note"),
        ("note", "time"),
        ("latitude", "latitude"),
        ("t2m", "time"),
        ("below/it/note", "note"),
    ],
    ids=["coordinate", "beside", "latitude", "field", "nested"],
)
def test_no_array_of_a_source_is_decoded_if_one_is_hostile(tmp_path, evidence, name, dimension, consolidated):
    root = hostile_store(tmp_path / "x.zarr", name, evidence, consolidated=consolidated, dimension=dimension)
    for read in (
        open_zarr,
        open_climatology,
        lambda address: open_source(f"zarr:{address}", cache_directory=tmp_path),
        lambda address: open_zarr(f"file://{address}"),
    ):
        with pytest.raises(DataError, match=rf"x\.zarr: {REFUSED.format(name=name)}"):
            read(str(root))
    assert not evidence.exists()


def test_a_store_whose_consolidated_metadata_alone_is_hostile(tmp_path, evidence):
    root = hostile_store(tmp_path / "x.zarr", "note", evidence, consolidated=True)
    (root / "note" / ".zarray").write_text((root / "latitude" / ".zarray").read_text())
    with pytest.raises(DataError, match=REFUSED.format(name="note")):
        open_zarr(str(root))
    assert not evidence.exists()


def test_a_store_whose_consolidated_metadata_hides_the_array(tmp_path, evidence):
    root = hostile_store(tmp_path / "x.zarr", "note", evidence, consolidated=True)
    listing = json.loads((root / ".zmetadata").read_text())
    del listing["metadata"]["note/.zarray"], listing["metadata"]["note/.zattrs"]
    (root / ".zmetadata").write_text(json.dumps(listing))
    assert open_zarr(str(root)).t2m.shape == (1, 3, 4)
    assert not evidence.exists()


@pytest.mark.exhaustive
def test_a_server_that_changes_its_mind_after_the_check(tmp_path, evidence):
    """The first answer for an array is harmless, each later one hostile: there is no second question."""
    root = hostile_store(tmp_path / "x.zarr", "t2m", evidence, consolidated=False)
    good = field().to_zarr(tmp_path / "good.zarr", zarr_format=2, consolidated=False)
    assert good is not None
    harmless = (tmp_path / "good.zarr" / "t2m" / ".zarray").read_bytes()
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *message):
            pass

        def do_GET(self):
            if not self.path.endswith("/t2m/.zarray"):
                return super().do_GET()
            asked.append(self.path)
            body = harmless if len(asked) == 1 else (root / "t2m" / ".zarray").read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        with pytest.raises(DataError) as refusal:
            open_zarr(f"http://127.0.0.1:{server.server_port}/x.zarr")
        assert refusal.value.key == "unreadable"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert asked == ["/x.zarr/t2m/.zarray"]
    assert not evidence.exists()


def test_leave_for_numcodecs_to_unpickle_opens_nothing(tmp_path, evidence, monkeypatch):
    """As the environment variable NUMCODECS_ALLOW_UNSAFE_PICKLE_DECODE gives it."""
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True)
    root = hostile_store(tmp_path / "x.zarr", "note", evidence)
    with pytest.raises(DataError, match="codec 'pickle'"):
        open_zarr(str(root))
    assert not evidence.exists()


@pytest.mark.exhaustive
def test_the_environment_variable_opens_nothing(tmp_path, evidence):
    root = hostile_store(tmp_path / "x.zarr", "note", evidence)
    code = (
        "import sys, numcodecs.pickles\n"
        "from cagp_dist.fields.stores.remote import open_zarr\n"
        "assert numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE\n"
        "open_zarr(sys.argv[1])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(root)],
        env={**os.environ, "NUMCODECS_ALLOW_UNSAFE_PICKLE_DECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "DataError" in run.stderr
    assert "codec 'pickle'" in run.stderr
    assert not evidence.exists()


def test_stores_of_this_package_are_read_with_the_same_care(tmp_path, evidence):
    write_group(tmp_path / "run.zarr", "/", field())
    write_group(tmp_path / "run.zarr", "posterior", field())
    node = tmp_path / "run.zarr" / "posterior" / "time" / "zarr.json"
    document = json.loads(node.read_text())
    document["codecs"] = [{"name": "numcodecs.pickle", "configuration": {}}]
    node.write_text(json.dumps(document))
    for read in (open_group, read_group):
        with pytest.raises(StoreError) as refusal:
            read(tmp_path / "run.zarr", "posterior")
        assert refusal.value.key == "unreadable"


def test_text_of_this_package_is_read_by_it_and_refused_from_others(tmp_path):
    write_group(tmp_path / "run.zarr", "/", field().assign(name=("time", ["one"])))
    assert read_group(tmp_path / "run.zarr").name.values.tolist() == ["one"]
    with pytest.raises(DataError) as refusal:
        open_zarr(str(tmp_path / "run.zarr"))
    assert refusal.value.key == "damaged"


def test_a_reference_file_is_refused():
    fsspec.filesystem("memory").pipe("hostile.json", b'{"version": 1, "templates": {}, "refs": {}}')
    for address in (
        "reference::hostile.json",
        "reference://",
        "reference::memory://hostile.json",
        "simplecache::reference::http://a",
    ):
        with pytest.raises(ConfigurationError) as refusal:
            open_zarr(address)
        assert refusal.value.key == "reference-file"


@pytest.mark.parametrize(
    "array",
    [
        {"dtype": "<f4", "compressor": {"id": "blosc", "cname": "lz4"}, "filters": None},
        {"dtype": ">i2", "compressor": {"id": "zlib", "level": 1}, "filters": [{"id": "shuffle"}]},
        {"dtype": "<M8[ns]", "compressor": {"id": "zstd"}, "filters": [{"id": "delta", "dtype": "<i8"}]},
        {"dtype": "<m8[s]", "compressor": None, "filters": []},
        {"dtype": "|b1", "compressor": {"id": "bz2"}, "filters": [{"id": "fletcher32"}]},
        {
            "dtype": "<f8",
            "compressor": {"id": "lzma"},
            "filters": [{"id": "fixedscaleoffset", "dtype": "<f8", "astype": "<i2", "scale": 1, "offset": 0}],
        },
        {"data_type": "float32", "codecs": [{"name": "bytes"}, {"name": "zstd", "configuration": {}}]},
        {
            "data_type": {"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 1}},
            "codecs": [
                {
                    "name": "sharding_indexed",
                    "configuration": {"codecs": [{"name": "bytes"}], "index_codecs": [{"name": "crc32c"}]},
                }
            ],
        },
        {"data_type": "int16", "codecs": ["bytes", {"name": "numcodecs.zlib", "configuration": {}}]},
    ],
)
def test_numbers_times_and_common_codecs_pass(array):
    attributes = {"dtype": "|O", "filters": [{"id": "pickle"}]}
    check_metadata("x/.zarray", json.dumps({**array, "attributes": attributes}).encode())
    listing = {"metadata": {"x/.zarray": array, "x/.zattrs": attributes, ".zattrs": attributes}}
    check_metadata(".zmetadata", json.dumps(listing).encode())


@one_after_another
@pytest.mark.parametrize(
    ("array", "said"),
    [
        ({"dtype": "|O"}, r"dtype '\|O'"),
        ({"dtype": "<U4"}, "dtype '<U4'"),
        ({"dtype": "|S4"}, r"dtype '\|S4'"),
        ({"dtype": "|V8"}, r"dtype '\|V8'"),
        ({"dtype": "<c16"}, "dtype '<c16'"),
        ({"dtype": [["a", "<f4"], ["b", "|O"]]}, r"dtype \[\['a', '<f4'\], \['b', '\|O'\]\]"),
        ({"dtype": "<f4,|O"}, r"dtype '<f4,\|O'"),
        ({"dtype": "<f4", "filters": [{"id": "shuffle"}, {"id": "pickle"}]}, "codec 'pickle'"),
        ({"dtype": "<f4", "filters": {"id": "pickle"}}, "codec 'pickle'"),
        ({"dtype": "<f4", "compressor": {"id": "pickle"}}, "codec 'pickle'"),
        ({"dtype": "<f4", "filters": [{"id": ["pickle"]}]}, r"codec \['pickle'\]"),
        ({"dtype": "<f4", "filters": [{"name": "zlib"}]}, r"codec \{'name': 'zlib'\}"),
        ({"dtype": "<f4", "filters": [{"id": "delta", "dtype": "|O"}]}, r"codec 'delta' with dtype '\|O'"),
        (
            {"dtype": "<f4", "filters": [{"id": "quantize", "dtype": "<f4", "astype": "O"}]},
            "codec 'quantize' with astype 'O'",
        ),
        ({"data_type": "string"}, "dtype 'string'"),
        ({"data_type": {"name": "structured", "configuration": {}}}, "dtype 'structured'"),
        ({"data_type": {"nom": "float32"}}, r"dtype \{'nom': 'float32'\}"),
        ({"data_type": "int8", "codecs": [{"name": "numcodecs.pickle"}]}, r"codec 'numcodecs\.pickle'"),
        ({"data_type": "int8", "codecs": ["vlen-utf8"]}, "codec 'vlen-utf8'"),
        (
            {
                "data_type": "int8",
                "codecs": [
                    {"name": "sharding_indexed", "configuration": {"index_codecs": [{"name": "evil"}]}}
                ],
            },
            "codec 'evil'",
        ),
        (
            {"data_type": "int8", "codecs": [], "storage_transformers": [{"name": "evil"}]},
            "storage transformer 'evil'",
        ),
    ],
)
def test_whatever_else_is_named_and_refused_wherever_it_stands(array, said):
    nested = {
        "consolidated_metadata": {"metadata": {"b": {"consolidated_metadata": {"metadata": {"c": array}}}}}
    }
    for key, document, name in (
        ("a/.zarray", array, "a"),
        ("a/zarr.json", array, "a"),
        (".zmetadata", {"metadata": {"b/a/.zarray": array}}, "b/a"),
        (".zmetadata", {"metadata": {"a/.zgroup": array}}, "a"),
        (".zgroup", nested, "b/c"),
        ("a/zarr.json", nested, "a/b/c"),
    ):
        with pytest.raises(StoreError, match=rf"^array '{name}' has {said}; expected numbers or times"):
            check_metadata(key, json.dumps(document).encode())


def test_a_store_opened_for_reading_cannot_be_written(tmp_path):
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    from cagp_dist.store.plain import plain_store

    field().to_zarr(tmp_path / "x.zarr", zarr_format=2, consolidated=False)
    store = plain_store(str(tmp_path / "x.zarr"))
    assert store == plain_store(str(tmp_path / "x.zarr"))
    assert store != plain_store(str(tmp_path))
    assert (store.supports_writes, store.supports_deletes, store.read_only) == (False, False, True)
    with pytest.raises(StoreError) as refusal:
        sync(store.delete("t2m/0"))
    assert refusal.value.key == "read-only"
    empty = default_buffer_prototype().buffer.from_bytes(b"")
    with pytest.raises(StoreError) as refusal:
        sync(store.set("t2m/0", empty))
    assert refusal.value.key == "read-only"
