"""The sources of fields by the names that job files give them: a new one is a module and a line here."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cagp_dist.arrays import Marks
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.remedies import Setting
from cagp_dist.store.published_variables import BELOW_LIMIT
from cagp_dist.text import nearest, without_secrets
from cagp_dist.variables import Transform, canonical_name, log1p_of

FINAL_AFTER_DAYS = 60.0  # the final ERA5 comes two to three months after the preliminary one

if TYPE_CHECKING:
    import xarray as xr

    from cagp_dist.arrays import Times
    from cagp_dist.fields.files.local_files import FileError
    from cagp_dist.fields.selection import Area, Choice, Selection
    from cagp_dist.fields.synthetic import Synthetic
    from cagp_dist.space import CRSLike


def open_source(
    source: str,
    *,
    variable: str = "t2m",
    times: Sequence[str] | None = None,
    area: "Area | None" = None,
    grid_degrees: float | None = None,
    level: float | None = None,
    select: "Mapping[str, Choice] | None" = None,
    units: str | None = None,
    check_range: bool = True,
    transform: "Transform" = "none",
    cache_directory: Path | None = None,
    progress: Callable[[str], None] | None = None,
    synthetic: "Synthetic | None" = None,
    noise_std: str | float | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, object] | None = None,
    missing: Marks = None,
    wait_seconds: float | None = None,
    undated: bool = False,
    crs: "CRSLike" = None,
) -> "xr.Dataset":
    """Read the selected part of a field into canonical form.

    Parameters
    ----------
    source : str
        ``"sample"``: the built-in ECMWF analysis of 2017-04-27T12:00, 241 x 480 points;
        ``"synthetic"``: an exact draw of a known prior, see `cagp_dist.fields.synthetic`;
        ``"file:PATH"``: GRIB, NetCDF or a zip of them; also a folder of such files, a pattern such as
        ``file:era5/*.nc``, or several with semicolons between them;
        ``"zarr:URL"``: a folder, or an address of https, s3, gs or az; ``zarr:arco-era5`` and
        ``zarr:weatherbench2``;
        ``"cds"``: the Climate Data Store, which needs a free key;
        ``"table:PATH"``: CSV or Parquet with a row for each measurement of a station.
    variable : str
        Name of the variable in the source, or another name of the same quantity in
        `cagp_dist.variables.VARIABLES`.
    times : sequence of str, optional
        ISO times in UTC.  None: all times of the source, one of ``"synthetic"``; ``"cds"`` needs them.
    area : tuple of float, optional
        North, west, south, east in degrees.
    grid_degrees : float, optional
        Keep the grid points at multiples of this spacing; ``"cds"`` interpolates to it, and
        ``"synthetic"`` draws on it (1 degree if left out).
    level : float, optional
        Which level, where there are several, in the unit of the source; or in hPa where that is Pa.
    select : mapping, optional
        Which value of other dimensions, such as ``{"number": 1}`` of an ensemble, of a file or a Zarr store,
        or of variables along the values, such as flags: the others are missing, and ``"*"`` takes all;
        of GRIB, of any keys of its messages; of points, of any of their columns; ``{"group": "PRODUCT"}``:
        which group of a NetCDF file, where the variable is in several.
    units : str, optional
        What the values are measured in, whatever the source says.
    check_range : bool
        Whether values that are not plausible for a known variable are refused.
    transform : {"none", "log1p"}
        "log1p": the field is log(1 + x / 1 unit), of rain in mm or mm per day, else in the unit of the
        values; the attributes say so.
    cache_directory : path, optional
        Folder for downloads and for decoded arrays on their way; created when absent. By default
        ``cagp_dist`` in ``$XDG_CACHE_HOME`` or ``~/.cache``, where `cagp_dist.krige` keeps downloads too.
    progress : callable, optional
        Called with lines of text while a source keeps one waiting.
    synthetic : Synthetic, optional
        What the source ``"synthetic"`` draws from; for no other source.
    noise_std, columns
        Of a table, or of points of a file or a Zarr store, see `cagp_dist.fields.tables.read_table`.
    where : mapping, optional
        Which rows of a table; of a file or a Zarr store ``level`` and ``select`` together.
    missing : number or sequence of numbers, optional
        What a file, a Zarr store or a table writes instead of a missing value, such as -9999.
    crs : int, str or pyproj.CRS, optional
        System of x and y of a file, a Zarr store or a table; for no other source.
    wait_seconds : float, optional
        Longest wait in a queue, of ``"cds"``, which is then asked at most once a day; None: hours.
    undated : bool
        Whether the time may be NaT, where the source has none and ``times`` names none.

    Returns
    -------
    xarray.Dataset
        One variable (time, latitude, longitude) in the precision of the source, ``t2m`` in kelvin, latitude
        ascending, longitude ascending in [0, 360), time datetime64[ns]; attributes ``source`` and
        ``source_sha256``. In a plane
        it is (time, y, x), both ascending, with the variable of the system if that is known. Places of their
        own are (time, point).

    Raises
    ------
    ConfigurationError, DataError, NotReadyError
        If the source or the selection is not valid; if the data is absent, damaged or not what was asked for;
        if it does not exist yet.

    Examples
    --------
    >>> from cagp_dist.fields.sources import open_source
    >>> field = open_source("sample")
    >>> field.t2m.shape
    (1, 241, 480)
    """
    from cagp_dist.fields.selection import Selection

    selection = Selection(
        value=variable,
        columns=columns or {},
        noise_std=noise_std,
        units=units,
        missing=missing,
        where=where_of(source, where, level=level, select=select),
        crs=crs,
        times=times,
        area=area,
        grid_degrees=grid_degrees,
        check_range=check_range,
        transform=transform,
    )
    access = Access(cache_directory, progress, synthetic, wait_seconds)
    return open_selected(source, selection, access, undated=undated)


def where_of(
    source: str,
    where: Mapping[str, object] | None,
    *,
    level: float | None = None,
    select: "Mapping[str, Choice] | None" = None,
) -> dict[str, object]:
    """Put together what is chosen of dimensions or columns; refused where a source has nothing to choose."""
    found, _ = _source(source)
    if select and not found.selects:
        raise _not_of(source, "select is for a file or a Zarr store")
    if level is not None and found.marks_missing and not found.selects:
        raise _not_of(source, f"level is {level:g}, for fields on a grid")
    if {*(where or {})} - {"level"} and not found.marks_missing:
        raise _not_of(source, "where is for a table, a file or a Zarr store")
    return {**({} if level is None else {"level": level}), **(where or {}), **(select or {})}


def open_selected(
    source: str, selection: "Selection", access: "Access", *, undated: bool = False
) -> "xr.Dataset":
    """Read what is wanted of a field, as `open_source`."""
    from cagp_dist.fields.selection import check_area, parse_times

    canonical_name(selection.variable)
    if selection.times is not None:
        parse_times(selection.times)
    if selection.area is not None:
        check_area(selection.area)
    found, address = _source(source)
    if access.synthetic is not None and source != "synthetic":
        raise _not_of(source, "settings of a synthetic field are for the source 'synthetic'")
    of_points = (selection.noise_std, selection.columns or None, selection.crs, selection.missing)
    if not found.marks_missing and any(each is not None for each in of_points):
        raise _not_of(source, "noise_std, columns, crs and missing are for a table, a file or a Zarr store")
    field = found.open(address, selection, access)
    if not undated and np.isnat(field["time"].values).any():
        raise _without_times(source, "the job names no time")
    return field if selection.transform == "none" else _in_logarithms(field)


def _source(source: str) -> "tuple[Source, str]":
    """Find a source by its name, and the address behind it."""
    name, _, address = source.partition(":")
    found = SOURCES.get(name)
    if found is None or (address and not found.address):
        raise _unknown(source)
    if found.address and not address:
        raise ConfigurationError(
            f"source {_named(source)} names nothing; expected {name}: and an address after it.", key="source"
        )
    return found, address


def _not_of(source: str, said: str) -> ConfigurationError:
    """Give the error of a setting that a source does not have."""
    return ConfigurationError(f"{said}; source {_named(source)} is none. Leave it out.", key="not-of-source")


def _in_logarithms(field: "xr.Dataset") -> "xr.Dataset":
    """Transform a field in canonical form."""
    if "noise_std" in field.coords:
        raise noise_of_transformed()
    if (limits := field.coords.get(BELOW_LIMIT)) is not None:
        from cagp_dist.pipeline.observations import beside_limits

        raise ArgumentError(
            beside_limits(int(limits.sum()), {'transform "log1p"': True}), key="limits-with-others"
        )
    (name,) = field.data_vars
    held = field[name]
    variable, values = log1p_of(held.values, str(name), held.attrs)
    return field.assign({name: (held.dims, values, variable.attributes())})


def noise_of_transformed() -> ArgumentError:
    """Give the error of a noise of values that are transformed."""
    return ArgumentError(
        'transform is "log1p", and noise_std is that of the values as they are; expected none, so that it is '
        "fitted to the logarithms.",
        key="transform-noise",
    )


def _without_times(source: str, came: str) -> ConfigurationError:
    """Say that the one time of a source has to be named."""
    return ConfigurationError(
        f"{_named(source)} has no times, so that it is one field, and {came}. Name the coordinate or column "
        "of times; or leave times out, for a run without time; or say when it was measured.",
        key="no-times",
        remedies=(Setting("times", ["2017-04-27T12:00"]),),
    )


def source_times(
    source: str,
    selection: "Selection | None" = None,
    *,
    cache_directory: Path,
    damaged: "Callable[[str, FileError], None] | None" = None,
) -> "Times":
    """List the times that a source has, without reading any value of its field.

    A file of several that cannot be read is an error, or is told to ``damaged`` and left out.
    """
    from cagp_dist.fields.selection import EVERYTHING

    selection = selection or EVERYTHING
    canonical_name(selection.variable)
    found, address = _source(source)
    if found.times is None:
        raise ConfigurationError(
            f"source {_named(source)} has no list of times: it gives those that are asked for; expected a "
            "list of them, or from when to when and how often.",
            key="no-times",
            remedies=(Setting("times", {"from": "2017-01-01", "to": "2017-01-31", "every": "6h"}),),
        )
    times = found.times(address, selection, Access(cache_directory, damaged=damaged))
    if np.isnat(times).any():
        raise _without_times(source, "the times of the job are a rule, which needs those of the source")
    return times


@dataclass(frozen=True)
class Access:
    """How a source is reached; the attributes are parameters of `open_source` and `source_times`."""

    folder: Path | None = None
    progress: Callable[[str], None] | None = None
    synthetic: "Synthetic | None" = None
    wait_seconds: float | None = None
    damaged: "Callable[[str, FileError], None] | None" = None  # told of files whose times cannot be read

    @property
    def cache_directory(self) -> Path:
        """Folder for downloads and for decoded arrays on their way."""
        return self.folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cagp_dist"


@dataclass(frozen=True)
class Source:
    """A place that fields come from: what opens it takes the address, a `Selection` and an `Access`."""

    open: "Callable[[str, Selection, Access], xr.Dataset]"
    address: str = ""  # what is written after the name and a colon, such as "PATH"
    example: str = ""  # a valid address
    remote: bool = False  # whether reading may cost a download, so that nothing is read to make a plan
    needs_times: bool = False
    marks_missing: bool = False  # whether a number may stand for a missing value
    selects: bool = False  # whether it may have dimensions to select of
    final_after_days: float = 0.0  # age from which it may have the final field instead of the preliminary one
    # those that are there; None: any that is asked for
    times: "Callable[[str, Selection, Access], Times] | None" = None


def _of(module: str) -> Any:
    """Give the module of a source, which is imported when the source is used: some need much."""
    return import_module(f"cagp_dist.fields.{module}")


SOURCES: dict[str, Source] = {
    "sample": Source(
        lambda _, wanted, access: _of("sample").open_sample(wanted, scratch=access.cache_directory),
        times=lambda *_: np.array([_of("sample").SAMPLE_TIME], dtype="datetime64[ns]"),
    ),
    "synthetic": Source(
        lambda _, wanted, access: _of("synthetic").open_synthetic(
            access.synthetic, wanted, progress=access.progress
        )
    ),
    "file": Source(
        lambda path, wanted, access: _of("files.local_files").open_file(
            path, wanted, scratch=access.cache_directory, progress=access.progress
        ),
        address="PATH",
        example="field.grib",
        marks_missing=True,
        selects=True,
        times=lambda path, wanted, access: _of("files.local_files").file_times(
            path, wanted, scratch=access.cache_directory, damaged=access.damaged
        ),
    ),
    "zarr": Source(
        lambda url, wanted, _: _of("stores.remote").open_zarr(url, wanted),
        address="URL",
        example="gs://bucket/era5.zarr",
        remote=True,
        marks_missing=True,
        selects=True,
        times=lambda url, wanted, _: _of("stores.remote").store_times(url, wanted),
    ),
    "cds": Source(
        lambda _, wanted, access: _of("stores.cds").open_cds(
            wanted,
            cache_directory=access.cache_directory,
            progress=access.progress,
            wait_seconds=access.wait_seconds,
        ),
        remote=True,
        needs_times=True,
        final_after_days=FINAL_AFTER_DAYS,
    ),
    "table": Source(
        lambda path, wanted, _: _of("stations").open_stations(Path(path).expanduser(), wanted),
        address="PATH",
        example="stations.csv",
        marks_missing=True,
        times=lambda path, wanted, _: _of("stations").station_times(Path(path).expanduser(), wanted),
    ),
}

SOURCE_FORMS = [f"{name}:{source.address}".removesuffix(":") for name, source in SOURCES.items()]
"""How sources are written: ``sample``, ``file:PATH``, ..."""


def _unknown(source: str) -> ConfigurationError:
    from cagp_dist.fields.stores.remote import PUBLIC_STORES

    near = nearest(source, [*SOURCES, *(f"zarr:{name}" for name in PUBLIC_STORES)])
    guess = f" Did you mean {near!r}?" if near else ""
    if Path(source).expanduser().exists():
        guess = f" To read that path, write {'zarr' if Path(source).is_dir() else 'file'}:{source}."
    return ConfigurationError(
        f"source {_named(source)} is not known; expected one of {', '.join(SOURCE_FORMS)}.{guess}",
        key="source",
    )


def _named(source: str) -> str:
    return repr(without_secrets(source, source))
