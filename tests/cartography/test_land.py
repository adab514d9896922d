"""Land, sea and coast against places that everybody knows and against areas."""

import numpy as np
import pytest

from cagp_dist.cartography.land import SURFACES, on_land, surface_of
from cagp_dist.geometry import area_weights

PLACES = {
    "land": [
        (48.8, 2.3), (39.9, 116.4), (-23.7, 133.9), (-3.0, -60.0), (39.0, -98.0), (-85.0, 0.0), (-90.0, 12.0),
        (75.0, -40.0), (66.5, 179.0), (67.5, -178.5), (0.5, 25.0), (62.0, 100.0),
    ],
    "sea": [
        (90.0, 0.0), (0.0, 180.0), (0.0, -180.0), (30.0, -40.0), (-60.0, 100.0), (35.0, 18.5), (42.0, 51.0),
        (58.0, 20.0), (-20.0, 80.0), (43.2, 34.0),
    ],
    "coast": [(38.7, -9.1), (40.7, -74.0), (-33.9, 18.4), (1.3, 103.8), (51.0, 1.5)],
}  # fmt: skip


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("turn", [0.0, 360.0, -360.0])
def test_well_known_places(surface: str, turn: float) -> None:
    latitude, longitude = np.array(PLACES[surface]).T
    found = [SURFACES[index] for index in surface_of(latitude, longitude + turn)]
    assert dict(zip(PLACES[surface], found, strict=True)) == dict.fromkeys(PLACES[surface], surface)


def test_the_earth_has_its_share_of_land() -> None:
    # 29.2 % with small islands; the drawn coastlines leave some out, and 2 degrees sample 16,000 places
    latitude, longitude = (
        axis.ravel() for axis in np.meshgrid(np.arange(-89, 90, 2.0), np.arange(0, 360, 2.0), indexing="ij")
    )
    share = float(np.mean(area_weights(latitude) * on_land(latitude, longitude)))
    assert share == pytest.approx(0.292, abs=0.01)


def test_a_place_is_coast_if_a_coastline_is_within_50_kilometres() -> None:
    # westwards from the Landes, whose coast is straight and runs north to south near 1.2 degrees west
    longitude = np.linspace(-2.5, 0.5, 301)
    found = surface_of(np.full(301, 44.4), longitude)
    names = [SURFACES[index] for index in found[np.r_[True, np.diff(found) != 0]]]
    assert names == ["sea", "coast", "land"]
    width = np.ptp(longitude[found == SURFACES.index("coast")]) * 111.2 * np.cos(np.deg2rad(44.4))
    assert 95.0 < width < 115.0  # 50 km to each side, and 2.5 of the spacing of the points along it
