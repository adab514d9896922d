"""The groups of a run, each with everything it needs to stand alone."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.errors import StoreError
from cagp_dist.geometry import cell_edges
from cagp_dist.kernels import DEPTH
from cagp_dist.store.georeference import PREFIXES
from cagp_dist.store.group_dataset import AXES, own_dims, root_attributes
from cagp_dist.store.published_variables import QUANTILE_LEVEL, REGION, TRANSFORM
from cagp_dist.store.rights import rights_of
from cagp_dist.store.zarr_arrays import open_group
from cagp_dist.variables.units import square_of
from cagp_dist.versions import version

GRIDDED, PLACED, REGIONAL, TABULAR = "gridded", "placed", "regional", "tabular"
CONVENTIONS = "CF-1.11, ACDD-1.3"
POINT = "point"
_EXPORTED = "exported by cagp_dist"  # begins the history of every file


def group_names(run: Path) -> list[str]:
    """Names of the groups of a run, sorted."""
    if not (run / "zarr.json").is_file():
        raise StoreError(
            f"there is no published run at {run}; expected a Zarr store OUT/runs/<run_key>.zarr.",
            key="no-run",
        )
    return sorted(path.parent.name for path in run.glob("*/zarr.json"))


def kind_of(group: xr.Dataset) -> str:
    """Say how a group is laid out: on axes, at scattered points, by regions, or without places."""
    axes = own_dims(AXES, group.coords)
    if set(axes) <= set(group.dims):
        return GRIDDED
    if REGION in group.dims:
        return REGIONAL
    places = [name for name in axes if name in group and group[name].dims == (POINT,)]
    return PLACED if len(places) == 2 else TABULAR


def was_exported(attributes: Mapping[str, object]) -> bool:
    """Whether a file with these attributes is of an export, which no program changed since."""
    return _EXPORTED in str(attributes.get("history")).partition("\n")[0]


@contextmanager
def open_for_export(run: Path, name: str) -> Iterator[xr.Dataset]:
    """Open a group with the attributes of the run, lazily; a gridded one with the edges of its cells."""
    with open_group(run, "/") as root:
        attributes = dict(root.attrs)
    with open_group(run, name) as group:
        in_order = group[sorted(map(str, group.data_vars))]
        in_order.attrs = {key: said for key, said in group.attrs.items() if not str(key).startswith(PREFIXES)}
        described = in_order.assign_attrs(_attributes(name, in_order, attributes))
        yield _with_bounds(described) if kind_of(group) == GRIDDED else described


def by_level(group: xr.Dataset) -> xr.Dataset:
    """Make a variable of each quantile, ``t2m_quantile_0.95``, for formats without such a dimension.

    Likewise of each depth, ``thetao_mean_at_50``.
    """
    return _apart(_apart(group, QUANTILE_LEVEL, "", "of level"), DEPTH, "at_", "at a depth of")


def _apart(group: xr.Dataset, dim: str, mark: str, said_of: str) -> xr.Dataset:
    """Make a variable of each value along a dimension, if the group has it."""
    if dim not in group.dims:
        return group
    levels, units = group[dim].values, str(group[dim].attrs.get("units", "")).removeprefix("1")
    for name in [str(key) for key, variable in group.data_vars.items() if dim in variable.dims]:
        for index, level in enumerate(levels):
            of_level = group[name].isel({dim: index}, drop=True)
            long_name = f"{of_level.attrs.get('long_name', name)} {said_of} {level:g} {units}".strip()
            said = {**of_level.attrs, "long_name": long_name}
            group = group.assign({f"{name}_{mark}{level:g}": of_level.assign_attrs(said)})
        group = group.drop_vars(name)
    return group.drop_vars(dim)


def _attributes(name: str, group: xr.Dataset, root: dict[str, object]) -> dict[str, object]:
    """Attributes of the run, with extents, title, history, source and rights of this group."""
    provenance = root.get("provenance")
    origin = json.loads(provenance) if isinstance(provenance, str) else {}
    source = str(origin.get("source", "not recorded"))
    key = str(root.get("run_key", ""))
    found = root_attributes({name: group}, run_key=key)
    of_group = ("geospatial_", "time_coverage_")
    extents = {name: value for name, value in found.items() if name.startswith(of_group)}
    kept = {name: value for name, value in root.items() if not name.startswith((*of_group, "cdm_data_type"))}
    times = group["time"].values if "time" in group.coords else np.empty(0, dtype="datetime64[s]")
    rights = rights_of(source, times)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    software = f"cagp_dist {origin.get('cagp_dist', version('cagp-dist'))}"
    history = f"{now} group {name!r} of run {key} {_EXPORTED} {version('cagp-dist')}"
    described = {
        **kept,
        **extents,
        **group.attrs,
        "Conventions": CONVENTIONS,
        "history": f"{history}\n{root.get('date_created', '')} {root.get('history', '')}".strip(),
        "source": f"Gaussian-process regression ({software}) of observations from {source}",
        "license": rights.license,
        "acknowledgement": rights.attribution,
    }
    stated = [str(variable.attrs.get("units", "1")) for variable in group.data_vars.values()]
    units = next((unit for unit in stated if unit != "1"), None)
    in_unit = TRANSFORM not in described  # else the noise is that of transformed values
    if "noise_variance" in described and units and in_unit and kind_of(group) != TABULAR:
        described.setdefault("noise_variance_units", square_of(units))
    return {
        attribute: str(value).lower() if isinstance(value, bool | np.bool_) else value
        for attribute, value in described.items()
    }


def _with_bounds(group: xr.Dataset) -> xr.Dataset:
    """Add the edges of the cells; latitudes end at the poles."""
    for axis in own_dims(AXES, group.coords):
        centres = np.asarray(group[axis].values, dtype=np.float64)
        if centres.size < 2:
            continue
        ends = cell_edges(centres)
        if axis == "latitude":
            ends = np.clip(ends, -90.0, 90.0)
        name = f"{axis}_bnds"
        pairs = np.stack([ends[:-1], ends[1:]], axis=1)
        group = group.assign({name: xr.Variable((axis, "nv"), pairs)})
        group[axis].attrs["bounds"] = name
    return group
