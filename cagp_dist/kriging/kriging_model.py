"""`krige`, and its object form `Kriging`: fitted once, asked many times."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from html import escape
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Marks
from cagp_dist.checks import as_numbers, check_count, check_memory_limit, check_positive, check_word
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.backgrounds import BackgroundLike, ErrorLike
from cagp_dist.fields.observed_objects import ObservedObject, Source
from cagp_dist.fields.tables import DataFrameLike
from cagp_dist.gram.targets import prior_variance
from cagp_dist.headway import Listener
from cagp_dist.kriging.areas import (
    MOST_NODES,
    ROWS,
    SHARE_OF_QUADRATURE,
    Area,
    AreaLike,
    MaskLike,
    area_nodes,
    area_targets,
    as_areas,
    change_of,
    check_means,
    dataset_of_areas,
    masked,
    most_nodes,
    pairs_of,
    with_errors_of_draws,
)
from cagp_dist.kriging.at_times import At, evidence, times_of_maps
from cagp_dist.kriging.drawn_charts import variogram_dataset
from cagp_dist.kriging.drift import (
    FieldsLike,
    MeanTerms,
    background_targets,
    fields_of_columns,
    known_targets,
    mean_at_targets,
)
from cagp_dist.kriging.given_observations import (
    check_censored,
    check_transform,
    given_kernel,
    read,
    read_as,
    roles_of,
    transforms,
)
from cagp_dist.kriging.learning import settings_of
from cagp_dist.kriging.map_dataset import (
    as_dataset,
    attributes,
    below_limits,
    dataset_of_folds,
    dataset_of_samples,
    dataset_of_variables,
    fit_advice,
    in_units_of_data,
    shaped,
    spread,
    wanted_of,
    with_biases,
    with_outliers,
    with_recalibration,
    with_system,
)
from cagp_dist.kriging.map_targets import (
    Kind,
    MapTargets,
    To,
    are_rows,
    find_targets,
    of_array,
    of_kind,
    of_table,
)
from cagp_dist.kriging.observed_areas import GeometryOf, about_areas
from cagp_dist.kriging.summary import summary, why_uninformed
from cagp_dist.means import StaticField, WithCovariates
from cagp_dist.pipeline import AnisotropyLike, Hyperparameters, Resources, Solver
from cagp_dist.pipeline.background import Background, weighted
from cagp_dist.pipeline.cross_validation import check_recalibration, cross_validate, usual_recalibration
from cagp_dist.pipeline.defaults import HOUR_SECONDS, KERNEL, MOST_SAMPLED, NUGGET, RECALIBRATION, UNINFORMED
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel, families
from cagp_dist.pipeline.gain_in_time import gain_of_other_times
from cagp_dist.pipeline.in_units import OfDraws, field_in_units, folds_in_units, moments_of_draws
from cagp_dist.pipeline.map_mean import MeanLike, MeansByLabel, coefficient_names, is_read
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.map_samples import Draws, draw_fields
from cagp_dist.pipeline.map_solves import plan_of_map, solver_of
from cagp_dist.pipeline.maps_at_times import MOST_TOGETHER
from cagp_dist.pipeline.model_settings import KernelLike, ModelSettings
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.outliers import Outliers
from cagp_dist.pipeline.robust_fit import fit_beside_outliers, looks_wrong
from cagp_dist.pipeline.solve_task import Step, solve_task
from cagp_dist.pipeline.split import Split
from cagp_dist.pipeline.task import Result, Task
from cagp_dist.pipeline.transform_choice import (
    advice_of_means,
    advice_of_values,
    has_many_zeros,
    transform_of_values,
)
from cagp_dist.predictive.transforms import Identity, Transform, TransformLike
from cagp_dist.prior import Prior
from cagp_dist.runtime import ExecutorLike, executor_from
from cagp_dist.space import CRSLike
from cagp_dist.store.published_variables import QUANTILE_LEVEL
from cagp_dist.text import without_secrets
from cagp_dist.warned import warn

T = TypeVar("T")

AREA_DRAWS = 1_000  # of a field that is averaged: the standard error of an error bar is then some 2 % of it


def krige(
    observations: Source,
    *,
    to: To = None,
    at: At = None,
    causal: bool = False,
    kind: Kind = "grid",
    mask: MaskLike = None,
    geometry: GeometryOf = None,
    kernel: KernelLike = KERNEL,
    mean: MeanTerms | Mapping[str, MeanTerms] | None = None,
    value: str | Sequence[str] | None = None,
    noise_std: str | float | Mapping[str, str | float] | None = None,
    nugget_std: float | str | None = NUGGET,
    nugget_correlation: bool = False,
    bias_by: str | Sequence[str] | None = None,
    background: BackgroundLike | None = None,
    background_std: ErrorLike | None = None,
    prior: Prior | None = None,
    solver: "str | Solver" = "auto",
    recalibration: str = RECALIBRATION,
    hyperparameters: Hyperparameters = "auto",
    anisotropy: AnisotropyLike = "none",
    outliers: Outliers = "keep",
    lengthscale_km: float | Sequence[float] | None = None,
    lengthscale: float | Sequence[float] | None = None,
    variance: float | Sequence[float] | None = None,
    columns: Mapping[str, str] | None = None,
    crs: CRSLike = None,
    units: str | Mapping[str, str] | None = None,
    missing: Marks = None,
    where: Mapping[str, object] | None = None,
    transform: "str | TransformLike" = "none",
    executor: ExecutorLike = None,
    memory_limit_bytes: int | None = None,
    time_limit_seconds: float | None = HOUR_SECONDS,
    progress: bool = True,
    latitude: str | None = None,
    longitude: str | None = None,
    x: str | None = None,
    y: str | None = None,
    time: str | None = None,
    drift: MeanTerms | None = None,
) -> xr.Dataset:
    """Map observations: mean and standard deviation of the field at every target.

    Parameters
    ----------
    observations : xarray.DataArray, xarray.Dataset, data frame, mapping or path
        What was observed on the globe or in a plane.

        An xarray object may be a grid, stations along a dimension or a curvilinear grid, with the dimensions
        in any order and at most a time (or ensemble member) beside them. Latitude and longitude are found by
        their CF attributes, then by their names. If there are none, x and y of a projection are used, with
        its CF ``grid_mapping``. NaN marks missing values. Copies of a pole are one place, their mean;
        components of vectors have no value there.

        A table has a row for each measurement, see `cagp_dist.fields.tables.read_table`: a pandas or polars
        data frame, a mapping of columns, or the path of a CSV or Parquet file. A source of a job works too:
        "file:PATH" of NetCDF or GRIB, "zarr:URL", "cds", "sample".
    to : optional
        Where the field is wanted. A number gives cells of so many degrees over the region of the observations
        (whole degrees around them, or the globe). ``{"resolution": 0.25, "region": [north, west, south,
        east]}`` gives both; either may be left out, and "area" means the same as "region". The region alone
        works too, and so do an xarray object (its grid or places, in its order and with its longitudes), a
        `LatLonGrid`, and a table of places or its path. The default is the grid of the observations: their
        gaps are filled.
    at : times or "observed", optional
        Times of the maps; each map uses the observations of all times. "observed" means the times of the
        observations. Time zones are converted; times without a zone are UTC. The kernel is then one of space
        and time: "auto" compares metric kernels, products with Matern 1/2 and 3/2 in time, and the sum of
        weather and what lasts at a place, by the likelihood of whole hours of stations, which also tell its
        numbers; a `SpaceTime` kernel with its parameters is kept. The coordinate ``evidence`` says which
        times have observations on one side only, and which are the prior. If all observations have one time,
        they are mapped without ``at``, with a warning. Without ``at`` there is a map for each time of the
        observations, from that time alone; the attribute ``other_times`` says where other times would help,
        by the likelihood of some values. ``at`` does not work with integrated parameters yet.
    causal : bool
        With ``at``: each map uses only observations up to its own time, as forecasts and honest hindcasts do.
        Kernel and noise come from all observations; coefficients of the mean do not. Times before the first
        observation are NaN where the mean is estimated.
    kind : {"grid", "cells"}
        The field at the points of a grid, or its mean over the cell around each point, which ends half way to
        the next. Error bars of cell means do not vary with the distance to the nearest observation.
    mask : optional
        Where the map is wanted: polygons (of shapely, geopandas or GeoJSON, see `Kriging.area_mean`),
        regions, a boolean DataArray on a grid of its own, or a boolean array with the shape of the targets.
        Targets outside are NaN, and take no time.
    geometry : str or sequence, optional
        Observations that are means over areas: "cells" of a grid, whose cells end half way between its
        points; the name of a column of polygons, such as ``"geometry"`` of a GeoDataFrame; or a polygon for
        each row (see `Kriging.area_mean`; a Point is a value there). The map is of the field at points, or of
        means over other cells and areas (area-to-point kriging): its mean over an observed area is the value
        there, but for the noise. Kernel and noise are fitted by the exact likelihood of the means; the noise
        is that of a mean; a field as ``mean`` is averaged over each area. At most 4,000 areas, solved by
        Cholesky; numbers are plugged in. Not with ``at``, several variables, ``bias_by``, depths,
        ``background``, ``transform``, ``recalibration``, ``anisotropy`` or a column as ``mean``.
    kernel : str, class of Kernel, or Kernel
        "matern12", "matern32", "matern52", "squared-exponential" or, with any smoothness, "matern(0.8)"; or a
        sum such as "matern32 + matern32". The parameters of a kernel object are kept. "auto" takes the one of
        the first three that predicts each value best from all others, by the CRPS, with given parameters held
        fixed for all of them; Matern 3/2 if nothing is fitted. "matern", or the class `Matern`, also fits
        the smoothness.
    mean : str, xarray.DataArray, several of them, EstimatedMean, number or callable
        Prior mean. Terms have coefficients that are estimated with the field, with their uncertainty
        included in ``std`` (universal kriging; with a field, kriging with external drift); kernel and noise
        are fitted by restricted maximum likelihood. "constant", the default without a background, is
        ordinary kriging.
        "regional_linear" is linear in latitude and longitude, counted from the middle of the observations,
        the attribute ``centre_of_drift``, or in x and y of a plane, counted from the attribute
        ``centre_of_plane``. "quadratic-latitude" and "harmonic-latitude" are those of `MEANS`. Static fields
        can be added, ``mean=["regional_linear", elevation]``: as DataArrays on a grid of latitudes and
        longitudes, which are interpolated bilinearly, as "file:PATH:VARIABLE", or as the name of a column of
        the table, ``mean="elevation"``, which a table of targets then needs too; a DataArray of this name
        does as well. Units are converted. Observations where a field is not known are left out, and targets
        are NaN there, with a warning.
        A number, or a function as `Prior` takes it, is known (simple kriging). "climatology:PATH" is read
        and known but for a shift.
    value : str or sequence of str, optional
        Variable or column that was observed, if there are several. Of two or more names all are mapped at
        once, each informed by the others: a sum of one or two terms of a kernel and a table of covariances
        (the linear model of coregionalisation), fitted together. The result has ``NAME_mean`` and
        ``NAME_std`` for each, and as attributes the correlations of the fields with standard errors. They may
        have been observed at different places. ``noise_std``, ``units`` and ``mean`` may then be mappings by
        these names; a nugget of each is fitted beside a noise that is given. `Kriging.cross_validate` leaves
        places out whole, and scores each variable.
    noise_std : str or number, optional
        Standard deviation of the error of an observation: a number, or a column (a variable of a Dataset)
        with one for each. The default is the column ``noise_std`` of the table; without one it is fitted.
    nugget_std : number, None or "auto"
        Standard deviation of the difference between an observation and the field beyond the known noise, such
        as variation over less than the distance between stations. None fits it. "auto" fits it beside the
        noise of each observation, unless ``at`` is given, or lengthscale and variance are; beside a number
        for all it is zero.
    nugget_correlation : bool
        Of several variables, whether the nuggets of those observed at one place go together as well.
    bias_by : str or sequence of str, optional
        Column whose rows with the same name share an error, such as that of a ship or a station: its
        standard deviation is fitted, the attribute ``bias_std``, and ``result.cagp.biases()`` has the errors
        with error bars. Rows without a name have an error of their own. Of fields at several times each
        has its own.
    background : xarray.DataArray or Dataset, str, or sequence of DataArray, optional
        A first guess of the field, such as a forecast, which the observations correct: the prior mean, with
        coefficient 1. Bilinear between the points of its grid; of several times linear in between. Units are
        converted; observations where it is not known are left out, and targets are NaN there, with a
        warning. Also "file:PATH:VARIABLE", "zarr:ADDRESS:VARIABLE" or another source of fields. With a
        dimension of members, or as a sequence of them, it is an ensemble: its mean, and its spread (divisor
        n - 1) as ``background_std``. What is expected of observation minus background is 0, the number
        ``mean``, or a trend named there, which is estimated with the field, but not with ``at``. The
        attributes ``innovation_mean``, ``innovation_std_ratio`` and ``innovation_ratio`` say whether variance
        and noise are right; the ratios are 1 then.
    background_std : number, xarray.DataArray or Dataset, or str, optional
        Standard deviation of the error of the background, which holds the variance of the kernel; noise is
        held too where it is given. A field needs ``noise_std``. None: the variance is fitted.
    prior : Prior, optional
        Fixes every parameter, noise and mean included. Without it, lengthscale, variance and noise are fitted
        by maximum likelihood unless given.
    solver : str or solver
        "auto" follows from the points alone: exact if that is cheap (a dense factor for up to 5,000 points,
        the rings of a grid with few gaps; with ``at`` and a product of kernels modes in space and time, where
        no value of a whole grid or of up to 4,096 places is missing), otherwise `Neighbours` ("auto"), whose
        error bars are exact too. Or "cholesky", "rings", "neighbours", "block-gauss-seidel" (until at most
        5 % of each variance is unfinished computation), or a solver.
    recalibration : str
        "local-scale" or another method of `cagp_dist.calibration.recalibration.methods`: corrects the
        distribution of an observation at each target by errors at places that were left out: one by one where
        the solver is exact; else 2,000 places, or a fifth of all, in one solve; of fewer than 2,500 places,
        or with ``at``, in ten folds of blocks, each with a solve of its own. The result then also
        has ``predictive_std`` and ``quantile``, and ``std``, that of the field, is corrected by the same
        factor. "none": no correction.
    hyperparameters : {"auto", "integrate", "plug-in"}
        How to treat the uncertainty of lengthscale, variance and noise. "integrate": the result is a mixture
        over a grid of them, weighted by probability, with the variance integrated out and the coefficients of
        the mean estimated and counted; it has ``field_quantile`` beside ``mean`` and ``std``.
        "plug-in": the maximum-likelihood values count as known, which makes error bars of few observations
        too narrow. "auto": integrate for up to 200 observations, and for up to 500 places if the likelihood
        is flat, except with sums of kernels and with solvers that are not exact.
    anisotropy : "none", "fit", "auto", or tuple of two numbers
        Whether the field reaches further in one direction, in a plane or a region of the globe of up to 30
        degrees around its middle. "fit": ratio and azimuth of an ellipse are fitted as well; "auto": if that
        raises the log-likelihood by 4 or more. ``(3.0, 30.0)``: the major axis is three times the minor one,
        and points 30 degrees clockwise from north. The lengthscale is the geometric mean of the axes. The
        attributes ``anisotropy_ratio`` and ``anisotropy_azimuth_degrees`` say the ellipse. Beyond such a
        region it is east against north, at the equator, and the azimuth 90 or 0. Kernels with shapes of
        their own are `Anisotropic` and `AxiallySymmetric`. Not with ``at``, nor with a sum of kernels.
    outliers : {"keep", "robust"}
        "robust": the noise of a few values is wider, where the likelihood of each value given all others
        gains 6 or more by it: contaminated noise, whose share and width are fitted. Values that look wrong
        then count less. How much follows from the values themselves, so that error bars hold as simulations
        show, and not by theorem. The attributes ``outlier_share``, ``outlier_std`` and ``outlier_gain`` say
        what was found, ``outlier_probability`` how likely each observation is wrong. Of one field, or with
        ``at``. "keep": all count alike; the attribute ``suspicious_values`` says where the likelihood would
        gain 20. `check` lists the values.
    lengthscale_km, lengthscale : number or sequence of numbers, optional
        Fixes the lengthscale, in kilometres on the ground (radius of the Earth 6371.0088 km), or as a chord
        of the unit sphere, at most its diameter 2. In a plane it is in the unit of x and y.
    variance : number or sequence of numbers, optional
        Fixes the variance of the prior, squared unit of the values. For a sum of kernels these are sequences
        with a number for each part.
    columns : mapping of str to str, optional
        What stands where, if not under usual names: columns of a table, or coordinates of an xarray object,
        ``columns={"latitude": "lat", "longitude": "lon", "time": "date", "name": "site"}``. With
        ``{"time": "none"}`` all rows of a table are one field. With ``{"depth": "pressure"}`` values at
        several depths, positive downward, are fitted together, and ``to`` has a coordinate or column of
        depths. With ``{"limit": "lod"}`` values at their limit of detection, and cells ND, count as known to
        be no larger, as those written "< 0.1" do without such a column: these are drawn below it given all
        others, and the result is the mixture. Not with ``at``, depths, several variables, ``bias_by`` or
        ``background``. ``{"x": "easting", "y": "northing"}`` are coordinates of a plane, instead of latitude
        and longitude. Distances there are Euclidean, lengthscales in the unit of x and y, and ``to`` is as
        above with y for latitude and x for longitude: ``to=1000.0`` for cells of 1000 m.
    units, missing, where : optional
        Units of the values, the mark of missing values, and which rows to use, ``where={"element": "TMAX"}``;
        see `cagp_dist.fields.tables.read_table`. For an object of xarray, ``where`` takes "level", values of
        other dimensions, and "group" of a `xarray.DataTree`; for points in one, values of their columns. For
        a source it takes "times", "area" (north, west, south, east) and "grid_degrees", too:
        ``where={"times": ["2017-04-27T12:00"], "number": 1}``.
    crs : int, str or pyproj.CRS, optional
        Coordinate reference system of x and y: an EPSG number, WKT or whatever pyproj takes (extra
        ``projections``); overrides that of an xarray object. Targets in another known system, or in degrees,
        are converted to it. With ``crs`` alone the columns have usual names, such as ``easting``.
    transform : str, or object with ``forward``, ``inverse`` and ``log_slope``
        For values that are not normal: kernel and noise are those of ``z = t(y)``, and all results are of
        the distribution of y, in its unit. "log", "sqrt", "box-cox" and "asinh" (whose number is fitted by
        the likelihood), "normal-score" (of ranks), or "auto": the one, or none, of the highest likelihood of
        y. ``cagp.BoxCox(0.3, shift=0.1)`` and ``cagp.Arcsinh(2.0)`` have their numbers; an object of your own
        has functions of arrays. Numbers of ``prior`` and ``lengthscale`` are those of z. The result also has
        ``median``, ``field_quantile``, and ``predictive_std`` and ``quantile`` of an observation; the
        attribute ``transform`` says the function. Not with a noise that is given, ``background``,
        ``bias_by``, several variables or means over cells.

        "log1p" is another thing: the map itself is of log(1 + x / 1 unit), of rain (``tp``, ``pr``) in mm or
        mm per day, and nothing is transformed back. Not with ``noise_std``.
    executor : Executor, Dask client or cluster, or str, optional
        As for `cagp_dist.condition`. A cluster without a worker, such as an adaptive one, gets two minutes to
        start its first, and one of dask-jobqueue gets four hours in its queue.
    memory_limit_bytes : int, optional
        Memory that may be allocated; by default four fifths of the free memory.
    time_limit_seconds : float or None
        After which work is stopped; or after a tenth of it, if what was done by then says that it would take
        more than twice as long. None: no limit.
    progress : bool
        After five seconds work reports its method and bytes, what would make it faster, and its progress: by
        a bar in a terminal or notebook (with ipywidgets), elsewhere by `logging`, with the method as a
        warning and the progress, every ten seconds, as information of the logger "cagp_dist". False turns
        this off.
    latitude, longitude, x, y, time : str, optional
        Deprecated: write them into ``columns``.
    drift : optional
        Deprecated: write it as ``mean``.

    Returns
    -------
    xarray.Dataset
        ``mean``, ``std`` (of the field itself, without the noise of an observation) and
        ``std_computational`` (the part of it that more computation would remove: zero for exact solvers, an
        upper bound for other solvers of many observations, as its attribute ``comment`` says), on the
        coordinates of the target. Units and names are those of the observations. The attributes say what was
        chosen: solver, status, kernel with lengthscale as a chord and in km, noise, how the fit ended, and
        whether its parameters were integrated over (``hyperparameters``).
        Means over cells say so in ``cell_methods``, and have the edges of the cells as bounds.
        ``result.cagp.plot()`` draws it. Where the mean is estimated there are also ``drift_coefficient`` and
        its standard error ``drift_coefficient_std`` for each ``drift_term``, in units of the observations
        over those of the term.

    Raises
    ------
    CagpError
        ArgumentError: the meaning of an argument is not clear; DataError: something cannot be an observation,
        such as a latitude of 91 degrees, with its row; BudgetError: it does not fit into memory, before
        any work; TimeLimitError: it takes longer than the limit; NumericalError: the fit or the solve loses
        all digits.

    Notes
    -----
    All fields share kernel and noise. Those with the same gaps share one solve. A fit that did not end in an
    optimum inside its bounds is a `UserWarning` that says what to do, except for a noise too small to find.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> stations = {
    ...     "lat": [48.1, 52.5, 50.1, 53.6, 51.3],
    ...     "lon": [11.6, 13.4, 8.7, 10.0, 12.4],
    ...     "temperature (degC)": [21.0, 18.5, 20.2, 16.9, 19.0],
    ... }
    >>> field = cagp.krige(stations, to=0.5, noise_std=0.3, lengthscale_km=400.0, variance=9.0)
    >>> field["mean"].shape, field["mean"].attrs["units"], field.attrs["status"]
    ((12, 12), 'degC', 'exact')
    """
    given = locals()
    model = Kriging(**{name: given[name] for name in _PARAMETERS})
    with model._call() as call:
        observed, given_mean = call.read(model, observations)
        targets = masked(of_kind(kind, find_targets(to, observed), observed), mask)
        targets = model._at_times(targets, observed, given_mean, at)
        model._check_plan(observed, given_mean, targets, call)
        model._learn_from(observed, given_mean, call)
        return model._map(model._observed, model._learned_at(targets), targets, kind, call)


@dataclass(frozen=True)
class _Call:
    """What one call works with, and what says how far it is."""

    resources: Resources
    narrator: Narrator

    def read(
        self, model: "Kriging", observations: "Source | ArrayLike", y: ArrayLike | None = None
    ) -> tuple[ObservedObject, MeanLike]:
        """Read observations and their mean; what takes long says how far it is."""
        about = without_secrets(observations, observations) if isinstance(observations, str) else ""
        with self.narrator.stage("read", about, hastens=False) as report:
            listener = Listener(lambda text: report(None, text), self.narrator.check)
            return read(model, observations, y, progress=listener)

    def step(self, name: Step, do: Callable[[Execution], T], /, *, about: Callable[[T], str]) -> T:
        """Do a step of a task; what came of it is not said."""
        with self.narrator.stage(name) as report:
            on_plan = self.narrator.tell if name == "solve" else lambda plan: None
            return do(Execution.on(self.resources, report=report, on_plan=on_plan))


@dataclass(eq=False, repr=False, kw_only=True)
class Kriging:
    """`krige` in two steps, with samples and cross-validation; follows the conventions of scikit-learn.

    The constructor only stores its arguments. `fit` looks at the observations. Fitted attributes have names
    that end in an underscore.

    Parameters
    ----------
    **settings
        All those of `krige` except ``observations``, ``to``, ``kind`` and ``mask``.

    Attributes
    ----------
    prior_ : Prior
        Kernel, noise and mean of the first field (of those that share its gaps).
    fit_result_ : FitResult or None
        What `cagp_dist.fit` returned; None if every parameter was given.
    transform_ : Transform or None
        What the values were transformed by, with its numbers; None where by nothing.
    n_features_in_ : int
        Columns of X: latitude and longitude, or x and y, and one for each covariate of the observations.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.array([[48.1, 11.6], [52.5, 13.4], [50.1, 8.7]])                 # latitude, longitude
    >>> model = cagp.Kriging(noise_std=0.3, lengthscale_km=400.0, variance=9.0).fit(X, [21.0, 18.5, 20.2])
    >>> mean, std = model.predict(np.array([[48.1, 11.6], [-30.0, 20.0]]), return_std=True)
    >>> mean.round(1), std.round(1)
    (array([21. , 19.8]), array([0.3, 3.9]))
    """

    geometry: GeometryOf = None
    kernel: KernelLike = KERNEL
    mean: MeanTerms | Mapping[str, MeanTerms] | None = None
    value: str | Sequence[str] | None = None
    noise_std: str | float | Mapping[str, str | float] | None = None
    nugget_std: float | str | None = NUGGET
    nugget_correlation: bool = False
    bias_by: str | Sequence[str] | None = None
    background: BackgroundLike | None = None
    background_std: ErrorLike | None = None
    prior: Prior | None = None
    solver: str | Solver = "auto"
    recalibration: str = RECALIBRATION
    hyperparameters: Hyperparameters = "auto"
    anisotropy: AnisotropyLike = "none"
    outliers: Outliers = "keep"
    lengthscale_km: float | Sequence[float] | None = None
    lengthscale: float | Sequence[float] | None = None
    variance: float | Sequence[float] | None = None
    columns: Mapping[str, str] | None = None
    crs: CRSLike = None
    units: str | Mapping[str, str] | None = None
    missing: Marks = None
    where: Mapping[str, object] | None = None
    transform: "str | TransformLike" = "none"
    at: At = None
    causal: bool = False
    executor: ExecutorLike = None
    memory_limit_bytes: int | None = None
    time_limit_seconds: float | None = HOUR_SECONDS
    progress: bool = True
    latitude: str | None = None
    longitude: str | None = None
    x: str | None = None
    y: str | None = None
    time: str | None = None
    drift: MeanTerms | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Arguments of the constructor by name; ``deep`` has no effect."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **parameters: Any) -> Self:
        """Set arguments of the constructor by name."""
        for name, given in parameters.items():
            if name not in _PARAMETERS:
                raise ArgumentError(
                    f"Kriging has no parameter {name!r}; it has {', '.join(_PARAMETERS)}.",
                    key="parameter-unknown",
                )
            setattr(self, name, given)
        return self

    def __sklearn_tags__(self) -> object:
        """Say what scikit-learn, which alone calls this, asks of its estimators."""
        from sklearn.utils import RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, multi_output=True),
            regressor_tags=RegressorTags(),
        )

    def __repr__(self) -> str:
        return f"Kriging({_changed(self)})"

    def _repr_html_(self) -> str:
        """Show the model in a notebook: what was learned, once it is fitted."""
        said = [repr(self), *([self.summary()] if hasattr(self, "_learned") else [])]
        return "".join(f"<pre>{escape(text)}</pre>" for text in said)

    def fit(self, observations: "Source | ArrayLike", y: ArrayLike | None = None) -> Self:
        """Read observations and fit the unknown parameters of kernel and noise.

        Parameters
        ----------
        observations : as for `krige`, or array_like, shape (n, 2 + k), or data frame
            Latitudes and longitudes in degrees, with y: in this order in an array, found by the names of the
            columns in a data frame. With x and y among ``columns``, or with ``crs``, those of a plane: x, y.
            Then the k columns that ``mean`` names, such as "elevation", in its order.
        y : array_like, shape (n,) or (n, T), optional
            Values at the rows of an array; NaN where there is none.
        """
        with self._call() as call:
            self._learn_from(*call.read(self, observations, y), call)
        self._of_arrays = y is not None
        return self

    @contextmanager
    def _call(self) -> Iterator[_Call]:
        """Open what a call works with."""
        with (
            executor_from(self.executor) as executor,
            Narrator(shown=self.progress, time_limit_seconds=self.time_limit_seconds) as narrator,
        ):
            yield _Call(Resources(executor, self.memory_limit_bytes), narrator)

    def _at_times(self, targets: MapTargets, observed: ObservedObject, mean: MeanLike, at: At) -> MapTargets:
        """Give targets where the mean is known, at times where the observations have theirs."""
        for part in mean.means if isinstance(mean, MeansByLabel) else (mean,):
            if isinstance(part, WithCovariates):
                targets = known_targets(targets, part, observed)
        if not observed.points.in_time:
            if isinstance(mean, Background):
                targets = background_targets(targets, mean, observed)
            if at is not None and self.at is None:
                raise ArgumentError(
                    f"at is {at!r}, and each field was fitted separately; give the times from the beginning, "
                    'such as cagp.Kriging(at="observed").fit(observations).',
                    key="at-after-fit",
                )
            return targets
        targets = targets.at_times(*times_of_maps(self.at if at is None else at, observed))
        return background_targets(targets, mean, observed) if isinstance(mean, Background) else targets

    def _learn_from(self, observed: ObservedObject, mean: MeanLike, call: _Call) -> None:
        """Learn the transform of the values, if there is one, and kernel and noise."""
        settings, execution = settings_of(self, observed, mean), Execution.on(call.resources)
        self.transform_: Transform | None = None
        self._compared = ""
        limits = observed.points.limits is not None
        if transforms(self):
            check_transform(self, observed, mean)
        if transforms(self) or limits:
            found = transform_of_values(
                observed.points, self.transform, settings, execution, narrator=call.narrator
            )
            self._compared = found.text()
            if limits or not isinstance(found.chosen, Identity):
                self.transform_ = found.chosen
                observed = replace(observed, points=observed.points.transformed(found.chosen))
            check_censored(self, observed)
        task = self._task(observed, settings, MapPoints(observed.points.X[:0]))
        learned = fit_beside_outliers(task, execution, narrator=call.narrator)
        if learned.excess is not None:
            observed = replace(observed, points=replace(observed.points, excess=learned.excess))
        self._suspicion = ""
        # large values beside many zeros are no errors
        rain = self.transform_ is None and has_many_zeros(observed.points)
        if self.outliers == "keep" and self.recalibration == "none" and not rain:
            self._suspicion = looks_wrong(observed.points, learned, call.resources.executor)
        result = learned.result
        if result is not None and learned.is_doubtful:
            warn(f"the fit ended {result.status.value}: {fit_advice(result)}")
        self._advice = ""
        if not (transforms(self) or observed.variables):
            self._advice = advice_of_values(observed.points, learned)
        self.prior_ = learned.prior(observed.points, *observed.points.patterns()[0])
        self.fit_result_ = result
        self.n_features_in_ = 2 + len(observed.static)
        self._observed, self._learned = observed, learned

    def _task(self, observed: ObservedObject, settings: ModelSettings, targets: MapPoints) -> Task:
        """Give what is asked, as `cagp_dist.pipeline.task` takes it."""
        return Task(
            observed.points,
            Split(np.arange(observed.points.north.size)),
            Targets(targets),
            settings,
            solver=self.solver,
            lead_hours=0.0 if self.causal else None,
            refits=False,
        )

    def predict(
        self,
        to: "To | Array" = None,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        kind: Kind = "grid",
        at: At = None,
        mask: MaskLike = None,
    ) -> "xr.Dataset | Array | tuple[Array, Array]":
        """Mean and standard deviation at the targets.

        Parameters
        ----------
        to : as for `krige`, or array or list of rows, shape (q, 2 + k)
            Latitudes and longitudes in degrees, or x and y of a plane, and columns as for `fit`. After
            ``fit(X, y)`` a data frame counts as an array, whose columns are found by their names.
        return_cov : bool
            As scikit-learn has it. There are no covariances here: True is an error that says what to call.
        kind, at, mask
            As for `krige`; ``at`` instead of the times of the model, if it was made with ``at``.

        Returns
        -------
        xarray.Dataset
            As for `krige`; for an array the means (q,) or (q, T), or with ``return_std`` means and standard
            deviations of the field. T are the fields, or the times of ``at``. Of several variables always a
            data set.
        """
        if return_cov:
            raise ArgumentError(
                "return_cov is True, and predict gives no covariances, one for each pair of targets. "
                "Draws of the field have them: model.sample(places, 500). With a prior whose parameters are "
                'all given, cagp.condition(..., covariance="full") computes the matrix itself.',
                key="return-cov",
            )
        observed, learned = self._fitted()
        arrays = are_rows(to) or (self._of_arrays and isinstance(to, DataFrameLike))
        if are_rows(to):
            found = of_array(cast("ArrayLike", to), observed.space, list(observed.static))
        elif arrays:
            found = of_table(
                cast("DataFrameLike", to),
                observed.space,
                columns=roles_of(self),
                static=list(observed.static),
            )
        else:
            found = find_targets(cast("To", to), observed)
        found = masked(of_kind(kind, found, observed), mask)
        targets = self._at_times(found, observed, learned.mean, at)
        learned = self._learned_at(targets)
        with self._call() as call:
            self._check_plan(observed, learned.mean, targets, call)
            if not arrays or observed.variables:
                return self._map(observed, learned, targets, kind, call)
            # the mean of transformed values depends on their standard deviation
            corrected = self.recalibration != "none" and (return_std or self.transform_ is not None)
            result = self._solved(observed, learned, targets, call, corrected=corrected)
            std = result.solution.std
            if corrected:
                std = std * result.distribution_at().correction(std, result.usual_noise)
            mean = result.solution.mean
            if self.transform_ is not None:
                factor = std / result.solution.std if corrected else None
                mean, std, *_ = field_in_units(result.solution, self.transform_, factor)
        mean, std = (shaped(each, observed, targets).T for each in (mean, std))
        return (mean, std) if return_std else mean

    def _check_plan(self, observed: ObservedObject, mean: MeanLike, targets: MapTargets, call: _Call) -> None:
        """Refuse what does not fit before anything is fitted."""
        check_recalibration(self.recalibration)
        if transforms(self) and targets.points.cells is not None:
            raise ArgumentError(
                f"transform is {self.transform!r} and kind is 'cells', and the mean of values over a cell is "
                "not that of what they were transformed to; expected kind='grid'. Means of draws are means "
                "over a cell: cagp.Kriging(...).sample.",
                key="transform-of-cells",
            )
        if self.recalibration != "none" and targets.points.cells is not None:
            raise ArgumentError(
                f"recalibration is {self.recalibration!r} and means over cells or areas were asked for, but "
                "errors at places do not say how the mean over a cell errs. Leave one of the two out.",
                key="recalibration-of-cells",
            )
        points, solver = observed.points, solver_of(self.solver, observed.points)
        together = wanted_of(targets, observed)
        if points.in_time:
            together = together.part(np.arange(min(len(together.X), MOST_TOGETHER)))
        parts, groups = len(families(given_kernel(self))), sum(map(len, observed.labels.values()))
        plan_of_map(
            points,
            together,
            solver,
            call.resources,
            kernel_parts=parts,
            coefficients=len(coefficient_names(mean)),
            groups=groups,
        )

    def _solved(
        self,
        observed: ObservedObject,
        learned: FittedModel,
        targets: MapTargets,
        call: _Call,
        *,
        corrected: bool,
        shared: bool = False,
    ) -> Result:
        """Solve, correct distributions if that is wanted, and warn where the observations say nothing."""
        points = wanted_of(targets, observed, shared=shared)
        task = self._task(observed, ModelSettings(learned.kernel, learned.mean), points)
        if corrected:
            task = self._recalibrated(task)
        result = solve_task(task, learned, call.step)
        wanted = weighted(points.wanted, learned.scale(observed.points))
        models = learned.likely or ((1.0, learned),)
        solution = result.solution
        prior = np.sum([weight * prior_variance(model.kernel, wanted) for weight, model in models], axis=0)
        if learned.integrated is not None:
            prior = prior * learned.integrated.prior_variance / learned.kernel.variance
        if (drift := solution.drift) is not None and drift.names == ("constant",):
            prior = prior + drift.std[0][:, None] ** 2  # of the level, which is estimated
        if prior.size and (solution.std**2 > UNINFORMED * prior).all():
            why = why_uninformed(observed, learned, targets)
            warn(f"{why} the error bars are those of the prior.")
        return result

    def _recalibrated(self, task: Task) -> Task:
        """Give the task with the errors that its distributions are corrected by."""
        found = usual_recalibration(
            self.recalibration,
            task.observed,
            self.solver,
            reads_mean=is_read(self._learned.mean),
            near=not task.observed.in_time,
        )
        return replace(task, recalibration=found)

    def _map(
        self, observed: ObservedObject, learned: FittedModel, targets: MapTargets, kind: Kind, call: _Call
    ) -> xr.Dataset:
        """Solve, and give the result as a data set."""
        corrects = self.recalibration != "none"
        solved = self._solved(observed, learned, targets, call, corrected=corrects, shared=True)
        settings = [f"kind={kind!r}"] * (kind != "grid") + [_changed(self)]
        written = f"cagp.krige({', '.join(filter(None, settings))})"
        if observed.variables:
            found = dataset_of_variables(solved.solution, observed, learned, targets, call=written)
            return with_system(found, targets)
        result = as_dataset(
            solved.solution.of_targets(slice(0, targets.points.size)),
            observed,
            learned,
            targets,
            call=written,
        )
        result.attrs |= about_areas(observed, learned.kernel)
        if observed.labels:
            result = with_biases(result, solved.solution, observed, learned, targets.points.size)
        result = with_outliers(result, observed, learned)
        if self._suspicion:
            helps = 'Look at them first: cagp.check lists them. outliers="robust" gives them less weight.'
            result.attrs["suspicious_values"] = f"{self._suspicion} {helps}"
        if solved.innovations is not None:
            result.attrs |= solved.innovations.attributes()
        if targets.in_time:
            prior = prior_variance(learned.kernel, targets.points.wanted)
            left = (solved.solution.std**2 / prior).reshape(targets.hours.size, -1).min(axis=1)
            about = evidence(targets.hours, observed.points.hours, ~(left <= UNINFORMED), causal=self.causal)
            result = result.assign_coords(evidence=about)
        elif (observed.points.censored is None and observed.finer is None) and (
            gain := gain_of_other_times(observed.points, learned)
        ):
            result.attrs["other_times"] = gain
        if corrects or self.transform_ is not None:
            result = with_recalibration(result, solved, observed, targets, method=self.recalibration)
        if self.transform_ is not None:
            of_draws, moments = None, None
            if (exact := solved.solution.moments) is not None and not corrects:
                moments = [shaped(each, observed, targets) for each in exact]
            if (fields := solved.solution.drawn) is not None:
                noise = solved.usual_noise
                both = (moments_of_draws(fields, self.transform_, each) for each in (None, noise))
                of_draws = [OfDraws(*(shaped(each, observed, targets) for each in own)) for own in both]
            result = in_units_of_data(result, self.transform_, moments=moments, of_draws=of_draws)
            likely = result["quantile"].sel({QUANTILE_LEVEL: 0.95})
            if said := advice_of_means(result["mean"].values, likely.values, observed.points):
                warn(said)
                result.attrs["values_advice"] = said
        if self._advice:
            result.attrs["values_advice"] = self._advice
        if self._compared:
            result.attrs["transform_log_likelihoods"] = self._compared
        return with_system(result, targets)

    def score(self, X: "Array | DataFrameLike", y: ArrayLike) -> float:
        """Coefficient of determination of the mean at X (n, 2 + k), or a data frame, for values y (n,)."""
        values = as_numbers("y", y)
        if self._fitted()[0].variables:
            raise ArgumentError(
                "score is of one variable, and several were fitted; expected predict, whose NAME_mean can be "
                "compared with values of each.",
                key="score-of-variables",
            )
        found = self.predict(X if isinstance(X, DataFrameLike) else np.asarray(X, dtype=np.float64))
        mean = found["mean"].values if isinstance(found, xr.Dataset) else np.asarray(found)
        errors = values - (mean if mean.shape == values.shape else mean.T)
        return float(1.0 - np.sum(errors**2) / np.sum((values - values.mean(axis=0)) ** 2))

    def sample(
        self, to: To = None, size: int = 1, *, seed: int = 0, at: At = None, mask: MaskLike = None
    ) -> xr.Dataset:
        """Draw fields that agree with the observations, from their joint distribution at all targets.

        The result has the variable that was observed, without noise, and the dimension ``sample`` of ``size``
        draws first. Targets ``to``, ``at`` and ``mask`` are as for `predict`. Up to 4,000 are drawn by their
        full covariance, more pathwise: a right-hand side for each draw, and 8 bytes for each of its values.
        Errors are those of `cagp_dist.condition` and `cagp_dist.sample_posterior`.
        """
        observed, learned = self._fitted()
        check_count("size", size, least=1)
        check_count("seed", seed, least=0)
        found = masked(find_targets(to, observed), mask)
        targets = self._at_times(found, observed, learned.mean, at)
        with self._call() as call:
            draws = self._drawn(targets, call, size=size, seed=seed)
        return dataset_of_samples(draws, observed, targets, seed=seed)

    def _drawn(self, targets: MapTargets, call: _Call, *, size: int, seed: int) -> Draws:
        """Draw fields (size, T, q) at targets, in the unit of the data."""
        observed, _ = self._fitted()
        if self.recalibration != "none":
            raise ArgumentError(
                f"recalibration is {self.recalibration!r}, whose distributions do not say how errors at "
                "different targets are correlated, but samples need the joint distribution. The Gaussian "
                'posterior has one: recalibration="none", or cagp_dist.condition(..., covariance="full").',
                key="samples-recalibrated",
            )
        if self.causal:
            raise ArgumentError(
                "causal is True, but samples are jointly distributed at all times; expected causal=False.",
                key="samples-causal",
            )
        draws = draw_fields(
            observed.points,
            self._learned_at(targets),
            wanted_of(targets, observed, shared=False),
            self.solver,
            call.resources,
            size=size,
            seed=seed,
            narrator=call.narrator,
        )
        if self.transform_ is not None:
            draws = draws._replace(values=self.transform_.inverse(draws.values))
        return draws

    def area_mean(
        self,
        areas: AreaLike,
        *,
        differences: Iterable[tuple[str, str]] | None = None,
        covariates: FieldsLike | None = None,
        at: At = None,
        share: float = SHARE_OF_QUADRATURE,
        draws: int = AREA_DRAWS,
        seed: int = 0,
    ) -> xr.Dataset:
        """Means of the field over areas, weighted with area, with their error bars.

        The error bar counts what the observations leave open, and how errors go together within an area. The
        mean of transformed values is no transformed mean: it comes from draws of the field in the area.

        Parameters
        ----------
        areas : polygons, regions or masks
            Polygons with a ``__geo_interface__``: of shapely, a GeoDataFrame or GeoSeries of geopandas,
            shapes of pyshp; GeoJSON as a mapping, or the path of a file of it; a `Box`, a `Polygon` or the
            name of a region, as for `area_means`; a boolean DataArray on a grid, with another dimension if it
            is of several areas; or several of these, in a list or a mapping by names. Polygons may have holes
            and several parts. On the globe corners are longitude, latitude, edges are great circles, and the
            inside is the smaller side, over the antimeridian and around a pole as well; in a plane corners
            are x, y and edges straight. A GeoDataFrame in another system is converted by its ``crs``.
        differences : sequence of (str, str), optional
            Pairs of names of these areas: the first mean minus the second, whose error bar knows how both
            go together.
        covariates : Dataset, DataArray or mapping of str to DataArray, optional
            Columns of the table that ``mean`` names, as fields on a grid that covers the areas, such as
            ``{"elevation": terrain["elevation"]}``; "file:PATH:VARIABLE" in a mapping works too. They are
            interpolated bilinearly, as fields given as ``mean`` are, and units are converted. Coefficients
            are those by the columns at the observations.
        at : as for `predict`
        share : float
            By which part of an error bar it may change where the cells of each area are halved, in (0, 1).
        draws, seed : int
            How many fields are drawn of transformed values, 100 at least.

        Returns
        -------
        xarray.Dataset
            ``mean`` and ``std`` along ``area``, with ``difference_mean`` and ``difference_std`` along
            ``difference``. The attribute ``quadrature_change`` is the largest part by which an error bar
            changed when the cells were last halved, ``quadrature_nodes`` how many there are. Of transformed
            values also ``field_quantile``, and ``mean_standard_error`` and ``std_standard_error``, those of
            the draws, as the attribute ``monte_carlo`` says.

        Raises
        ------
        ArgumentError
            If an area is empty, crosses itself, or is of another space; if ``mean`` names a column that
            ``covariates`` do not have; beside depths, several variables, logarithms of "log1p" or a
            recalibration, which have no means over areas.

        Warns
        -----
        UserWarning
            If 16,384 nodes of an area do not do.

        Examples
        --------
        >>> import cagp_dist as cagp
        >>> places = {"lat": [48.1, 52.5, 50.1], "lon": [11.6, 13.4, 8.7], "value": [21.0, 18.5, 20.2]}
        >>> model = cagp.Kriging(noise_std=0.3, lengthscale_km=400.0, variance=9.0).fit(places)
        >>> south, north = cagp.Box("south", 47, 50, 7, 14), cagp.Box("north", 50, 54, 7, 14)
        >>> found = model.area_mean([south, north], differences=[("south", "north")])
        >>> found["difference_mean"].values.round(1), found["difference_std"].values.round(1)
        (array([1.4]), array([1.1]))
        """
        observed, learned = self._fitted()
        check_means(observed, logarithms=read_as(self) != "none")
        check_positive("share", share, most=1.0)
        found = as_areas(areas, observed.space)
        columns, names = pairs_of(differences, found)
        fields_known = fields_of_columns(covariates, learned.mean, observed.space)
        if self.transform_ is not None and not isinstance(self.transform_, Identity):
            check_count("draws", draws, least=100)
            check_count("seed", seed, least=0)
            return self._area_mean_of_draws(
                found, columns, names, fields_known, at, share=share, size=draws, seed=seed
            )
        count, before = len(found) + len(names), None
        levels: tuple[int, ...] = (ROWS, 2 * ROWS)
        with self._call() as call:
            while True:
                targets = replace(area_targets(found, observed, columns, levels), fields=fields_known)
                targets = self._at_times(targets, observed, learned.mean, at)
                self._check_plan(observed, learned.mean, targets, call)
                solved = self._solved(observed, self._learned_at(targets), targets, call, corrected=False)
                mean, std = (
                    shaped(each, observed, targets) for each in (solved.solution.mean, solved.solution.std)
                )
                before = std[..., :count] if before is None else before
                mean, std = mean[..., -count:], std[..., -count:]
                change = change_of(before, std, learned.kernel.variance)
                nodes = most_nodes(targets, count)
                if change <= share or 4 * nodes > MOST_NODES:
                    break
                before, levels = std, (2 * levels[-1],)
        if change > share:
            _warn_of_nodes(nodes, change, share)
        said = attributes(
            solved.solution, observed, learned, call=f"cagp.Kriging({_changed(self)}).area_mean(...)"
        )
        said |= {"quadrature_change": change, "quadrature_nodes": nodes}
        return dataset_of_areas(mean, std, found, names, observed, targets, said)

    def _area_mean_of_draws(
        self,
        areas: Sequence[Area],
        columns: Array,
        names: Sequence[str],
        fields_known: Mapping[str, StaticField],
        at: At,
        *,
        share: float,
        size: int,
        seed: int,
    ) -> xr.Dataset:
        """Average draws of the field over areas, by cells and by cells of half their size."""
        observed, learned = self._fitted()
        assert self.transform_ is not None
        rows, both = ROWS, np.hstack([np.eye(len(areas)), columns])
        with self._call() as call:
            while True:
                targets, means = area_nodes(areas, observed, (rows, 2 * rows))
                targets = replace(targets, fields=fields_known)
                targets = self._at_times(targets, observed, learned.mean, at)
                found = self._drawn(targets, call, size=size, seed=seed)
                values = found.values[:, 0] if observed.dimension is None else found.values
                coarse, fine = (spread(values, targets) @ mean @ both for mean in means)
                change = change_of(coarse.std(axis=0), fine.std(axis=0), 0.0)
                if change <= share or 4 * targets.north.size > MOST_SAMPLED:
                    break
                rows *= 2
        if change > share:
            _warn_of_nodes(int((means[1] > 0.0).sum(axis=0).max()), change, share)
        said = {
            "title": f"{observed.what}: means and standard deviations",
            "status": found.status.value,
            "solver": "; ".join(found.solvers),
            "transform": self.transform_.text,
            "monte_carlo": f"Means of {size:,} draws of the field at {targets.north.size:,} places, "
            "transformed back; mean_standard_error and std_standard_error are those of the draws.",
            "draws": size,
            "seed": seed,
            "quadrature_change": change,
            "quadrature_nodes": int((means[1] > 0.0).sum(axis=0).max()),
            **below_limits(observed),
        }
        result = dataset_of_areas(
            fine.mean(axis=0), fine.std(axis=0, ddof=1), areas, names, observed, targets, said
        )
        return with_errors_of_draws(result, fine, len(areas))

    def cross_validate(
        self,
        folds: int | None = 10,
        *,
        by: Literal["block", "station", "day"] = "block",
        blocks_degrees: float | Literal["auto"] | None = "auto",
        blocks: float | None = None,
        seed: int = 0,
    ) -> xr.Dataset:
        """Predict blocks of places, stations or days from all others, and score the predictions.

        Kernel and noise stay those fitted to all observations (or their probabilities, if they are integrated
        over). The prior mean is fitted without the places that are left out. With a ``recalibration`` all
        distributions are corrected, each by errors of other folds than its own. More than 20 folds are put
        into 20 groups then, and the errors of a whole group are left out: the method learns 20 times.

        Parameters
        ----------
        folds : int or None
            Number of solves; each place is left out in one of them. None: each station or day is left out
            separately, or with ``by="block"`` each place, which takes a single solve where that is exact
            (leave-one-out).
        by : {"block", "station", "day"}
            What is left out together: places in one block of so many degrees; all observations of a place; or
            those of a day (UTC), if the model was made with ``at``.
        blocks_degrees : float, "auto" or None
            Height of the blocks; None: each place separately. "auto": 5 degrees, halved in a small region
            until there are as many blocks as folds; each place separately where ``folds`` is None.
        blocks : float, optional
            In a plane, instead of degrees: the width of blocks in the unit of x and y, by default a tenth of
            the longer side of the observations.
        seed : int
            Decides which blocks form a fold.

        Returns
        -------
        xarray.Dataset
            For each observation ``observed``, ``mean``, ``std`` (latent), ``predictive_std`` (with noise),
            ``pit`` and ``fold``, and ``below_limit`` where limits of detection were observed; ``rmse``,
            ``crps``, ``nll`` and ``coverage`` of central intervals over all.
            The attribute ``blocks_degrees`` says how high the blocks were.
        """
        observed, learned = self._fitted()
        check_recalibration(self.recalibration)
        if folds is not None:
            check_count("folds", folds, least=2)
        check_count("seed", seed, least=0)
        check_word("by", by, ("block", "station", "day"))
        if by == "day" and not observed.points.in_time:
            raise ArgumentError(
                'by is "day", and each field was fitted separately: other days give no information on one '
                'that is left out. Expected a model of all times, cagp.Kriging(at="observed").',
                key="days-fitted-separately",
            )
        size: float | Literal["auto"] | None = None
        if by == "block" and (folds is not None or blocks is not None or blocks_degrees != "auto"):
            size = self._blocks(blocks_degrees, blocks)
        split = Split.into_folds(observed.points, count=folds, blocks=size, days=by == "day", seed=seed)
        with self._call() as call:
            about = f"{int(cast('Indices', split.folds).max()) + 1:,} folds"
            with call.narrator.stage("cross-validation", about) as report:
                task = self._task(
                    observed, ModelSettings(learned.kernel, learned.mean), MapPoints(observed.points.X[:0])
                )
                execution = Execution.on(call.resources, report=report)
                found = cross_validate(self._recalibrated(task), learned, execution, split=split)
        integrated = learned.averages
        if self.transform_ is not None:
            found = folds_in_units(found, self.transform_)
        alone = by == "block" and size is None
        scores = dataset_of_folds(found, observed, integrated=integrated, left_out="place" if alone else by)
        if self.recalibration != "none":
            scores.attrs |= found.recalibration.attributes()
        size = split.blocks if observed.space.has_latitudes else None
        return scores if size is None else scores.assign_attrs(blocks_degrees=size)

    def variogram(self, *, draws: int = 200, seed: int = 0, directions: int | None = None) -> xr.Dataset:
        """Estimate the variogram of the observations, beside that of the fitted kernel and noise.

        The result has ``empirical`` semivariances of observations about the prior mean, ``low`` and ``high``
        of the band of 90 % of so many fields drawn from the fitted model at the same places, and ``pairs``,
        along ``bin``, whose pairs are ``distance`` kilometres apart, in a plane in the unit of x and y; and
        the curve ``fitted`` along ``curve_distance``. Pairs are of the same time; where there are more than
        800 places the seed chooses. The numbers of the fit count as known. With ``directions=4`` there is
        one for pairs around each of the azimuths 0, 45, 90 and 135 degrees, along ``azimuth_degrees``; where
        a field reaches further in one direction, semivariances rise more slowly along it.
        """
        observed, learned = self._fitted()
        if columns := ", ".join(observed.points.beside):
            raise ArgumentError(
                f"the observations have {columns} beside space, and a variogram is of distances alone; "
                "expected observations without.",
                key="variogram-of-columns",
            )
        if observed.points.censored is not None:
            raise ArgumentError(
                "values are censored, of which it is known only that they are below a bound, and a "
                "variogram is of values; expected none below limits of detection, and a transform in which "
                "zeros are values, such as cagp.BoxCox(0.5, shift=0.1).",
                key="zeros-with-others",
            )
        if observed.points.functionals is not None:
            raise ArgumentError(
                "the observations are means over areas, which have no distances; expected values at points. "
                "The kernel was fitted by their likelihood: model.summary().",
                key="variogram-of-areas",
            )
        check_count("draws", draws, least=20)
        check_count("seed", seed, least=0)
        if directions is not None:
            check_count("directions", directions, least=2)
        return variogram_dataset(observed, learned, draws=draws, seed=seed, directions=directions)

    def _blocks(
        self, blocks_degrees: float | Literal["auto"] | None, blocks: float | None
    ) -> float | Literal["auto"] | None:
        """Give the size of blocks in the unit of the space; None: each place by itself."""
        space = self._fitted()[0].space
        if space.has_latitudes and blocks is not None:
            raise ArgumentError(
                f"blocks is {blocks!r}, the width in a plane; expected blocks_degrees.", key="blocks-of-space"
            )
        if not space.has_latitudes and blocks_degrees not in (None, "auto"):
            raise ArgumentError(
                f"blocks_degrees is {blocks_degrees!r}, and the observations lie on the {space.text}; "
                "expected blocks, in the unit of its axes.",
                key="blocks-of-space",
            )
        if blocks is not None:
            check_positive("blocks", blocks)
            return blocks
        if isinstance(blocks_degrees, str):
            check_word("blocks_degrees", blocks_degrees, ("auto",))
        return blocks_degrees

    def summary(self) -> str:
        """Kernel, noise and fit in a few lines of text."""
        return "\n".join(filter(None, (summary(*self._fitted()), self._advice)))

    def _fitted(self) -> tuple[ObservedObject, FittedModel]:
        """Give what was observed and learned."""
        if not hasattr(self, "_learned"):
            raise ArgumentError(
                "this Kriging is not fitted yet; call fit(observations) first.", key="not-fitted"
            )
        check_memory_limit(self.memory_limit_bytes)  # set_params may have come after fit
        return self._observed, self._learned

    def _learned_at(self, targets: MapTargets) -> FittedModel:
        """Give what was learned, with what targets say of the columns of its mean."""
        return self._learned.with_mean(mean_at_targets(self._learned.mean, targets))


def _warn_of_nodes(nodes: int, change: float, share: float) -> None:
    """Warn that means over areas are not exact."""
    warn(
        f"with {nodes:,} nodes of an area an error bar still changes by {change:.1%} where cells are halved, "
        f"which is more than {share:.1%}; the areas are large beside the lengthscale. Take smaller ones, or "
        "a larger share."
    )


_PARAMETERS = {setting.name: setting.default for setting in fields(Kriging)}


def _changed(model: Kriging) -> str:
    """Arguments that are not the defaults, as they would be written."""
    shown = {
        name: given
        for name, given in model.get_params().items()
        if given is not _PARAMETERS[name] and not (isinstance(given, str) and given == _PARAMETERS[name])
    }
    written = {name: repr(given) for name, given in shown.items()}
    return ", ".join(f"{name}={text if len(text) < 100 else '...'}" for name, text in written.items())
