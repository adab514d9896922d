"""Series of a result at places: the mean over time, with its band and what was observed there."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.cartography.chart_style import ACCENT, BAND, INK, date_axis, drawing_style, quiet_grid
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import EARTH_RADIUS_KILOMETRES, unit_sphere
from cagp_dist.kriging.axes import Horizontal
from cagp_dist.kriging.drawn_maps import WIDTH_INCHES, own_figure
from cagp_dist.kriging.observed_objects import ObservedObject
from cagp_dist.kriging.plane import moved
from cagp_dist.kriging.result_distribution import distribution_of
from cagp_dist.kriging.shown_observations import seen_in
from cagp_dist.store.published_variables import STATION_NAME
from cagp_dist.text import degrees_label
from cagp_dist.variables.units import symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PLACES = 6  # that have a series
BAND_LEVEL = 0.9
SAME_PLACE_KILOMETRES = 0.1


def time_axis_of(values: xr.DataArray, where: Horizontal) -> str | None:
    """Name the dimension of the times of places; None for grids, and where there is one time."""
    others = [str(dim) for dim in values.dims if str(dim) not in where.dims]
    if where.axes is not None or len(where.dims) != 1 or len(others) != 1 or values.sizes[others[0]] < 2:
        return None
    return others[0] if others[0] in values.coords and values[others[0]].dtype.kind == "M" else None


def draw_series(
    dataset: xr.Dataset, where: Horizontal, axis: str, observed: ObservedObject | None, ax: "Axes | None"
) -> "Figure":
    """Draw the mean over time at up to six places, with its band and what was observed there."""
    import matplotlib.pyplot as plt

    found = distribution_of(dataset)
    mean = found.like.transpose(axis, *where.dims)
    low, high = (each.transpose(*mean.dims) for each in found.interval(BAND_LEVEL))
    count, times = mean.shape[1], mean[axis].values
    shown = min(count, MOST_PLACES)
    if ax is not None and count != 1:
        raise ArgumentError(
            f"ax is one pair of axes for {count} places; expected one: dataset.isel({where.dims[0]}=[0])."
        )
    unit, what = symbol(str(mean.attrs.get("units", ""))), str(mean.attrs.get("long_name", mean.name))
    heading = f"{what} [{unit}]" if unit else what
    band = f"{BAND_LEVEL:.0%} of {'an observation' if found.of == 'observation' else 'the field'}"
    with drawing_style():
        if ax is None:
            figure, panels = plt.subplots(
                shown,
                1,
                figsize=(WIDTH_INCHES, 0.7 + 1.5 * shown),
                sharex=True,
                squeeze=False,
                layout="constrained",
            )
            axes = list(panels.flat)
            more = f", {shown} of {count} places" if shown < count else ""
            figure.suptitle(heading + more, fontsize=9, x=0.01, ha="left")
        else:
            axes, figure = [ax], own_figure(ax)
        for place, panel in enumerate(axes):
            panel.fill_between(
                times, low.values[:, place], high.values[:, place], color=BAND, linewidth=0, label=band
            )
            panel.plot(times, mean.values[:, place], color=ACCENT, linewidth=1.3, label="mean")
            quiet_grid(panel, _place_name(dataset, where, place))
            if observed is not None:
                here = _at_place(observed, where, place)
                seen = [seen_in(here, mean, where, field).values for field in range(times.size)]
                at = np.repeat(times, [each.size for each in seen])
                panel.plot(at, np.concatenate(seen), ".", color=INK, markersize=4, label="observed")
            date_axis(panel, most=8)
        axes[0].legend(frameon=False, fontsize=8, ncols=3, loc="best")
    return figure


def _at_place(observed: ObservedObject, where: Horizontal, place: int) -> ObservedObject:
    """Keep the observations of one place of a result."""
    north, east = (each[place : place + 1] for each in where.points)
    east, north = moved(where.plane, observed.plane, east, north, what="target")
    if observed.plane is not None:
        apart = np.linalg.norm(observed.points.positions - observed.plane.positions(east, north), axis=1)
        per_kilometre = observed.plane.per_kilometre or np.inf  # in a unit that is not known the very place
        apart = np.where(apart == 0.0, 0.0, apart / per_kilometre if np.isfinite(per_kilometre) else np.inf)
    else:
        chord = np.linalg.norm(observed.points.positions - unit_sphere(north, east), axis=1)
        apart = chord * EARTH_RADIUS_KILOMETRES
    here = apart < SAME_PLACE_KILOMETRES
    return replace(observed, points=observed.points.at(here))


def _place_name(dataset: xr.Dataset, where: Horizontal, place: int) -> str:
    """Give the name of a place, or its latitude and longitude."""
    if STATION_NAME in dataset.coords and str(dataset[STATION_NAME].values[place]):
        return str(dataset[STATION_NAME].values[place])
    latitude, longitude = (float(each[place]) for each in where.points)
    if where.plane is not None:
        return f"x {longitude:.10g}, y {latitude:.10g}"
    return f"{degrees_label(latitude, axis='latitude')} {degrees_label(longitude, axis='longitude')}"
