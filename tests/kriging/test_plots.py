"""Pictures of results show the numbers: arrays and places of what was drawn, read back from the figure."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.cartography.chart_style import drawing_style
from cagp_dist.errors import ArgumentError
from cagp_dist.kriging.drawn_maps import in_lines

NUMBERS = {"kernel": "matern32", "lengthscale": 0.1, "variance": 4.0, "noise_std": 0.5, "mean": 10.0}
TABLE = {
    "lat": [2.0, 5.0, 8.0, 40.0],
    "lon": [3.0, 8.0, 351.0, 5.0],
    "value [K]": [9.0, 11.0, 12.0, 8.0],
}
REGION = {"resolution": 2.0, "region": [10.0, -10.0, 0.0, 10.0]}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def field():
    return cagp.krige(TABLE, to=REGION, **NUMBERS)


@pytest.fixture(scope="module")
def hours():
    """Two places over four hours, of which one is observed at the second hour."""
    moments = pd.date_range("2020-01-01", periods=4, freq="h")
    values = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    return xr.Dataset(
        {"mean": (("time", "place"), values, {"units": "K"}), "std": (("time", "place"), 0.1 * values)},
        coords={
            "time": moments,
            "latitude": ("place", [0.0, 10.0]),
            "longitude": ("place", [0.0, 10.0]),
            "station_name": ("place", ["A", ""]),
        },
    )


def dots_of(panel):
    return next(each for each in panel.collections if len(each.get_offsets()))


def test_observations_lie_where_they_are_in_the_colours_of_the_map(field):
    for observations in (TABLE, cagp.Kriging(**NUMBERS).fit(TABLE)):
        figure = field.cagp.plot(observations=observations)
        mean, std = figure.axes[:2]
        drawn, image = dots_of(mean), mean.get_images()[0]
        # degrees on the axes; the place beyond the region is not drawn
        np.testing.assert_allclose(drawn.get_offsets(), [[3.0, 2.0], [8.0, 5.0], [-9.0, 8.0]])
        np.testing.assert_allclose(drawn.get_array(), [9.0, 11.0, 12.0])
        assert (drawn.norm.vmin, drawn.norm.vmax) == (image.norm.vmin, image.norm.vmax)
        assert drawn.cmap.name == image.cmap.name
        assert dots_of(std).get_array() is None
        np.testing.assert_allclose(dots_of(std).get_offsets(), drawn.get_offsets())
    with pytest.raises(ArgumentError) as refused:
        field.cagp.plot(observations=pd.DataFrame(TABLE).rename(columns={"value [K]": "value [degC]"}))
    assert refused.value.key == "units"


def test_observations_are_read_as_those_of_the_result_were(field):
    """Also a mark of missing values, and a column that had to be named; other tables are read as they are."""
    table = pd.DataFrame(TABLE).rename(columns={"value [K]": "reading"}).assign(other=1.0)
    gone = table.assign(reading=table.reading.where(np.arange(len(table)) != 1, -999.0))
    result = cagp.krige(gone, to=5.0, value="reading", missing=-999, **NUMBERS)
    for observations in (gone, TABLE):  # the map does not reach the place that is missing
        drawn = dots_of(result.cagp.plot("mean", observations=observations).axes[0])
        np.testing.assert_allclose(drawn.get_array(), [9.0, 12.0, 8.0])
    assert result.cagp.plot.variogram(gone).axes


def test_a_notebook_stays_interactive_after_its_first_figure(monkeypatch):
    """Its backend says so when it is loaded, which may be inside."""
    monkeypatch.setitem(plt.rcParams, "interactive", False)
    with drawing_style():
        plt.ion()
    assert plt.isinteractive()
    with drawing_style():
        pass
    assert plt.isinteractive()


def test_a_map_of_a_region_is_as_wide_as_it_is_on_the_ground(field):
    panel = field.cagp.plot("mean").axes[0]
    assert panel.get_xlim() == (-10.0, 10.0)
    assert panel.get_ylim() == (0.0, 10.0)
    assert panel.get_aspect() == pytest.approx(1.0 / np.cos(np.deg2rad(5.0)))


def test_colours_and_borders_are_as_they_were_asked_for(field):
    mean, std = field.cagp.plot(cmap="YlGnBu").axes[:2]
    assert [panel.get_images()[0].cmap.name for panel in (mean, std)] == ["YlGnBu", "viridis"]
    europe = field.assign_coords(latitude=field.latitude + 45.0)
    lines = [len(europe.cagp.plot("mean", borders=drawn).axes[0].lines) for drawn in (False, True)]
    assert lines[1] == lines[0] + 1
    shores = europe.cagp.plot("mean", lakes=True).axes[0].lines[-2:]
    assert all(np.isfinite(shore.get_xdata()).sum() > 50 for shore in shores)
    with pytest.raises(ArgumentError) as refused:
        field.cagp.plot(cmap="virids")
    assert refused.value.key == "colours-unknown"
    assert "'viridis'" in str(refused.value)


def test_a_region_without_places_is_refused_with_what_may_be_the_reason(field):
    with pytest.raises(ArgumentError, match="order of the coordinate") as refused:
        field.sel(latitude=slice(9.0, 1.0)).cagp.plot("mean")
    assert refused.value.key == "no-places-to-draw"


def test_one_map_goes_into_axes_of_ones_own(field):
    figure, axes = plt.subplots()
    assert field.cagp.plot.probability(10.0, ax=axes) is figure
    assert len(axes.get_images()) == 1
    with pytest.raises(ArgumentError) as refused:
        field.cagp.plot(ax=axes)
    assert refused.value.key == "one-axes"


def test_times_are_small_multiples_in_the_same_colours():
    moments = pd.date_range("2020-01-01", periods=11, freq="D")
    latitude, longitude = np.arange(0.0, 10.0, 2.0), np.arange(0.0, 10.0, 2.0)
    values = np.arange(11.0)[:, None, None] + np.zeros((11, 5, 5))
    days = xr.Dataset(
        {"mean": (("time", "lat", "lon"), values), "std": (("lat", "lon"), np.ones((5, 5)))},
        coords={"time": moments, "lat": latitude, "lon": longitude},
    )
    figure = days.cagp.plot("mean")
    panels = [panel for panel in figure.axes if panel.get_images()]
    shown = [panel.get_images()[0] for panel in panels]
    assert [float(image.get_array().mean()) for image in shown] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert {(image.norm.vmin, image.norm.vmax) for image in shown} == {(0.0, 10.0)}
    assert panels[1].get_title(loc="left") == "2020-01-03"
    observed = days["mean"].isel(lat=[0], lon=[0])  # at all times
    chosen = days.cagp.plot("mean", time=["2020-01-05", np.datetime64("2020-01-06")], observations=observed)
    assert [float(panel.get_images()[0].get_array().mean()) for panel in chosen.axes[:2]] == [4.0, 5.0]
    assert [dots_of(panel).get_array().tolist() for panel in chosen.axes[:2]] == [[4.0], [5.0]]
    none = days.cagp.plot("mean", time="2020-01-05T00:00Z", observations=observed.isel(time=[0, 1]))
    assert none.axes[0].get_title(loc="left").endswith("2020-01-05; no observation")
    with pytest.raises(ArgumentError) as refused:
        days.cagp.plot("mean", time="2021-01-05")
    assert refused.value.key == "time-not-in-result"
    with pytest.raises(ArgumentError) as refused:
        days.cagp.plot("mean", time="2020-01-05", field=1)
    assert refused.value.key == "field-and-time"


def test_the_error_has_the_share_that_computation_would_take_away(hours):
    places = hours.isel(time=0)
    exact = places.assign(std_computational=0.0 * places["std"]).cagp.plot.error()
    assert len(exact.axes) == 2  # a map and its colour bar
    half = places.assign(std_computational=0.5 * places["std"])
    half["std_computational"].attrs["comment"] = "At most: an upper bound."
    figure = half.cagp.plot.error()
    np.testing.assert_allclose(dots_of(figure.axes[0]).get_array(), places["std"])
    np.testing.assert_allclose(dots_of(figure.axes[1]).get_array(), 0.25)
    assert figure.axes[1].get_title(loc="left").startswith("unfinished part of the variance\n2020")
    assert figure.axes[3].get_xlabel().endswith(", at most")


def test_probabilities_are_those_of_exceedance(hours):
    places = hours.isel(time=0)
    shown = dots_of(places.cagp.plot.probability(1.9).axes[0])
    np.testing.assert_allclose(shown.get_array(), places.cagp.exceedance(1.9))
    assert (shown.norm.vmin, shown.norm.vmax) == (0.0, 1.0)


def test_places_over_time_are_lines_with_their_band(hours):
    seen = {"lat": [0.0, 0.0, 3.0], "lon": [360.0, 0.0, 3.0], "value": [2.5, 9.0, 1.0]}
    seen["time"] = pd.to_datetime(["2020-01-01T01:00", "2020-01-01T00:30", "2020-01-01T01:00"])
    figure = hours.cagp.plot(observations=seen)
    first, second = figure.axes
    assert [panel.get_title(loc="left") for panel in (first, second)] == ["A", "10°N 10°E"]
    for place, panel in enumerate((first, second)):
        mean, std = hours["mean"].values[:, place], hours["std"].values[:, place]
        line = next(line for line in panel.get_lines() if line.get_label() == "mean")
        np.testing.assert_allclose(line.get_ydata(), mean)
        edges = panel.collections[0].get_paths()[0].vertices[:, 1]
        assert edges.min() == pytest.approx((mean - 1.6448536 * std).min())
        assert edges.max() == pytest.approx((mean + 1.6448536 * std).max())
    dots = next(line for line in first.get_lines() if line.get_label() == "observed")
    assert dots.get_ydata().tolist() == [2.5]  # at the place, at a time of the result
    assert figure.axes[0].get_legend() is not None
    one = hours.isel(place=[0])
    own, axes = plt.subplots()
    assert one.cagp.plot(ax=axes) is own
    with pytest.raises(ArgumentError) as refused:
        hours.cagp.plot(ax=axes)
    assert refused.value.key == "one-axes"


def test_every_colour_bar_says_a_unit_or_per_cent():
    table = {
        "lat": [2.0, 5.0, 8.0, 4.0, 6.0],
        "lon": [3.0, 8.0, 351.0, 5.0, 1.0],
        "t [degC]": [9.0, 11.0, 12.0, 8.0, 9.0],
    }
    model = cagp.Kriging(**NUMBERS).fit(table)
    found = model.predict(REGION)
    warm = found.assign(warm=found.cagp.exceedance(10.0))
    figures = {
        "°C": [found.cagp.plot(), found.cagp.plot.error(), model.cross_validate(None).cagp.plot.folds()],
        "%": [found.cagp.plot.probability(10.0), warm.cagp.plot("warm")],
    }
    for unit, drawn in figures.items():
        for figure in drawn:
            figure.canvas.draw()
            for bar in (axes for axes in figure.axes if axes.get_label() == "<colorbar>"):
                ticks = [text.get_text() for text in (*bar.get_xticklabels(), *bar.get_yticklabels())]
                labels = bar.get_xlabel() or bar.get_ylabel()
                assert labels == unit or (unit == "%" and all(text.endswith("%") for text in ticks if text))


def test_titles_say_name_date_region_and_source_on_a_line_each():
    table = {name: 2 * column for name, column in TABLE.items()} | {
        "date": ["2024-07-01"] * 4 + ["2024-07-02"] * 4
    }
    found = cagp.krige(table, to=REGION, **NUMBERS)
    figure = found.cagp.plot(field=1)
    mean, std = figure.axes[:2]
    assert mean.get_title(loc="left") == "mean of value, 2024-07-02"
    assert std.get_title(loc="left") == "standard deviation of value, 2024-07-02"
    assert figure.axes[3].get_xlabel() == "K, without the noise of an observation"

    def above(panel):
        return [text.get_text() for text in panel.texts if "observations" in text.get_text()]

    assert above(mean) == ["0° to 10°N, 10°W to 10°E\n8 observations"]
    assert not above(std)
    # the time of a map that was chosen before is said, to the minute where it is not a day
    day = found.isel(time=0).cagp.plot("mean").axes[0]
    assert day.get_title(loc="left") == "mean of value, 2024-07-01"
    noon = found.isel(time=0).assign_coords(time=np.datetime64("2024-07-01T12:00", "ns"))
    assert noon.cagp.plot("mean").axes[0].get_title(loc="left") == "mean of value, 2024-07-01 12:00 UTC"
    _, own = plt.subplots(figsize=(4.0, 3.0))
    found.cagp.plot("std", field=0, ax=own)
    assert own.get_title(loc="left") == "standard deviation of value, 2024-07-01"
    assert not above(own)  # axes of others get no more than a title


def test_no_title_parts_a_number_from_its_unit():
    found = in_lines("probability that the field is above 500 mg kg⁻¹", 44)
    assert found.split("\n") == ["probability that the field is above", "500\u00a0mg\u00a0kg⁻¹"]
    narrow = in_lines("precipitation 2020-01-01 12:00 UTC", 18)
    assert narrow.split("\n") == ["precipitation", "2020-01-01", "12:00\u00a0UTC"]
    found = in_lines("days 1 2 3, below -5.5 °C, 1e-3 mm", 12)
    assert found.split("\n") == ["days 1 2 3,", "below", "-5.5\u00a0°C,", "1e-3\u00a0mm"]
