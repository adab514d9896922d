"""Quantities that cannot be averaged as numbers are."""

import numpy as np
import pytest

from cagp_dist.errors import DataError
from cagp_dist.fields.quantities import refuse_direction

DEGREES = np.array([350.0, np.nan, 10.0])


@pytest.mark.parametrize(
    ("name", "units", "standard_name"),
    [
        ("wind_direction", "degrees", ""),
        ("windDirection", "", ""),
        ("WDIR", "deg", ""),
        ("dd", "°", ""),
        ("wind_dir_10m", "", ""),
        ("mean wave direction", "rad", ""),
        ("aspect", "degree", ""),
        ("x", "degrees_true", ""),
        ("x", "", "sea_surface_wave_from_direction"),
    ],
)
def test_a_direction_is_told_by_its_name_unit_or_standard_name(name, units, standard_name):
    with pytest.raises(DataError) as refused:
        refuse_direction(name, units, standard_name, DEGREES)
    assert refused.value.key == "direction"


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("dd", ""),
        ("wind_direction_std", "degrees"),
        ("velocity_x_direction", "m s-1"),
        ("direct_radiation", "W m-2"),
        ("slope", "degrees"),
        ("latitude", "degrees_north"),
        ("temperature", "degC"),
    ],
)
def test_what_is_no_direction_passes(name, units):
    refuse_direction(name, units, "", DEGREES)


def test_a_sine_passes():
    refuse_direction("wind_direction", "", "", np.sin(np.radians(DEGREES)))
