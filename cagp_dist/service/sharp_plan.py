"""What the sharp GP of a job is going to cost: solves like that of the job, one for each lengthscale."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.service.jobfile.job import RecalibrationTable
from cagp_dist.service.sharp_jobs import FACTORS
from cagp_dist.text import bytes_text, counted, rough_duration

MUCH_LONGER = 3.0
"""Times the solve of a job, above which a plan names what takes less."""


@dataclass(frozen=True)
class SharpPlan:
    """Solves of a sharp GP.

    Attributes
    ----------
    search, last : Plan
        Of one solve for the calibration points that lengthscales are chosen with, and of one for all others.
    chosen : int
        Lengthscales that may be chosen, each of which takes one of the last solves.
    times : int
        How often each is done: once for all times, or once for each.
    kept_bytes : int
        Of the variances that are kept until laws are published.
    sampled : Plan or None
        Of the samples of a map, which are drawn for each of the lengthscales that are chosen.
    """

    search: Plan
    last: Plan
    chosen: int
    times: int
    kept_bytes: int
    sampled: Plan | None = None

    @property
    def seconds(self) -> float:
        """Rough time of all of them."""
        of_samples = 0.0 if self.sampled is None else self.sampled.seconds
        once = (FACTORS + 1) * self.search.seconds + self.chosen * self.last.seconds
        return self.times * once + self.chosen * of_samples

    @property
    def peak_bytes(self) -> int:
        """Memory of the largest of them, with what is kept."""
        sampled = 0 if self.sampled is None else self.sampled.peak_bytes
        return max(self.search.peak_bytes, self.last.peak_bytes, sampled) + self.kept_bytes

    def lines(self, *, solve_seconds: float) -> list[str]:
        """Return the plan as sentences for people, beside the time of the job's own solve."""
        few, all_others = counted(self.search.q, "calibration point"), counted(self.last.q, "point")
        samples = "" if self.sampled is None else " and samples of the map"
        text = [
            f"sharp quantiles: {FACTORS + 1} more solves with {few}, then up to {self.chosen} with "
            f"{all_others}{samples}: about {rough_duration(self.seconds)} in all, peak memory about "
            f"{bytes_text(self.peak_bytes)}"
        ]
        if self.seconds > MUCH_LONGER * max(solve_seconds, 1.0):
            text.append(
                f"that is {self.seconds / solve_seconds:.0f} times as long as the solve itself; "
                '[recalibration] method = "local-scale" learns from the same points without a solve more'
            )
        return text


def plan_sharp(
    table: RecalibrationTable,
    demands: Sequence[Demand],
    *,
    planned: Callable[[Sequence[Demand]], Plan],
    calibrated: int,
    targets: int,
    times: int,
    sampled: Plan | None,
) -> SharpPlan:
    """Plan the sharp GP of a job."""
    two_way = table.sharp_split == "two-way"
    half = calibrated if two_way else round(0.5 * calibrated)
    last = targets + (calibrated if two_way else calibrated - half)
    chosen = min(FACTORS, len(table.sharp_levels))
    fields = times if len(demands) == 1 else sum(demand.fields for demand in demands)
    # latent and predictive standard deviations, and the latter of a part
    kept = 3 * DOUBLE * chosen * fields * (targets if sampled is None else targets + sampled.q)
    return SharpPlan(
        search=planned([_at_points(demand, half) for demand in demands]),
        last=planned([_at_points(demand, last) for demand in demands]),
        chosen=chosen,
        times=times,
        kept_bytes=kept,
        sampled=sampled,
    )


def _at_points(demand: Demand, count: int) -> Demand:
    """Ask for variances at so many points, wherever they are."""
    grid = demand.grid
    if grid is not None:
        grid = replace(grid, targets_are_grid=False, target_views=None, target_places=0)
    return replace(demand, q=count, cell_nodes=0, bounds=False, grid=grid)
