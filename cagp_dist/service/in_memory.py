"""Observations of a job that are in memory: written down once, under a name that is a digest of them."""

import hashlib
from typing import TYPE_CHECKING

from cagp_dist.errors import ArgumentError
from cagp_dist.service.jobfile.tables import Job
from cagp_dist.store.files import whole_file

if TYPE_CHECKING:
    import xarray as xr


def with_observations(job: Job, observations: "xr.DataArray | xr.Dataset") -> Job:
    """Give a job observations of xarray in place of those of its source, as a file in its output folder.

    The same observations are the same file, so that a run that was done is found and one that was interrupted
    goes on.
    """
    import xarray as xr

    if not isinstance(observations, xr.DataArray | xr.Dataset):
        raise ArgumentError(
            f"observations is of type {type(observations).__name__}; expected an object of xarray with the "
            'variable of the job. A table is given by its path, source = "table:PATH".'
        )
    variable = job.observations.variable
    dataset = observations
    if isinstance(dataset, xr.DataArray):
        dataset = dataset.rename(variable).to_dataset()
    if variable not in dataset:
        there = ", ".join(map(repr, dataset.data_vars))
        raise ArgumentError(
            f"observations have no variable {variable!r}, that of the job; they have {there}."
        )
    # as it is, and not as the file was packed from which it may have come
    content = bytes(dataset[[variable]].drop_encoding().to_netcdf(engine="h5netcdf"))
    path = job.root / "downloads" / f"observations-{hashlib.sha256(content).hexdigest()[:16]}.nc"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            temporary.write_bytes(content)
    table = job.observations.model_copy(update={"source": f"file:{path}"})
    return job.model_copy(update={"observations": table})
