"""A map from a store to a store: neither observations nor results need fit into memory.

::

    observations  --blocks-->  sorted by place  --regions-->  map, chunk by chunk  --rename-->  output

Blocks and regions are tasks, which read and write the stores. The same call continues from ``.NAME.work``.
"""

import datetime as dt
import hashlib
import json
import logging
import os
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xarray as xr
import zarr
from numpy.typing import ArrayLike
from zarr.codecs import Crc32cCodec, ZstdCodec

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.plan import plan_without_tiles
from cagp_dist.checks import as_numbers, check_count, check_memory_limit
from cagp_dist.digest import text_sha256
from cagp_dist.errors import ArgumentError, BudgetError, CagpError, StoreError
from cagp_dist.factors import Coregion, SameLabel
from cagp_dist.fields.column_names import ANY
from cagp_dist.fields.observed_objects import read
from cagp_dist.gp import condition
from cagp_dist.gram.metric import Metric, metric, scaled_columns
from cagp_dist.gram.neighbourhoods import AT_ONCE, boxes_with_neighbours, least_bytes
from cagp_dist.kernels import DEPTH, NO_LABEL, TIME, Kernel
from cagp_dist.pipeline import Neighbours, Progress, Status
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.prior import Prior, check_prior
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, ExecutorLike, Handle, SerialExecutor, executor_from
from cagp_dist.store.durable_files import disk_errors, sync, sync_tree, write_durably
from cagp_dist.store.lock import held
from cagp_dist.store.plain import plain_store
from cagp_dist.store.point_blocks import (
    HOURS,
    PIECE,
    SPHERE,
    PointSource,
    SortedPoints,
    create_blocks,
    sort_block,
)
from cagp_dist.store.published_variables import CONVENTIONS
from cagp_dist.store.zarr_arrays import missing_chunks, open_group, write_group
from cagp_dist.store.zarr_files import ZSTD_LEVEL
from cagp_dist.text import bytes_text, counted
from cagp_dist.tiling import block_ranges
from cagp_dist.versions import numerical_version, version

if TYPE_CHECKING:
    from zarr.core.metadata import ArrayV3Metadata

T = TypeVar("T")
Item = TypeVar("Item")

_log = logging.getLogger(__name__)

# Targets of a region, at most and at least; fewer than the most where there are few, so that all workers have
# some
REGION, FEWEST_OF_REGION, REGIONS = 16_384, 4096, 32
ROWS_OF_REGION = 2**19  # Observations that a region has around its targets, at most, if they lie evenly
# Observations of a block, at least and at most: from small blocks, a region reads many that are far away
FEWEST_OF_BLOCK, BLOCK = 2**17, 2**20
ROWS_COMPARED = 20_000  # First observations of a store that are read with all that stands beside them
# How many times the observations among the targets of a region are read for it, with those around it
WIDER = 4
# Of more observations than these, which are read first, those are kept that are so near to a region, in parts
# of its longest side
MANY, MARGIN = 2**18, 0.1
# How often a task has the rows that it works on: as they were read, some of them, sorted, and apart
ROW_COPIES = 5
# What sorting an observation takes, and reading it for a region, in flops
SORT_FLOPS, READ_FLOPS = 60_000, 35_000

NAMES = ("mean", "std")
PLANE = ("x", "y")

MEANS_OF_KEY = 65_536  # Targets whose prior means tell one mean from another
MAP = "map.zarr"

AXES = {
    "latitude": {"standard_name": "latitude", "units": "degrees_north", "axis": "Y"},
    "longitude": {"standard_name": "longitude", "units": "degrees_east", "axis": "X"},
    HOURS: {"long_name": "time since the origin of the observations", "units": "hours", "axis": "T"},
}

Region = tuple[slice, ...]


def krige_store(
    observations: str | os.PathLike[str],
    *,
    to: Mapping[str, ArrayLike],
    output: str | os.PathLike[str],
    prior: Prior,
    value: str,
    noise_std: str | None = None,
    solver: Neighbours | None = None,
    chunks: Mapping[str, int] | None = None,
    executor: ExecutorLike = None,
    memory_limit_bytes: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> xr.Dataset:
    """Predict a map from scattered observations, both in Zarr stores that may be larger than memory.

    Parameters
    ----------
    observations : path
        Folder of a Zarr store with one-dimensional variables of one dimension: the coordinates, under the
        names of the axes of the map, the value and perhaps its noise. An observation whose value is NaN is
        left out.
    to : mapping of str to array_like
        Axes of the map, by name. ``latitude`` and ``longitude`` are degrees on the sphere; others are used
        unchanged, with Euclidean distance. A kernel of more than space also needs its other axes, in both
        stores: ``hours``, counted from any moment near the observations, ``depth``, or the name of a label
        with integers from 0, such as ``variable``; its places are ``latitude`` and ``longitude`` or ``x`` and
        ``y``. Labels of a `SameLabel` are those of the observations alone: no error of an observation is
        part of the map.
    output : path
        Folder of the Zarr store with the map. It must not exist yet, and appears once the map is complete.
    prior : Prior
        With a mean that is known. `fit` finds one from a sample of the observations.
    value : str
        Variable that was observed.
    noise_std : str, optional
        Variable with the standard deviation of the error of each observation, which replaces the
        ``noise_variance`` of the prior.
    solver : Neighbours, optional
        64 nearest neighbours by default. "auto" is not possible here, and errors that labels share are found
        from the neighbours alone: error bars hold, and are wide.
    chunks : mapping of str to int, optional
        Cells of a region along some axes; a region is a chunk of the output. By default regions span the last
        two axes and are as wide as high, with at most 16,384 cells.
    executor : Executor, Dask client or cluster, or str, optional
        As for `condition`. All workers must see both stores under the same path.
    memory_limit_bytes : int, optional
        Memory that all concurrent tasks may allocate; by default the memory of the executor.
    progress, on_plan : callable, optional
        As for `condition`. Without ``progress``, work of more than some seconds reports its plan and progress
        as `krige` does.

    Returns
    -------
    xarray.Dataset
        The output, not read into memory: ``mean`` and ``std``, without the noise of an observation.

    Raises
    ------
    CagpError
        ArgumentError: a variable is missing or has another length, a coordinate or noise is impossible, or
        the output exists and does not come from the same call; StoreError: the observations have changed
        since the map was started, or a disk is full or fails; BudgetError: a task needs more memory than it
        has, before any work if the plan shows it.

    Notes
    -----
    Each region equals the result of `condition` for its targets and all observations, to the bit, with any
    executor. Groups of targets that share their neighbours end at the borders of regions. Observations are
    read once, and 8 (p + 3) bytes for each are on the disk beside the output until the map is complete. After
    a failure, the same call does not repeat finished blocks and regions.

    Examples
    --------
    >>> import tempfile, numpy as np, xarray as xr, cagp_dist as cagp
    >>> folder, rng = tempfile.mkdtemp(), np.random.default_rng(0)
    >>> swath = {"latitude": rng.uniform(-60, 60, 5000), "longitude": rng.uniform(0, 360, 5000)}
    >>> swath["sst"] = 300.0 - 0.3 * np.abs(swath["latitude"]) + 0.1 * rng.standard_normal(5000)
    >>> observed = xr.Dataset({name: ("obs", values) for name, values in swath.items()})
    >>> _ = observed.to_zarr(f"{folder}/swath.zarr", consolidated=False)
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.3, variance=25.0), noise_variance=0.01, mean=290.0)
    >>> found = cagp.krige_store(
    ...     f"{folder}/swath.zarr",
    ...     to={"latitude": np.arange(-50.0, 51.0, 10.0), "longitude": np.arange(0.0, 360.0, 10.0)},
    ...     output=f"{folder}/map.zarr",
    ...     prior=prior,
    ...     value="sst",
    ... )
    >>> bool(abs(found["mean"].sel(latitude=0.0, longitude=0.0) - 300.0) < 3.0)
    True
    """
    axes = {str(name): as_numbers(f"to[{name!r}]", values) for name, values in to.items()}
    solver = Neighbours() if solver is None else solver
    if isinstance(solver, Neighbours):  # a region has nothing but its neighbours
        solver = replace(solver, shared_errors="near")
    source = _checked(observations, axes, prior, value, noise_std, solver)
    check_memory_limit(memory_limit_bytes)
    output = Path(os.path.abspath(output))
    opened = source.opened()
    _check_beside(source)
    sampled = _sampled(source, axes)
    prior.kernel.check_coordinates(sampled)
    if (n := next(iter(opened.sizes.values()))) == 0:
        raise ArgumentError(
            f"{source.path} has no observations; expected at least one.", key="nothing-observed"
        )
    shape = tuple(len(values) for values in axes.values())
    cells = _cells_of_region(shape, n, tuple(axes), chunks or {})
    key = _key(source, prior, solver, axes, cells, sampled)
    if output.exists():
        return _there(output, key, source.identity())
    started = time.perf_counter()
    with executor_from(executor) as workers:
        limit = workers.memory_bytes if memory_limit_bytes is None else memory_limit_bytes
        chunk = max((each.encoding.get("chunks") or each.shape)[0] for each in opened.variables.values())
        scale = metric(prior.kernel, source.columns)
        boxed = scaled_columns(scale, source.columns)
        size = Sizes(n, shape, cells, source.columns, boxed, chunk, solver, workers.workers, limit)
        plan = size.plan(shares_memory=workers.shares_memory)
        if on_plan is not None:
            on_plan(plan)
        work = output.parent / f".{output.name}.work"
        with disk_errors(work):
            work.mkdir(parents=True, exist_ok=True)
        narrator = Narrator(shown=progress is None)
        with held(work / ".lock", where=work), narrator, narrator.stage("map", plan) as report:

            def say(part: float, *, before: float, share: float) -> None:
                report(before + share * part)
                if progress is not None:
                    progress(Progress(1, 1, before + share * part, time.perf_counter() - started))

            sorting = size.sorting
            _begin(work, key, source, scale, n, size.block_rows)
            _sort(work, source, prior.kernel, workers, partial(say, before=0.0, share=sorting))
            observed = int(SortedPoints(work).counts.sum())
            if observed == 0:
                raise ArgumentError(
                    f"all values of {source.path} are missing; expected at least one.", key="nothing-observed"
                )
            _template(work / MAP, axes, cells, _texts(opened[value]))
            job = MapJob(work, prior, solver, source, tuple(axes), limit // workers.workers)
            _solve(job, axes, cells, size, workers, partial(say, before=sorting, share=1.0 - sorting))
            _publish(work, output, _attributes(source, prior, solver, key, observed))
    return open_group(output)


def _checked(
    observations: str | os.PathLike[str],
    axes: Mapping[str, Array],
    prior: Prior,
    value: str,
    noise_std: str | None,
    solver: Neighbours,
) -> PointSource:
    """Give the observations, or raise `ArgumentError` where the call cannot be meant."""
    check_prior(prior)
    if not isinstance(solver, Neighbours) or solver.neighbours == "auto":
        raise ArgumentError(
            f"solver is {solver!r}; expected cagp.Neighbours with a number of neighbours, such as 64.",
            key="solver-of-store",
        )
    if prior.estimates_mean:
        raise ArgumentError(
            "the coefficients of the prior's mean are estimated; here a mean is expected that is known. Take "
            'what cagp.fit makes of it on a sample of the observations, or Neighbours(drift="constant").',
            key="mean-estimated",
        )
    if noise_std is None and isinstance(prior.noise_variance, np.ndarray):
        raise ArgumentError(
            "the noise_variance of the prior is an array; expected a number, or noise_std="
            "the variable that has the noise of each observation.",
            key="noise-std",
        )
    if taken := set(NAMES) & set(axes):
        raise ArgumentError(
            f"to has the axis {taken.pop()!r}, the name of a result; rename it in the store too.",
            key="axis-name",
        )
    for name, values in axes.items():
        if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
            raise ArgumentError(
                f"to[{name!r}] has shape {values.shape}; expected a vector of finite numbers.", key="shapes"
            )
    noise = 0.0 if noise_std is not None else prior.noise_number
    space, beside = _named_axes(tuple(axes), prior.kernel)
    for axis in {*beside} & {*axes} - {HOURS, DEPTH}:
        if (axes[axis] < 0.0).any():
            raise ArgumentError(
                f"to[{axis!r}] is {axes[axis].tolist()}; expected labels from 0, those of the kernel.",
                key="label-range",
            )
    return PointSource(os.path.abspath(observations), space, beside, value, noise_std, noise)


def _named_axes(names: tuple[str, ...], kernel: Kernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tell axes of space from those beside it, which observations have; refuse what the kernel has not."""
    layout = kernel.layout
    beside = () if layout is None else tuple(HOURS if axis == TIME else axis for axis in layout.axes)
    mapped = [axis for axis in beside if axis not in _shared(kernel)]
    space = tuple(name for name in names if name not in beside)
    if layout is None:  # points of any space, as they come
        expected, known = (
            "latitude and longitude, or others alone",
            {*space} == SPHERE or not {*space} & SPHERE,
        )
    else:
        either = {None: (SPHERE, {*PLANE}), True: (SPHERE,), False: ({*PLANE},)}[layout.globe]
        expected, known = " or ".join(" and ".join(sorted(each)) for each in either), {*space} in either
    if not space or not known or {*names} != {*space, *mapped}:
        raise ArgumentError(
            f"to has the axes {', '.join(map(repr, names)) or 'none'}, and the kernel is {kernel!r}; "
            f"expected {''.join(f'{axis}, ' for axis in mapped)}{expected}.",
            key="axes-of-kernel",
        )
    return space if layout is None or {*space} == SPHERE else PLANE, beside


def _shared(kernel: Kernel) -> set[str]:
    """Name the labels that observations alone have: those of errors which they share."""
    factors = [factor for part in kernel.parts for factor in part.factors]
    predicted = {axis for factor in factors for axis in factor.number_axes}
    predicted |= {factor.axis for factor in factors if isinstance(factor, Coregion)}
    return {factor.axis for factor in factors if isinstance(factor, SameLabel)} - predicted


def _check_beside(source: PointSource) -> None:
    """Have the first observations read as those of `krige` are, with all variables that stand beside them.

    What lies beside the values may change their meaning: levels, flags, marks of missing values, units.
    """
    if not source.on_sphere:
        return
    with xr.open_zarr(plain_store(source.path, text=True), chunks=None, consolidated=False) as opened:
        (dim,) = opened[source.value].dims
        rows = opened.isel({dim: slice(0, ROWS_COMPARED)}).load()
    kept = ~np.isnan(rows[source.value].values)
    if not kept.any():
        return
    about: dict[str, Any] = {"value": source.value, "noise_std": source.noise_std}
    about["columns"] = {name: name for name in SPHERE} | {"time": "none"}
    about["where"] = dict.fromkeys(source.beside, ANY) or None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of places and copies, among the first alone
            points = read(rows, **about).points
    except CagpError as error:
        if error.key == "row":  # blocks say it with their number
            return
        raise ArgumentError(
            f"{source.path}: {error.text} Write what is meant into a store of its own first.", key=error.key
        ) from error
    latitude = rows["latitude"]
    farthest = np.abs(latitude.values[kept]).max()
    if not np.isclose(np.abs(points.north).max(), farthest, rtol=1e-4):
        raise ArgumentError(
            f"the places of {source.path} are in {latitude.attrs.get('units')!r}; expected degrees.",
            key="degrees",
        )


def _cells_of_region(
    shape: tuple[int, ...], n: int, names: tuple[str, ...], chosen: Mapping[str, int]
) -> tuple[int, ...]:
    """Decide how many cells a region has along each axis, by integers alone."""
    if unknown := set(chosen) - set(names):
        raise ArgumentError(
            f"chunks has {unknown.pop()!r}; expected axes of the map: {', '.join(names)}.", key="axis-unknown"
        )
    q = prod(shape)
    wanted = min(REGION, max(FEWEST_OF_REGION, q // REGIONS), ROWS_OF_REGION * q // n)
    side = max(1, int(wanted ** (1.0 / min(len(shape), 2))))
    found = []
    for axis, (name, length) in enumerate(zip(names, shape, strict=True)):
        cells = chosen.get(name, side if axis >= len(shape) - 2 else 1)
        check_count(f"chunks[{name!r}]", cells, least=1)
        found.append(min(cells, length))
    return tuple(found)


@dataclass(frozen=True)
class Sizes:
    """What a map is made of, in integers, and what that takes."""

    n: int  # observations
    shape: tuple[int, ...]  # cells of the map along each axis
    cells: tuple[int, ...]  # and of a region
    columns: int  # coordinates of a point
    boxed: int  # coordinates in which points near each other are alike
    stored_chunk: int  # observations of a chunk of the store that they are read from
    solver: Neighbours
    workers: int  # tasks that run at once
    limit: int  # bytes that these may allocate

    @property
    def targets(self) -> int:
        """Targets of a region."""
        return prod(self.cells)

    @property
    def block_rows(self) -> int:
        """Observations of a block: one for every worker, and as many as half of the memory of one holds."""
        fitting = self.limit // (2 * self.workers * self._row_bytes)
        pieces = min(BLOCK, fitting, max(FEWEST_OF_BLOCK, self.n // self.workers)) // PIECE
        return PIECE << max(0, pieces.bit_length() - 1)  # halves of halves begin with a piece

    @property
    def _row_bytes(self) -> int:
        """Bytes of a task for each observation that it holds."""
        return 8 * ROW_COPIES * (max(self.columns, self.boxed) + 3)

    def region_bytes(self, rows: int) -> int:
        """Bytes of a region that reads so many observations."""
        k, coarse = self.solver._settings.neighbours, self.solver.coarse
        solve = least_bytes(rows, self.targets, self.columns, 1, neighbours=k, coarse=coarse, workers=1).total
        return rows * self._row_bytes + solve

    @property
    def sorting(self) -> float:
        """Part of the work that is sorting."""
        return self.n * SORT_FLOPS / self._flops

    @property
    def _flops(self) -> int:
        q = prod(self.shape)
        return self.solver.work(self.n, q)[1] + self.n * (SORT_FLOPS + WIDER * READ_FLOPS)

    def plan(self, *, shares_memory: bool) -> Plan:
        """Decide bytes and flops."""
        q = prod(self.shape)
        regions = prod(-(-length // cells) for length, cells in zip(self.shape, self.cells, strict=True))
        blocks = -(-self.n // self.block_rows)
        rows = min(self.n, WIDER * (self.n * self.targets // q + PIECE))
        sort = self.block_rows * self._row_bytes + 16 * self.stored_chunk
        boxes = 8 * (2 * self.boxed + 1) * blocks * self.block_rows // PIECE
        of_task = max(sort, self.region_bytes(rows)) + 3 * boxes
        peak = self.workers * of_task + boxes
        disk = 8 * self.n * (self.columns + 3)
        method = (
            f"{self.solver.neighbours:,} nearest neighbours from store to store, {counted(blocks, 'block')} "
            f"of observations, {counted(regions, 'region')} of {' x '.join(map(str, self.cells))} cells, "
            f"{bytes_text(of_task)} a task, {bytes_text(disk)} of disk meanwhile"
        )
        if peak > self.limit:
            raise BudgetError(
                f"{method}: {counted(self.workers, 'task')} at once need about {bytes_text(peak)}, more than "
                f"the {bytes_text(self.limit)} that may be used.",
                key="memory",
                remedies=(Remedy.MORE_MEMORY, Remedy.FEWER_WORKERS, Remedy.SMALLER_REGIONS),
            )
        demand = Demand(
            self.n, q, 1, False, self.workers, shares_memory, self.limit, self.columns, len(self.shape)
        )
        entries = self.solver.work(self.n, q)[0]
        return plan_without_tiles(demand, method, None, peak, entries, self._flops, blocks + regions)


def _sampled(source: PointSource, axes: Mapping[str, Array]) -> Array:
    """Points of many targets, of all where these are few."""
    rng, shape = np.random.default_rng(0), [len(values) for values in axes.values()]
    q = prod(shape)
    chosen = np.arange(q) if q <= MEANS_OF_KEY else rng.integers(q, size=MEANS_OF_KEY)
    picked = np.unravel_index(chosen, shape)
    return _points(source, {name: axes[name][at] for name, at in zip(axes, picked, strict=True)}, len(chosen))


def _key(
    source: PointSource,
    prior: Prior,
    solver: Neighbours,
    axes: Mapping[str, Array],
    cells: tuple[int, ...],
    sampled: Array,
) -> str:
    """Digest of all that the map depends on but the observations; of a mean, its values at many targets."""
    mean = np.ascontiguousarray(prior.mean_at(sampled))
    digest = hashlib.sha256(mean.tobytes()).hexdigest()
    parts = (numerical_version(), source, solver, prior.kernel, cells, tuple(axes), digest)
    return text_sha256(repr(parts) + json.dumps([values.tolist() for values in axes.values()]))


def _there(output: Path, key: str, observations: str) -> xr.Dataset:
    """Open what the same call has made of the same observations before; `ArgumentError` if it was another."""
    if (output / "zarr.json").is_file():
        found = open_group(output)
        if (found.attrs.get("call_sha256"), found.attrs.get("observations_sha256")) == (key, observations):
            return found
        found.close()
    raise ArgumentError(
        f"output {output} is there already, and not what this call makes of these observations. Remove it.",
        key="output-exists",
    )


def _begin(work: Path, key: str, source: PointSource, scale: Metric, n: int, block_rows: int) -> None:
    """Make the folder of the work, or go on with what is there."""
    about, identity = work / "about.json", source.identity()
    if about.is_file():
        found = json.loads(about.read_text())
        if (found["key"], found["observations"]) == (key, identity):
            return
        what = "observations have changed" if found["key"] == key else "map was begun by another call"
        raise StoreError(
            f"the {what} since {work} was made, which has parts of a map. Call again as before, or remove "
            "that folder to start again.",
            key="changed-since",
        )
    create_blocks(work, source, scale, n=n, block_rows=block_rows)
    text = json.dumps({"key": key, "observations": identity, "n": n, "block_rows": block_rows})
    write_durably(about, text)


def _sort(
    work: Path, source: PointSource, kernel: Kernel, executor: Executor, say: Callable[[float], None]
) -> None:
    """Sort the blocks that are not there yet."""
    about = json.loads((work / "about.json").read_text())
    n, rows = about["n"], about["block_rows"]
    blocks = list(SortedPoints(work).blocks)
    missing = [first for first, count in blocks if count < 0]

    def submit(first: int, home: int) -> Handle[int]:
        return executor.submit(sort_block, work, source, kernel, first, min(n, first + rows), home=home)

    for number, _ in enumerate(_handed_out(missing, submit, executor), 1):
        say((len(blocks) - len(missing) + number) / len(blocks))
    if missing and source.identity() != about["observations"]:
        shutil.rmtree(work, ignore_errors=True)
        raise StoreError(
            f"{source.path} has changed while it was read. Call again once it is whole.", key="changed-since"
        )


@dataclass(frozen=True)
class MapJob:
    """What a task of a region is told beside its region."""

    work: Path  # folder of the work
    prior: Prior
    solver: Neighbours
    source: PointSource
    names: tuple[str, ...]  # axes of the map
    limit: int  # bytes that the task may allocate


def solve_region(job: MapJob, size: Sizes, where: Region, axes: tuple[Array, ...]) -> Status:
    """Predict at the cells of a region and write its chunks: a task of executors."""
    targets = _targets(job, axes)
    points, p = SortedPoints(job.work), size.columns
    scale, reach = metric(job.prior.kernel, p), job.solver._settings.reach
    scaled = targets * scale
    least, most = scaled.min(axis=0), scaled.max(axis=0)
    near = points.nearest(least, most, reach)
    around = MARGIN * (most - least).max() if points.counts[near].sum() > MANY else np.inf
    rows = points.read(near, scale, least - around, most + around)
    if len(rows) < reach:
        around = np.inf
        rows = points.read(near, scale, least - around, most + around)
    _check_rows(job.limit, size, len(rows), where)
    # the neighbours of targets are in these boxes, as some observations are known that are no nearer
    lower, upper = boxes_with_neighbours(rows[:, :p], targets, scale=scale, neighbours=reach)
    low, high = lower.min(axis=0), upper.max(axis=0)
    more, places = points.meeting(lower, upper), rows[:, :p] * scale
    if (low >= least - around).all() and (high <= most + around).all():  # those of the first pieces are known
        more, rows = np.setdiff1d(more, near), rows[((places >= low) & (places <= high)).all(axis=1)]
    else:
        rows = rows[:0]
    rows = np.concatenate([rows, points.read(more, scale, low, high)])
    _check_rows(job.limit, size, len(rows), where)
    rows = rows[np.argsort(rows[:, -1])]
    del places
    posterior = condition(
        replace(job.prior, noise_variance=rows[:, p + 1]),
        rows[:, :p],
        rows[:, p],
        targets,
        solver=job.solver,
        executor=SerialExecutor(),
        memory_limit_bytes=job.limit,
    )
    shape = tuple(len(axis) for axis in axes)
    std = np.sqrt(np.maximum(posterior.variance, 0.0))  # below zero by rounding alone, which the status says
    group = zarr.open_group(os.fspath(job.work / MAP), mode="r+", use_consolidated=False)
    with disk_errors(job.work):
        for name, values in zip(NAMES, (posterior.mean, std), strict=True):
            array = _array(group, name)
            array[where] = values.reshape(shape)
            sync(job.work / MAP / _chunk(array, where, size.cells))
    return posterior.status


def _targets(job: MapJob, axes: Sequence[Array]) -> Array:
    """Points of the cells of a region, the last axis fastest."""
    cells = [values.ravel() for values in np.meshgrid(*axes, indexing="ij")]
    return _points(job.source, dict(zip(job.names, cells, strict=True)), cells[0].size)


def _points(source: PointSource, coordinates: Mapping[str, Array], count: int) -> Array:
    """Points of targets, which have no label of errors that observations share."""
    none = {axis: np.full(count, NO_LABEL) for axis in source.beside if axis not in coordinates}
    return source.points({**coordinates, **none})


def _check_rows(limit: int, size: Sizes, rows: int, where: Region) -> None:
    """Raise `BudgetError` where a region has more observations than a task can hold."""
    if (needed := size.region_bytes(rows)) > limit:
        said = ", ".join(f"{part.start}..{part.stop - 1}" for part in where)
        raise BudgetError(
            f"{counted(rows, 'observation')} lie around the cells {said}, which take {bytes_text(needed)}, "
            f"more than the {bytes_text(limit)} that one task may use.",
            key="memory",
            remedies=(Remedy.SMALLER_REGIONS, Remedy.MORE_MEMORY, Remedy.FEWER_WORKERS),
        )


def _solve(
    job: MapJob,
    axes: Mapping[str, Array],
    cells: tuple[int, ...],
    size: Sizes,
    executor: Executor,
    say: Callable[[float], None],
) -> None:
    """Do the regions that are not there yet, after a look at whether all of them fit."""
    ranges = [block_ranges(len(values), own) for values, own in zip(axes.values(), cells, strict=True)]
    regions = [tuple(slice(*part) for part in parts) for parts in product(*ranges)]
    # those at the edge, which are smaller, come last: workers take turns, and all end at about the same time
    regions.sort(key=lambda region: -prod(part.stop - part.start for part in region))
    missing = set(missing_chunks(job.work / MAP))
    group = zarr.open_group(os.fspath(job.work / MAP), mode="r", use_consolidated=False)
    todo = [region for region in regions if not _is_there(group, region, cells, missing)]
    points, scale = SortedPoints(job.work), metric(job.prior.kernel, size.columns)

    def of(region: Region) -> tuple[Array, ...]:
        return tuple(values[part] for values, part in zip(axes.values(), region, strict=True))

    for region in todo:
        places = _targets(job, of(region)) * scale
        _check_rows(job.limit, size, points.about(places.min(axis=0), places.max(axis=0)), region)

    def submit(region: Region, home: int) -> Handle[Status]:
        return executor.submit(solve_region, job, size, region, of(region), home=home)

    ends: Counter[Status] = Counter()
    for number, status in enumerate(_handed_out(todo, submit, executor), 1):
        ends[status] += 1
        say((len(regions) - len(todo) + number) / len(regions))
    for status, count in ends.items():
        if not status.ok:
            _log.warning("%s ended with %s. %s", counted(count, "region"), status.name, status.advice)


def _is_there(group: zarr.Group, region: Region, cells: tuple[int, ...], missing: set[str]) -> bool:
    """Whether the chunks of a region are there and match their checksums."""
    arrays = [_array(group, name) for name in NAMES]
    if any(_chunk(array, region, cells) in missing for array in arrays):
        return False
    try:
        return all(np.isfinite(array[region]).all() for array in arrays)
    except Exception:  # codecs raise whatever their library raises on damaged bytes
        return False


def _chunk(array: "zarr.Array[ArrayV3Metadata]", region: Region, cells: tuple[int, ...]) -> str:
    """File of the chunk of a region, below the map."""
    index = tuple(part.start // own for part, own in zip(region, cells, strict=True))
    return f"{array.path}/{array.metadata.encode_chunk_key(index)}"


def _handed_out(
    items: Sequence[Item], submit: Callable[[Item, int], Handle[T]], executor: Executor
) -> Iterator[T]:
    """Submit some items at a time, to one worker after the other, and give what they found, in order."""
    waiting: list[Handle[T]] = []
    for home, item in enumerate(items):
        waiting.append(submit(item, home))
        if len(waiting) == AT_ONCE * executor.workers:
            yield executor.gather([waiting.pop(0)])[0]
    while waiting:
        yield executor.gather([waiting.pop(0)])[0]


def _array(group: zarr.Group, name: str) -> "zarr.Array[ArrayV3Metadata]":
    """Give an array of the map."""
    found = group[name]
    assert isinstance(found, zarr.Array)
    return found


def _template(
    path: Path, axes: Mapping[str, Array], cells: tuple[int, ...], said: Mapping[str, Mapping[str, Any]]
) -> None:
    """Make the map without values, unless it is there."""
    if path.is_dir():
        return
    staged = path.with_name(f".{path.name}")
    shutil.rmtree(staged, ignore_errors=True)
    coordinates = {name: (name, values, AXES.get(name, {})) for name, values in axes.items()}
    write_group(staged, "/", xr.Dataset(coords=coordinates))
    group = zarr.open_group(os.fspath(staged), mode="r+", use_consolidated=False)
    with disk_errors(path):
        for name in NAMES:
            group.create_array(
                name,
                shape=tuple(len(values) for values in axes.values()),
                chunks=cells,
                dtype="float64",
                compressors=[ZstdCodec(level=ZSTD_LEVEL), Crc32cCodec()],
                fill_value=np.nan,
                dimension_names=tuple(axes),
                attributes=dict(said[name]),
                config={"write_empty_chunks": True},
            )
        os.rename(staged, path)


def _publish(work: Path, output: Path, said: Mapping[str, str | int]) -> None:
    """Give the map its attributes and its name, when all chunks are on the disk."""
    made = work / MAP
    if missing := missing_chunks(made):
        raise StoreError(
            f"{made / missing[0]} is missing, which was written. Call again, and it is made again.",
            key="lost",
        )
    group = zarr.open_group(os.fspath(made), mode="r+", use_consolidated=False)
    with disk_errors(output):
        group.update_attributes(dict(said))
        sync_tree(made)
        os.rename(made, output)
        sync(output.parent)
    shutil.rmtree(work, ignore_errors=True)


def _texts(variable: xr.DataArray) -> dict[str, dict[str, str]]:
    """Attributes of the mean and of its standard deviation, from those of what was observed."""
    what = variable.attrs.get("long_name", variable.name)
    units = {"units": str(variable.attrs["units"])} if "units" in variable.attrs else {}
    return {
        "mean": {"long_name": f"mean of {what}", **units},
        "std": {"long_name": f"standard deviation of {what}, without the noise of an observation", **units},
    }


def _attributes(
    source: PointSource, prior: Prior, solver: Neighbours, key: str, observed: int
) -> dict[str, str | int]:
    """Everything that was chosen, for people and programs."""
    software = f"cagp-dist {version('cagp-dist')}"
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "Conventions": CONVENTIONS,
        "title": f"{source.value}: posterior mean and standard deviation",
        "source": f"kriging (Gaussian-process regression) of {observed:,} observations",
        "history": f"{now} {software}: krige_store of {source.path}",
        "software": software,
        "observations": observed,
        "kernel": repr(prior.kernel),
        "noise": source.noise_std or f"variance {prior.noise_variance}",
        "solver": repr(solver),
        "call_sha256": key,
        "observations_sha256": source.identity(),
    }
