"""Zarr stores are read from wherever fsspec reaches, selected chunks only; failures say what to do."""

import threading
import warnings
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import xarray as xr
from zarr.storage import LocalStore

from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.fields.canonical import canonical
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.stores.remote import PUBLIC_STORES, open_zarr
from cagp_dist.store import plain
from cagp_dist.store.zarr_arrays import content_sha256

from .fields import raw_dataset


@pytest.fixture(scope="module")
def raw():
    return raw_dataset(times=("2020-01-01", "2020-01-02", "2020-01-03")).drop_vars("expver")


def save(raw, address, *, zarr_format=3, consolidated=False):
    arco = raw.rename(t2m="2m_temperature", valid_time="time").transpose("time", "longitude", "latitude")
    encoding = {"2m_temperature": {"chunks": (1, 2, 4)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about consolidated metadata
        arco.to_zarr(address, zarr_format=zarr_format, consolidated=consolidated, mode="w", encoding=encoding)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
def test_local_stores_of_both_formats(tmp_path, raw, zarr_format, consolidated):
    address = f"{tmp_path}/era5.zarr"
    save(raw, address, zarr_format=zarr_format, consolidated=consolidated)
    field = open_zarr(address, Selection(times=["2020-01-02"], area=(50.0, 0.0, 30.0, 90.0)))
    expected = canonical(raw, selection=Selection(times=["2020-01-02"], area=(50.0, 0.0, 30.0, 90.0)))
    xr.testing.assert_equal(field, expected)
    assert field.attrs["source"] == f"zarr:{address}"
    assert field.attrs["source_sha256"] == content_sha256(expected)


def test_a_store_behind_a_url_of_fsspec(raw):
    save(raw, "memory://era5.zarr")
    xr.testing.assert_equal(open_zarr("memory://era5.zarr"), canonical(raw))


def test_only_chunks_of_the_selection_are_fetched_over_http(tmp_path, raw):
    save(raw, f"{tmp_path}/era5.zarr", zarr_format=2, consolidated=True)
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *message):
            pass

        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        root = f"http://127.0.0.1:{server.server_port}"
        field = open_zarr(f"{root}/era5.zarr", Selection(times=["2020-01-03"], area=(90.0, 0.0, 0.0, 90.0)))
        with pytest.raises(DataError) as refusal:
            open_zarr(f"{root}/absent.zarr")
        assert refusal.value.key == "no-store"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    xr.testing.assert_equal(
        field, canonical(raw, selection=Selection(times=["2020-01-03"], area=(90.0, 0.0, 0.0, 90.0)))
    )
    chunks = [path for path in asked if "2m_temperature" in path and not path.split("/")[-1].startswith(".")]
    assert chunks == ["/era5.zarr/2m_temperature/2.0.0"]
    with pytest.raises(DataError) as refusal:
        open_zarr(f"{root}/era5.zarr")
    assert refusal.value.key == "unreadable"


def test_a_hole_in_a_store_is_named_by_its_time(tmp_path, raw):
    save(raw, f"{tmp_path}/era5.zarr")
    for chunk in (tmp_path / "era5.zarr" / "2m_temperature" / "c" / "1").rglob("*"):
        if chunk.is_file():
            chunk.unlink()
    with pytest.raises(DataError) as refusal:
        open_zarr(f"{tmp_path}/era5.zarr")
    assert refusal.value.key == "empty-times"
    assert open_zarr(f"{tmp_path}/era5.zarr", Selection(times=["2020-01-03"])).t2m.notnull().all()


def test_a_damaged_chunk_is_an_error(tmp_path, raw):
    save(raw, f"{tmp_path}/era5.zarr")
    chunk = tmp_path / "era5.zarr" / "2m_temperature" / "c" / "0" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:20])
    with pytest.raises(DataError) as refusal:
        open_zarr(f"{tmp_path}/era5.zarr")
    assert refusal.value.key == "unreadable"


def test_an_absent_store_a_wrong_variable_and_a_wrong_selection_are_told_apart(tmp_path, raw):
    with pytest.raises(DataError) as refusal:
        open_zarr(f"{tmp_path}/absent.zarr")
    assert refusal.value.key == "no-store"
    raw.rename(t2m="tp").drop_vars("number").to_zarr(f"{tmp_path}/rain.zarr", consolidated=False)
    with pytest.raises(DataError) as refusal:
        open_zarr(f"{tmp_path}/rain.zarr")
    assert refusal.value.key == "absent-variable"
    save(raw, f"{tmp_path}/era5.zarr")
    with pytest.raises(ConfigurationError) as refusal:
        open_zarr(f"{tmp_path}/era5.zarr", Selection(grid_degrees=3.0))
    assert refusal.value.key == "grid-degrees"


def test_an_unknown_file_system_is_a_configuration_error():
    with pytest.raises(ConfigurationError) as refusal:
        open_zarr("foo://bucket/x")
    assert refusal.value.key == "address"


@pytest.mark.parametrize("url", [*PUBLIC_STORES, "gs://weatherbench2/datasets/x.zarr", "gs://private/x.zarr"])
def test_public_stores_are_opened_without_credentials(monkeypatch, tmp_path, raw, url):
    seen = {}
    save(raw, f"{tmp_path}/era5.zarr")

    def opened(address, *, storage_options, read_only):
        seen.update(address=address, storage_options=storage_options)
        return LocalStore(tmp_path / "era5.zarr", read_only=read_only)

    monkeypatch.setattr(plain.FsspecStore, "from_url", opened)
    field = open_zarr(url)
    assert field.attrs["source"] == f"zarr:{url}"
    xr.testing.assert_equal(field, canonical(raw))
    assert seen["address"].startswith("gs://")
    credentials = {} if "private" in url else {"token": "anon"}
    assert seen["storage_options"] == {**credentials, "gs": {"use_listings_cache": False}}


def test_a_missing_cloud_package_says_how_to_install_it(monkeypatch):
    def without(address, **settings):
        raise ImportError("Please install gcsfs to access Google Storage")

    monkeypatch.setattr(plain.FsspecStore, "from_url", without)
    command = r"-m pip install 'cagp-dist\[cloud\]'$"
    with pytest.raises(ConfigurationError, match=f"needs another package.*{command}"):
        open_zarr("arco-era5")
