"""Passwords, tokens and signatures in addresses of others are neither said nor kept."""

import re

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.fields.stores.remote import open_zarr
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.text import without_secrets

from ..jobs import job_text


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("https://me:s3cret@host/a.zarr?X-Amz-Signature=8f3c&sig=s3cret#s3cret", "https://host/a.zarr"),
        ("simplecache::https://me:s3/cr@et?8f3c@host:80/a.zarr", "simplecache::https://host:80/a.zarr"),
        ("https://host:80?sig=8f3c@s3cret", "https://host:80"),
        ("https://me:s3 c'ret@host/a b.zarr?sig=8 f3c", "https://host/a b.zarr"),
        ("s3://bucket/a@b.zarr", "s3://bucket/a@b.zarr"),
        ("/data/a?b#c@d.zarr", "/data/a?b#c@d.zarr"),
    ],
)
def test_an_address_is_stripped_alone_and_in_a_sentence(address, public):
    assert without_secrets(address, address) == public
    assert without_secrets(f'"{address}", "x@y"', address) == f'"{public}", "x@y"'


@pytest.mark.parametrize(
    "address",
    [
        "dask::s3://bucket/a.zarr",
        "local://{folder}/a.zarr",
        "simplecache::file://{folder}/a.zarr",
        "simplecache::https://host/a.zarr",
        "zip://::simplecache::https://host/a.zip",
        "zip://::{folder}/a.zip",
        "sftp://me:s3cret@host/a.zarr",
        "libarchive://a.zarr::https://host/a.7z",
        "github://owner:name@/a.zarr",
        "dir::file:///etc",
        "tar://::https://host/a.tar",
        "ftp://host/a.zarr",
        "hdfs://host/a.zarr",
        "data:text/plain;base64,AA==://x",
        "HTTPS://host/a.zarr",
    ],
)
def test_addresses_that_follow_links_or_do_not_end_are_refused_before_anything_is_opened(address, tmp_path):
    """A link of the store leads to a file of somebody else."""
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "zarr.json").symlink_to("/etc/passwd")
    with pytest.raises(ConfigurationError) as refusal:
        open_zarr(address.format(folder=tmp_path))
    assert refusal.value.key == "address"
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize("scheme", ["memory", "http", "unknown"])
def test_a_store_that_does_not_open_is_named_without_them(scheme):
    with pytest.raises((DataError, ConfigurationError), match=r"127\.0\.0\.1:1/absent") as told:
        open_zarr(f"{scheme}://me:s3cret@127.0.0.1:1/absent?X-Amz-Signature=8f3c")
    assert not re.search("s3cret|8f3c", str(told.value))
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__


def test_a_job_file_with_mistakes_is_explained_without_them():
    for wrong in (
        'source = "zarr:https://me:s3cret@h/a?8f3c"\nselect = 1',
        'source = = "zarr:https://s3cret@h"',
    ):
        with pytest.raises(ConfigurationError) as told:
            parse_job(f"[observations]\n{wrong}\n")
        assert not re.search("s3cret|8f3c", str(told.value))


def test_a_published_run_has_none_of_them_in_any_file(tmp_path):
    address = "memory://me:s3cret@host/field.zarr?X-Amz-Signature=8f3c"
    latitude, longitude = np.linspace(-90.0, 90.0, 13), np.arange(0.0, 360.0, 15.0)
    values = 280.0 + np.random.default_rng(0).standard_normal((1, 13, 24))
    axes = {"time": np.array(["2020-01-01"], "datetime64[ns]"), "latitude": latitude, "longitude": longitude}
    xr.Dataset({"t2m": (tuple(axes), values, {"units": "K"})}, axes).to_zarr(address, consolidated=False)
    text = job_text(
        observations={"source": f"zarr:{address}", "times": ["2020-01-01"]},
        output={"root": str(tmp_path / "out")},
    )
    said = []
    run(parse_job(text.replace("300", "100")), observe=lambda event: said.append(str(event)))
    kept = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert any(b"memory://host/field.zarr" in content for content in kept)
    assert not any(re.search(rb"s3cret|8f3c", content) for content in kept)
    assert not re.search("s3cret|8f3c", "\n".join(said))
