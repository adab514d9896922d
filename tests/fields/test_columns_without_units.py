"""A column is the quantity of its name only if the table states its unit, or values tell it."""

import numpy as np
import pytest
import xarray as xr

from cagp_dist.fields.canonical import canonical
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.stations import open_stations


@pytest.mark.parametrize(("header", "units"), [("v", ""), ("v [m s-1]", "m s-1"), ("v [knots]", "m s-1")])
def test_a_name_alone_is_no_unit(tmp_path, header, units):
    path = tmp_path / "stations.csv"
    path.write_text(
        f"latitude,longitude,time,{header}\n"
        "50,10,2024-01-01T00:00,3\n51,11,2024-01-01T00:00,4\n52,9,2024-01-01T00:00,5\n"
    )
    found = open_stations(path, Selection(value="v"))["v"]
    assert found.attrs.get("units", "") == units
    assert ("northward" in str(found.attrs)) == bool(units)
    assert float(found.sum()) == pytest.approx(12.0 * (0.514444 if "knots" in header else 1.0), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "values", "attributes", "units"),
    [
        ("v", [3.0, 4.0], {}, ""),
        ("v", [3.0, 4.0], {"units": "m s-1"}, "m s-1"),
        ("v", [3.0, 4.0], {"standard_name": "northward_wind"}, "m s-1"),
        ("v10", [3.0, 4.0], {}, ""),  # or knots
        ("tp", [0.1, 0.2], {}, ""),  # or millimetres
        ("t2m", [280.0, 281.0], {}, "K"),  # by its values
        ("msl", [101000.0, 101300.0], {}, "Pa"),
    ],
)
def test_a_name_alone_is_no_unit_of_a_grid_but_values_may_tell(name, values, attributes, units):
    axes = {"time": [np.datetime64("2024-01-01", "ns")], "lat": [50.0, 51.0], "lon": [9.0, 10.0]}
    grid = xr.Dataset({name: (tuple(axes), np.array([[values, values]]), attributes)}, axes)
    found = canonical(grid, selection=Selection(value=name))[name].attrs
    assert found.get("units", "") == units
    assert ("standard_name" in found) == bool(units)
