"""Every time of a run on its page: a map of each, and what the large maps need to show another time.

The maps of all times are pictures in the page, the more of them the smaller, so that the page opens quickly
however many there are. The script of the page (``data/times.js``) puts the picture of the chosen time into
the large map and recolours the dots; without it, all maps are there all the same.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array
from cagp_dist.cartography.colour_scale import ColourScale
from cagp_dist.cartography.raster import resample
from cagp_dist.pages.templates import picture_address
from cagp_dist.report.maps import drawing_order, map_frame, shown_mean
from cagp_dist.report.published import Grid, PublishedRun, TestPoints, each_map
from cagp_dist.report.report_tables import UNMEASURED, UNSCORED, by_time
from cagp_dist.report.wording import percent, when
from cagp_dist.variables.units import amount

Raster = NDArray[np.float32]

PIXELS = 20_000_000  # Of all pictures together, about 0.1 bytes each in the page
WIDEST, NARROWEST = 1000, 120  # Pixels across a picture
MOST_SAMPLED = 400_000  # Values that decide a colour scale
# Colours of dots that are kept, one byte and a third each; with more the dots show the first time alone
MOST_DOTS = 2_000_000


@dataclass(frozen=True, eq=False)
class EveryTime:
    """All times of a run, as far as its page shows them."""

    spans: Mapping[str, Array]  # of each map, values that its colours span, (any,), in the unit of the run
    varying: frozenset[str]  # which error bars differ between the times: ``std``, ``computational``
    # per map that is shaded and varies, its rasters (height, width) in its own unit, NaN off the map
    pictures: Mapping[str, Sequence[Raster]]


@dataclass(frozen=True)
class TimeButton:
    """A time to choose: its picture as a ``data:`` address, or nothing where there is no map."""

    stamp: str
    label: str
    said: str
    picture: str
    width: int
    height: int


@dataclass(frozen=True)
class Gallery:
    """All times as the page shows them; ``data`` is for ``times.js``."""

    hint: str
    buttons: list[TimeButton]
    data: dict[str, object]


def survey(path: Path, run: PublishedRun) -> EveryTime:
    """Read the maps of all times, one after the other."""
    points = run.points
    residual = (points.observed - points.mean).ravel()
    spans = {"residual": residual[~np.isnan(residual)]}
    first = _errors(points if run.grid is None else run.grid)
    if run.grid is None:
        varying = frozenset(name for name, values in first.items() if (values != values[0]).any())
        of_points = {"mean": points.mean, **first}
        return EveryTime(spans | {name: values.ravel() for name, values in of_points.items()}, varying, {})
    frame = map_frame(run)
    longitude, latitude = frame.pixels(_width(run))
    means: list[Raster] = []
    spread: dict[str, list[Array]] = {name: [] for name in ("mean", *first)}
    differing: set[str] = set()
    every = max(1, run.grid.std.size * len(run.times) // MOST_SAMPLED)
    for fine, grid in each_map(path, run.variable, depth=run.depth):
        means.append(
            resample(fine, shown_mean(run, fine.mean), longitude, latitude, around=frame.around).astype(
                np.float32
            )
        )
        spread["mean"].append(fine.mean.ravel()[:: max(1, fine.mean.size * len(run.times) // MOST_SAMPLED)])
        for name, values in _errors(grid).items():
            spread[name].append(values.ravel()[::every])
            if not np.array_equal(values, first[name], equal_nan=True):
                differing.add(name)
    pictures = {"mean": means}
    for name in first:
        if name in differing:
            grids = (grid for _, grid in each_map(path, run.variable, depth=run.depth))
            rasters = (
                resample(grid, _errors(grid)[name], longitude, latitude, around=frame.around)
                for grid in grids
            )
            pictures[name] = [raster.astype(np.float32) for raster in rasters]
        else:  # one map, and its scale
            spread[name] = [first[name].ravel()]
    spans |= {name: np.concatenate(values) for name, values in spread.items()}
    return EveryTime(spans, frozenset(differing), pictures)


def _errors(given: TestPoints | Grid) -> dict[str, Array]:
    """Error bars of points or of a grid that a run has, by the name of their map."""
    unfinished = given.computational_std
    return {"std": given.std} | ({} if unfinished is None else {"computational": unfinished})


def _width(run: PublishedRun) -> int:
    """Pixels across a picture: as many as fit into the page with those of all other times."""
    height = map_frame(run).height
    return int(np.clip(np.sqrt(PIXELS / (len(run.times) * height)), NARROWEST, WIDEST))


def gallery(run: PublishedRun, every: EveryTime, scales: Mapping[str, ColourScale]) -> Gallery:
    """Buttons with the map and the scores of every time, and what the script of the page needs."""
    stamps = [when(time, run.times) for time in run.times]
    drawn = {
        name: [_picture(one, scales[name]) for one in rasters]
        for name, rasters in every.pictures.items()
        if name in scales
    }
    scored = by_time(run)
    buttons = []
    for index, stamp in enumerate(stamps):
        error, inside = float(scored.rmse[index]), float(scored.coverage[index])
        known = f"RMSE {amount(error, run.variable.units, 2)}" if np.isfinite(error) else UNMEASURED
        height, width = every.pictures["mean"][index].shape if "mean" in drawn else (0, 0)
        buttons.append(
            TimeButton(
                stamp=stamp,
                label=stamp.removesuffix(" UTC"),
                said=f"{known}; inside {percent(inside)}" if np.isfinite(inside) else UNSCORED,
                picture=drawn["mean"][index] if "mean" in drawn else "",
                width=width,
                height=height,
            )
        )
    return Gallery(
        hint="All times share one colour scale. Inside: observations inside their "
        f"{scored.level:.0%} error bars. Choose a time to see it in the maps above.",
        buttons=buttons,
        data={
            "stamps": stamps,
            "pictures": {name: images for name, images in drawn.items() if name != "mean"},
            "dots": _dots(run, every, scales),
        },
    )


def _dots(run: PublishedRun, every: EveryTime, scales: Mapping[str, ColourScale]) -> dict[str, object]:
    """Colours of the dots at every time, in the order in which they are drawn: one byte for each."""
    points = run.points
    values = {"residual": points.observed - points.mean}
    if np.isnan(points.observed).any():
        values = {}  # there are other dots at each time: the residuals stay those of the first
    if run.grid is None:
        values["mean"] = shown_mean(run, points.mean)
        varying = every.varying & scales.keys()
        values |= {name: bars for name, bars in _errors(points).items() if name in varying}
    if not values or len(values) * points.mean.size > MOST_DOTS:
        return {}
    found: dict[str, object] = {}
    for name, of_times in values.items():
        scale = scales[name]
        order = drawing_order(of_times[0], scale)
        steps = _steps(of_times[:, order], scale)
        texts = [base64.b64encode(row.tobytes()).decode() for row in steps]
        found[name] = {"colours": _colour_names(scale), "times": texts}
    return found


def _picture(raster: Raster, scale: ColourScale) -> str:
    """Colour a raster, transparent where it is NaN, as a data URL."""
    known = np.isfinite(raster)
    pixels = _colours(scale)[_steps(np.where(known, raster, scale.low), scale)]
    pixels[~known] = 0
    return picture_address(pixels)


def _steps(values: Array | Raster, scale: ColourScale) -> NDArray[np.uint8]:
    """Place of values in the 256 colours of a scale."""
    part = (np.asarray(values, dtype=np.float64) - scale.low) / (scale.high - scale.low)
    return np.clip(np.floor(256.0 * part), 0, 255).astype(np.uint8)


def _colours(scale: ColourScale) -> NDArray[np.uint8]:
    """Return the 256 colours of a scale, shape (256, 4)."""
    import matplotlib as mpl

    return np.asarray(mpl.colormaps[scale.colours](np.arange(256), bytes=True), dtype=np.uint8)


def _colour_names(scale: ColourScale) -> list[str]:
    """Return the same colours as the figures write them, ``#rrggbb``."""
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in mpl.colormaps[scale.colours](np.arange(256))]
