"""Observations of a job that are in memory: a file, by whose path it reads them, while it runs."""

import json
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import xarray as xr

from cagp_dist.digest import text_sha256
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.gridded import GROUP, OF_GROUP
from cagp_dist.fields.groups import dataset_of
from cagp_dist.service.jobfile.config import changed
from cagp_dist.service.jobfile.job import Job
from cagp_dist.store.atomic_files import empty_folder
from cagp_dist.store.durable_files import disk_errors
from cagp_dist.store.zarr_arrays import content_sha256

IN_MEMORY = "an object in memory"  # what a run names as the source of its observations


@contextmanager
def written_observations(job: Job, held: xr.Dataset | None) -> Iterator[Job]:
    """Give a job what is ``held`` of `observations_of` instead of its source, as a file while it runs.

    Call it inside `output_lock`. Without observations the job is as it is.
    """
    if held is None:
        yield job
        return
    attributes = {str(name): variable.attrs for name, variable in held.variables.items()}
    digest = text_sha256(content_sha256(held) + json.dumps(attributes, sort_keys=True, default=repr))
    # where the next process that holds the lock removes what one leaves that is killed
    with empty_folder(job.output.folder / ".staging" / "observations") as folder:
        path = folder / f"observations-{digest[:16]}.nc"
        with disk_errors(path):
            held.to_netcdf(path, engine="h5netcdf")
        yield changed(job, "observations", source=f"file:{path}")


def observations_of(job: Job, observations: xr.DataArray | xr.Dataset | xr.DataTree) -> xr.Dataset:
    """Give the variables of a job in memory, with what a file can hold, and not packed as its file was."""
    names = job.observations.variables
    if isinstance(observations, xr.DataTree):
        group = (job.observations.select or {}).get(GROUP)
        observations = dataset_of(observations, names[0], group)
    if not isinstance(observations, xr.DataArray | xr.Dataset):
        raise ArgumentError(
            f"observations is of type {type(observations).__name__}; expected an object of xarray with the "
            'variable of the job. A table is given by its path, source = "table:PATH".',
            key="observations-type",
        )
    dataset = observations
    if isinstance(dataset, xr.DataArray):
        dataset = dataset.to_dataset(name=names[0] if dataset.name is None else str(dataset.name))
    for variable in names:
        if variable not in dataset:
            there = ", ".join(map(repr, dataset.data_vars))
            raise ArgumentError(
                f"observations have no variable {variable!r}, that of the job; they have {there}. Rename "
                "one.",
                key="absent-variable",
            )
        if dataset[variable].dtype.kind not in "fiub":
            raise DataError(
                f"{variable!r} has the type {dataset[variable].dtype}; expected numbers.", key="no-numbers"
            )
    # what lies beside the values may change their meaning, such as levels of points
    dims = {dim for variable in names for dim in dataset[variable].dims}
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
            "dates or text along each dimension. Unstack them, or give dates as datetime64.",
            key="coordinate-type",
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
