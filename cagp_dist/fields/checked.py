"""What a check of observations found: as a dataset, as a table, and on a map."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from cagp_dist.arrays import Indices, Names
from cagp_dist.pipeline import Observations
from cagp_dist.pipeline.checking import Checked
from cagp_dist.store.published_variables import COORDINATES, STATION_NAME
from cagp_dist.variables.units import symbol

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FLAGGED, KEPT = "#c6362c", "#9aa5b1"
NAMED = 12  # flags that are named on a map, at most


@dataclass(frozen=True, eq=False)
class CheckedObservations:
    """Observations with their flags."""

    points: Observations
    checked: Checked
    suggestions: Names  # (T, n), empty where nothing is suggested
    what: str  # the variable, for people
    units: str
    rows: Indices | None = None  # of a table, of the values that are there, by time, then by place

    def about(self) -> dict[str, Any]:
        """Attributes of what was checked, and how."""
        return {
            "rate": self.checked.rate,
            "values": self.points.count,
            "flagged": self.checked.count,
            "kernel": repr(self.checked.model.kernel),
            "noise_std": float(np.sqrt(self.checked.model.usual_noise(self.points))),
            "units": self.units,
        }

    def dataset(self) -> xr.Dataset:
        """Give the flags of all values along ``observation``, with places and times."""
        points, checked, what = self.points, self.checked, self.what
        at = fields, places = np.nonzero(points.present)
        units = {"units": self.units} if self.units else {}
        found: dict[str, Any] = {
            "observed": (points.values[at], {"long_name": what, **units}),
            "flag": (checked.flagged[at], {"long_name": "whether the others contradict the value"}),
            "expected": (checked.expected[at], {"long_name": f"{what} by all others", **units}),
            "expected_std": (
                checked.std[at],
                {"long_name": "standard deviation of a value about that, noise included", **units},
            ),
            "suggestion": (
                self.suggestions[at].astype(str),
                {"long_name": "what would make the value right"},
            ),
        }
        coordinates: dict[str, Any] = {
            name: (axis[places], {key: text for key, text in about.items() if key != "axis"})
            for (name, about), axis in zip(
                points.space.axes.items(), (points.north, points.east), strict=True
            )
        }
        if points.in_time:
            coordinates["time"] = (points.moments[places].astype("datetime64[ns]"), {})
        elif (dates := points.dates()) is not None:
            coordinates["time"] = (dates[fields].astype("datetime64[ns]"), {})
        elif points.fields > 1:
            coordinates["field"] = (fields, {})
        coordinates |= {name: (held[places], {}) for name, held in points.beside.items()}
        if points.names is not None:
            names = np.asarray(points.names)[places].astype(str)
            coordinates[STATION_NAME] = (names, dict(COORDINATES[STATION_NAME]))
        return xr.Dataset(
            {name: ("observation", held, kept) for name, (held, kept) in found.items()},
            {name: ("observation", held, kept) for name, (held, kept) in coordinates.items()},
            self.about(),
        )

    def worst(self) -> "pd.DataFrame":
        """Give what is flagged as a table, the worst first."""
        found = self.dataset().to_dataframe()
        found = found[found.flag]
        far = (found.observed - found.expected).abs() / found.expected_std
        return found.loc[far.sort_values(ascending=False).index].drop(columns="flag").reset_index(drop=True)

    def draw(self) -> "Figure":
        """Draw all places, and those with flags larger, by how often: the worst are named by their values."""
        from matplotlib import pyplot as plt

        from cagp_dist.cartography.basemap import empty_map
        from cagp_dist.cartography.chart_style import MUTED, drawing_style
        from cagp_dist.cartography.frame import Frame, coastlines, frame_of, frame_of_plane

        points, there = self.points, self.points.there
        north, east = points.north[there], points.east[there]
        flags, values = self.checked.flagged[:, there].sum(axis=0), points.present[:, there].sum(axis=0)
        frame = (
            frame_of(east, north)
            if points.space.has_latitudes
            else frame_of_plane(east, north, unit=points.space.unit)
        )
        with drawing_style():
            figure, panel = plt.subplots(figsize=(6.4, max(2.5, 6.4 * frame.height)), layout="constrained")
            rim = empty_map(panel, frame, color=MUTED)
            if isinstance(frame, Frame):
                line = panel.plot(*coastlines(frame), color="#8d98a3", linewidth=0.55, zorder=2)[0]
                line.set_clip_path(rim)
            x, y = frame.project(east, north)
            size = float(np.clip(6_000.0 / there.size, 0.5, 14.0))
            panel.scatter(x, y, s=size, c=KEPT, linewidths=0.0, zorder=4)
            wrong = np.flatnonzero(flags)
            share = flags[wrong] / values[wrong]
            panel.scatter(
                x[wrong],
                y[wrong],
                s=20.0 + 40.0 * share,
                c=FLAGGED,
                linewidths=0.4,
                edgecolors="white",
                zorder=6,
            )
            far = np.where(
                self.checked.flagged, np.abs(points.values - self.checked.expected) / self.checked.std, 0.0
            )[:, there]
            for place in wrong[np.argsort(-far[:, wrong].max(axis=0), kind="stable")][:NAMED]:
                field = int(far[:, place].argmax())
                value = points.values[field, there[place]]
                expected = self.checked.expected[field, there[place]]
                panel.annotate(
                    f"{value:.4g} ({expected:.4g})",
                    (x[place], y[place]),
                    xytext=(5.0, 4.0),
                    textcoords="offset points",
                    fontsize=7,
                    color=FLAGGED,
                    zorder=7,
                )
            unit = symbol(self.units)
            what = f"{self.what} [{unit}]" if unit else self.what
            panel.set_title(
                f"{what}: {self.checked.count:,} of {points.count:,} values flagged, observed (expected)",
                fontsize=9,
                loc="left",
            )
        return figure
