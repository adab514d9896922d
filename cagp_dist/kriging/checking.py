"""`check`: which observations do not fit what all others say."""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from cagp_dist.arrays import Indices
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.checked import CheckedObservations
from cagp_dist.fields.named_sources import is_source
from cagp_dist.fields.observed_objects import Source
from cagp_dist.fields.tables.columns import Columns
from cagp_dist.kriging.kriging_model import Kriging
from cagp_dist.kriging.learning import settings_of
from cagp_dist.pipeline.checking import check_observations
from cagp_dist.pipeline.defaults import FLAG_RATE
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.map_points import MapPoints
from cagp_dist.pipeline.suggestions import suggestions
from cagp_dist.remedies import Setting

if TYPE_CHECKING:
    import pandas as pd

NOT_CHECKED = {  # settings beside which nothing can be checked yet, with the value that helps
    "recalibration": "none",
    "transform": "none",
    "prior": None,
    "bias_by": None,
}
ADVICE = {"transform": ", or a column of values that were transformed before, such as their logarithms"}
ADDED = ("flag", "expected", "expected_std", "suggestion")


def check(observations: Source, *, rate: float = FLAG_RATE, **settings: Any) -> "pd.DataFrame | xr.Dataset":
    """Flag observations that all others contradict.

    Each value is predicted from the others: from all of them up to 600 places, else from some 150 around it.
    Values that are less probable than chance allows are flagged (Benjamini & Hochberg 1995), the worst first;
    what a wrong value made look wrong is then predicted without it.

    Parameters
    ----------
    observations : as for `krige`
        What was observed, as a table or an object of xarray.
    rate : float
        Share of false flags among all flags that is aimed at, above 0 and at most 0.5.
    **settings
        Those of `krige` that say what stands where, and what is known: ``value``, ``columns``, ``units``,
        ``where``, ``crs``, ``noise_std``, ``kernel``, ``mean``, ``background``. With ``at="observed"`` values
        of all times predict each other; otherwise those of its own time predict each.

    Returns
    -------
    pandas.DataFrame or xarray.Dataset
        A table as it came, with the columns ``flag``, ``expected`` (by all others that are not flagged),
        ``expected_std`` (of a value about that, noise included) and ``suggestion``: what would make a flagged
        value right, such as "divide by 10: 21.3", where that is probable, else empty. An object of xarray
        gives a dataset with the same variables along ``observation``, and ``observed``. ``attrs`` has kernel,
        noise and ``rate``.

    Raises
    ------
    CagpError
        As `krige`. DataError with the key "most-are-flagged": more than half of the values contradict the
        others; "few-to-check": there are fewer than 10 values.

    Notes
    -----
    Kernel and noise are fitted without what looks wrong (for more than 500 places to some of them), and
    count as known. ``rate`` is kept as far as errors of prediction are normal and as large as stated, which
    simulation shows of Gaussian fields. Limits of detection ("<0.1") are neither checked nor used. Where a
    field is rougher in some parts than in others, as among mountains, more of the flags there are false: 27
    of 69 in a table of highest temperatures.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> lat, lon = np.repeat(np.arange(46.0, 52.0), 6), np.tile(np.arange(6.0, 12.0), 6)
    >>> table = {"lat": lat, "lon": lon, "t (degC)": 20.0 - (lat - 46.0) + 0.2 * np.sin(9.0 * lon)}
    >>> table["t (degC)"][8] *= 10.0
    >>> found = cagp.check(table)
    >>> found[found.flag].suggestion.tolist()
    ['divide by 10: 19.0508']
    """
    for name in ("to", "kind"):
        if name in settings:
            raise ArgumentError(
                f"{name} is of maps, and a check makes none; leave it out.",
                key="check-settings",
            )
    model = Kriging(**settings)
    found = checked_by(model, observations, rate)
    return found.dataset() if _has_labels(observations) else with_flags(table_as_it_is(observations), found)


def checked_by(model: Kriging, observations: Source, rate: float) -> CheckedObservations:
    """Read and check observations by the settings of a model."""
    _check_settings(model)
    with model._call() as call:
        observed, mean = call.read(model, observations)
        points, rows = observed.points.measured(), observed.rows
        if rows is not None:
            rows = rows[points.present[observed.points.present]]
        observed = replace(observed, points=points, rows=rows)
        task = model._task(observed, settings_of(model, observed, mean), MapPoints(observed.points.X[:0]))
        execution = Execution.on(call.resources)
        checked = check_observations(task, rate, execution, narrator=call.narrator)
        said = suggestions(task, checked, execution)
    units = observed.attributes.get("units", "")
    return CheckedObservations(observed.points, checked, said, observed.what, units, observed.rows)


def _check_settings(model: Kriging) -> None:
    """Refuse what a check does not have."""
    for name, helps in NOT_CHECKED.items():
        given = getattr(model, name)
        if given is not None and given != helps:
            raise ArgumentError(
                f"{name} is {given!r}, beside which observations are not checked yet; expected "
                f"{name}={helps!r}{ADVICE.get(name, '')}.",
                key="check-settings",
                remedies=(Setting(name, helps),) if helps is not None else (),
            )
    if isinstance(model.value, list | tuple):
        raise ArgumentError(
            f"value is {model.value!r}; expected one name, as variables are checked one by one.",
            key="check-settings",
        )


def _has_labels(observations: Source) -> bool:
    """Whether it is an object of xarray, or opened as one, instead of a table."""
    return isinstance(observations, xr.DataArray | xr.Dataset | xr.DataTree) or is_source(observations)


def table_as_it_is(table: Source) -> "pd.DataFrame":
    """Copy a table, as a frame of pandas in its order."""
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table.copy()
    if isinstance(table, str):
        table = table.removeprefix("table:")
    if isinstance(table, str | PathLike) or not isinstance(table, Mapping):
        return pd.DataFrame(dict(Columns.open(table).columns))
    return pd.DataFrame({name: np.asarray(column) for name, column in table.items()})


def with_flags(frame: "pd.DataFrame", found: CheckedObservations) -> "pd.DataFrame":
    """Add flags to the rows that were checked; copies of a row have its own."""
    if taken := [name for name in ADDED if name in frame.columns]:
        raise ArgumentError(
            f"the table has a column {taken[0]!r}, which the result adds; rename or drop it.",
            key="check-columns",
        )
    checked, rows, there = found.checked, found.rows, found.points.present
    assert rows is not None  # of a table
    before = list(frame.columns)
    values = {"flag": checked.flagged, "expected": checked.expected, "expected_std": checked.std}
    empty: dict[str, Any] = {"flag": False, "expected": np.nan, "expected_std": np.nan, "suggestion": ""}
    for name, held in {**values, "suggestion": found.suggestions}.items():
        column = np.full(len(frame), empty[name], dtype=held.dtype)
        column[rows] = held[there]
        frame[name] = column
    own, of = copied_rows(frame[before], rows)
    for name in ADDED if own.size else ():
        column = frame[name].to_numpy(copy=True)
        column[own] = column[of]
        frame[name] = column
    frame.attrs |= found.about()
    return frame


def copied_rows(frame: "pd.DataFrame", rows: Indices) -> tuple[Indices, Indices]:
    """Rows of a table that equal one of those that were read in every column, and which one."""
    import pandas as pd

    others = np.setdiff1d(np.arange(len(frame)), rows)
    if not others.size:
        return others, others
    keys = pd.util.hash_pandas_object(frame.astype(str), index=False).to_numpy()
    first = pd.Series(rows, index=keys[rows])
    first = first[~first.index.duplicated()]
    same = first.reindex(keys[others])
    copies = ~same.isna().to_numpy()
    return others[copies], same.to_numpy()[copies].astype(np.intp)
