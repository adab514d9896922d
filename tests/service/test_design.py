from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from cagp_dist.errors import ConfigurationError
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.synthetic import Synthetic, open_synthetic
from cagp_dist.geometry import bands_and_pieces, cell_areas
from cagp_dist.kernels import Matern32
from cagp_dist.pipeline import Observations
from cagp_dist.report import write_report
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.jobfile.design_table import DesignTable, MapGrid
from cagp_dist.service.map_cells import map_cells
from cagp_dist.service.point_roles import (
    design_points,
    inclusion_probabilities,
    systematic_sample,
)
from cagp_dist.service.run import run
from cagp_dist.service.task import prepare_job

from ..jobs import job_text
from ..joined import one_after_another


def grid(latitude, longitude):
    lat, lon = np.meshgrid(latitude, longitude, indexing="ij")
    return lat.ravel(), lon.ravel()


GLOBE = grid(np.arange(-87.5, 90.0, 5.0), np.arange(0.0, 360.0, 5.0))  # 36 x 72


def table(train, test, map=None, calibration=None):  # noqa: A002
    return DesignTable.model_validate({"train": train, "test": test, "map": map, "calibration": calibration})


def random(count, seed=0, weight="area"):
    return {"kind": "random", "count": count, "seed": seed, "weight": weight}


def stride(step, offset=0):
    return {"kind": "stride", "step": step, "offset": offset}


def blocks(count, seed=0, degrees=20.0, **keys):
    return {"kind": "blocks", "count": count, "seed": seed, "blocks_degrees": degrees, **keys}


def gridded(latitude, longitude):
    observed = Observations.from_points(latitude, longitude, np.zeros((1, latitude.size)))
    return replace(observed, gridded=True)


def choose(train, test, calibration=None, *, points=GLOBE, block_size=64):
    wanted = table(train, test, calibration=calibration)
    return design_points(gridded(*points), table=wanted, block_size=block_size)


def test_folds_that_the_job_does_not_number_suit_a_small_region():
    region = grid(np.arange(45.0, 50.1, 0.25), np.arange(3.0, 9.1, 0.25))  # 21 x 25 points in 4 blocks of 5
    whole = {"kind": "all"}
    usual = DesignTable.model_validate({"train": whole})
    chosen = design_points(gridded(*region), table=usual, block_size=64)
    assert np.bincount(chosen.folds).size == 10
    assert np.bincount(chosen.folds).min() >= 20
    with pytest.raises(ConfigurationError) as refusal:
        choose(whole, {"kind": "folds", "count": 10, "blocks_degrees": 5.0}, points=region)
    assert refusal.value.key == "few-blocks"
    pair = choose(whole, {"kind": "folds"}, points=(np.array([50.0, 50.1]), np.array([7.0, 7.0])))
    assert sorted(pair.folds) == [0, 1]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 1500), st.integers(1, 1000), st.integers(0, 2**63 - 1))
def test_random_points_are_distinct_and_held_out(train, test, seed):
    design = choose(random(train, seed), random(test, seed))
    assert len(np.unique(design.train)) == train
    assert len(np.unique(design.test)) == test
    assert np.intersect1d(design.train, design.test).size == 0


def test_a_draw_depends_on_its_seed_alone():
    first, again, other = (choose(random(100, seed), random(50, 7)) for seed in (3, 3, 4))
    assert np.array_equal(first.train, again.train)
    assert np.array_equal(first.test, again.test)
    assert not np.array_equal(np.sort(first.train), np.sort(other.train))


@one_after_another
@pytest.mark.parametrize("calibration", [random(60, 5), random(60, 5, "equal"), blocks(60, 5)])
@pytest.mark.parametrize("test", [random(50, 5), stride(4, 1), blocks(50, 5, margin_degrees=6.0)])
@pytest.mark.parametrize("train", [random(900, 5), stride(2), {"kind": "all"}])
def test_no_point_is_observed_scored_or_calibrates_twice(train, test, calibration):
    without, design = choose(train, test), choose(train, test, calibration)
    together = np.concatenate([design.train, design.test, design.calibration])
    assert np.unique(together).size == together.size
    assert design.calibration.size == 60
    if calibration["kind"] == "random" and train["kind"] != "all":  # they come last and change nothing
        assert np.array_equal(design.train, without.train)
        assert np.array_equal(design.test, without.test)
    if calibration["kind"] == "random" and train["kind"] == "all":
        assert np.array_equal(np.sort(np.append(design.train, design.calibration)), np.sort(without.train))


def test_calibration_points_are_drawn_in_proportion_to_area():
    """Also where train and test took theirs in proportion to area before: 4 standard errors of 80 draws."""
    draws = [choose(random(700, s), random(300, s), random(100, s)).calibration for s in range(80)]
    bands = np.unique(GLOBE[0])
    counts = np.array([np.sum(GLOBE[0][drawn] == bands[:, None], axis=1) for drawn in draws])
    expected = 100 * np.cos(np.deg2rad(bands)) / np.cos(np.deg2rad(bands)).sum()
    assert (np.abs(counts.mean(axis=0) - expected) < 4.0 * np.sqrt(expected / 80)).all()


@pytest.mark.parametrize("train", [random(900, 5), stride(1), {"kind": "all"}])
@pytest.mark.parametrize("margin", [0.0, 8.0])
def test_no_point_of_a_held_out_block_is_observed(train, margin):
    design = choose(
        train,
        blocks(50, 3, margin_degrees=margin),
        blocks(40, 3, degrees=30.0, margin_degrees=margin, share=0.05),
    )
    latitude, longitude = (np.deg2rad(degrees) for degrees in GLOBE)
    block = bands_and_pieces(*GLOBE, 20.0)
    block = block[:, 0] * 100 + block[:, 1]
    assert np.intersect1d(block[design.test], block[design.train]).size == 0
    assert np.unique(block[design.test]).size == round(0.1 * np.unique(block).size)
    near = [
        np.min(angle(latitude, longitude, held, design.train)) for held in (design.test, design.calibration)
    ]
    assert min(near) > max(np.deg2rad(margin), np.deg2rad(5.0) * np.cos(latitude[0]) / 2.0)
    assert np.min(angle(latitude, longitude, design.test, design.calibration)) > np.deg2rad(margin)


def angle(latitude, longitude, one, other):
    """Great-circle distances between two sets of points, by the spherical distribution of cosines."""
    north, south = latitude[one][:, None], latitude[other]
    east = longitude[one][:, None] - longitude[other]
    cosine = np.sin(north) * np.sin(south) + np.cos(north) * np.cos(south) * np.cos(east)
    return np.arccos(np.clip(cosine, -1.0, 1.0))


@pytest.mark.exhaustive
def test_points_of_blocks_are_drawn_in_proportion_to_area():
    """Of 400 draws; blocks bring 50 points each, so that counts of a band vary 50 times as much, at most."""
    bands = np.unique(GLOBE[0])
    counts = np.zeros((400, bands.size))
    for seed in range(400):
        test = choose(random(100), blocks(50, seed)).test
        counts[seed] = np.sum(GLOBE[0][test] == bands[:, None], axis=1)
    expected = 50 * np.cos(np.deg2rad(bands)) / np.cos(np.deg2rad(bands)).sum()
    error = np.std(counts, axis=0) / np.sqrt(400)
    assert (np.abs(counts.mean(axis=0) - expected) < 4.0 * error).all()


@one_after_another
@pytest.mark.parametrize(
    ("train", "test", "calibration", "said"),
    [
        (
            random(2000),
            random(500),
            random(93),
            "of which the other sets take 2,500; at most 92 can be asked",
        ),
        (
            {"kind": "all"},
            blocks(9999),
            None,
            "test.count asks for 9,999 points, but its blocks, a share of 0.1",
        ),
        ({"kind": "all"}, random(9), blocks(9, degrees=90.0, share=0.9), None),
        ({"kind": "all"}, blocks(9, degrees=90.0), blocks(9, degrees=90.0), None),
        (random(2500), blocks(50), None, "outside the blocks that are held out can be asked"),
    ],
)
def test_more_points_than_blocks_leave_are_refused(train, test, calibration, said):
    if said is None:  # half a globe, or two of its blocks, can be held out
        assert choose(train, test, calibration).train.size > 0
        return
    with pytest.raises(ConfigurationError) as refusal:
        choose(train, test, calibration)
    assert refusal.value.key == "few-points"


def test_blocks_of_one_place_and_calibration_of_folds_are_refused():
    town = grid(np.arange(50.0, 51.0, 0.1), np.arange(7.0, 8.0, 0.1))
    with pytest.raises(ConfigurationError) as refusal:
        choose({"kind": "all"}, blocks(9, degrees=5.0), points=town)
    assert refusal.value.key == "few-blocks"
    two_towns = grid(np.array([47.5, 52.5]), np.arange(1.0, 2.0, 0.1))
    assert choose({"kind": "all"}, blocks(9, degrees=5.0), points=two_towns).train.size == 10
    with pytest.raises(ValueError, match="has an error of every observed place to calibrate with"):
        table({"kind": "all"}, {"kind": "folds"}, calibration=random(9))


def test_every_point_is_equally_likely_on_request():
    counts = np.zeros(GLOBE[0].size)
    draws, size = 400, 259
    for seed in range(draws):
        counts[choose(random(size, seed, "equal"), random(1)).train] += 1
    probability = size / counts.size
    z = (counts - draws * probability) / np.sqrt(draws * probability * (1 - probability))
    # sum of z^2 has mean N - N/N and standard deviation about sqrt(2 N); four of them
    assert abs((z**2).sum() - counts.size) < 4 * np.sqrt(2 * counts.size)


@pytest.mark.parametrize(
    "train",
    [
        random(800),
        pytest.param(random(800, weight="equal"), marks=pytest.mark.exhaustive),
        pytest.param(stride(3), marks=pytest.mark.exhaustive),
    ],
)
def test_test_points_are_drawn_in_proportion_to_area(train):
    # A Poisson-like count of a latitude band has a variance of at most its mean; four standard errors. The 36
    # bands of one draw are negatively correlated, which makes the bound no smaller.
    design_of = [
        choose(train | ({"seed": seed} if "seed" in train else {}), random(150, seed)) for seed in range(100)
    ]
    latitude = GLOBE[0]
    bands = np.unique(latitude)
    counts = np.array([[np.count_nonzero(latitude[d.test] == band) for band in bands] for d in design_of])
    expected = 150 * np.cos(np.deg2rad(bands)) / np.cos(np.deg2rad(bands)).sum()
    if train["kind"] == "stride":  # strided rows have two thirds of their points left
        left = np.array(
            [
                np.count_nonzero(latitude == b) - np.count_nonzero(latitude[design_of[0].train] == b)
                for b in bands
            ]
        )
        expected = 150 * np.cos(np.deg2rad(bands)) * left / (np.cos(np.deg2rad(bands)) * left).sum()
    assert (np.abs(counts.mean(axis=0) - expected) < 4.0 * np.sqrt(expected / 100)).all()
    assert all(np.allclose(d.test_weights, 1.0) for d in design_of)


def test_points_of_equal_chance_stand_for_their_area():
    area = np.cos(np.deg2rad(GLOBE[0]))
    for test in (random(100, weight="equal"), stride(5, 1)):
        design = choose(random(300), test)
        weights = area[design.test]
        np.testing.assert_allclose(design.test_weights, weights / weights.mean())


def test_area_weighted_scores_estimate_the_average_over_the_ground():
    """The area-weighted average of a function of latitude over draws of either kind is that of the globe."""
    latitude = GLOBE[0]
    truth = np.average(latitude**2, weights=np.cos(np.deg2rad(latitude)))
    for weight in ("area", "equal"):
        found = []
        for seed in range(80):
            design = choose(random(600, seed), random(200, seed, weight))
            found.append(np.average(latitude[design.test] ** 2, weights=design.test_weights))
        assert abs(np.mean(found) - truth) < 4.0 * np.std(found) / np.sqrt(80)


def test_more_points_than_area_allows_takes_the_largest_cells_for_certain():
    probability = inclusion_probabilities(np.array([4.0, 3.0, 1.0, 1.0]), 3)
    assert probability.tolist() == [1.0, 1.0, 0.5, 0.5]
    assert inclusion_probabilities(np.array([2.0, 1.0]), 2).tolist() == [1.0, 1.0]
    design = choose(random(2592 - 40), random(40))
    assert np.union1d(design.train, design.test).size == 2592


def test_a_systematic_sample_has_the_probabilities_it_is_given():
    probability = np.array([1.0, 0.9, 0.5, 0.3, 0.2, 0.1])
    draws = [systematic_sample(probability, np.random.default_rng(seed)) for seed in range(4000)]
    assert all(np.unique(draw).size == 3 for draw in draws)
    share = np.bincount(np.concatenate(draws), minlength=6) / 4000
    assert (np.abs(share - probability) <= 4.0 * np.sqrt(probability * (1.0 - probability) / 4000)).all()


def test_a_pole_is_one_point_with_the_area_of_its_cap():
    rows = np.arange(-90.0, 90.1, 1.0)
    latitude = np.concatenate([[-90.0], np.repeat(rows[1:-1], 360), [90.0]])
    areas = cell_areas(latitude)
    total = 4.0 * np.pi / (np.deg2rad(1.0) * 2.0 * np.sin(np.deg2rad(0.5)))  # in cells at the equator
    assert areas.sum() == pytest.approx(total, rel=1e-12)
    assert areas[0] == areas[-1] == pytest.approx(np.pi / 4.0, rel=1e-4)
    assert cell_areas(np.array([90.0])).tolist() == [1.0]


def test_stride_takes_every_step_th_row_of_every_step_th_column():
    design = choose(stride(4), stride(4, 2))
    latitude, longitude = GLOBE
    assert set(latitude[design.train]) == set(np.arange(-87.5, 90.0, 20.0))
    assert set(longitude[design.train]) == set(np.arange(0.0, 360.0, 20.0))
    assert design.train.size == 9 * 18
    assert set(longitude[design.test]) == set(np.arange(10.0, 360.0, 20.0))


def test_stride_runs_on_across_the_meridian():
    longitude = np.concatenate([np.arange(350.0, 360.0, 2.0), np.arange(0.0, 11.0, 2.0)])
    points = grid(np.array([40.0, 42.0]), longitude)
    design = choose(stride(2), random(3), points=points)
    assert np.array_equal(np.sort(points[1][design.train]), [2.0, 6.0, 10.0, 350.0, 354.0, 358.0])


def test_all_is_what_the_test_does_not_hold_out():
    for held_out in (random(100), stride(5, 1)):
        design = choose({"kind": "all"}, held_out)
        assert design.train.size + design.test.size == GLOBE[0].size


def test_stride_and_random_leave_room_for_each_other():
    for design in (choose(stride(2), random(1900)), choose(random(1900), stride(2))):
        assert np.intersect1d(design.train, design.test).size == 0


def test_train_is_in_solver_order():
    design = choose(random(512), random(10), block_size=64)
    latitude, longitude = np.deg2rad(GLOBE[0][design.train]), np.deg2rad(GLOBE[1][design.train])
    X = np.stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
    )
    extent = [np.ptp(X[:, start : start + 64], axis=1).prod() for start in range(0, 512, 64)]
    assert max(extent) < 0.3 * np.ptp(X, axis=1).prod()


@one_after_another
@pytest.mark.parametrize(
    ("train", "test", "key"),
    [
        (
            random(2593),
            random(1),
            "few-points",
        ),
        (random(2000), random(593), "few-points"),
        (stride(1), random(1), "few-points"),
        (stride(2), stride(4), "test-in-train"),
        (stride(2), stride(3, 1), "test-in-train"),
        ({"kind": "all"}, random(2592), "empty-selection"),
        (random(5), stride(80, 79), "empty-selection"),
    ],
)
def test_impossible_designs_are_refused(train, test, key):
    with pytest.raises(ConfigurationError) as refusal:
        choose(train, test)
    assert refusal.value.key == key


def cells(resolution, area=None, points=GLOBE):
    wanted = {"kind": "grid", "resolution_degrees": resolution, "area": area}
    return map_cells(MapGrid.model_validate(wanted), gridded(*points))


def test_a_global_map_fills_the_globe_and_avoids_the_poles():
    found = cells(4.0)
    assert found.size == 45 * 90
    assert found.north[[0, -1]].tolist() == [-88.0, 88.0]
    assert found.east[[0, -1]].tolist() == [2.0, 358.0]
    latitude, longitude = found.points()
    assert latitude[:90].tolist() == [-88.0] * 90
    assert np.array_equal(longitude[:90], found.east)


@pytest.mark.parametrize("area", [[60.0, 30.0, 20.0, 10.0], [60.0, -170.0, 20.0, 170.0], None])
def test_maps_run_from_west_to_east_without_a_jump(area):
    steps = np.diff(cells(2.0, area).east)
    np.testing.assert_allclose(steps, 2.0)


def test_a_resolution_that_does_not_divide_is_rounded_to_whole_cells():
    found = cells(7.0)
    assert found.north.size == 26
    assert np.allclose(np.diff(found.north), 180 / 26)
    assert np.isclose(found.north[0], -90 + 90 / 26)


@pytest.mark.parametrize(
    ("west", "east", "longitudes"),
    [
        (358.0, 2.0, [-1.5, -0.5, 0.5, 1.5]),
        (-2.0, 2.0, [-1.5, -0.5, 0.5, 1.5]),
        (178.0, -178.0, [178.5, 179.5, 180.5, 181.5]),
        (-4.0, -1.0, [356.5, 357.5, 358.5]),
        (-2.5, 0.5, [-2.0, -1.0, 0.0]),
    ],
)
def test_a_map_of_an_area_may_cross_a_meridian(west, east, longitudes):
    found = cells(1.0, [52.0, west, 50.0, east])
    assert found.east.tolist() == longitudes
    assert found.north.tolist() == [50.5, 51.5]


@pytest.mark.parametrize(
    ("latitude", "longitude", "area"),
    [
        (np.arange(-90.0, 90.1, 0.75), np.arange(0.0, 360.0, 0.75), (90.0, 0.0, -90.0, 360.0)),
        (np.arange(-89.5, 90.0, 1.0), np.arange(0.5, 360.0, 1.0), (90.0, 0.0, -90.0, 360.0)),
        (np.arange(20.0, 60.1, 0.5), np.arange(0.0, 360.0, 1.5), (60.0, 0.0, 20.0, 360.0)),
        (np.arange(30.0, 60.1, 0.25), np.arange(-10.0, 40.1, 0.25) % 360, (60.0, 350.0, 30.0, 400.0)),
        (np.arange(-45.0, -10.0, 1.0), np.arange(110.0, 155.0, 1.0), (-11.0, 110.0, -45.0, 154.0)),
        (np.arange(50.0, 60.1, 0.25), np.arange(170.0, 200.1, 0.25), (60.0, 170.0, 50.0, 200.0)),
        (np.array([10.5, 12.5]), np.array([20.5, 22.5]), (13.0, 20.0, 10.0, 23.0)),
    ],
)
def test_area_of_the_points(latitude, longitude, area):
    assert gridded(*grid(latitude, longitude)).extent() == pytest.approx(area)


def test_a_regional_source_gets_a_map_of_its_own_area():
    europe = grid(np.arange(30.0, 60.1, 0.25), np.arange(-10.0, 40.1, 0.25) % 360)
    found = cells(2.0, points=europe)
    assert found.east.tolist() == np.arange(-9.0, 40.0, 2.0).tolist()
    assert found.north[[0, -1]].tolist() == [31.0, 59.0]


@pytest.mark.parametrize("resolution", [1e-9, 0.05])
def test_a_map_of_too_many_cells_is_refused(resolution):
    with pytest.raises(ConfigurationError) as refusal:
        cells(resolution)
    assert refusal.value.key == "too-many-cells"
    assert cells(1e-2, [1.0, 0.0, 0.0, 1.0]).size == 10_000


def test_a_single_point_has_a_map_of_one_cell():
    found = cells(2.0, points=(np.array([10.0]), np.array([20.0])))
    assert (found.north.tolist(), found.east.tolist()) == ([10.5], [20.5])


@pytest.mark.exhaustive
def test_run_and_report_say_how_far_test_points_of_blocks_are_from_observed_ones(tmp_path):
    text = job_text(
        observations={"source": "synthetic", "grid_degrees": 10.0, "times": ["2020-01-01"]},
        design={"train": {"kind": "all"}, "test": blocks(30, degrees=30.0, margin_degrees=5.0)},
        output={"root": tmp_path / "out"},
    )
    prepared = prepare_job(
        parse_job(text),
        open_synthetic(Synthetic(Matern32(0.05, 22.0)), selection=Selection(grid_degrees=10.0)),
    )
    path = run(parse_job(text)).path
    said = xr.open_zarr(path).attrs["held_out_blocks"]
    points, design = prepared.points, prepared.design
    apart = angle(*np.deg2rad([points.north, points.east]), design.test, design.train)
    nearest = 6371.0088 * apart.min(axis=1)
    assert said == (
        "Test points lie in blocks 30 degrees high in which, and 5 around them, nothing was observed: half "
        f"of them are {np.median(nearest):,.0f} km or more from the nearest observed point, all of them at "
        f"least {nearest.min():,.0f} km."
    )
    assert said in write_report(path).read_text()
