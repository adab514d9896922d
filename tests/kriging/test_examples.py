"""The example files of the how-to, and its scripts."""

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import ArgumentError
from cagp_dist.fields.tables import read_places, read_table
from cagp_dist.kriging.examples import DAYS, PLACES, STATIONS, write_examples

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "kriging.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    write_examples(folder)
    return folder


@pytest.mark.exhaustive
def test_the_table_of_stations_can_be_read(folder):
    table = read_table(folder / "stations.csv")
    assert (table.name, table.units) == ("temperature", "degC")
    assert table.values.size + table.dropped_missing == STATIONS
    assert table.dropped_missing == 5
    assert table.noise_std.min() >= 0.3
    assert -30.0 < table.values.min() < table.values.max() < 45.0
    assert read_places(folder / "places.csv").latitude_degrees.size == len(PLACES)


def test_the_fields_have_their_gaps(folder):
    with xr.open_dataset(folder / "era5.nc", engine="h5netcdf") as cloudy:
        assert float(np.isnan(cloudy.t2m).mean()) == pytest.approx(0.35, abs=0.01)
        assert (np.diff(cloudy.longitude) > 0).all()
    with xr.open_dataset(folder / "month.nc", engine="h5netcdf") as month:
        assert month.sizes["time"] == DAYS
        gaps = np.isnan(month.t2m.values)
        assert (gaps == gaps[0]).all()


def test_a_file_is_the_same_whichever_others_are_written(folder, tmp_path):
    new = tmp_path / "new"
    for names in (["month.nc"], ["places.csv", "stations.csv"]):
        assert write_examples(new, names) == [new / name for name in names]
    assert {path.name for path in new.iterdir()} == {"month.nc", "places.csv", "stations.csv"}
    assert (new / "stations.csv").read_text() == (folder / "stations.csv").read_text()
    with (
        xr.open_dataset(new / "month.nc", engine="h5netcdf") as alone,
        xr.open_dataset(folder / "month.nc", engine="h5netcdf") as month,
    ):
        xr.testing.assert_identical(alone, month)
    with pytest.raises(ArgumentError) as refused:
        write_examples(new, ["era6.nc"])
    assert refused.value.key == "example-unknown"


def test_every_script_is_short_and_complete():
    cells = re.findall(r"```\{code-cell\} ipython3\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    scripts = [cell for cell in cells if "remove-cell" not in cell and "import cagp_dist" in cell]
    assert len(scripts) == 11
    for script in scripts:
        longest = 16 if "krige_store" in script else 6  # with the sample that its prior is fitted to
        assert len([line for line in script.splitlines() if line.strip()]) <= longest, script
