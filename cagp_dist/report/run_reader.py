"""Groups of a published run as the report reads them, with every check and error in one place."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array
from cagp_dist.errors import StoreError
from cagp_dist.store.group_dataset import count_absent, own_dims, variables_in
from cagp_dist.store.published_variables import kind_of, table
from cagp_dist.store.zarr_arrays import opened
from cagp_dist.variables import T2M, Variable


@dataclass(frozen=True, eq=False)
class OpenGroup:
    """A group that is open, of a run of a variable."""

    name: str
    dataset: xr.Dataset
    variable: Variable = T2M

    def __contains__(self, name: str) -> bool:
        return name in self.dataset

    def at(self, **index: int) -> "OpenGroup":
        """One time, or one of another dimension."""
        return OpenGroup(self.name, self.dataset.isel(index), self.variable)

    def values(self, name: str) -> Array:
        """Read an array as float64, in the order of the table and with as many NaN as its group says."""
        found = self.dataset[name].variable
        described = table(self.variable)[kind_of(self.name)].get(name)
        if described is not None:
            found = found.transpose(
                *(dim for dim in own_dims(described.dims, self.dataset.coords) if dim in found.dims)
            )
        values = np.asarray(found.values, dtype=np.float64)
        faulty = np.count_nonzero(~np.isfinite(values))
        expected = count_absent(kind_of(self.name), name, found, self.dataset.attrs, self.variable)
        if faulty != expected or np.isinf(values).any():
            raise StoreError(
                f"{faulty} of {values.size} values of {name!r} are not finite; a missing chunk reads as NaN. "
                "`cagp verify OUT` names it; restore the run from a copy or run the job again.",
                key="damaged",
            )
        return values

    def of(self, *kinds: str) -> Iterator[Array]:
        """Read arrays of the variable: ``_mean`` and so on."""
        return (self.values(f"{self.variable.name}{kind}") for kind in kinds)

    def optional(self, name: str) -> Array | None:
        """Read an array that a run may lack."""
        return self.values(name) if name in self else None

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a coordinate that is text."""
        return tuple(map(str, self.dataset[name].values.tolist()))


def _with_time(group: str, dataset: xr.Dataset) -> xr.Dataset:
    """Give a run without time the one time NaT, so that all runs are read alike."""
    if "time" in dataset.coords:
        return dataset
    tables = [table(variable).get(kind_of(group), {}) for variable in variables_in(dataset) or (T2M,)]
    known = {name for own in tables for name, each in own.items() if "time" in each.dims}
    timed = [name for name in map(str, dataset.data_vars) if name in known]
    undated = np.array(["NaT"], dtype="datetime64[ns]")
    return dataset.assign({name: dataset[name].expand_dims(time=undated) for name in timed})


@contextmanager
def open_published_group(path: Path, name: str, variable: Variable = T2M) -> Iterator[OpenGroup]:
    """Open one group; whatever goes wrong in the library while it is read becomes a StoreError."""
    try:
        with opened(path, name) as dataset:
            yield OpenGroup(name, _with_time(name, dataset), variable)
    except StoreError as error:
        raise StoreError(f"the run {path}: {error}", key="damaged") from error
    except Exception as error:  # codecs and metadata readers raise whatever their library raises
        raise StoreError(
            f"cannot read group {name or '/'!r} of the run {path} ({type(error).__name__}: {error}). "
            "`cagp verify OUT` names the damaged file; restore it from a copy or run the job again.",
            key="damaged",
        ) from error
