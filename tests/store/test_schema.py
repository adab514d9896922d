"""The groups of a run: names, dimensions, attributes, and what does not fit."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from cagp_dist.calibration.verification.pit import CORRELATED_TEST_POINTS, pit
from cagp_dist.calibration.verification.scores import point_scores, scores
from cagp_dist.calibration.verification.strata import RELIABILITY_LEVELS, Strata
from cagp_dist.errors import ArgumentError, StoreError
from cagp_dist.predictive import Gaussian
from cagp_dist.store.group_dataset import check_group, root_attributes, variable_in
from cagp_dist.store.schema import prediction_group, values_group
from cagp_dist.store.scored_groups import calibration_group, trace_group

from ..joined import one_after_another

T, Q = 3, 40
RNG = np.random.default_rng(0)
POINTS = {
    "times": np.array(["2019-03-01T00", "2019-03-01T01", "2019-03-01T02"], dtype="datetime64[s]"),
    "north": RNG.uniform(-90.0, 90.0, Q),
    "east": RNG.uniform(0.0, 360.0, Q),
}
MEAN = 280.0 + RNG.normal(size=(T, Q))
STD = RNG.uniform(0.5, 1.5, Q)
OBSERVED = MEAN + STD * RNG.normal(size=(T, Q))
AXES = {
    "times": POINTS["times"],
    "north": np.arange(-88.0, 90.0, 8.0),
    "east": np.arange(0.0, 360.0, 8.0),
}
GRID = (T, 23, 45)


def _groups():
    score = scores(MEAN, STD, OBSERVED)
    return {
        "posterior": prediction_group(
            "posterior", **POINTS, mean=MEAN, std=STD, noise_variance=0.5, observed=OBSERVED
        ),
        "map": prediction_group(
            "map", **AXES, mean=np.full(GRID, 280.0), std=np.full(GRID[1:], 0.7), noise_variance=0.5
        ),
        "calibration": calibration_group(**POINTS, pit=pit(MEAN, STD, OBSERVED), scores=score),
        "trace": trace_group([score, score, score], seconds=[0.0, 0.5, 1.0]),
        "observations": values_group("observations", **POINTS, values=OBSERVED),
    }


LAYOUT = {
    "posterior": {
        "t2m_mean": ("time", "point"),
        "t2m_std": ("time", "point"),
        "t2m_predictive_std": ("time", "point"),
        "t2m": ("time", "point"),
    },
    "map": {
        "t2m_mean": ("time", "latitude", "longitude"),
        "t2m_std": ("time", "latitude", "longitude"),
        "t2m_predictive_std": ("time", "latitude", "longitude"),
    },
    "calibration": {
        "pit": ("time", "point"),
        "area_weight": ("point",),
        "pit_count": ("pit_interval",),
        "pit_count_area_weighted": ("pit_interval",),
        "pit_bin": ("pit_edge",),
        "coverage": ("level",),
        "coverage_area_weighted": ("level",),
        "coverage_standard_error": ("level",),
        "coverage_standard_error_area_weighted": ("level",),
        "mean_width": ("level",),
        "mean_width_area_weighted": ("level",),
        "interval_score": ("level",),
        "interval_score_area_weighted": ("level",),
        "rmse": (),
        "rmse_area_weighted": (),
        "nll": (),
        "nll_area_weighted": (),
        "crps": (),
        "crps_area_weighted": (),
        "ks_statistic": (),
        "ks_statistic_area_weighted": (),
        "ks_pvalue": (),
        "ks_pvalue_area_weighted": (),
    },
    "trace": {
        "rmse": ("iteration",),
        "rmse_area_weighted": ("iteration",),
        "nll": ("iteration",),
        "nll_area_weighted": ("iteration",),
        "crps": ("iteration",),
        "crps_area_weighted": ("iteration",),
        "ks_statistic": ("iteration",),
        "ks_statistic_area_weighted": ("iteration",),
        "ks_pvalue": ("iteration",),
        "ks_pvalue_area_weighted": ("iteration",),
        "seconds": ("iteration",),
        "coverage": ("iteration", "level"),
        "coverage_area_weighted": ("iteration", "level"),
    },
    "observations": {"t2m": ("time", "point")},
}
COORDINATES = {
    "posterior": {"time": ("time",), "latitude": ("point",), "longitude": ("point",)},
    "map": {"time": ("time",), "latitude": ("latitude",), "longitude": ("longitude",)},
    "calibration": {
        "time": ("time",),
        "latitude": ("point",),
        "longitude": ("point",),
        "level": ("level",),
    },
    "trace": {"iteration": ("iteration",), "level": ("level",)},
    "observations": {"time": ("time",), "latitude": ("point",), "longitude": ("point",)},
}


@pytest.mark.parametrize("name", LAYOUT)
def test_names_and_dimensions_are_the_documented_ones(name):
    group = _groups()[name]
    assert {key: variable.dims for key, variable in group.data_vars.items()} == LAYOUT[name]
    assert {key: variable.dims for key, variable in group.coords.items()} == COORDINATES[name]
    check_group(name, group)


@pytest.mark.parametrize("name", LAYOUT)
def test_every_variable_says_what_it_is_and_in_which_unit(name):
    group = _groups()[name]
    assert group.attrs["Conventions"] == "CF-1.13"
    assert group.attrs["title"]
    for key, variable in group.variables.items():
        assert variable.attrs["long_name"], key
        # CF: units of time are part of its encoding
        assert ("units" in variable.attrs) == (key != "time"), key


def test_values_are_those_given():
    groups = _groups()
    np.testing.assert_array_equal(groups["posterior"].t2m_mean, MEAN)
    np.testing.assert_array_equal(groups["posterior"].t2m_std, np.tile(STD, (T, 1)))
    np.testing.assert_array_equal(groups["posterior"].t2m, OBSERVED)
    np.testing.assert_array_equal(groups["posterior"].latitude, POINTS["north"])
    np.testing.assert_array_equal(groups["observations"].t2m, OBSERVED)
    np.testing.assert_array_equal(groups["map"].longitude, AXES["east"])
    assert groups["map"].sizes == {"time": T, "latitude": GRID[1], "longitude": GRID[2]}
    assert groups["posterior"].time.dtype == "datetime64[ns]"
    score = scores(MEAN, STD, OBSERVED)
    calibration = groups["calibration"]
    for name in ("rmse", "nll", "crps", "ks_statistic", "ks_pvalue"):
        assert float(calibration[name]) == getattr(score, name)
        assert float(calibration[f"{name}_area_weighted"]) == getattr(score.by_area, name)
    np.testing.assert_array_equal(calibration.coverage, score.coverage)
    np.testing.assert_array_equal(calibration.level, score.levels)
    assert calibration.pit_bin.values.tolist() == pytest.approx([i / 20 for i in range(21)])
    assert int(calibration.pit_count.sum()) == T * Q
    assert groups["trace"].iteration.values.tolist() == [0, 1, 2]
    assert groups["trace"].seconds.values.tolist() == [0.0, 0.5, 1.0]
    np.testing.assert_array_equal(groups["trace"].crps, [score.crps] * 3)


def test_the_predictive_standard_deviation_has_the_noise():
    groups = _groups()
    np.testing.assert_allclose(groups["posterior"].t2m_predictive_std, np.tile(np.sqrt(STD**2 + 0.5), (T, 1)))
    np.testing.assert_allclose(groups["map"].t2m_predictive_std, np.sqrt(0.7**2 + 0.5))
    assert "noise included" in groups["map"].t2m_predictive_std.attrs["long_name"]


def test_scores_histogram_and_verdict_are_in_both_weightings():
    weights = np.cos(np.deg2rad(POINTS["north"]))
    values, score = pit(MEAN, STD, OBSERVED), scores(MEAN, STD, OBSERVED, weights=weights)
    group = calibration_group(**POINTS, pit=values, scores=score, area_weight=3.0 * weights)
    np.testing.assert_allclose(group.area_weight, weights / weights.mean())
    np.testing.assert_array_equal(group.coverage_area_weighted, score.by_area.coverage)
    by_hand = [
        (weights / weights.mean() * ((values >= low) & (values < low + 0.05))).sum()
        for low in np.arange(20) / 20
    ]
    np.testing.assert_allclose(group.pit_count_area_weighted, by_hand)
    assert group.pit_count.dtype.kind == "i"
    assert (group.coverage_standard_error_area_weighted > 0.0).all()
    assert group.attrs["calibration_status"] == "consistent"
    assert "120 observations" in group.attrs["calibration_statement"]


def test_strata_and_reliability_are_those_of_their_observations():
    weights = np.cos(np.deg2rad(POINTS["north"]))
    distributions = Gaussian(MEAN, np.tile(STD, (T, 1))), Gaussian(MEAN, np.tile(0.3 * STD, (T, 1)))
    south = POINTS["north"] < np.median(POINTS["north"])
    found, plain = (point_scores(distribution, OBSERVED) for distribution in distributions)
    score, before = (each.pooled(weights=weights) for each in (found, plain))
    halves = Strata("half", ("north", "south"), ("of most", "of most others"), south.astype(np.intp))
    group = calibration_group(
        **POINTS,
        pit=found.pit,
        scores=score,
        area_weight=weights,
        of_values=found,
        plain=(plain, before),
        strata=[halves],
    )
    check_group("calibration", group)
    assert group.stratum.values.tolist() == ["all", "north", "south"]
    assert group.stratum_kind.values.tolist() == ["all", "half", "half"]
    assert group.stratum_definition.values.tolist()[1:] == ["of most", "of most others"]
    assert group.stratum_observations.values.tolist() == [T * Q, T * (~south).sum(), T * south.sum()]
    for suffix, distribution, pooled in (("", found, score), ("_plain", plain, before)):
        for name in ("coverage", "mean_width", "interval_score", "crps", "nll"):
            whole = getattr(pooled.by_area, name)
            np.testing.assert_allclose(group[f"stratum_{name}{suffix}"][0], whole, rtol=1e-12)
        share = np.tile(weights, (T, 1))[:, south]
        inside = np.abs(distribution.pit[:, south] - 0.5) <= 0.45
        covered = group[f"stratum_coverage{suffix}"].sel(stratum="south", level=0.9)
        assert float(covered) == pytest.approx(np.average(inside, weights=share), rel=1e-12)
        assert float(group[f"stratum_crps{suffix}"][2]) == pytest.approx(
            np.average(distribution.crps[:, south], weights=share), rel=1e-12
        )
        counts = group[f"stratum_pit_count{suffix}"].sum("pit_interval")
        np.testing.assert_allclose(counts, group.stratum_observations, rtol=1e-12)
        at_levels = group[f"reliability{suffix}"].sel(reliability_level=0.9)
        assert float(at_levels) == pytest.approx(pooled.by_area.coverage[2], rel=1e-12)
    np.testing.assert_array_equal(group.reliability_level, RELIABILITY_LEVELS)
    np.testing.assert_allclose(
        group.stratum_coverage_standard_error[0], group.coverage_standard_error_area_weighted, rtol=1e-12
    )
    assert (group.reliability_plain < group.reliability).all()


def test_wrong_error_bars_are_called_so():
    narrow = calibration_group(
        **POINTS, pit=pit(MEAN, 0.2 * STD, OBSERVED), scores=scores(MEAN, 0.2 * STD, OBSERVED)
    )
    assert narrow.attrs["calibration_status"] == "too-narrow"
    assert narrow.attrs["calibration_statement"].startswith("The error bars are too narrow: ")


def test_the_axes_of_a_map_ascend_and_may_begin_west_of_greenwich():
    axes = AXES | {"east": AXES["east"] - 180.0}
    fields = {"mean": np.full(GRID, 280.0), "std": np.ones(GRID), "noise_variance": 0.5}
    check_group("map", prediction_group("map", **axes, **fields))
    jump = AXES | {"east": AXES["east"] % 352.0}
    with pytest.raises(StoreError) as refused:
        check_group("map", prediction_group("map", **jump, **fields))
    assert refused.value.key == "axis-order"


def test_the_standard_deviation_says_that_it_is_latent():
    for name in ("posterior", "map"):
        group = _groups()[name]
        attributes = group.t2m_std.attrs
        assert "latent" in attributes["long_name"]
        assert "without noise" in attributes["long_name"]
        assert "sqrt(t2m_std**2 + noise_variance)" in attributes["comment"]
        assert attributes["units"] == "K"
        assert attributes["standard_name"] == "air_temperature standard_error"
        assert group.t2m_mean.attrs["ancillary_variables"] == "t2m_std t2m_predictive_std"
        assert group.t2m_mean.attrs["standard_name"] == "air_temperature"


def test_the_p_value_says_when_it_means_little():
    groups = _groups()
    for name in ("calibration", "trace"):
        assert groups[name].ks_pvalue.attrs["comment"] == CORRELATED_TEST_POINTS
        assert CORRELATED_TEST_POINTS in groups[name].ks_pvalue_area_weighted.attrs["comment"]


def test_the_histogram_carries_its_band():
    attributes = _groups()["calibration"].pit_count.attrs
    distribution = stats.binom(T * Q, 0.05)
    assert attributes["uniform_expected"] == pytest.approx(T * Q / 20)
    assert (attributes["uniform_lower_95"], attributes["uniform_upper_95"]) == (
        distribution.ppf(0.025),
        distribution.ppf(0.975),
    )


def test_coordinates_follow_cf():
    group = _groups()["map"]
    assert (group.latitude.attrs["axis"], group.longitude.attrs["axis"], group.time.attrs["axis"]) == tuple(
        "YXT"
    )
    assert group.latitude.attrs["units"] == "degrees_north"
    assert group.longitude.attrs["units"] == "degrees_east"
    assert "axis" not in _groups()["posterior"].latitude.attrs


def test_attributes_are_not_shared_between_data_sets():
    first, second = _groups(), _groups()
    first["posterior"].t2m.attrs["units"] = "degC"
    first["posterior"].latitude.attrs["units"] = "radian"
    assert second["posterior"].t2m.attrs["units"] == "K"
    assert _groups()["posterior"].latitude.attrs["units"] == "degrees_north"


def test_single_precision_becomes_double():
    group = values_group("observations", **POINTS, values=OBSERVED.astype("float32"))
    assert group.t2m.dtype == np.float64


def test_one_time_needs_no_time_axis():
    one = POINTS | {"times": POINTS["times"][:1]}
    group = prediction_group(
        "posterior", **one, mean=MEAN[0], std=STD, noise_variance=0.5, observed=OBSERVED[:1]
    )
    assert group.t2m_mean.shape == group.t2m_std.shape == group.t2m.shape == (1, Q)


@one_after_another
@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"mean": MEAN.T}, "shapes"),
        ({"mean": MEAN[0]}, "shapes"),
        ({"std": np.ones(T)}, "shapes"),
        ({"observed": OBSERVED[:, :5]}, "shapes"),
        ({"north": np.ones((2, 2))}, "shapes"),
        ({"times": ["2019-03-01"] * T}, "no-dates"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(change, key):
    arguments = POINTS | {"mean": MEAN, "std": STD, "noise_variance": 0.5, "observed": OBSERVED} | change
    with pytest.raises(ArgumentError) as refusal:
        prediction_group("posterior", **arguments)
    assert refusal.value.key == key


def test_a_trace_needs_one_time_per_iteration_and_one_set_of_levels():
    score, other = scores(MEAN, STD, OBSERVED), scores(MEAN, STD, OBSERVED, levels=[0.5])
    with pytest.raises(ArgumentError) as refusal:
        trace_group([score], seconds=[0.0, 1.0])
    assert refusal.value.key == "shapes"
    with pytest.raises(ArgumentError) as refusal:
        trace_group([], seconds=[])
    assert refusal.value.key == "shapes"
    with pytest.raises(ArgumentError) as refused:
        trace_group([score, other], seconds=[0.0, 1.0])
    assert refused.value.key == "levels-differ"


# Checks before publication


def test_an_unknown_group_is_refused():
    with pytest.raises(StoreError) as refused:
        check_group("maps", _groups()["map"])
    assert refused.value.key == "group-unknown"


def test_wrong_dimensions_are_refused():
    group = _groups()["posterior"]
    with pytest.raises(StoreError) as refusal:
        check_group("posterior", group.assign(t2m_mean=group.t2m_mean.T))
    assert refusal.value.key == "group-layout"


@one_after_another
@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [
        ("posterior", "latitude", 91.0),
        ("posterior", "longitude", -1.0),
        ("map", "t2m_mean", 20.0),
        ("trace", "seconds", -1.0),
        ("trace", "coverage", 1.01),
        ("observations", "t2m", 351.0),
        ("calibration", "ks_pvalue", 2.0),
    ],
)
def test_implausible_values_are_refused(name, variable, value):
    group = _groups()[name].copy(deep=True)
    group[variable] = group[variable].copy(data=np.full(group[variable].shape, value))
    with pytest.raises(StoreError) as refusal:
        check_group(name, group)
    assert refusal.value.key == "implausible"


def test_extra_variables_are_checked_for_missing_numbers():
    group = _groups()["trace"]
    check_group("trace", group.assign(note=("iteration", ["a", "b", "c"])))
    with pytest.raises(StoreError) as refusal:
        check_group("trace", group.assign(extra=("iteration", [1.0, np.nan, 2.0])))
    assert refusal.value.key == "not-finite"


# Attributes of the root


def test_root_attributes_describe_extent_and_time():
    created = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    attributes = root_attributes(_groups(), run_key="ab" * 16, date_created=created)
    latitudes = np.concatenate([POINTS["north"], AXES["north"]])
    assert attributes["Conventions"] == "CF-1.13, ACDD-1.3"
    assert attributes["date_created"] == "2026-01-02T01:04:05.000000Z"
    assert attributes["run_key"] == attributes["id"] == "ab" * 16
    assert (attributes["geospatial_lat_min"], attributes["geospatial_lat_max"]) == (
        latitudes.min(),
        latitudes.max(),
    )
    assert attributes["time_coverage_start"] == "2019-03-01T00:00:00Z"
    assert attributes["time_coverage_end"] == "2019-03-01T02:00:00Z"
    assert attributes["cdm_data_type"] == "Grid"
    assert all(attributes[key] for key in ("title", "summary", "keywords"))


def test_only_the_date_differs_between_two_runs_of_one_job():
    first, second = (
        root_attributes(_groups(), run_key="ab" * 16, date_created=datetime(2026, 1, day, tzinfo=UTC))
        for day in (1, 2)
    )
    assert {key for key in first if first[key] != second[key]} == {"date_created"}


def test_the_date_is_now_in_utc():
    attributes = root_attributes({}, run_key="ab" * 16)
    created = datetime.strptime(str(attributes["date_created"]), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - created) < timedelta(seconds=10)
    assert attributes["cdm_data_type"] == "Point"
    assert "geospatial_lat_min" not in attributes
    assert "time_coverage_start" not in attributes


@pytest.mark.parametrize(
    ("longitudes", "west", "east"),
    [
        ([10.0, 20.0, 15.0], 10.0, 20.0),
        ([350.0, 5.0, 40.0], -10.0, 40.0),  # Europe, across the meridian of Greenwich
        ([-10.0, 5.0, 40.0, 355.0], -10.0, 40.0),  # a map counts from Greenwich, its points do not
        ([170.0, 180.0, 190.0], 170.0, 190.0),
        ([12.0], 12.0, 12.0),
        (np.arange(0.0, 360.0, 0.75), 0.0, 359.25),
        (np.arange(3.0, 360.0, 7.0), 3.0, 353.0),
    ],
)
def test_longitude_extent_is_the_smallest_arc(longitudes, west, east):
    group = xr.Dataset(coords={"latitude": ("p", np.zeros(len(longitudes))), "longitude": ("p", longitudes)})
    attributes = root_attributes({"posterior": group}, run_key="ab" * 16)
    assert (attributes["geospatial_lon_min"], attributes["geospatial_lon_max"]) == (west, east)


def test_the_part_that_was_not_computed_may_be_there_or_not():
    part = 0.5 * STD
    shared = {"noise_variance": 0.5, "computational_std": part}
    group = prediction_group("posterior", **POINTS, mean=MEAN, std=STD, observed=OBSERVED, **shared)
    check_group("posterior", group)
    assert group.t2m_std_computational.dims == ("time", "point")
    np.testing.assert_array_equal(group.t2m_std_computational, np.broadcast_to(part, (T, Q)))
    assert group.t2m_std_computational.attrs["units"] == "K"
    assert group.drop_vars("t2m_std_computational").identical(_groups()["posterior"])
    on_map = prediction_group(
        "map",
        **AXES,
        mean=np.full(GRID, 280.0),
        std=np.full(GRID[1:], 0.7),
        noise_variance=0.5,
        computational_std=np.full(GRID[1:], 0.1),
    )
    check_group("map", on_map)
    assert on_map.t2m_std_computational.dims == ("time", "latitude", "longitude")
    with pytest.raises(StoreError) as refused:
        check_group("posterior", group.assign(t2m_std_computational=-group.t2m_std_computational))
    assert refused.value.key == "implausible"
    with pytest.raises(StoreError) as refusal:
        check_group("posterior", group.assign(t2m_std_computational=group.t2m_std_computational[0]))
    assert refusal.value.key == "group-layout"


def test_a_map_has_all_its_error_bars_or_none():
    """None where they are in ``map_std``, on a coarser grid."""
    whole = _groups()["map"]
    alone = prediction_group("map", **AXES, mean=np.full(GRID, 280.0))
    check_group("map", alone)
    check_group("map_std", whole)
    np.testing.assert_array_equal(alone.t2m_mean, whole.t2m_mean)
    assert variable_in(alone).name == "t2m"
    assert variable_in(alone).long_name == variable_in(whole).long_name
    for name in ("t2m_std", "t2m_predictive_std"):
        with pytest.raises(StoreError) as refusal:
            check_group("map", whole.drop_vars(name))
        assert refusal.value.key == "group-layout"
        with pytest.raises(StoreError) as refusal:
            check_group("map_std", whole.drop_vars(name))
        assert refusal.value.key == "group-layout"
    with pytest.raises(StoreError) as refused:
        check_group("map_std", whole.isel(latitude=slice(None, None, -1)))
    assert refused.value.key == "axis-order"
