"""Charts of a result: series at places, and the variogram of the observations beside the fitted one."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.cartography.chart_style import ACCENT, BAND, INK, date_axis, drawing_style, quiet_grid
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import Horizontal
from cagp_dist.fields.observed_objects import ObservedObject
from cagp_dist.kriging.drawn_maps import WIDTH_INCHES, own_figure
from cagp_dist.kriging.result_distribution import distribution_of
from cagp_dist.kriging.result_model import seen_in
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.variogram import Sector, fitted_variogram, sectors
from cagp_dist.space import moved
from cagp_dist.store.published_variables import STATION_NAME
from cagp_dist.text import degrees_label
from cagp_dist.variables.units import square_of, squared, symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PLACES = 6  # that have a series
BAND_LEVEL = 0.9
SAME_PLACE_KILOMETRES = 0.1
AZIMUTH = "azimuth_degrees"


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
    low, high = (each.transpose(*mean.dims) for each in found.interval(BAND_LEVEL).data_vars.values())
    count, times = mean.shape[1], mean[axis].values
    shown = min(count, MOST_PLACES)
    if ax is not None and count != 1:
        raise ArgumentError(
            f"ax is one pair of axes for {count} places; expected one: dataset.isel({where.dims[0]}=[0]).",
            key="one-axes",
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
    north, east = moved(where.space, observed.space, north, east, what="target")
    points = observed.points
    apart = points.space.kilometres(
        np.linalg.norm(points.positions - points.space.positions(north, east), axis=1)
    )  # in a unit that is not known the very place
    here = apart < SAME_PLACE_KILOMETRES
    return replace(observed, points=observed.points.at(here))


def _place_name(dataset: xr.Dataset, where: Horizontal, place: int) -> str:
    """Give the name of a place, or its latitude and longitude."""
    if STATION_NAME in dataset.coords and str(dataset[STATION_NAME].values[place]):
        return str(dataset[STATION_NAME].values[place])
    latitude, longitude = (float(each[place]) for each in where.points)
    if not where.space.has_latitudes:
        return where.space.place_text(latitude, longitude)
    return f"{degrees_label(latitude, axis='latitude')} {degrees_label(longitude, axis='longitude')}"


def variogram_dataset(
    observed: ObservedObject, learned: FittedModel, *, draws: int, seed: int, directions: int | None = None
) -> xr.Dataset:
    """Estimate the variogram, and the band that draws of the model have; or one of each direction."""
    if directions is not None:
        own = sectors(directions)
        found = [_of_sector(observed, learned, draws, seed, sector) for sector in own]
        about = {"units": "degree", "long_name": "direction of pairs, clockwise from north"}
        azimuth = xr.DataArray([sector.azimuth for sector in own], dims=AZIMUTH, attrs=about)
        said = {**found[0].attrs, "places": max(each.attrs["places"] for each in found)}
        most = max(each.sizes["bin"] for each in found)
        filled = [each.pad(bin=(0, most - each.sizes["bin"])) for each in found]  # some have fewer pairs
        return xr.concat(filled, dim=AZIMUTH).assign_coords({AZIMUTH: azimuth}).assign_attrs(said)
    return _of_sector(observed, learned, draws, seed, None)


def _of_sector(
    observed: ObservedObject, learned: FittedModel, draws: int, seed: int, sector: Sector | None
) -> xr.Dataset:
    """Estimate the variogram of pairs in some directions, or in all."""
    found = fitted_variogram(observed.points, learned, draws=draws, seed=seed, sector=sector)
    low, high = np.quantile(found.draws, [0.5 - 0.5 * BAND_LEVEL, 0.5 + 0.5 * BAND_LEVEL], axis=0)
    units = {name: square_of(text) for name, text in observed.units.items()}
    about = observed.space.distance_attributes

    def semivariance(values: object, name: str, dim: str = "bin") -> tuple[object, ...]:
        return dim, values, {"long_name": name, **units}

    return xr.Dataset(
        {
            "empirical": semivariance(found.empirical, "semivariance of the observations about their mean"),
            "fitted": semivariance(found.curve, "semivariance of the fitted kernel and noise", "curve"),
            "low": semivariance(low, "lower end of the band of fields drawn from the fitted model"),
            "high": semivariance(high, "upper end of it"),
            "pairs": ("bin", found.pairs, {"long_name": "pairs of observations"}),
        },
        {
            "distance": ("bin", found.distance, about),
            "curve_distance": ("curve", found.curve_distance, about),
        },
        {
            "level": BAND_LEVEL,
            "places": found.places,
            "comment": f"low and high are the band of {BAND_LEVEL:.0%} of {draws} fields drawn from the "
            "fitted model at the places of the observations, about a mean that is fitted as theirs is.",
        },
    )


def draw_variogram(found: xr.Dataset, units: str, ax: "Axes | None") -> "Figure":
    """Draw the estimate as points, the fitted curve, and the band of draws; of each direction by itself."""
    import matplotlib.pyplot as plt

    if AZIMUTH in found.dims:
        if ax is not None:
            raise ArgumentError("ax is one pair of axes for several directions; leave it.", key="one-axes")
        count = found.sizes[AZIMUTH]
        with drawing_style():
            across = min(count, 2)
            rows = -(-count // across)
            figure, panels = plt.subplots(
                rows,
                across,
                figsize=(WIDTH_INCHES, 0.4 + 2.4 * rows),
                sharex=True,
                sharey=True,
                squeeze=False,
                layout="constrained",
            )
            for number, panel in enumerate(panels.flat):
                if number >= count:
                    panel.remove()
                    continue
                draw_variogram(found.isel({AZIMUTH: number}), units, panel)
                degrees = found[AZIMUTH].values[number]
                quiet_grid(panel, f"pairs around {degrees:g} degrees from north")
                if number:
                    panel.get_legend().remove()
                panel.label_outer()
        return figure
    with drawing_style():
        figure = own_figure(ax) if ax else plt.figure(figsize=(WIDTH_INCHES, 3.4), layout="constrained")
        panel = ax or figure.add_subplot()
        quiet_grid(panel, f"variogram at {found.attrs['places']:,} places")
        distance = found["distance"].values
        band = f"{BAND_LEVEL:.0%} of fields drawn from the fit"
        panel.fill_between(
            distance, found["low"].values, found["high"].values, color=BAND, linewidth=0, label=band
        )
        panel.plot(
            found["curve_distance"].values,
            found["fitted"].values,
            color=ACCENT,
            linewidth=1.4,
            label="fitted",
        )
        panel.plot(distance, found["empirical"].values, "o", color=INK, markersize=4, label="observations")
        panel.set(xlim=(0.0, None), ylim=(0.0, None))
        panel.set_xlabel(f"distance [{found['distance'].attrs.get('units', 'unit of x and y')}]")
        unit = squared(units)
        panel.set_ylabel(f"semivariance [{unit}]" if unit else "semivariance")
        panel.legend(frameon=False, fontsize=8, loc="best")
    return figure
