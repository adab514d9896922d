"""The variogram of observations beside that of the fitted model, in numbers and as a chart."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.cartography.chart_style import ACCENT, BAND, INK, drawing_style, quiet_grid
from cagp_dist.kriging.drawn_maps import WIDTH_INCHES, own_figure
from cagp_dist.kriging.observed_objects import ObservedObject
from cagp_dist.mapping.fitted_model import FittedModel
from cagp_dist.mapping.variogram import fitted_variogram
from cagp_dist.variables.units import square_of, squared

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVEL = 0.9  # of the band


def variogram_dataset(observed: ObservedObject, learned: FittedModel, *, draws: int, seed: int) -> xr.Dataset:
    """Estimate the variogram, and the band that draws of the model have."""
    found = fitted_variogram(observed.points, learned, draws=draws, seed=seed)
    low, high = np.quantile(found.draws, [0.5 - 0.5 * LEVEL, 0.5 + 0.5 * LEVEL], axis=0)
    units = {name: square_of(text) for name, text in observed.units.items()}
    about = {"units": "km", "long_name": "distance on the ground"}
    if observed.plane is not None:
        unit = {"units": observed.plane.unit} if observed.plane.unit else {}
        about = {"long_name": "distance in the plane", **unit}

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
            "level": LEVEL,
            "places": found.places,
            "comment": f"low and high are the band of {LEVEL:.0%} of {draws} fields drawn from the fitted "
            "model at the places of the observations, about a mean that is fitted as theirs is.",
        },
    )


def draw_variogram(found: xr.Dataset, units: str, ax: "Axes | None") -> "Figure":
    """Draw the estimate as points, the fitted curve, and the band of draws."""
    import matplotlib.pyplot as plt

    with drawing_style():
        figure = own_figure(ax) if ax else plt.figure(figsize=(WIDTH_INCHES, 3.4), layout="constrained")
        panel = ax or figure.add_subplot()
        quiet_grid(panel, f"variogram at {found.attrs['places']:,} places")
        distance = found["distance"].values
        band = f"{LEVEL:.0%} of fields drawn from the fit"
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
