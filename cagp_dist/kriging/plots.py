"""``dataset.cagp.plot``: pictures of a result, as Matplotlib figures that one can go on with."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.cartography.chart_style import drawing_style
from cagp_dist.cartography.colour_scale import ColourScale
from cagp_dist.cartography.error_bars import INCHES_PER_NAME, MOST_NAMES, draw_error_bars
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import Horizontal, located
from cagp_dist.fields.observed_objects import Source
from cagp_dist.kriging.drawn_charts import draw_series, draw_variogram, time_axis_of
from cagp_dist.kriging.drawn_folds import draw_folds
from cagp_dist.kriging.drawn_maps import WIDTH_INCHES, maps_of, own_figure, stamp_of
from cagp_dist.kriging.result_distribution import Of, distribution_of, stem_of, stems_of
from cagp_dist.kriging.result_model import model_of, observed_beside, observed_of_each
from cagp_dist.text import nearest
from cagp_dist.variables.units import symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cagp_dist.kriging.kriging_model import Kriging

MOST_PANELS = 6  # fields of small multiples


class Plots:
    """Pictures of a result of `krige`, or of a group of a run: ``dataset.cagp.plot()``, and its methods.

    Each returns a figure. ``ax`` are axes of your own, where there is one map. A map of a region has degrees
    on its axes, so that ``figure.axes[0].plot(longitude, latitude)`` draws on it; one of the globe is in the
    Equal Earth projection. A map of a plane has x and y, in km where they reach over more than 10 km, and no
    coastlines.

    Of several fields the first six, evenly spread, are drawn; ``time`` chooses moments, ``field`` a number.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> places = {"lat": [48.1, 52.5, 50.1], "lon": [11.6, 13.4, 8.7], "value": [21.0, 18.5, 20.2]}
    >>> result = cagp.krige(places, to=1.0, lengthscale_km=400.0, variance=9.0, noise_std=0.3)
    >>> figure = result.cagp.plot(observations=places)          # figure.savefig("map.png")
    >>> figure = result.cagp.plot.error()
    >>> figure = result.cagp.plot.probability(20.0)
    >>> figure = result.cagp.plot.variogram(places)
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def __call__(
        self,
        variables: str | Sequence[str] | None = None,
        *,
        field: int | None = None,
        time: object = None,
        observations: "Source | Kriging | None" = None,
        cmap: str | None = None,
        borders: bool = False,
        lakes: bool = False,
        ax: "Axes | None" = None,
    ) -> "Figure":
        """Draw maps of mean and standard deviation with coastlines; of places over time, series.

        Parameters
        ----------
        variables : str or sequence of str, optional
            Those that maps are drawn of.
        field, time : optional
            Of several fields, the number of the one that is drawn, or one or more moments.
        observations : optional
            What `krige` was given, or the fitted `Kriging`. On the mean they have its colours; elsewhere,
            and where there are more than 2,000, black points show where they are. Of several times, those of
            the map's are shown.
        cmap : str, optional
            Colours of Matplotlib for the first variable; by default `plasma` for a field, and `viridis` for
            its error bars.
        borders : bool
            Whether borders between countries are drawn on maps of latitude and longitude, as Natural Earth
            has them.
        lakes : bool
            Whether the shores of lakes are drawn on such maps: the 275 of Natural Earth at 1:50 million,
            whose shores are right to some 4 km.
        ax : matplotlib.axes.Axes, optional
            For one map, or the series of one place.

        Notes
        -----
        Coastlines are those of Natural Earth at 1:50 million, and at 1:10 million where a map is less than
        10 degrees wide and high.
        """
        check_colours(cmap)
        names = [variables] if isinstance(variables, str) else list(variables or _mean_and_std(self._dataset))
        check_there(self._dataset, names, "draw")
        first, where = self._dataset[names[0]], located(self._dataset)
        axis = time_axis_of(first, where)
        if variables is None and field is None and time is None and axis is not None:
            if len(stems_of(self._dataset)) > 1:
                raise ArgumentError(
                    "the result has several variables at places over time, and series are drawn of one; "
                    f"expected one of them: result[{names[:2]}].cagp.plot().",
                    key="several-series",
                )
            observed = None if observations is None else observed_beside(observations, first, self._dataset)
            return draw_series(self._dataset, where, axis, observed, ax)
        return _maps(
            self._dataset,
            names,
            first,
            field,
            time,
            observations,
            ax,
            cmap=cmap,
            with_borders=borders,
            with_lakes=lakes,
        )

    def error(
        self,
        *,
        field: int | None = None,
        time: object = None,
        observations: "Source | Kriging | None" = None,
        ax: "Axes | None" = None,
    ) -> "Figure":
        """Draw the standard deviation, and the share of the variance that is unfinished computation.

        The share is drawn where it is above zero somewhere, and no ``ax`` is given.
        """
        stem = stem_of(self._dataset)
        dataset, std = self._dataset, self._dataset[f"{stem}std"]
        names, scales = [f"{stem}std"], {}
        unfinished = dataset.get(f"{stem}std_computational")
        if ax is None and unfinished is not None and bool((unfinished > 0.0).any()):
            bound = "at most" in str(unfinished.attrs).lower()
            about = "unfinished part of the variance, which more computation would remove"
            about += ", at most" * bound
            share = ((unfinished / std) ** 2).assign_attrs(units="1", long_name=about)
            dataset = dataset.assign(computational_share=share.transpose(*std.dims))
            names.append("computational_share")
            scales["computational_share"] = ColourScale("magma_r", 0.0, 1.0, "neither", "")
        return _maps(dataset, names, std, field, time, observations, ax, scales)

    def probability(
        self,
        threshold: float | xr.DataArray,
        *,
        below: bool = False,
        of: Of = None,
        noise_std: float | None = None,
        field: int | None = None,
        time: object = None,
        observations: "Source | Kriging | None" = None,
        ax: "Axes | None" = None,
    ) -> "Figure":
        """Draw the probability of a value above a threshold, or at most that: `Maps.exceedance`."""
        found = distribution_of(self._dataset, of=of, noise_std=noise_std)
        dataset = self._dataset.assign(exceedance=found.exceedance(threshold, below=below))
        scales = {"exceedance": ColourScale("YlOrRd", 0.0, 1.0, "neither", "")}
        return _maps(dataset, ["exceedance"], found.like, field, time, observations, ax, scales)

    def variogram(
        self,
        observations: "Source | Kriging",
        *,
        draws: int = 200,
        seed: int = 0,
        directions: int | None = None,
        ax: "Axes | None" = None,
    ) -> "Figure":
        """Draw the variogram of the observations beside the fitted one: `Kriging.variogram`.

        Points outside the band are what the fitted model does not explain. ``observations`` are the fitted
        `Kriging`; or what `krige` was given, with the kernel, mean and noise that the attributes of the
        result say. ``draws``, ``seed`` and ``directions`` are as for `Kriging.variogram`.
        """
        from cagp_dist.kriging.kriging_model import Kriging

        model = observations
        if not isinstance(model, Kriging):
            model = model_of(self._dataset, model)
        found = model.variogram(draws=draws, seed=seed, directions=directions)
        return draw_variogram(found, model._fitted()[0].attributes.get("units", ""), ax)

    def folds(self) -> "Figure":
        """Draw what `Kriging.cross_validate` returned: predicted and observed values, coverage, errors.

        The first panel has each observation over its prediction from the other folds; the second one the
        share of observations inside central intervals of 5 to 99 %, with a band that holds 90 % of such
        shares if the error bars are right, where errors that are near each other count as fewer; the third
        one the error at each place.
        Values of which a limit was observed are in the second panel alone.

        Examples
        --------
        >>> import cagp_dist as cagp
        >>> places = {"lat": [48.1, 52.5, 50.1], "lon": [11.6, 13.4, 8.7], "value": [21.0, 18.5, 20.2]}
        >>> model = cagp.Kriging(lengthscale_km=400.0, variance=9.0, noise_std=0.3).fit(places)
        >>> figure = model.cross_validate(None).cagp.plot.folds()
        """
        return draw_folds(self._dataset)

    def biases(self, by: str | None = None, *, field: int = 0, ax: "Axes | None" = None) -> "Figure":
        """Draw the errors that observations share, with bars of 90 %: `Maps.biases`, the 30 largest.

        ``by`` is the column, where there are several; ``field`` is the number of the time.
        """
        import matplotlib.pyplot as plt

        found = biases_of(self._dataset, by)
        ((axis, names),) = ((str(dim), found[dim].values) for dim in found.dims if dim != "time")
        if "time" in found.dims:
            found = found.isel(time=field)
        with drawing_style():
            height = 0.8 + INCHES_PER_NAME * min(len(names), MOST_NAMES)
            figure = (
                own_figure(ax) if ax else plt.figure(figsize=(WIDTH_INCHES, height), layout="constrained")
            )
            panel = ax or figure.add_subplot()
            unit = symbol(str(found["mean"].attrs.get("units", "")))
            label = (
                f"error by {axis} [{unit}], with 90 % bars" if unit else f"error by {axis}, with 90 % bars"
            )
            draw_error_bars(panel, names.tolist(), found["mean"].values, found["std"].values, label)
        return figure


def biases_of(dataset: xr.Dataset, by: str | None = None) -> xr.Dataset:
    """Errors that observations share: ``mean`` and ``std`` of each group, see `Maps.biases`."""
    known = [name for name in str(dataset.attrs.get("bias_by", "")).split(", ") if name]
    known = [name for name in known if f"bias_{name}" in dataset]
    if by is None and len(known) == 1:
        by = known[0]
    if by not in known:
        raise ArgumentError(
            f"by is {by!r}, and the result has biases by {', '.join(known) or 'nothing'}; expected one "
            "of these, of a result that was made with bias_by.",
            key="no-biases",
        )
    names = {f"bias_{by}": "mean", f"bias_{by}_std": "std"}
    found = dataset[list(names)]
    return found.drop_vars([name for name in found.coords if name not in found.dims]).rename(names)


def _maps(
    dataset: xr.Dataset,
    names: Sequence[str],
    like: xr.DataArray,
    field: int | None,
    time: object,
    observations: "Source | Kriging | None",
    ax: "Axes | None",
    scales: Mapping[str, ColourScale] | None = None,
    *,
    cmap: str | None = None,
    with_borders: bool = False,
    with_lakes: bool = False,
) -> "Figure":
    """Draw variables at the fields that are chosen of one like them, with observations in its units."""
    where = located(dataset)
    observed = observed_of_each(observations, names, like, dataset)
    fields = fields_of(like, where, field=field, time=time)
    return maps_of(
        dataset,
        where,
        names,
        fields,
        observed=observed,
        ax=ax,
        scales=scales,
        cmap=cmap,
        with_borders=with_borders,
        with_lakes=with_lakes,
    )


def check_colours(cmap: str | None) -> None:
    """Raise `ArgumentError` where Matplotlib has no colours of a name."""
    import matplotlib as mpl

    if cmap is not None and not (isinstance(cmap, str) and cmap in mpl.colormaps):
        close = nearest(str(cmap), mpl.colormaps) or "YlGnBu"
        raise ArgumentError(
            f"cmap is {cmap!r}; expected the name of a colormap of Matplotlib, such as {close!r}.",
            key="colours-unknown",
        )


def check_there(dataset: xr.Dataset, names: Sequence[str], what: str) -> None:
    """Raise `ArgumentError` where a variable is not there, or none is asked for."""
    absent = next((name for name in names or [""] if name not in dataset.data_vars), None)
    if absent is not None:
        there = ", ".join(map(repr, dataset.data_vars))
        raise ArgumentError(
            f"there is no variable {absent!r} to {what}; the dataset has {there}.", key="absent-variable"
        )


def fields_of(
    values: xr.DataArray, where: Horizontal, *, field: int | None = None, time: object = None
) -> list[int]:
    """Choose the fields that are drawn: one by its number, those of some times, or up to six of them."""
    others = [dim for dim in values.dims if str(dim) not in where.dims]
    if field is not None and time is not None:
        raise ArgumentError("field and time were both given; expected one of them.", key="field-and-time")
    if not others and time is None:
        return [0]
    if field is not None:
        return [field]
    if len(others) != 1:
        raise ArgumentError(
            f"{values.name!r} has the dimensions {', '.join(map(str, values.dims))}; expected one beside "
            "those of the places, such as time. Choose of the others first, for example "
            "dataset.isel(sample=0)."
            if others
            else f"time is {time!r}, and the result has no times.",
            key="several-dimensions",
        )
    if time is None:
        count = values.sizes[others[0]]
        return [int(each) for each in np.unique(np.linspace(0, count - 1, MOST_PANELS).round())]
    return _fields_at(values[others[0]], time)


def _fields_at(axis: xr.DataArray, time: object) -> list[int]:
    """Find moments on an axis of times."""
    import pandas as pd

    found = []
    for moment in np.atleast_1d(np.asarray(time)):
        if axis.dtype.kind == "M":
            try:
                wanted = pd.to_datetime(moment, utc=True).tz_localize(None)
            except (ValueError, TypeError) as error:
                raise ArgumentError(
                    f"time is {time!r}; expected moments, such as 2024-07-01T12:00.", key="times"
                ) from error
            same = axis.values == wanted.to_datetime64()
        else:
            same = np.array([_written(each) == _written(moment) for each in axis.values])
        if not same.any():
            first, last = (stamp_of(axis, at) for at in (0, -1))
            raise ArgumentError(
                f"time is {moment}, which is none of the {axis.size} times of the result, "
                f"from {first} to {last}.",
                key="time-not-in-result",
            )
        found.append(int(same.argmax()))
    return found


def _written(moment: object) -> str:
    """Write a date of any calendar."""
    return str(moment).replace(" ", "T")


def _mean_and_std(dataset: xr.Dataset) -> list[str]:
    """Name mean and standard deviation of a result, of each of its variables."""
    return [f"{stem}{kind}" for stem in stems_of(dataset) or [""] for kind in ("mean", "std")]
