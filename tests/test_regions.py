"""Regions: areas, cells and points inside, over the antimeridian and around the poles."""

import time

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.regions import REGIONS, Box, Polygon, as_regions

from .joined import one_after_another
from .oracle import kernel_matrix

POLYGONS = {
    "octant": Polygon("octant", ((0.0, 0.0), (90.0, 0.0), (0.0, 90.0))),
    "octant, clockwise": Polygon("octant", ((0.0, 0.0), (0.0, 90.0), (90.0, 0.0))),
    "around the pole": Polygon("cap", ((0.0, 60.0), (120.0, 60.0), (240.0, 60.0), (0.0, 60.0))),
    "around the south pole": Polygon("cap", ((0.0, -60.0), (120.0, -60.0), (240.0, -60.0))),
    "over the antimeridian": Polygon("fiji", ((170, -30), (-170, -30), (-170, -10), (170, -10))),
    "not convex": Polygon("hook", ((0.0, 0.0), (40.0, 0.0), (40.0, 40.0), (30.0, 5.0), (0.0, 40.0))),
    "nearly a hemisphere": Polygon("south", ((0.0, -5.0), (90.0, -5.0), (180.0, -5.0), (270.0, -5.0))),
}
BOXES = {
    **REGIONS,
    "europe": Box("europe", 35.0, 70.0, -10.0, 40.0),
    "over the antimeridian": Box("pacific", -30.0, 20.0, 150.0, -120.0),
    "the same, written otherwise": Box("pacific", -30.0, 20.0, 150.0, 240.0),
}
EVERY = {**{f"box {name}": box for name, box in BOXES.items()}, **POLYGONS}
every_region = pytest.mark.parametrize("region", EVERY.values(), ids=EVERY)


def scattered(n=40_000, seed=0):
    """Points uniform on the sphere."""
    rng = np.random.default_rng(seed)
    return np.rad2deg(np.arcsin(rng.uniform(-1.0, 1.0, n))), rng.uniform(-180.0, 180.0, n)


@one_after_another
@every_region
def test_the_area_is_the_chance_of_being_inside(region):
    """Within four standard errors of the share of 40,000 points."""
    share = region.contains(*scattered()).mean()
    assert abs(share - region.area) <= 4.0 * np.sqrt(region.area * (1.0 - region.area) / 40_000)


@one_after_another
@every_region
def test_cells_are_inside_and_have_its_area(region):
    cells = region.cells(2.0)
    assert region.contains(cells.north, cells.east).mean() > 0.95
    exact = isinstance(region, Box)
    assert cells.area.sum() == pytest.approx(region.area, rel=1e-12 if exact else 0.02)
    finer = region.cells(1.0)
    assert len(finer.area) > 3 * len(cells.area) or not exact
    # a function that is linear in space has a mean that is known: of the globe zero, of a hemisphere 1/2
    z = np.sin(np.deg2rad(finer.north))
    if exact:
        low, high = np.sin(np.deg2rad([region.south, region.north]))
        assert finer.area @ z / finer.area.sum() == pytest.approx(0.5 * (low + high), abs=2e-4)


def test_a_small_region_has_several_cells_and_a_narrow_one_as_well():
    assert len(Box("small", 10.0, 10.5, 20.0, 20.5).cells(2.0).area) >= 64
    assert len(Polygon("small", ((20.0, 10.0), (20.5, 10.0), (20.2, 10.4))).cells(2.0).area) > 100


@one_after_another
@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Box("x", south=10.0, north=10.0), "latitude-range"),
        (lambda: Box("x", west=20.0, east=20.0), "longitude-range"),
        (lambda: Box("x", south=np.nan), "latitude-range"),
        (lambda: Polygon("x", ((0.0, 0.0), (1.0, 0.0))), "few-corners"),
        (lambda: Polygon("x", ((0, 0), (0, 0), (1, 0), (1, 1))), "corners"),
        (lambda: Polygon("x", ((0, 0), (180, 0), (1, 1))), "corners"),
        (lambda: Polygon("x", ((0, 0), (10, 10), (10, 0), (0, 10))), "crossing-edges"),
        (lambda: Polygon("x", ((10.0, 100.0), (20.0, 50.0), (0.0, 0.0))), "latitude-range"),
        (lambda: Polygon("x", (1.0, 2.0, 3.0)), "corners"),
        (lambda: as_regions("tropic"), "region-type"),
        (
            lambda: as_regions(None),
            "region-unknown",
        ),
        (lambda: as_regions(["global", Box("global")]), "name-twice"),
    ],
)
def test_refused(make, key):
    with pytest.raises(ArgumentError) as refusal:
        make()
    assert refusal.value.key == key


# -- means over them ---------------------------------------------------------------------------------------


def test_means_of_named_regions_share_their_cells():
    """The hemispheres are the globe, also as weights; nothing is evaluated twice."""
    alone = cagp.area_means("global")
    means = cagp.area_means(["global", "northern-hemisphere", "southern-hemisphere", "tropics"])
    assert (len(alone), len(means)) == (1, 4)
    assert len(means.nodes) == len(alone.nodes) == 10_360
    np.testing.assert_allclose(means.matrix().sum(axis=0), np.ones(4), rtol=1e-12)
    halves = means.matrix() @ [-1.0, 0.5, 0.5, 0.0]
    np.testing.assert_allclose(halves, 0.0, atol=1e-17)


def test_the_mean_of_a_field_that_is_known():
    """Of 15 + 10 sin(lat) + 5 cos(lat) cos(lon) over the globe, the north and an octant."""
    octant = POLYGONS["octant"]
    means = cagp.area_means(["global", "northern-hemisphere", octant], resolution_degrees=0.5)
    x, _, z = means.nodes.T
    found = means.averaged((15.0 + 10.0 * z + 5.0 * x)[:, None])[:, 0]
    # over an octant each coordinate has the mean 1/2
    assert (np.abs(found - [15.0, 20.0, 15.0 + 5.0 + 2.5]) < [1e-3, 1e-3, 0.02]).all()


@pytest.mark.parametrize("rows", [np.linspace(-88.0, 88.0, 45), np.linspace(90.0, -90.0, 46)])
def test_means_over_points_of_a_grid(rows):
    grid = cagp.LatLonGrid(rows, 90, first_longitude_degrees=-180.0)
    box = Box("box", 10.0, 31.0, 170.0, -163.0)
    means = cagp.area_means(["global", "northern-hemisphere", box, POLYGONS["octant"]], grid=grid)
    W = means.matrix().toarray()
    np.testing.assert_allclose(W.sum(axis=0), 1.0, rtol=1e-12)
    assert (W >= 0.0).all()
    poles = (np.abs(rows) == 90.0).sum()
    assert len(means.nodes) == grid.size - poles * 89
    # overlaps with a box have its exact area
    latitude, longitude = (axis.ravel() for axis in np.meshgrid(rows, grid.longitude_degrees, indexing="ij"))
    z = means.nodes[:, 2]
    assert W[:, 0] @ z == pytest.approx(0.0, abs=1e-12)
    assert W[:, 1] @ z == pytest.approx(0.5, abs=5e-3)
    low, high = np.sin(np.deg2rad([10.0, 31.0]))
    assert W[:, 2] @ z == pytest.approx(0.5 * (low + high), abs=5e-3)
    inside = box.contains(latitude, longitude).sum()
    assert inside <= np.count_nonzero(W[:, 2]) <= 1.5 * inside


@one_after_another
@pytest.mark.parametrize(
    ("ask", "key"),
    [
        (lambda: cagp.area_means([]), "no-regions"),
        (lambda: cagp.area_means("global", resolution_degrees=0.0), "not-positive"),
        (
            lambda: cagp.area_means(
                Box("islet", 1.0, 2.0, 1.0, 2.0), grid=cagp.LatLonGrid([-60.0, 0.0, 60.0], 12)
            ),
            "empty-region",
        ),
    ],
)
def test_means_that_cannot_be(ask, key):
    with pytest.raises(ArgumentError) as refusal:
        ask()
    assert refusal.value.key == key


# -- slopes ------------------------------------------------------------------------------------------------


def test_slopes_of_a_field_that_is_known():
    """Of z = sin(lat): nothing to the east, cos(lat) / R to the north, up to (h / R)^2 / 6."""
    latitude, longitude = np.array([0.0, 45.0, -60.0]), np.array([10.0, 180.0, -100.0])
    slopes = cagp.gradients(latitude, longitude, step_kilometres=50.0)
    found = slopes.averaged(slopes.nodes[:, 2:])[:, 0]
    np.testing.assert_allclose(found[:3], 0.0, atol=1e-18)
    np.testing.assert_allclose(found[3:], np.cos(np.deg2rad(latitude)) / 6371.0088, rtol=2e-5)
    np.testing.assert_allclose(np.linalg.norm(slopes.nodes, axis=1), 1.0)


@pytest.mark.parametrize(
    ("kernel", "power"),
    [(cagp.Matern32, 0.5), (cagp.Matern52, 1.5), (cagp.SquaredExponential, 2.0)],
)
def test_differences_approach_derivatives_as_the_kernel_allows(kernel, power):
    """The standard deviation of what halving the step changes falls as that power of the step."""
    prior = kernel(0.3)

    def change(step):
        coarse, fine = (cagp.gradients([40.0], [0.0], step_kilometres=h) for h in (step, step / 2.0))
        both = coarse.part(slice(0, 1)).followed_by(fine.part(slice(0, 1)))
        K = kernel_matrix(prior, both.nodes, both.nodes)
        w = both.matrix() @ [1.0, -1.0]
        return np.sqrt(w @ K @ w)

    assert np.log2(change(100.0) / change(50.0)) == pytest.approx(power, abs=0.12)


def test_rough_fields_have_no_slope():
    """The prior variance of Matern12 grows as one over the step."""
    wide, narrow = (
        cagp.gradients([40.0], [0.0], step_kilometres=h).prior_variance(cagp.Matern12(0.3))
        for h in (20.0, 10.0)
    )
    np.testing.assert_allclose(narrow / wide, 2.0, rtol=0.01)


@pytest.mark.parametrize(
    ("latitude", "step", "key"),
    [(90.0, 25.0, "gradient-at-pole"), (0.0, 1e-3, "out-of-range")],
)
def test_slopes_that_cannot_be(latitude, step, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.gradients([latitude], [0.0], step_kilometres=step)
    assert refusal.value.key == key


def test_a_polygon_of_many_corners_is_looked_at_in_a_second():
    """Edges are compared with those of their longitudes alone: with all of them it took a minute."""
    around = np.deg2rad(np.linspace(0.0, 360.0, 8000, endpoint=False))
    reach = 20.0 + 3.0 * np.sin(37.0 * around)
    ring = list(zip(175.0 + reach * np.cos(around), 20.0 + reach * np.sin(around), strict=True))
    began = time.process_time()
    flower = Polygon("flower", tuple(ring))
    latitude, longitude = scattered()
    inside = flower.contains(latitude, longitude)
    assert time.process_time() - began < 2.0
    east, north = np.mod(longitude - 175.0 + 180.0, 360.0) - 180.0, latitude - 20.0
    expected = np.hypot(east, north) < 20.0 + 3.0 * np.sin(37.0 * np.arctan2(north, east))
    np.testing.assert_array_equal(inside, expected)
    ring[1000], ring[7000] = ring[7000], ring[1000]
    with pytest.raises(ArgumentError) as refusal:
        Polygon("flower", tuple(ring))
    assert refusal.value.key == "crossing-edges"


def test_a_polygon_may_hold_a_point_and_the_one_opposite_to_it():
    zigzag = Polygon("zigzag", tuple((15.0 * k, 40.0 if k % 2 else -40.0) for k in range(24)))
    latitude, longitude = scattered()
    inside = zigzag.contains(latitude, longitude)
    assert 0.49 < inside.mean() < 0.51
    north, south = zigzag.contains(np.array([85.0, -85.0]), np.zeros(2))
    assert north != south
    # of a meridian through a corner everything beyond it is on one side
    assert (zigzag.contains(np.array([-41.0, -39.0]), np.zeros(2)) == [south, north]).all()
