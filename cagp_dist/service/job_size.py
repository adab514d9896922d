"""How large a job is: points, times, what is missing, and what is predicted."""

from dataclasses import dataclass

from cagp_dist.pipeline.recalibration import Errors
from cagp_dist.text import counted


@dataclass(frozen=True)
class Gaps:
    """What the observed points of a field or table lack."""

    values: int  # values of all times together
    patterns: int  # sets of points that were observed at one time or more: times of one set share a solve
    complete: int  # points that have a value at all times

    def line(self) -> str:
        """Say it in one line, and how to have one solve."""
        text = f"{self.values:,} values with {self.patterns:,} patterns of gaps, each of which is a solve"
        if self.complete == 0:
            return f"{text}; no point has a value at all times"
        return (
            f'{text}; gaps = "drop" in [observations] makes it one solve, of the {self.complete:,} '
            f"point{'s' if self.complete != 1 else ''} with a value at all times"
        )


@dataclass(frozen=True)
class Size:
    """How large a solve is."""

    observed: int  # training points, test points, map cells, and times
    tested: int
    mapped: int
    times: int
    # Values that one solve takes, where times inform each other: each is a point in space and time; else 0
    joined: int = 0
    apart: bool = False  # whether each time has a solve of its own then, as it sees others than the next
    # Cells of a finer map of the mean alone. They are not part of the plan's bytes and seconds: one more
    # row of the Gram matrix each, and no sweep.
    mean_mapped: int = 0
    blank: int = 0  # cells of the map that are not predicted, as the source has no value there at any time
    folds: int = 0  # of a cross-validation, in which the observed points are the test points; else 0
    places: int = 0  # places of a table
    nodes_per_cell: int = 0  # of map cells whose mean is wanted; 0 where the field at their centres is
    # what the observed points lack at some times; None where that is nothing, or not known yet
    gaps: Gaps | None = None
    # from which the error bars of the map are estimated, instead of a column for each cell; 0 for none
    samples: int = 0
    regions: int = 0  # regions over which means are wanted, and the cells that these are sums over
    region_nodes: int = 0
    biases: int = 0  # groups of observations that share an error
    variables: int = 1  # of which all of these are counted
    depths: int = 1  # of each map, whose cells are counted at each
    errors: Errors = "none"  # that correct error bars, and how many points have one
    with_errors: int = 0
    hidden: int = 0  # values of the observed points that are censored, and draws of each
    draws: int = 1

    def line(self) -> str:
        """Say it in one line."""
        times = counted(self.times, "time")
        if self.joined:
            times += (
                f", each of which sees {'up to ' * self.apart}{counted(self.joined, 'value')} of all times"
            )
        cells = counted(self.mapped, "map cell") + (
            f" and {self.mean_mapped:,} of the mean" if self.mean_mapped else ""
        )
        if self.samples:
            cells += f" from {self.samples:,} samples"
        if self.blank:
            cells += f' and {self.blank:,} blank ones without data, which [design] map mask = "none" predicts'
        if self.nodes_per_cell:
            cells += f", means over {self.nodes_per_cell} nodes each"
        tested = f"predicted in {self.folds} folds" if self.folds else f"{self.tested:,} held out"
        if self.calibrated:
            tested += f", {self.calibrated:,} to calibrate"
        places = f"{counted(self.places, 'place')} of a table, " if self.places else ""
        if self.biases:
            places += f"errors of {counted(self.biases, 'group')}, "
        if self.regions:
            places += f"{counted(self.regions, 'region')} of {self.region_nodes:,} cells, "
        several = f", each of {self.variables} variables counted" if self.variables > 1 else ""
        several += f", cells at {self.depths} depths" if self.depths > 1 and self.mapped else ""
        return f"{counted(self.observed, 'point')} observed, {tested}, {cells}, {places}{times}{several}"

    @property
    def calibrated(self) -> int:
        """Calibration points, which are predicted too."""
        return self.with_errors if self.errors == "points" else 0

    @property
    def fields(self) -> int:
        """Columns of data: values of all times, drawn so often; one where all are points."""
        return 1 if self.joined and not self.apart else self.draws * self.times

    @property
    def predicted(self) -> int:
        """Where values are predicted: points, map cells, places and regions."""
        return self.tested + self.mapped + self.mean_mapped + self.places + self.regions + self.biases

    @property
    def solves(self) -> int:
        """How often a solve is done for the folds of a cross-validation and for what all points predict."""
        return max(1, self.folds + bool(self.mapped + self.places + self.regions + self.biases))

    def solves_line(self) -> str:
        """Say how many solves a cross-validation takes."""
        if self.solves == self.folds:
            return f"{self.solves} such solves, one for each fold"
        tested = counted(self.tested_at_once, "test point")
        return f"{self.solves} solves, one with all points and one with {tested} for each fold"

    @property
    def columns_of_map(self) -> int:
        """Map cells that have a column of the solve."""
        return 0 if self.samples else self.mapped

    @property
    def tested_at_once(self) -> int:
        """Test points of one solve, at most: of a fold, or all."""
        return -(-self.tested // self.folds) if self.folds else self.tested

    @property
    def targets(self) -> int:
        """Points that one solve predicts, at most."""
        others = self.calibrated + self.columns_of_map + self.places + self.regions + self.biases
        return self.together * (max(self.tested_at_once, others) if self.folds else self.tested + others)

    @property
    def together(self) -> int:
        """Times that are targets of one solve, where they are points in space and time."""
        return self.times if self.joined and not self.apart else 1

    @property
    def cell_nodes(self) -> int:
        """Nodes of the targets of one solve, at most; 0 where all are points."""
        if not self.regions + self.biases and not (self.nodes_per_cell and self.columns_of_map):
            return 0
        others = self.calibrated + self.places + self.region_nodes + 2 * self.biases
        others += self.columns_of_map * max(self.nodes_per_cell, 1)
        return self.together * (max(self.tested_at_once, others) if self.folds else self.tested + others)
