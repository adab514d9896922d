"""Observations of a job that are in memory: written down once, under a name that is a digest of them."""

import json
from collections.abc import Hashable, Mapping

import numpy as np
import xarray as xr

from cagp_dist.digest import text_sha256
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.gridded import GROUP, OF_GROUP
from cagp_dist.fields.groups import dataset_of
from cagp_dist.service.jobfile.config import changed
from cagp_dist.service.jobfile.job import Job
from cagp_dist.store.atomic_files import whole_file
from cagp_dist.store.zarr_arrays import content_sha256


def with_observations(job: Job, observations: xr.DataArray | xr.Dataset | xr.DataTree) -> Job:
    """Give a job observations of xarray instead of those of its source, as a file in its output folder."""
    group = (job.observations.select or {}).get(GROUP)
    dataset = _plain(observations, job.observations.variable, group)
    attributes = {str(name): variable.attrs for name, variable in dataset.variables.items()}
    digest = text_sha256(content_sha256(dataset) + json.dumps(attributes, sort_keys=True, default=repr))
    path = job.output.folder / "downloads" / f"observations-{digest[:16]}.nc"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            dataset.to_netcdf(temporary, engine="h5netcdf")
    return changed(job, "observations", source=f"file:{path}")


def _plain(
    observations: xr.DataArray | xr.Dataset | xr.DataTree, variable: str, group: object = None
) -> xr.Dataset:
    """Give the variable in memory, with what a file can hold, and not packed as the file it came from."""
    if isinstance(observations, xr.DataTree):
        observations = dataset_of(observations, variable, group)
    if not isinstance(observations, xr.DataArray | xr.Dataset):
        raise ArgumentError(
            f"observations is of type {type(observations).__name__}; expected an object of xarray with the "
            'variable of the job. A table is given by its path, source = "table:PATH".'
        )
    dataset = observations
    if isinstance(dataset, xr.DataArray):
        dataset = dataset.to_dataset(name=variable if dataset.name is None else str(dataset.name))
    if variable not in dataset:
        there = ", ".join(map(repr, dataset.data_vars))
        raise ArgumentError(
            f"observations have no variable {variable!r}, that of the job; they have {there}. Rename one."
        )
    if dataset[variable].dtype.kind not in "fiub":
        raise DataError(
            f"{variable!r} has the type {dataset[variable].dtype}; expected numbers.", key="no-numbers"
        )
    # what lies beside the values may change their meaning, such as levels of points
    dims = {*dataset[variable].dims}
    beside = [name for name, held in dataset.variables.items() if held.ndim < 2 or {*held.dims} <= dims]
    kept = dataset.drop_vars([name for name in dataset.variables if name not in beside]).compute()
    kept = kept.drop_encoding()
    texts = {
        name: held.astype(str)
        for name, held in kept.variables.items()
        if held.dtype.kind == "O" and all(isinstance(each, str) for each in held.values.ravel())
    }
    kept = kept.assign(texts)
    others = [name for name, held in kept.variables.items() if held.dtype.kind not in "fiubMmU"]
    if set(others) & set(kept.dims):
        raise ArgumentError(
            f"observations have coordinates {', '.join(map(repr, others))} of objects; expected numbers, "
            "dates or text along each dimension. Unstack them, or give dates as datetime64."
        )
    kept = kept.drop_vars(others)
    kept.attrs = {name: told for name, told in kept.attrs.items() if name in ("featureType", OF_GROUP)}
    for held in kept.variables.values():
        held.attrs = _writable(held.attrs)
    return kept


def _writable(attributes: Mapping[Hashable, object]) -> dict[Hashable, object]:
    """Leave out attributes that a NetCDF file cannot hold."""
    simple = (str, int, float, np.number, np.ndarray, list, tuple)
    return {
        name: value
        for name, value in attributes.items()
        if isinstance(value, simple)
        and not isinstance(value, bool)
        and np.asarray(value).dtype.kind in "fiuU"
    }
