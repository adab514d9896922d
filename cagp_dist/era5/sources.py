"""Open a temperature field by the name of its source, as a job file gives it."""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from cagp_dist.era5.cds import Progress, open_cds
from cagp_dist.era5.files import file_sha256, open_file
from cagp_dist.era5.layout import check_variable
from cagp_dist.era5.remote import PUBLIC_STORES, open_zarr
from cagp_dist.era5.selection import Area, check_area, parse_times
from cagp_dist.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from cagp_dist.era5.synthetic import Synthetic

SOURCES = ("sample", "synthetic", "file:PATH", "zarr:URL", "cds")

SAMPLE_FILE = "ecmwf_2t_2017-04-27T12_0p75_global.grib"
SAMPLE_SHA256 = "80cbe25ca79229778675775c105d881358eccd0f813818a8780c83fe1e2fbd91"


def open_source(
    source: str,
    *,
    variable: str = "t2m",
    times: Sequence[str] | None = None,
    area: Area | None = None,
    grid_degrees: float | None = None,
    cache_directory: Path,
    progress: Progress | None = None,
    synthetic: "Synthetic | None" = None,
) -> xr.Dataset:
    """Read the selected part of a field into canonical form.

    Parameters
    ----------
    source : str
        ``"sample"``: the built-in ECMWF analysis of 2017-04-27T12:00, 241 x 480 points;
        ``"synthetic"``: an exact draw of a known prior, see `cagp_dist.era5.synthetic`;
        ``"file:PATH"``: GRIB, NetCDF or a zip of them;
        ``"zarr:URL"``: anything fsspec opens, or ``zarr:arco-era5`` and ``zarr:weatherbench2``;
        ``"cds"``: the Climate Data Store, which needs a free key.
    variable : str
        Canonical name of the variable.
    times : sequence of str, optional
        ISO times in UTC.  None: all times of the source, one of ``"synthetic"``; ``"cds"`` needs them.
    area : tuple of float, optional
        North, west, south, east in degrees.
    grid_degrees : float, optional
        Keep the grid points at multiples of this spacing; ``"cds"`` interpolates to it, and
        ``"synthetic"`` draws on it (1 degree if left out).
    cache_directory : path
        Folder for downloads and for decoded arrays on their way; created when absent.
    progress : callable, optional
        Called with lines of text while a source keeps one waiting.
    synthetic : Synthetic, optional
        What the source ``"synthetic"`` draws from; for no other source.

    Returns
    -------
    xarray.Dataset
        ``t2m`` (time, latitude, longitude) float32 kelvin, latitude ascending, longitude ascending in
        [0, 360), time datetime64[ns]; attributes ``source`` and ``source_sha256``.

    Raises
    ------
    ConfigurationError
        If the source is not known or the selection is not valid.
    DataError
        If the data is absent, damaged or not a temperature field.
    NotReadyError
        If the data does not exist yet.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cagp_dist.era5.sources import open_source
    >>> field = open_source("sample", cache_directory=Path(tempfile.mkdtemp()))
    >>> field.t2m.shape
    (1, 241, 480)
    """
    check_variable(variable)
    if times is not None:
        parse_times(times)
    if area is not None:
        check_area(area)
    name, _, address = source.partition(":")
    if name in ("file", "zarr") and not address:
        raise ConfigurationError(
            f"source {source!r} names nothing; expected {name}: and an address after it."
        )
    if synthetic is not None and source != "synthetic":
        raise ConfigurationError(
            f"settings of a synthetic field came with source {source!r}; expected source 'synthetic'."
        )
    if source == "sample":
        return _open_sample(variable, times, area, grid_degrees, cache_directory)
    if source == "synthetic":
        from cagp_dist.era5.synthetic import Synthetic, open_synthetic

        return open_synthetic(
            synthetic or Synthetic(),
            variable=variable,
            times=times,
            area=area,
            grid_degrees=grid_degrees,
            progress=progress,
        )
    if name == "file":
        return open_file(
            Path(address).expanduser(),
            variable=variable,
            times=times,
            area=area,
            grid_degrees=grid_degrees,
            scratch=cache_directory,
        )
    if name == "zarr":
        return open_zarr(address, variable=variable, times=times, area=area, grid_degrees=grid_degrees)
    if source == "cds":
        return open_cds(
            variable=variable,
            times=times,
            area=area,
            grid_degrees=grid_degrees,
            cache_directory=cache_directory,
            progress=progress,
        )
    raise _unknown(source)


def _open_sample(
    variable: str,
    times: Sequence[str] | None,
    area: Area | None,
    grid_degrees: float | None,
    cache_directory: Path,
) -> xr.Dataset:
    with as_file(files("cagp_dist.era5") / "data" / SAMPLE_FILE) as path:
        if not path.exists() or file_sha256(path) != SAMPLE_SHA256:
            raise DataError(f"the built-in sample {path} is absent or damaged; install the package again.")
        field = open_file(
            path,
            variable=variable,
            times=times,
            area=area,
            grid_degrees=grid_degrees,
            scratch=cache_directory,
        )
    field.attrs["source"] = "sample"
    return field


def _unknown(source: str) -> ConfigurationError:
    choices = ["sample", "synthetic", "cds", *(f"zarr:{name}" for name in PUBLIC_STORES)]
    near = get_close_matches(source, choices, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    if Path(source).expanduser().exists():
        guess = f" To read that path, write {'zarr' if Path(source).is_dir() else 'file'}:{source}."
    return ConfigurationError(f"source {source!r} is not known; expected one of {', '.join(SOURCES)}.{guess}")
