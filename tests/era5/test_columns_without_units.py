"""A column is the quantity of its name only if the table states its unit, or values tell it."""

import numpy as np
import pytest
import xarray as xr

from cagp_dist.era5.canonical import canonical
from cagp_dist.era5.stations import open_stations

SELECTION = {
    "variable": "v", "units": None, "level": None, "grid_degrees": None, "area": None, "times": None,
    "check_range": True,
}  # fmt: skip


@pytest.mark.parametrize(("header", "units"), [("v", ""), ("v [m s-1]", "m s-1"), ("v [knots]", "m s-1")])
def test_a_name_alone_is_no_unit(tmp_path, header, units):
    path = tmp_path / "stations.csv"
    path.write_text(
        f"latitude,longitude,time,{header}\n"
        "50,10,2024-01-01T00:00,3\n51,11,2024-01-01T00:00,4\n52,9,2024-01-01T00:00,5\n"
    )
    found = open_stations(path, SELECTION)["v"]
    assert found.attrs.get("units", "") == units
    assert ("northward" in str(found.attrs)) == bool(units)
    assert float(found.sum()) == pytest.approx(12.0 * (0.514444 if "knots" in header else 1.0), rel=1e-5)


@pytest.mark.parametrize(
    ("attributes", "known"),
    [({}, False), ({"units": "m s-1"}, True), ({"standard_name": "northward_wind"}, True)],
)
def test_a_letter_alone_is_no_unit_of_a_grid(attributes, known):
    axes = {"time": [np.datetime64("2024-01-01", "ns")], "lat": [50.0, 51.0], "lon": [9.0, 10.0]}
    grid = xr.Dataset({"v": (tuple(axes), np.array([[[3.0, 4.0], [5.0, 6.0]]]), attributes)}, axes)
    found = canonical(grid, variable="v").v.attrs
    assert (found.get("units", ""), "northward" in str(found)) == (("m s-1", True) if known else ("", False))
