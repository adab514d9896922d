"""The picture of a cross-validation: observed beside predicted values, errors on a map, and coverage."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.verdict import CoverageTest, compact_cells, coverage_test
from cagp_dist.cartography.chart_style import ACCENT, BAND, INK, drawing_style, quiet_grid
from cagp_dist.cartography.colour_scale import DIFFERENCES, scale_of
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import Horizontal, located
from cagp_dist.kriging.drawn_maps import draw_map, frame_around, own_figure
from cagp_dist.store.published_variables import BELOW_LIMIT
from cagp_dist.variables.units import symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_INCHES = 3.3
NEEDED = ("observed", "mean", "pit", "fold")
LEVELS = np.append(np.linspace(0.05, 0.95, 19), 0.99)
CHANCE = 1.645  # standard errors, within which 90 % of samples are
RASTERIZED = 2000  # Points from which a picture in vectors would be large


def draw_folds(scores: xr.Dataset) -> "Figure":
    """Draw what `Kriging.cross_validate` returned."""
    import matplotlib.pyplot as plt

    _check(scores)
    where = located(scores)
    places = where.dims
    observed, mean, pit = (
        np.atleast_2d(scores[name].transpose(..., *places).values) for name in ("observed", "mean", "pit")
    )
    there, scored = np.isfinite(observed) & np.isfinite(mean), np.isfinite(pit)
    if BELOW_LIMIT in scores:  # which count in coverage alone
        there &= ~np.atleast_2d(scores[BELOW_LIMIT].transpose(..., *places).values)
    if not (there.any() and scored.any()):
        raise ArgumentError("no observation here was measured and predicted.", key="no-folds")
    unit = symbol(str(scores["observed"].attrs.get("units", "")))
    with drawing_style():
        figure, (points, coverage, errors) = plt.subplots(
            1, 3, figsize=(3.0 * PANEL_INCHES, PANEL_INCHES), layout="constrained"
        )
        _draw_points(points, mean[there], observed[there], unit)
        X = where.space.positions(*where.points)
        cells = np.broadcast_to(compact_cells(X), pit.shape)
        _draw_coverage(coverage, coverage_test(pit[scored], levels=LEVELS, cells=cells[scored]))
        _draw_errors(errors, scores, where, np.where(there, observed - mean, np.nan), unit)
    return figure


def _check(scores: xr.Dataset) -> None:
    if missing := [name for name in NEEDED if name not in scores]:
        raise ArgumentError(
            f"this dataset has no {', '.join(missing)}; expected what cross_validate returns: "
            "scores = model.cross_validate(); scores.cagp.plot.folds().",
            key="no-folds",
        )
    names = np.unique(scores["variable"].values) if "variable" in scores.coords else np.empty(0)
    if len(names) > 1:
        raise ArgumentError(
            f"these are errors of {len(names)} variables, which may have other units; choose one: "
            f'scores.isel(observation=scores["variable"].values == {str(names[0])!r}).cagp.plot.folds().',
            key="several-variables",
        )


def _draw_points(axes: "Axes", mean: Array, observed: Array, unit: str) -> None:
    """Draw each observed value over its prediction, with the line on which both are equal."""
    suffix = f" [{unit}]" if unit else ""
    root = float(np.sqrt(np.mean((observed - mean) ** 2)))
    quiet_grid(axes, f"{observed.size:,} observations, RMSE {root:.3g} {unit}".rstrip())
    axes.plot(
        mean,
        observed,
        "o",
        color=ACCENT,
        markersize=3.0,
        markeredgewidth=0.0,
        alpha=0.7,
        rasterized=observed.size > RASTERIZED,
    )
    ends = [float(min(mean.min(), observed.min())), float(max(mean.max(), observed.max()))]
    axes.plot(ends, ends, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.set_xlabel(f"predicted{suffix}")
    axes.set_ylabel(f"observed{suffix}")


def _draw_coverage(axes: "Axes", found: CoverageTest) -> None:
    """Draw the share of values inside error bars of each level, with what chance explains."""
    quiet_grid(axes, "values inside their error bars")
    reach = CHANCE * found.standard_error
    axes.fill_between(
        100.0 * LEVELS,
        100.0 * (LEVELS - reach),
        100.0 * (LEVELS + reach),
        color=BAND,
        linewidth=0,
        label="chance",
    )
    axes.plot([0.0, 100.0], [0.0, 100.0], color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.plot(100.0 * LEVELS, 100.0 * found.coverage, "o-", color=ACCENT, markersize=3.0, linewidth=1.2)
    axes.set(xlim=(0.0, 100.0), ylim=(0.0, 100.0))
    axes.set_xlabel("level of the error bars [%]")
    axes.set_ylabel("inside [%]")
    axes.legend(frameon=False, fontsize=7, loc="upper left")


def _draw_errors(axes: "Axes", scores: xr.Dataset, where: Horizontal, errors: Array, unit: str) -> None:
    """Draw the mean error at each place on a map."""
    north, east = where.points
    _, first, place = np.unique(
        np.column_stack([north, east]), axis=0, return_index=True, return_inverse=True
    )
    place = np.broadcast_to(place.ravel(), errors.shape)
    known = np.isfinite(errors)
    count = np.bincount(place[known], minlength=first.size)
    total = np.bincount(place[known], weights=errors[known], minlength=first.size)
    at_places = scores[["fold"]].isel({str(where.dims[0]): first})
    means = xr.DataArray(
        np.divide(total, count, out=np.full(first.size, np.nan), where=count > 0),
        dims=where.dims,
        name="error",
        attrs={"units": unit},
    )
    where, scale = located(at_places), scale_of(means.values, colours=DIFFERENCES)
    shown = draw_map(axes, frame_around(where), where, means, scale)
    several = bool(count.max() > 1)
    axes.set_title("observed - predicted" + ", mean of each place" * several, fontsize=8, loc="left")
    bar = own_figure(axes).colorbar(shown, ax=axes, shrink=0.8, aspect=25, extend=scale.extend)
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=8, length=2.5)
    bar.set_label(unit, fontsize=8)
