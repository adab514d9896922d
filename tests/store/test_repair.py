"""Damaged batches of ingested observations are named, set aside and ingested again; nothing whole is lost."""

import itertools
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import DataError, in_words_of_the_job
from cagp_dist.service.ingest import ingest
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.store.batches import DamagedStoreError
from cagp_dist.store.ingested import append_times, open_observations
from cagp_dist.store.set_aside import set_aside

from ..jobs import job_text
from .killed_append import field

NOW = datetime(2019, 3, 1, 6, tzinfo=UTC)
ONE_TIME = 3 * 4 * 4


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    store = tmp_path_factory.mktemp("template") / "cds-0123.zarr"
    append_times(store, field([0, 1]), batch_bytes=ONE_TIME)
    return store


@pytest.fixture
def store(template, tmp_path):
    return Path(shutil.copytree(template, tmp_path / template.name))


def batches(store):
    return sorted(path for path in store.iterdir() if path.is_dir())


def append_and_open(store, days):
    append_times(store, field(days))
    open_observations(store)


def heal(store, days):
    """What an ingest does with a store that it finds damaged."""
    with pytest.raises(DamagedStoreError) as caught:
        append_and_open(store, days)
    assert str(store) in str(caught.value)
    aside = set_aside(caught.value.store, now=NOW)
    append_times(store, field(days), batch_bytes=ONE_TIME)
    xr.testing.assert_equal(open_observations(store), field(days))
    return aside


def test_a_damaged_batch_is_set_aside_under_a_dated_name_and_the_others_stay(store):
    first, second = batches(store)
    chunk = first / "t2m" / "c.0.0.0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    kept = {path: path.stat().st_mtime_ns for path in second.rglob("*")}
    aside = heal(store, [0, 1])
    assert aside == store.with_name("cds-0123.damaged-20190301T060000Z")
    assert [path.name for path in aside.iterdir()] == [first.name]
    assert {path: path.stat().st_mtime_ns for path in second.rglob("*")} == kept
    assert set_aside(store, now=NOW) is None
    shutil.rmtree(first / "t2m")
    assert heal(store, [0, 1]) == aside
    assert sorted(path.name for path in aside.iterdir()) == [first.name, f"{first.name}-2"]


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"zarr_format": 3, "node_type": "array"}'])
def test_metadata_of_the_store_is_written_anew(store, content):
    root = store / "zarr.json"
    good = root.read_bytes()
    if content is None:
        root.unlink()
    else:
        root.write_bytes(content)
    assert heal(store, [0, 1]) is None
    assert root.read_bytes() == good
    assert len(batches(store)) == 2


@pytest.mark.filterwarnings("ignore:Object at c is not recognized")
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_exchanged_metadata_is_found_named_and_healed(template, tmp_path, step):
    names = sorted(path.relative_to(template) for path in template.rglob("zarr.json"))
    pairs = [
        (one, other)
        for one, other in itertools.combinations(names, 2)
        if (template / one).read_bytes() != (template / other).read_bytes()
    ]
    assert len(pairs) > 40
    for number, pair in enumerate(pairs[::step]):
        store = Path(shutil.copytree(template, tmp_path / str(number) / template.name))
        texts = [(store / name).read_bytes() for name in pair]
        for name, text in zip(pair, reversed(texts), strict=True):
            (store / name).write_bytes(text)
        heal(store, [0, 1])


def job_from(source):
    observations = {"source": source, "times": ["2020-01-01", "2020-01-02"]}
    if source == "synthetic":
        observations["grid_degrees"] = 30.0
    return parse_job(job_text(observations=observations, output={"root": "out"}))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "damage"),
    [
        ("zarr:there.zarr", "cut"),
        ("zarr:there.zarr", "gone"),
        ("zarr:there.zarr", "metadata"),
        pytest.param("file:there.nc", "metadata", marks=pytest.mark.exhaustive),
        pytest.param("synthetic", "cut", marks=pytest.mark.exhaustive),
        pytest.param("file:there.nc", "cut", marks=pytest.mark.exhaustive),
    ],
)
def test_an_ingest_heals_its_store(folder, source, damage):
    field([0, 1]).to_zarr("there.zarr", zarr_format=3, consolidated=False)
    field([0, 1]).to_netcdf("there.nc", engine="scipy")
    job = job_from(source)
    said: list[str] = []
    first = ingest(job, report=said.append)
    (store,) = Path("out/observations").glob("*.zarr")
    (batch,) = batches(store)
    harmed = batch / "t2m" / ("zarr.json" if damage == "metadata" else "c.0.0.0")
    if damage == "gone":
        harmed.unlink()
    else:
        harmed.write_bytes(harmed.read_bytes()[:-9])
    xr.testing.assert_identical(ingest(job, report=said.append), first)
    (line,) = [line for line in said if line.startswith("stored observations are damaged")]
    assert str(batch) in line
    (aside,) = Path("out/observations").glob("*.damaged-*")
    assert f"They are moved to {aside.absolute()}" in line or f"They are moved to {aside}" in line
    assert re.fullmatch(rf"{store.stem}\.damaged-\d{{8}}T\d{{6}}Z", aside.name)
    xr.testing.assert_identical(ingest(job, report=said.append), first)
    assert sum("damaged" in line for line in said) == 1


@pytest.mark.parametrize("instead", [False, True])
def test_an_ingest_whose_source_is_gone_says_what_was_set_aside(folder, instead):
    """Also where another is instead, which cannot be read without what a remedy says."""
    field([0, 1]).to_zarr("there.zarr", zarr_format=3, consolidated=False)
    job = job_from("zarr:there.zarr")
    ingest(job, report=lambda text: None)
    (store,) = Path("out/observations").glob("*.zarr")
    (batch,) = batches(store)
    (batch / "t2m" / "c.0.0.0").write_bytes(np.zeros(9).tobytes())
    shutil.move("there.zarr", "elsewhere.zarr")
    if instead:
        levels = field([0, 1]).expand_dims(level=[500.0, 850.0])
        levels.to_zarr("there.zarr", zarr_format=3, consolidated=False)
    with pytest.raises(DataError, match=r"moved to .*damaged-") as caught, in_words_of_the_job():
        ingest(job, report=lambda text: None)
    assert ("in [observations]" if instead else "there is no Zarr store at") in str(caught.value)
    assert bool(caught.value.remedies) == instead
    shutil.rmtree("there.zarr", ignore_errors=True)
    shutil.move("elsewhere.zarr", "there.zarr")
    xr.testing.assert_equal(ingest(job, report=lambda text: None), field([0, 1]))
