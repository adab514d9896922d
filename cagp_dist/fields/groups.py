"""Groups of a NetCDF file and nodes of a tree: which one is read, with what it takes over from others."""

from collections.abc import Iterable, Mapping, Sequence

import xarray as xr

from cagp_dist.errors import DataError
from cagp_dist.fields.gridded import GROUP, OF_GROUP, explain_absent, find_variable, listed
from cagp_dist.remedies import Setting


def the_group(groups: Mapping[str, Iterable[str]], variable: str | None, chosen: object = None) -> str:
    """Path of the group that is chosen, or that alone holds a variable; that of the root is empty.

    Parameters
    ----------
    groups : mapping
        Names of the variables of each group, by its path without slashes around it.
    """
    held = {path: [*names] for path, names in groups.items()}
    if chosen is not None:
        path = str(chosen).strip("/")
        if path not in held:
            raise DataError(
                f"there is no group {str(chosen)!r}; there is {listed(filter(None, held))}.", key="not-there"
            )
        return path
    if variable is None:
        holders = [path for path, names in held.items() if names]
    else:
        holders = [path for path, names in held.items() if find_variable(names, variable)]
    if len(holders) == 1 or "" in holders:
        return "" if "" in holders else holders[0]
    if not holders:
        if held.get(""):
            return ""
        raise explain_absent(str(variable), dict.fromkeys(name for names in held.values() for name in names))
    what = "variables are" if variable is None else f"{variable!r} is"
    raise DataError(
        f"{what} in the groups {listed(holders)}; expected one of them.",
        key="several-groups",
        remedies=(Setting("where", {GROUP: holders[0]}),),
    )


def paths_to(group: str) -> list[str]:
    """Paths from the root to a group."""
    parts = group.split("/") if group else []
    return ["/".join(parts[:count]) for count in range(len(parts) + 1)]


def with_those_above(datasets: Sequence[xr.Dataset]) -> xr.Dataset:
    """Give the last of the datasets, from the root to a group, what those above it have on its dimensions."""
    found = datasets[-1]
    for above in reversed(datasets[:-1]):
        more = {
            name: axis
            for name, axis in above.variables.items()
            if name not in found.variables
            and all(found.sizes.get(dim) == size for dim, size in axis.sizes.items())
        }
        found = found.assign_coords(more)
    return found.assign_attrs({OF_GROUP: 1}) if len(datasets) > 1 else found


def dataset_of(tree: xr.DataTree, variable: str | None, chosen: object = None) -> xr.Dataset:
    """Take the dataset of a node of a tree, as `the_group`."""
    groups = {node.path.strip("/"): [*map(str, node.data_vars)] for node in tree.subtree}
    nodes = {node.path.strip("/"): node for node in tree.root.subtree}
    paths = paths_to(the_group(groups, variable, chosen))
    return with_those_above([nodes[path].to_dataset(inherit=False) for path in paths])
