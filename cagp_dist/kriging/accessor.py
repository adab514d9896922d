"""``dataset.cagp``: pictures of a result, probabilities, scores, and maps as pages and as GeoTIFF."""

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array
from cagp_dist.cartography.colour_scale import scale_of
from cagp_dist.cartography.frame import Frame, PlaneFrame
from cagp_dist.cartography.raster import resample
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import Horizontal, located
from cagp_dist.kriging.drawn_maps import (
    LETTERS_PER_INCH,
    Axes2D,
    draw_observed,
    frame_around,
    grid_values,
    in_lines,
    is_of_transformed,
    one_field,
)
from cagp_dist.kriging.plots import Plots, biases_of, check_there
from cagp_dist.kriging.result_distribution import Of, distribution_of
from cagp_dist.kriging.result_model import observed_of_each
from cagp_dist.kriging.truth_scores import scores_of_result
from cagp_dist.pages import templates
from cagp_dist.space import Plane
from cagp_dist.store.geotiff import write_geotiff

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import IFrame

    from cagp_dist.fields.observed_objects import Source
    from cagp_dist.kriging.kriging_model import Kriging

ANIMATED_DPI = 150


class Maps:
    """What can be made of a result on latitudes and longitudes, or on x and y: ``dataset.cagp``.

    A result is what `krige` and `Kriging` return, or a group of a published run, such as ``xr.open_zarr(path,
    group="map")``. The accessor is there from the import of `cagp_dist` on, in whichever order that and
    xarray are imported.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> places = {"lat": [48.1, 52.5], "lon": [11.6, 13.4], "value": [21.0, 18.5]}
    >>> result = cagp.krige(places, to=1.0, lengthscale_km=400.0, variance=9.0, noise_std=0.3)
    >>> figure = result.cagp.plot()          # figure.savefig("map.png")
    >>> warm = result.cagp.exceedance(20.0)
    >>> warm.sel(latitude=48.5, longitude=11.5).item() > 0.8
    True
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    @property
    def plot(self) -> Plots:
        """Pictures: `Plots`, called as ``dataset.cagp.plot()``, and its methods."""
        return Plots(self._dataset)

    def exceedance(
        self,
        threshold: float | xr.DataArray,
        *,
        below: bool = False,
        of: Of = None,
        noise_std: float | None = None,
    ) -> xr.DataArray:
        """Probability of a value above a threshold, by the predictive distribution of the result.

        Parameters
        ----------
        threshold : float or DataArray
            In the unit of the field; a DataArray has one for each place or time.
        below : bool
            The probability of a value at or below it instead: one less that of a value above.
        of : {"field", "observation"}, optional
            Whose value: the field's without noise, or that of an observation. By default an observation's
            where the result was recalibrated, else the field's.
        noise_std : float, optional
            Standard deviation of the error of an observation, where the result does not say it or another is
            meant.

        Returns
        -------
        DataArray
            Of the shape of the mean, between 0 and 1. Normal distributions and Student t distributions with a
            local scale are taken as they are. Those that the result knows by quantiles alone are interpolated
            between these. Beyond the outermost ones, 0.025 and 0.975, the number is estimated by the tail of
            a Student t distribution with the same quantiles. It is a bound for observations of a
            recalibrated result, for means over areas of transformed values, and where quantiles are the least
            value of a transform. The attribute ``comment`` says which.

        Notes
        -----
        The probability is that of each place by itself. Whether a region, or any place of it, exceeds a
        threshold depends on how errors go together: draw samples, `Kriging.sample`. `ArgumentError`: the
        result does not say the distribution, as of means over cells that nobody observes.
        """
        return distribution_of(self._dataset, of=of, noise_std=noise_std).exceedance(threshold, below=below)

    def quantile(
        self, level: float | Sequence[float], *, of: Of = None, noise_std: float | None = None
    ) -> xr.DataArray:
        """Value that is not exceeded with a probability ``level``: 0.5 gives the median.

        In the unit of the field; of several levels along ``quantile_level``. Of transformed values it is that
        of the values. ``of`` and ``noise_std`` are as for `exceedance`. `ArgumentError`: as there; and the
        result knows its distribution by quantiles, and a level lies beyond these.
        """
        return distribution_of(self._dataset, of=of, noise_std=noise_std).quantile(level)

    def interval(self, level: float = 0.9, *, of: Of = None, noise_std: float | None = None) -> xr.Dataset:
        """Error bars: the central interval that holds the value of each place with a probability.

        The dataset has ``lower`` and ``upper``, in the unit of the field; ``of`` and ``noise_std`` are as for
        `exceedance`. `ArgumentError`: as there; and the result knows its distribution by quantiles, and the
        interval is wider than these.
        """
        return distribution_of(self._dataset, of=of, noise_std=noise_std).interval(level)

    def score(self, truth: "Source", *, of: Of = None, noise_std: float | None = None) -> xr.Dataset:
        """Compare the result with true values that it was not made from.

        Parameters
        ----------
        truth : as the observations of `krige`
            A table, a DataArray or another source with values at places of the result, in its unit, and at
            its times and depths where it has several. It is read as the observations were. A time or depth
            that only one side says, and that is its only one, is that of the other.
        of, noise_std : as for `exceedance`
            Whose distribution is scored: "field" for a truth without error, "observation" for measurements
            that were held out.

        Returns
        -------
        Dataset
            What `Kriging.cross_validate` gives, without folds: along ``observation`` ``observed``, ``mean``,
            ``std``, ``predictive_std`` (of the distribution that is scored) and ``pit``; over all ``rmse`` of
            the mean, ``crps`` and ``nll`` of the distribution, and ``coverage`` of central intervals of each
            ``level``, as far as the result knows them. The attribute ``compared`` says how many values these
            are, ``elsewhere`` how many lie at no place, depth or time of the result.

        Raises
        ------
        ArgumentError
            If units differ, no value is at a place, depth and time of the result ("truth-elsewhere"), or
            nothing says which of several fields ("several-fields") or depths ("truth-depth") they belong to;
            if values are not above the bound of the transform ("truth-beyond-transform"); and as
            `exceedance`.

        Examples
        --------
        >>> import cagp_dist as cagp
        >>> places = {"lat": [48.1, 52.5], "lon": [11.6, 13.4], "value": [21.0, 18.5]}
        >>> held_out = {"lat": [50.1, 51.3], "lon": [8.7, 12.4], "value": [20.2, 19.4]}
        >>> result = cagp.krige(places, to=held_out, lengthscale_km=400.0, variance=9.0, noise_std=0.3)
        >>> scores = result.cagp.score(held_out, of="observation")
        >>> scores.attrs["compared"], round(scores["rmse"].item(), 2)
        (2, 0.22)
        """
        return scores_of_result(self._dataset, truth, of=of, noise_std=noise_std)

    def biases(self, by: str | None = None) -> xr.Dataset:
        """Errors that observations share, of a result with ``bias_by``: ``mean`` and ``std`` of each group.

        ``by`` is the column, where there are several. ``.to_dataframe()`` makes a table of it,
        ``result.cagp.plot.biases()`` a picture. The errors are what observations of a group have too much; of
        several times, at each time. `ArgumentError`: the result has none, or several.
        """
        return biases_of(self._dataset, by)

    def fill(self, table: "Source") -> "pd.DataFrame":
        """Fill the gaps of a table: the table, of whose rows this is the result, with two more columns.

        Parameters
        ----------
        table : as for `krige`
            The table that ``krige(table, to=table)`` was given, as a data frame, a mapping or a path. Its
            rows are of one time. Targets have no dates: of a table with a column of them it is
            ``krige(day, to=day.drop(columns="date"))``, and ``fill(day)``.

        Returns
        -------
        pandas.DataFrame
            A copy of the table, its rows and index as they were. ``filled`` has what was measured, and the
            mean where no value was; ``filled_std`` the standard deviation of that mean, NaN where there is a
            measurement. Both are in the unit of the result, ``attrs["filled_units"]``. A limit of detection
            ("<0.1") is a gap, of which something is known. So is a row that ``where`` of `krige` did not
            choose, whatever it has: it was not used, and is predicted with its error bar.

        Raises
        ------
        ArgumentError
            With the key "not-of-rows" where the result is not at the rows of the table, one after the other,
            at their time; with "fill-columns" where the table has such columns; with "fill-of-field" where a
            grid came, whose gaps ``field.fillna(krige(field)["mean"])`` fills.

        Examples
        --------
        >>> import cagp_dist as cagp
        >>> table = {"lat": [48.1, 52.5, 50.1], "lon": [11.6, 13.4, 8.7], "t (degC)": [21.0, None, 20.2]}
        >>> result = cagp.krige(table, to=table, lengthscale_km=400.0, variance=9.0, noise_std=0.3)
        >>> result.cagp.fill(table)[["t (degC)", "filled", "filled_std"]].round(1)
          t (degC)  filled  filled_std
        0     21.0    21.0         NaN
        1     None    20.5         3.0
        2     20.2    20.2         NaN
        """
        # imported where it is called: models are made with results, and this reads tables as they do
        filled: pd.DataFrame = import_module("cagp_dist.kriging.filling").filled_table(self._dataset, table)
        return filled

    def explore(self, *, height: int = 600) -> "IFrame":
        """Show the maps of a notebook on the page of `cagp view`: zoom, layers, times, values at a click.

        The page is served to this machine alone until Python ends, and needs no network. The frame, so many
        pixels high, is what a notebook shows where it is the last line of a cell; its ``src`` is the address
        of the page. `ArgumentError`: the result is not on a grid of latitudes and longitudes.
        """
        # a layer above this one
        shown: IFrame = import_module("cagp_dist.view.notebook").explore_result(self._dataset, height=height)
        return shown

    def animate(
        self,
        path: str | os.PathLike[str],
        variable: str | Sequence[str] = "mean",
        *,
        observations: "Source | Kriging | None" = None,
    ) -> Path:
        """Write a page on which a browser plays the maps of all times, in the same colours, or steps on.

        Of several variables, such as ``["mean", "std"]``, the maps move together. ``observations`` are as for
        `Plots`: each map shows those of its time. The page stands alone, some 20 kB for each map. Without
        scripts it shows the first time.
        """
        import matplotlib.pyplot as plt

        names = [variable] if isinstance(variable, str) else list(variable)
        figure = self.plot(names, field=0)
        where = located(self._dataset)
        every = [self._dataset[name] for name in names]
        times = [[dim for dim in values.dims if str(dim) not in where.dims] for values in every]
        if any(own != times[0] or len(own) != 1 for own in times):
            plt.close(figure)
            dims = "; ".join(f"{values.name!r}: {', '.join(map(str, values.dims))}" for values in every)
            raise ArgumentError(
                f"the dimensions are {dims}; expected one beside those of the places, such as time, which is "
                "the same for all. Choose of the others first: dataset.isel(sample=0).",
                key="several-dimensions",
            )
        observed = observed_of_each(observations, names, every[0], self._dataset)
        titles = [str(values.attrs.get("long_name", values.name)) for values in every]
        moving = []
        for panel, values, title in zip(figure.axes[: len(every)], every, titles, strict=True):
            place = panel.get_subplotspec()
            across = 1 if place is None else place.get_gridspec().ncols
            letters = round(LETTERS_PER_INCH * figure.get_figwidth() / across)
            if not panel.get_title(loc="left").startswith(title):  # its end is at the colours
                title = title.partition(", ")[0]
            panel.set_title(in_lines(title, letters), fontsize=9, loc="left")
            shown = panel.images[0] if panel.images else panel.collections[-1]
            colours = str(shown.get_cmap().name)
            every_value = np.ravel(values.values).astype(np.float64)
            transformed = is_of_transformed(self._dataset, str(values.name))
            scale = scale_of(every_value, colours=colours, transformed=transformed)
            shown.set_clim(scale.low, scale.high)
            moving.append((panel, values, shown, scale))
        figure.set_dpi(ANIMATED_DPI)
        frame, width, frames = frame_around(where), round(ANIMATED_DPI * figure.get_figwidth()), []
        for field in range(every[0].sizes[times[0][0]]):
            drawn = []
            for panel, values, shown, scale in moving:
                one, stamp = one_field(values, where, field)
                shown.set_array(_coloured(one, where, frame, width=width))
                if observed:
                    there = len(panel.collections)
                    draw_observed(panel, frame, observed[str(values.name)], values, where, field, scale)
                    drawn += panel.collections[there:]
            figure.canvas.draw()
            figure.set_layout_engine("none")  # all lie as the first does
            pixels = np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]
            frames.append({"stamp": stamp, "picture": templates.picture_address(pixels)})
            for dots in drawn:
                dots.remove()
        plt.close(figure)
        page = templates.fill(
            "frames",
            scripts=("player.js", "frames.js"),
            title=", ".join(titles),
            frames=frames,
            width=round(100 * figure.get_figwidth()),
            height=round(100 * figure.get_figheight()),
        )
        Path(path).write_text(page, encoding="utf-8")
        return Path(path)

    def to_geotiff(self, path: str | os.PathLike[str], variable: str = "mean") -> Path:
        """Write one variable as GeoTIFF: north up, EPSG:4326 or its own, float32, a band for each time."""
        check_there(self._dataset, [variable], "write")
        where, values = located(self._dataset), self._dataset[variable]
        others = [dim for dim in values.dims if str(dim) not in where.dims]
        timed = [dim for dim in others if dim in values.coords and values[dim].dtype.kind == "M"]
        if where.axes is None or len(where.dims) != 2 or others != timed or len(others) > 1:
            raise ArgumentError(
                f"{variable!r} has the dimensions {', '.join(map(str, values.dims))}; expected axes of "
                "latitude and longitude, or of x and y, and times at most beside them. Choose of the others "
                "first, for example dataset.isel(sample=0), or write NetCDF, dataset.to_netcdf(path).",
                key="several-dimensions",
            )
        scale = where.space.scale
        north, east = (scale * axis for axis in where.axes)
        rows, columns = where.north.dims[0], where.east.dims[0]
        down, across = where.space.axes
        moments = {"time": values[timed[0]].values} if timed else {}
        names = dict.fromkeys(timed, "time") | {rows: down, columns: across}
        grid = xr.Dataset(
            {variable: (tuple(names[dim] for dim in values.dims), values.values, values.attrs)},
            {down: north, across: east} | moments,
            self._dataset.attrs,
        )
        epsg = where.space.epsg if isinstance(where.space, Plane) else None
        return write_geotiff(grid.sortby([down, across]), variable, Path(path), epsg=epsg)


def _coloured(values: xr.DataArray, where: Horizontal, frame: Frame | PlaneFrame, *, width: int) -> Array:
    """Give what a map colours: cells or pixels of a grid, so many across, or the dots that have values."""
    if where.axes is not None and isinstance(frame, PlaneFrame):
        return grid_values(values, where)
    if where.axes is not None and isinstance(frame, Frame):
        grid = Axes2D(*where.axes)
        return resample(grid, grid_values(values, where), *frame.pixels(width))
    numbers = np.asarray(values.values, dtype=np.float64).ravel()
    return numbers[np.isfinite(numbers)]
