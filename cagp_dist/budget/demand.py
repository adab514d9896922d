"""What is asked of a solve, in integers: how many points, targets and fields, which grid, which machine."""

from dataclasses import dataclass

DOUBLE = 8  # Bytes of a number

# Points that a grid may lack where rings are exact: the time of their dense matrix grows with the cube
MOST_MISSING = 5_000

RANGE_BYTES = 96 * 2**20  # Blocks of one range of wavenumbers: enough for a task, small enough for a worker
FEWEST_RANGES = 4

# Kernel values that are evaluated and transformed at a time, 1.6 MB: they stay in the second-level cache
TABLE_ENTRIES = 200_000


@dataclass(frozen=True)
class Demand:
    """What is asked for and what there is to do it with."""

    n: int  #: observed points
    q: int  #: test points
    fields: int  #: that share the points
    full_covariance: bool  #: whether the (q, q) covariance is wanted
    workers: int  #: tasks that run at once
    shares_memory: bool  #: whether the workers share this process's memory
    memory_limit_bytes: int  #: what the solve may allocate
    p: int = 3  #: coordinates of a point
    kernel_parts: int = 1  #: terms of the sum that a kernel value is
    grid: "GridSize | None" = None  #: the grid that was observed, where it is one
    mean_targets: int = 0  #: points at which the mean alone is wanted, beside the q
    cell_nodes: int = 0  #: where targets are means over cells, nodes of all of them; 0 where they are points
    #: of each target that is spread over more than its neighbours: its nodes, and observations around them
    wide: tuple[tuple[int, int], ...] = ()
    bounds: bool = False  #: whether bounds of the computational variance are wanted beside the posterior
    lanczos_steps: int = 0  #: of the quadrature that tightens these bounds
    groups: int = 0  #: of observations that share an error, where neighbours leave these to all of them
    dense: bool = True  #: whether the observations may lie so near each other that more neighbours are taken
    keeps_weights: bool = False  #: whether sweeps keep what they add up: one more tall matrix

    @property
    def target_points(self) -> int:
        """Points whose covariances with the observed ones are evaluated: the targets, or nodes of cells."""
        return self.cell_nodes or self.q


@dataclass(frozen=True)
class GridSize:
    """A latitude-longitude grid of observed points."""

    latitudes: int  #: P
    longitudes: int  #: Q
    missing: int = 0  #: points that were not observed; copies of an observed pole are not missing
    mirrored: bool = False  #: whether it is its own mirror image, which halves the blocks of its Gram matrix
    targets_are_grid: bool = False  #: whether the targets are the points of the same grid
    #: of targets that are a grid, or cells: how many of them see this one differently, up to rotation; None
    #: where the targets are points, of which no two may see it alike
    target_views: int | None = None
    target_places: int = 0  #: targets that are points of it, one by one: its inverse gives their variances
    even_noise: bool = True  #: whether every point has the noise of its latitude

    @property
    def size(self) -> int:
        """Points, P Q."""
        return self.latitudes * self.longitudes

    @property
    def has_rings(self) -> bool:
        """Whether all points of a latitude are alike: none is missing, and the noise is the same."""
        return not self.missing and self.even_noise

    @property
    def solved_by_rings(self) -> bool:
        """Whether an identity of the whole grid gives the exact posterior."""
        return self.missing <= MOST_MISSING and self.even_noise

    @property
    def wavenumbers(self) -> int:
        """How many blocks the Gram matrix has, ``Q // 2 + 1``."""
        return self.longitudes // 2 + 1

    @property
    def block_bytes(self) -> int:
        """Bytes of the blocks of the Gram matrix, one for each wavenumber and sector."""
        return (
            DOUBLE * self.wavenumbers * sum(size**2 for size in sector_sizes(self.latitudes, self.mirrored))
        )

    @property
    def task_bytes(self) -> int:
        """Bytes of a task that makes blocks, beside them: a copy of its own, cosines, kernel values."""
        ranges = range_count(self.wavenumbers, self.block_bytes)
        cosine_bytes = DOUBLE * self.wavenumbers**2  # of all wavenumbers at all differences in longitude
        return (self.block_bytes + 3 * cosine_bytes) // ranges + 2 * DOUBLE * TABLE_ENTRIES


def sector_sizes(latitudes: int, mirrored: bool) -> tuple[int, ...]:
    """Rows of the blocks of one wavenumber: (P,), or (ceil(P / 2), P // 2) for sums and differences."""
    half = latitudes // 2
    return (latitudes - half, half) if mirrored and half else (latitudes,)


def range_count(wavenumbers: int, block_bytes: int) -> int:
    """Into how many tasks the wavenumbers of a grid are split."""
    # where latitudes are few, cosines are more than the blocks
    largest = max(block_bytes, DOUBLE * wavenumbers**2)
    return min(wavenumbers, max(FEWEST_RANGES, -(-largest // RANGE_BYTES)))
