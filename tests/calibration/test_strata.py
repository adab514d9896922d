"""Test points in strata: who belongs where, and what chance explains of their coverage."""

import numpy as np
import pytest
from scipy.special import ndtr

from cagp_dist.calibration.verification.strata import (
    FEWEST_OBSERVATIONS,
    ROUGHNESS_POINTS,
    Strata,
    by_latitude,
    by_roughness,
    divided,
    roughness_of,
    strata_of,
)
from cagp_dist.calibration.verification.verdict import compact_cells, coverage_test
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import unit_sphere


def places(rng, count):
    latitude, longitude = np.rad2deg(np.arcsin(rng.uniform(-1.0, 1.0, count))), rng.uniform(0.0, 360.0, count)
    return latitude, longitude, unit_sphere(latitude, longitude)


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        (-75.0, 45.0, ["90°S to 60°S", "60°S to 30°S", "30°S to 0°", "0° to 30°N", "30°N to 60°N"]),
        (49.0, 61.0, ["45°N to 50°N", "50°N to 55°N", "55°N to 60°N", "60°N to 65°N"]),
        (47.31, 47.36, ["47.3°N to 47.4°N"]),
        (10.0, 10.0, ["10°N to 10.1°N"]),
    ],
)  # fmt: skip
def test_bands_of_latitude_are_round_and_hold_their_points(low, high, names):
    latitude = np.linspace(low, high, 101)
    bands = by_latitude(latitude)
    assert list(bands.names) == names
    degrees = [
        [float(edge.strip("°NS")) * (-1 if "S" in edge else 1) for edge in name.split(" to ")]
        for name in names
    ]
    south, north = np.array(degrees)[bands.member].T
    assert np.all((south <= latitude) & (latitude <= north))


def test_roughness_is_the_spread_of_the_ten_nearest_observed_values():
    rng = np.random.default_rng(0)
    _, _, X = places(rng, 300)
    _, _, targets = places(rng, 40)
    values = rng.standard_normal((3, 300))
    values[1, rng.choice(300, 150, replace=False)] = np.nan
    values[2] = np.nan
    found = roughness_of(values, X, targets)
    nearest = np.argsort(np.linalg.norm(targets[:, None] - X[None], axis=2), axis=1)[:, :ROUGHNESS_POINTS]
    np.testing.assert_allclose(found[0], values[0][nearest].std(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found[1], np.nanstd(values[1][nearest], axis=1), rtol=1e-12)
    assert np.isnan(found[2]).all()
    np.testing.assert_allclose(roughness_of(values[0], X, targets), found[0], rtol=1e-12)


def test_fifths_of_roughness_are_alike_in_number_and_ascend():
    rough = np.random.default_rng(1).permutation(1000.0 * np.arange(100)).reshape(2, 50)
    rough[0, :3] = np.nan
    fifths = by_roughness(rough, units="K")
    assert np.all((fifths.member == -1) == np.isnan(rough))
    assert set(np.bincount(fifths.member[fifths.member >= 0])) <= {19, 20}
    means = [rough[fifths.member == number].mean() for number in range(5)]
    assert means == sorted(means)
    assert fifths.definitions[0].endswith(" K")
    assert by_roughness(np.full((1, 4), np.nan)).names == ()


def test_every_observation_is_in_one_stratum_of_each_kind():
    rng = np.random.default_rng(2)
    latitude, longitude, _ = places(rng, 500)
    for strata in strata_of(latitude, longitude, roughness=rng.uniform(size=(1, 500)), units="K"):
        assert strata.member.min() >= 0
        assert strata.member.max() < len(strata.names) == len(strata.definitions)


@pytest.mark.parametrize("weighted", [False, True])
def test_coverage_and_averages_of_a_stratum_are_those_of_its_observations(weighted):
    rng = np.random.default_rng(3)
    latitude, _, X = places(rng, 400)
    pit, values = rng.uniform(size=(2, 400)), rng.uniform(size=(4, 2, 400))
    pit[rng.uniform(size=pit.shape) < 0.2] = np.nan
    weights = rng.uniform(0.5, 1.5, 400) if weighted else None
    bands = by_latitude(latitude)
    found = list(divided(~np.isnan(pit), X, [bands], weights=weights))
    assert {"all", "30°S to 0°", "0° to 30°N"} <= {one.name for one in found} <= {"all", *bands.names}
    for one in found:
        mine = ~np.isnan(pit)
        if one.name != "all":
            mine &= bands.member == bands.names.index(one.name)
        np.testing.assert_array_equal(one.inside, mine)
        share = np.broadcast_to(np.ones(400) if weights is None else weights, pit.shape)[mine]
        covered = np.average(np.abs(pit[mine] - 0.5) <= 0.45, weights=share)
        assert one.coverage(pit, [0.5, 0.9]).coverage[1] == pytest.approx(covered, rel=1e-12)
        assert one.histogram(pit).counts.sum() == pytest.approx(np.count_nonzero(mine), rel=1e-12)
        expected = [np.average(each[mine], weights=share) for each in values]
        np.testing.assert_allclose(one.average(values), expected, rtol=1e-12)


def test_strata_of_few_observations_are_left_out():
    X = np.linspace(0.0, 1.0, 2 * FEWEST_OBSERVATIONS - 1)[:, None]
    member = (np.arange(len(X)) >= FEWEST_OBSERVATIONS).astype(int)
    halves = Strata("half", ("enough", "too few"), ("", ""), member)
    there = np.ones(len(X), dtype=bool)
    assert [one.name for one in divided(there, X, [halves])] == ["all", "enough"]
    there[0] = False
    assert [one.name for one in divided(there, X, [halves])] == ["all"]
    assert [one.name for one in divided(~there, X, [halves], weights=np.ones(len(X)))] == ["all"]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_band_holds_what_chance_does_to_errors_that_agree_with_their_neighbours(seed):
    """Of right error bars, the share inside lies in its band 95 times in a hundred; the band of independent
    points holds about 80.

    200 fields whose errors agree over 0.15 of the Earth's radius, less than a cell is wide: three standard
    errors of a share of 0.95 are 0.046. Levels 50 to 90 % are averaged, whose shares go together.
    """
    rng = np.random.default_rng(seed)
    _, _, X = places(rng, 800)
    distance = np.linalg.norm(X[:, None] - X[None], axis=2)
    factor = np.linalg.cholesky(np.exp(-((distance / 0.15) ** 2)) + 1e-8 * np.eye(800))
    levels, compact, alone = (0.5, 0.6, 0.7, 0.8, 0.9), compact_cells(X), np.arange(800)
    held = np.zeros(2)
    for pit in ndtr(factor @ rng.standard_normal((800, 200))).T:
        tests = [coverage_test(pit, levels=levels, cells=cells) for cells in (compact, alone)]
        held += [np.mean(np.abs(test.coverage - test.levels) <= 1.96 * test.standard_error) for test in tests]
    by_cells, independent = held / 200
    assert by_cells == pytest.approx(0.95, abs=0.046)
    assert independent < 0.88


def test_what_does_not_fit_is_refused():
    X = np.zeros((3, 2))
    with pytest.raises(ArgumentError) as refusal:
        roughness_of(np.zeros(4), X, X)
    assert refusal.value.key == "shapes"
    with pytest.raises(ArgumentError) as refusal:
        list(divided(np.ones(4, dtype=bool), X, []))
    assert refusal.value.key == "shapes"
    with pytest.raises(ArgumentError) as refusal:
        list(divided(np.ones(3, dtype=bool), X, [], weights=np.zeros(3)))
    assert refusal.value.key == "no-points"
