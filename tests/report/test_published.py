import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import StoreError
from cagp_dist.report.published import Attributes, read_run

from .make_run import HOURS, make_run


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(
        tmp_path_factory.mktemp("small"), times=HOURS[:2], test_count=30, map_step=30.0, iterations=1
    )


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small, tmp_path / small.name))


def test_a_run_is_read_whole(small: Path) -> None:
    run = read_run(small)
    assert run.key == "0123456789abcdef"
    assert run.times.tolist() == np.array(HOURS[:2], dtype="datetime64[s]").tolist()
    assert run.points.mean.shape == run.calibration.pit.shape == (2, 30)
    assert run.grid is not None
    with xr.open_zarr(small, group="map", consolidated=False) as fields:
        np.testing.assert_array_equal(run.grid.mean, fields["t2m_mean"].isel(time=0).values)
    assert run.trace["iteration"].tolist() == [0.0, 1.0]
    assert run.attributes.count("train_count") == 10_000
    assert run.attributes.table("prior")["kernel"] == "matern32"


def test_dimensions_may_come_in_any_order(copy: Path) -> None:
    with xr.open_zarr(copy, group="posterior", consolidated=False) as opened:
        turned = opened.load().transpose("point", "time")
    for variable in turned.variables.values():
        variable.encoding = {}
    shutil.rmtree(copy / "posterior")
    turned.to_zarr(copy, group="posterior", mode="w-", zarr_format=3, consolidated=False)
    assert read_run(copy).points.mean.shape == (2, 30)


def test_no_run_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as refusal:
        read_run(tmp_path / "runs" / "absent.zarr")
    assert refusal.value.key == "no-run"


@pytest.mark.parametrize("group", ["posterior", "calibration", "trace"])
def test_an_absent_group_is_named(copy: Path, group: str) -> None:
    shutil.rmtree(copy / group)
    with pytest.raises(StoreError) as refusal:
        read_run(copy)
    assert refusal.value.key == "damaged"


def test_an_absent_variable_is_named(copy: Path) -> None:
    shutil.rmtree(copy / "trace" / "crps")
    with pytest.raises(StoreError) as refusal:
        read_run(copy)
    assert refusal.value.key == "damaged"


def test_a_missing_chunk_is_not_drawn_as_data(copy: Path) -> None:
    (copy / "posterior" / "t2m_mean" / "c.0.0").unlink()
    with pytest.raises(StoreError) as refusal:
        read_run(copy)
    assert refusal.value.key == "damaged"


def test_a_run_whose_metadata_names_a_codec_that_runs_code_is_not_decoded(copy: Path) -> None:
    metadata = copy / "posterior" / "latitude" / "zarr.json"
    document = json.loads(metadata.read_text())
    document["codecs"].append({"name": "numcodecs.pickle", "configuration": {}})
    metadata.write_text(json.dumps(document))
    said = rf"the run {copy}: array 'posterior/latitude' has codecs .*numcodecs\.pickle"
    with pytest.raises(StoreError, match=said):
        read_run(copy)


def test_a_damaged_chunk_is_reported(copy: Path) -> None:
    chunk = next((copy / "calibration" / "pit").glob("c.*"))
    chunk.write_bytes(b"not a chunk")
    with pytest.raises(StoreError) as refusal:
        read_run(copy)
    assert refusal.value.key == "damaged"


def test_damaged_metadata_is_reported(copy: Path) -> None:
    (copy / "zarr.json").write_text("{")
    with pytest.raises(StoreError) as refusal:
        read_run(copy)
    assert refusal.value.key == "damaged"


def test_attributes_may_be_absent_or_plain() -> None:
    attributes = Attributes(
        {"plan": "one line", "timings": "not JSON", "prior": {"kernel": "m"}, "count": 3.0, "list": ["a", 1]}
    )
    assert attributes.lines("plan") == ["one line"]
    assert attributes.lines("list") == ["a", "1"]
    assert attributes.lines("absent") == []
    assert attributes.table("timings") == {"timings": "not JSON"}
    assert attributes.table("prior") == {"kernel": "m"}
    assert attributes.table("absent") == {}
    assert attributes.text("absent") == ""
    assert attributes.count("absent") is attributes.number("plan") is None
    assert attributes.count("count") == 3
