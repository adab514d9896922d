"""Scattered observations in a store of any size: sorted once, block by block, then read by place.

::

    FOLDER/points.zarr   rows     (blocks x rows of a block, p + 3)  point, value, noise variance, number
                         boxes    (pieces, 2, r)                     corners of each piece of `PIECE` rows
                         counts   (pieces,)                          observations in it; -1 before it is there

A block is a range of the observations in the order in which they are stored, sorted along a k-d tree. Each is
written by one task, in whole chunks, and nothing depends on how the observations were cut into blocks. Boxes
are in the r coordinates in which points near each other are alike, see `cagp_dist.gram.metric`.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
import zarr
from zarr.codecs import Crc32cCodec

from cagp_dist.arrays import Array, Indices
from cagp_dist.digest import text_sha256
from cagp_dist.errors import ArgumentError, ConfigurationError, StoreError
from cagp_dist.geometry import unit_sphere
from cagp_dist.gram.metric import Metric, metric, scaled_columns
from cagp_dist.kernels import SPACE_COLUMNS, TIME, Kernel, beside_columns
from cagp_dist.store.durable_files import disk_errors
from cagp_dist.store.plain import plain_store
from cagp_dist.text import counted

if TYPE_CHECKING:
    from zarr.core.metadata import ArrayV3Metadata

OWN = 3  # numbers of a row behind its point: value, noise variance and number
PIECE = 4096  # rows of a chunk, which has a box of its own
LEAF = 64  # observations of a leaf of the tree that they are sorted by
SPHERE = {"latitude", "longitude"}  # coordinates in degrees, which stand for unit vectors
HOURS = "hours"  # beside these: of a kernel of space and time

NAME = "points.zarr"


@dataclass(frozen=True)
class PointSource:
    """Observations in a Zarr store: variables along one dimension."""

    path: str  # folder of the store
    space: tuple[str, ...]  # variables with the coordinates: latitude and longitude, x and y, or any others
    beside: tuple[str, ...]  # and those of other axes that the kernel has: hours, depths, labels
    value: str  # variable with what was observed
    noise_std: str | None  # that with the standard deviation of its error
    noise_variance: float  # of every observation, where there is no such variable

    @property
    def axes(self) -> tuple[str, ...]:
        """All variables with coordinates."""
        return (*self.space, *self.beside)

    @property
    def on_sphere(self) -> bool:
        """Whether places are latitudes and longitudes, which stand for unit vectors."""
        return set(self.space) == SPHERE

    @property
    def columns(self) -> int:
        """Coordinates of a point, p."""
        return (SPACE_COLUMNS if self.on_sphere or self.beside else len(self.space)) + len(self.beside)

    def points(self, coordinates: Mapping[str, Array]) -> Array:
        """Points (n, p), as kernels take them, of coordinates (n,) by their names."""
        if self.on_sphere:
            positions = unit_sphere(coordinates["latitude"], coordinates["longitude"])
        else:
            positions = np.column_stack([coordinates[axis] for axis in self.space])
        own = {TIME if axis == HOURS else axis: coordinates[axis] for axis in self.beside}
        return beside_columns(positions, own) if own else positions

    @property
    def width(self) -> int:
        """Numbers of a sorted row."""
        return self.columns + OWN

    def opened(self) -> xr.Dataset:
        """Open the variables, of which nothing is read yet."""
        if not Path(self.path).is_dir():
            raise StoreError(
                f"there is no folder {self.path}; expected a Zarr store with observations.", key="no-store"
            )
        try:
            found: xr.Dataset = xr.open_zarr(
                plain_store(self.path, text=True),
                chunks=None,
                consolidated=False,
                decode_times=False,
                create_default_indexes=False,
            )
        except Exception as error:  # JSON, key and value errors of damaged metadata
            raise StoreError(
                f"{self.path} cannot be read as a Zarr store: {error}", key="unreadable"
            ) from error
        names = [name for name in (*self.axes, self.value, self.noise_std) if name is not None]
        if missing := [name for name in names if name not in found.variables]:
            there = ", ".join(sorted(map(str, found.variables))) or "none"
            raise ArgumentError(
                f"{self.path} has no variable {', '.join(map(repr, missing))}; expected coordinates named as "
                f"the axes of the map, the value and the noise_std that was named. There are: {there}.",
                key="absent-variable",
            )
        found = found[names].reset_coords()
        shapes = {name: found[name].sizes for name in names}
        if len({tuple(sizes.items()) for sizes in shapes.values()}) > 1 or found[names[0]].ndim != 1:
            said = "; ".join(f"{name}: {dict(sizes)}" for name, sizes in shapes.items())
            raise ArgumentError(
                f"the variables of {self.path} have the dimensions {said}; expected one and the same for "
                "all, with an entry for each observation. Stack those of a swath (Dataset.stack) first.",
                key="several-dimensions",
            )
        if kinds := [name for name in names if found[name].dtype.kind not in "fiu"]:
            raise ArgumentError(
                f"{kinds[0]!r} of {self.path} is {found[kinds[0]].dtype}; expected numbers.", key="no-numbers"
            )
        units = [found[name].attrs.get("units") for name in names[len(self.axes) :]]
        if len(set(units) - {None}) > 1:
            raise ArgumentError(
                f"{self.value!r} is in {units[0]} and {self.noise_std!r} in {units[1]}; expected one unit.",
                key="several-units",
            )
        return found

    def rows(self, start: int, stop: int) -> Array:
        """Read some observations that have values: rows (m, p + 3) of point, value, noise, number."""
        opened = self.opened()
        found = opened.isel({next(iter(opened.sizes)): slice(start, stop)})
        values = np.asarray(found[self.value].values, dtype=np.float64)
        number = np.flatnonzero(~np.isnan(values))
        where = {axis: np.asarray(found[axis].values, dtype=np.float64)[number] for axis in self.axes}
        noise = np.full(len(values), self.noise_variance)
        if self.noise_std is not None:
            noise = np.square(np.asarray(found[self.noise_std].values, dtype=np.float64))
        values, noise = values[number], noise[number]
        number += start
        unplaced = np.asarray(~np.isfinite(list(where.values())).all(axis=0))
        _refuse(self, number, unplaced, "a coordinate that is NaN or infinite")
        _refuse(self, number, ~np.isfinite(values), "an infinite value")
        _refuse(self, number, ~((noise > 0.0) & np.isfinite(noise)), "a noise that is not above zero")
        if self.on_sphere:
            _refuse(self, number, np.abs(where["latitude"]) > 90.0, "a latitude outside of -90..90")
        return np.column_stack([self.points(where), values, noise, number])

    def identity(self) -> str:
        """Digest of names, sizes and times of the files of the variables: another one after any change."""
        root, found = Path(self.path), []
        for name in (*self.axes, self.value, self.noise_std):
            for folder, _, files in os.walk(root / name) if name is not None else ():
                for file in sorted(files):
                    said = (Path(folder) / file).stat()
                    found.append(f"{folder}/{file} {said.st_size} {said.st_mtime_ns}")
        return text_sha256("\n".join(sorted(found)))


def _refuse(source: PointSource, number: Indices, wrong: "np.ndarray[Any, Any]", what: str) -> None:
    """Raise `ArgumentError` where something is wrong, and name the first."""
    if wrong.any():
        raise ArgumentError(
            f"observation {number[wrong.argmax()]} of {source.path} has {what}, and so have "
            f"{counted(int(wrong.sum()) - 1, 'other')} near it. Drop or mend them first; a value of NaN "
            "is one that is missing, and left out.",
            key="not-finite",
        )


def create_blocks(folder: Path, source: PointSource, scale: Metric, *, n: int, block_rows: int) -> None:
    """Make the arrays that blocks are written to; once, before the first of them."""
    width = scaled_columns(scale, source.columns)
    pieces, blocks = block_rows // PIECE, -(-n // block_rows)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...], str, float]] = {
        "rows": ((blocks * block_rows, source.width), (PIECE, source.width), "float64", np.nan),
        "boxes": ((blocks * pieces, 2, width), (pieces, 2, width), "float64", np.nan),
        "counts": ((blocks * pieces,), (pieces,), "int64", -1),
    }
    with disk_errors(folder):
        root = zarr.create_group(os.fspath(folder / NAME), overwrite=True)
        for name, (shape, chunks, dtype, fill) in shapes.items():
            root.create_array(
                name,
                shape=shape,
                chunks=chunks,
                dtype=dtype,
                compressors=[Crc32cCodec()],
                fill_value=fill,
                config={"write_empty_chunks": True},
            )


def sort_block(folder: Path, source: PointSource, kernel: Kernel, start: int, stop: int) -> int:
    """Sort some observations and write them, a task of executors; returns how many have values."""
    from scipy.spatial import cKDTree

    arrays = _arrays(folder, mode="r+")
    rows, p = source.rows(start, stop), source.columns
    try:
        kernel.check_coordinates(rows[:, :p])
    except ArgumentError as error:
        raise error.told(before=f"{source.path}:") from error
    scale = metric(kernel, p)
    piece, size = arrays["rows"].chunks[0], arrays["counts"].chunks[0]
    first = start // piece
    sorted_rows = np.full((size * piece, source.width), np.nan)
    counts = np.clip(len(rows) - piece * np.arange(size), 0, piece)
    boxes = np.empty((size, 2, arrays["boxes"].shape[2]))
    boxes[:, 0], boxes[:, 1] = np.inf, -np.inf  # of nothing
    if len(rows):
        scaled = rows[:, :p] * scale
        order = cKDTree(scaled, leafsize=LEAF, compact_nodes=False).indices
        np.take(rows, order, axis=0, out=sorted_rows[: len(rows)])
        edges, scaled = np.arange(0, len(rows), piece), scaled[order]
        boxes[: len(edges), 0] = np.minimum.reduceat(scaled, edges)
        boxes[: len(edges), 1] = np.maximum.reduceat(scaled, edges)
    with disk_errors(folder):
        arrays["rows"][first * piece : (first + size) * piece] = sorted_rows
        arrays["boxes"][first : first + size] = boxes
        arrays["counts"][first : first + size] = counts  # last: a block with counts is there
    return len(rows)


class SortedPoints:
    """Observations that were sorted; the boxes are held, 8 (2 r + 1) bytes for 4,096 of them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._arrays = folder, _arrays(folder, mode="r")
        self.counts = np.asarray(self._arrays["counts"][:])
        self._piece, self._pieces = self._arrays["rows"].chunks[0], self._arrays["counts"].chunks[0]

    @cached_property
    def _boxes(self) -> Array:
        return np.asarray(self._arrays["boxes"][:])

    @property
    def blocks(self) -> Iterator[tuple[int, int]]:
        """First observation of each block, and how many of it have values; -1 where it is not there yet."""
        for first in range(0, len(self.counts), self._pieces):
            own = self.counts[first : first + self._pieces]
            yield first * self._piece, -1 if (own < 0).any() else int(own.sum())

    def meeting(self, lower: Array, upper: Array) -> Indices:
        """Pieces with points in any of some boxes (b, p), in scaled coordinates."""
        low, high = self._boxes[:, 0], self._boxes[:, 1]
        near = np.flatnonzero(((high >= lower.min(axis=0)) & (low <= upper.max(axis=0))).all(axis=1))
        found = [near[:0]]
        for some in range(0, len(near), 1024):
            each = near[some : some + 1024]
            apart = (high[each][:, None] < lower) | (low[each][:, None] > upper)
            found.append(each[~np.all(apart.any(axis=2), axis=1)])
        return np.concatenate(found)

    def about(self, lower: Array, upper: Array) -> int:
        """Count the points in a box, about: those of pieces whose middle is there."""
        there = self.counts > 0
        middle = 0.5 * self._boxes[there].sum(axis=1)
        return int(self.counts[there][((middle >= lower) & (middle <= upper)).all(axis=1)].sum())

    def nearest(self, lower: Array, upper: Array, at_least: int) -> Indices:
        """Pieces with points in a box, and others next to it, until they have so many points."""
        apart = np.maximum(np.maximum(self._boxes[:, 0] - upper, lower - self._boxes[:, 1]), 0.0)
        distance = np.linalg.norm(apart, axis=1)
        order = np.argsort(distance, kind="stable")
        enough = 1 + int(np.searchsorted(np.cumsum(self.counts[order]), at_least))
        inside = int(np.count_nonzero(distance == 0.0))
        return np.sort(order[: max(enough, inside)])

    def read(self, pieces: Indices, scale: Metric, lower: Array, upper: Array) -> Array:
        """Read the rows (m, p + 3) of some pieces that lie in a box, in scaled coordinates."""
        found = [np.empty((0, self._arrays["rows"].shape[1]))]
        runs = np.split(pieces, np.flatnonzero(np.diff(pieces) != 1) + 1) if len(pieces) else []
        for run in runs:
            try:
                rows = np.asarray(self._arrays["rows"][run[0] * self._piece : (run[-1] + 1) * self._piece])
            except Exception as error:  # codecs raise whatever their library raises on damaged bytes
                raise self._damaged(str(error)) from error
            inside = (np.arange(self._piece) < self.counts[run][:, None]).reshape(-1)
            if np.isnan(rows[inside, -1]).any():
                raise self._damaged("a chunk is missing")
            rows = rows if inside.all() else rows[inside]
            places = rows[:, : rows.shape[1] - OWN] * scale
            found.append(rows[((places >= lower) & (places <= upper)).all(axis=1)])
        return np.concatenate(found)

    def _damaged(self, why: str) -> StoreError:
        return StoreError(
            f"{self._folder / NAME} is damaged ({why}). Remove {self._folder} and begin again.", key="damaged"
        )


def _arrays(folder: Path, *, mode: Any) -> "dict[str, zarr.Array[ArrayV3Metadata]]":
    """Open the arrays of sorted observations; `ConfigurationError` where this process does not see them."""
    if not (folder / NAME).is_dir():
        raise ConfigurationError(
            f"this worker does not see {folder}. Put the output on a file system that all workers share, "
            "under the same path.",
            key="not-shared",
        )
    root = zarr.open_group(os.fspath(folder / NAME), mode=mode, use_consolidated=False)
    return dict(root.arrays())
