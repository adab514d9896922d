"""HDF5 files that hold all of their values, in chunks and axes that fit into memory."""

from math import prod
from pathlib import Path
from typing import Any

import h5py

from cagp_dist.errors import DataError
from cagp_dist.memory import MOST_AXIS_BYTES, MOST_CHUNK_BYTES
from cagp_dist.text import bytes_text


def check_hdf5(path: Path) -> None:
    """Raise `DataError` if an HDF5 file has values in other files that it names, or endless chunks."""

    def refuse(name: str, what: str) -> None:
        raise DataError(
            f"{name!r} is {what}: its values lie in other files, which a file of data must not choose. Copy "
            "them into one file first, for example with: h5repack, or to_netcdf of xarray.",
            key="other-files",
        )

    def look(group: h5py.Group, seen: set[Any]) -> None:
        for key in group:
            name, link = f"{group.name.rstrip('/')}/{key}", group.get(key, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                refuse(name, "an external link")
            if isinstance(link, h5py.SoftLink):
                continue  # what it leads to is met under its own name, or behind an external link
            item = group[key]
            if isinstance(item, h5py.Dataset):
                if item.external:
                    refuse(name, "stored externally")
                if item.is_virtual:
                    refuse(name, "a virtual data set")
                axis, chunk = item.shape if item.ndim == 1 else (), item.chunks or ()
                for what, shape, most in (
                    ("", axis, MOST_AXIS_BYTES),
                    ("a chunk of ", chunk, MOST_CHUNK_BYTES),
                ):
                    size = prod(shape) * item.dtype.itemsize
                    if size > most:
                        raise DataError(
                            f"{what}{name!r} has {bytes_text(size)}, which are decoded at once; expected "
                            f"{bytes_text(most)} at most. The file is damaged, or made to fill the memory.",
                            key="chunks",
                        )
            elif isinstance(item, h5py.Group) and item.id not in seen:
                look(item, seen | {item.id})

    with h5py.File(path, "r") as file:
        look(file, {file.id})
