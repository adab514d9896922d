"""The page of a result that is in memory, in a notebook."""

import atexit
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import located
from cagp_dist.kriging.result_distribution import stem_of
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.recalibration import Distribution
from cagp_dist.store.published_variables import NODES_PER_CELL, QUANTILE_LEVEL
from cagp_dist.store.schema import means_over_cells, prediction_group
from cagp_dist.store.zarr_arrays import write_group
from cagp_dist.variables import Variable
from cagp_dist.view.page_server import PageServer, serve

if TYPE_CHECKING:
    from IPython.display import IFrame

UNDATED = np.datetime64("1970-01-01", "s")  # of a map without a time, which the page does not show
NAME = "field"
SAID = ("title", "solver", "status_advice")  # attributes that the page shows

_open: list[tuple[PageServer, "TemporaryDirectory[str]"]] = []


def explore_result(dataset: xr.Dataset, *, height: int = 600) -> "IFrame":
    """Serve the page of a result on this machine, until Python ends, and give the frame that shows it."""
    try:
        from IPython.display import IFrame
    except ImportError as error:
        raise ArgumentError(
            "explore() shows a page in a notebook; install IPython, or write a run.", key="no-notebook"
        ) from error
    group = published_map(dataset)
    folder = TemporaryDirectory(prefix="cagp-explore-")
    run = Path(folder.name) / "result.zarr"
    said = {name: dataset.attrs[name] for name in SAID if name in dataset.attrs}
    undated = {"undated": 1} if (group["time"].values == UNDATED).all() else {}
    write_group(run, "/", xr.Dataset(attrs=said | undated))
    write_group(run, "map", group)
    if not _open:
        atexit.register(_close)
    _open.append((serve(run), folder))
    return IFrame(_open[-1][0].url, width="100%", height=height)


def published_map(dataset: xr.Dataset) -> xr.Dataset:
    """Give a result on a grid the names and dimensions of the group ``map`` of a run."""
    where, stem = located(dataset), stem_of(dataset)
    mean = dataset[f"{stem}mean"]
    others = [dim for dim in mean.dims if str(dim) not in where.dims]
    dated = [dim for dim in others if dim in mean.coords and mean[dim].dtype.kind == "M"]
    if where.axes is None or not where.space.has_latitudes or len(others) > 1 or others != dated:
        raise ArgumentError(
            f"the result has the dimensions {', '.join(map(str, mean.dims))}; expected axes of latitude and "
            "longitude, and times at most beside them. Choose of the others first: dataset.isel(sample=0).",
            key="not-a-map",
        )
    times = mean[dated[0]].values if dated else np.array([UNDATED])
    latitude, longitude = where.axes
    eastward = np.unwrap(longitude, period=360.0)  # across Greenwich without a jump
    rows, columns = np.argsort(latitude), np.argsort(eastward)

    def field(held: xr.DataArray) -> Array:
        """Values (T, P, Q) of a variable, ascending in both axes."""
        numbers = held.broadcast_like(mean).transpose(*others, *where.dims).values.astype(np.float64)
        if where.dims[0] not in where.north.dims:
            numbers = np.swapaxes(numbers, -1, -2)
        return np.asarray(numbers[..., rows, :][..., columns].reshape(len(times), len(rows), len(columns)))

    arrays = {str(name): held for name, held in dataset.data_vars.items()}
    std, unfinished = (
        field(arrays[name]) if name in arrays else None for name in (f"{stem}std", f"{stem}std_computational")
    )
    distribution, noise = None, dataset.attrs.get("noise_std")
    of_observations = f"{stem}quantile" in arrays
    if of_observations or "field_quantile" in arrays:
        table = arrays[f"{stem}quantile" if of_observations else "field_quantile"]
        quantiles = [field(table.sel({QUANTILE_LEVEL: level})) for level in QUANTILE_LEVELS]
        spread = arrays[f"{stem}predictive_std" if of_observations else f"{stem}std"]
        distribution = Distribution(field(spread), np.stack(quantiles, axis=1))
    what = str(mean.attrs.get("long_name", NAME)).removeprefix("posterior ").removeprefix("mean of ")
    known = noise if isinstance(noise, (int, float)) else None
    group = prediction_group(
        "map",
        times=times,
        north=latitude[rows],
        east=eastward[columns],
        mean=field(mean),
        std=std,
        noise_variance=0.0 if known is None else known**2,
        computational_std=unfinished,
        distribution=distribution,
        variable=Variable(NAME, what, units=str(mean.attrs.get("units", ""))),
    )
    if distribution is not None and not of_observations:
        about = group[f"{NAME}_quantile"].attrs
        about["long_name"] = f"quantile of {what}, without noise"
        about.pop("comment", None)
    if NODES_PER_CELL in dataset.attrs:
        return means_over_cells(group, Variable(NAME, what), int(dataset.attrs[NODES_PER_CELL]))
    noisy = of_observations or (distribution is None and known is not None)
    return group if noisy else group.drop_vars(f"{NAME}_predictive_std")


def _close() -> None:
    """Stop what serves the pages, and remove their files."""
    while _open:
        server, folder = _open.pop()
        server.close()
        folder.cleanup()
