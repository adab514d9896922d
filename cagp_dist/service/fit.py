"""The three numbers of a prior, fitted to the observations of a job by maximum likelihood."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.era5.canonical import Points
from cagp_dist.errors import ArgumentError, FitError
from cagp_dist.geometry import is_pole, unit_sphere
from cagp_dist.gp import Prior
from cagp_dist.kernels import KERNELS
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.remedies import advice
from cagp_dist.runtime import Executor
from cagp_dist.service.jobfile.tables import Job
from cagp_dist.service.task import Task

if TYPE_CHECKING:
    from cagp_dist.likelihood.result import FitProgress, FitResult


@dataclass(frozen=True, eq=False)
class FittedPrior:
    """A prior whose numbers were fitted.

    Attributes
    ----------
    prior : Prior
        Kernel, noise and the mean of the job.
    result : FitResult
        Estimates, standard errors, log-likelihood and status, as `cagp_dist.fit` gives them.
    where : str
        What they were fitted to, for people.
    """

    prior: Prior
    result: "FitResult"
    where: str

    def estimates(self) -> list[tuple[str, float, float]]:
        """Name, value and standard error of each number, in the order of the job file.

        The standard error is NaN where there is none.
        """
        errors = self.result.standard_errors
        return [
            ("lengthscale", self.prior.kernel.lengthscale, errors.lengthscale),
            ("variance", self.prior.kernel.variance, errors.variance),
            ("noise_variance", self.prior.noise_variance, errors.noise_variance),
        ]

    @property
    def advice(self) -> str:
        """What the status of the fit means, and what to do in the job."""
        status = self.result.status
        return f"{status.meaning} {advice(status.remedies, in_job=True)}".rstrip()

    def line(self) -> str:
        """Sum it up in one line."""
        numbers = ", ".join(
            f"{name.replace('_', ' ')} {value:.4g} ± {error:.1g}" for name, value, error in self.estimates()
        )
        return f"{self.result.status.value}, {numbers}"

    def attributes(self) -> dict[str, object]:
        """Give what the published run says of the fit; a number that there is not is null."""
        result = self.result
        return {
            "where": self.where,
            "points": result.points,
            "method": result.method,
            "status": result.status.value,
            "status_advice": self.advice,
            "log_likelihood": _finite(result.log_likelihood),
            "standard_errors": {name: _finite(error) for name, _, error in self.estimates()},
            "gradient_norm": _finite(result.gradient_norm),
            "evaluations": result.evaluations,
        }


def _finite(number: float | None) -> float | None:
    return number if number is not None and np.isfinite(number) else None


def fit_prior(
    task: Task,
    *,
    executor: Executor,
    memory_limit_bytes: int | None = None,
    progress: Callable[[float | None, str], None],
) -> FittedPrior:
    """Fit lengthscale, variance and noise variance of a job's kernel, given its mean.

    A field that is a whole latitude-longitude grid is taken as a whole, test points included, but for pole
    rows: three numbers cannot remember 100,000 values, and the likelihood on a grid is exact and quick
    (math 7, 9). Any other field gives its observed points alone. All times share the three numbers.

    Parameters
    ----------
    task : Task
        Points, values, mean and the name of the kernel.
    executor : Executor
        Where it is computed.
    memory_limit_bytes : int, optional
        What the fit may allocate.
    progress : callable
        Called with the part that is done, if it is known, and a line for people.

    Returns
    -------
    FittedPrior

    Raises
    ------
    BudgetError
        If not even one likelihood fits into memory.
    NumericalError
        If the likelihood cannot be evaluated.
    """
    from cagp_dist.likelihood.fit import fit

    points, gridded = task.points, whole_grid(task.points)
    sites: LatLonGrid | Array
    if gridded is None:
        sites = task.inputs
        residuals = task.targets - task.mean(sites)
    else:
        sites, chosen = gridded
        X = unit_sphere(points.latitude_degrees[chosen], points.longitude_degrees[chosen])
        residuals = (points.values_kelvin[:, chosen] - task.mean(X).T).reshape(-1, *sites.shape)
    result = fit(
        KERNELS[task.job.prior.kernel],
        sites,
        residuals,
        mean=0.0,
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
        progress=lambda state: progress(None, _shown(state)),
    )
    prior = Prior(result.prior.kernel, result.prior.noise_variance, task.mean)
    return FittedPrior(prior=prior, result=result, where=fitted_to(points, task.design.train.size))


def _shown(state: "FitProgress") -> str:
    return (
        f"likelihood {state.evaluations}: lengthscale {state.lengthscale:.3g}, "
        f"variance {state.variance:.3g}, noise {state.noise_variance:.2g}"
    )


def fitted_to(points: Points | None, observed: int) -> str:
    """Say what a fit uses; None stands for a field that was not read yet."""
    if points is None:
        return f"the whole field if it is a grid without gaps, else to the {observed:,} observed points"
    gridded = whole_grid(points)
    if gridded is None:
        return f"the {observed:,} observed points"
    return f"the whole field of {gridded[0].size:,} points, test points included"


def whole_grid(points: Points) -> tuple[LatLonGrid, Indices] | None:
    """Find the latitude-longitude grid that points are all of, pole rows left out.

    Parameters
    ----------
    points : Points
        From south to north, and from west to east within a row.

    Returns
    -------
    tuple of LatLonGrid and array of int, or None
        The grid, and its points in grid order; None if the rows are no full circles of equally spaced
        points, or some points are missing.
    """
    chosen = np.flatnonzero(~is_pole(points.latitude_degrees))
    rows, columns = np.unique(points.latitude_degrees[chosen]), np.unique(points.longitude_degrees[chosen])
    if chosen.size == 0 or rows.size * columns.size != chosen.size:
        return None
    try:
        return LatLonGrid.from_axes(rows, columns), chosen
    except ArgumentError:  # a part of the circle, or spaced unequally
        return None


def check_fit(job: Job, fitted: FittedPrior) -> None:
    """Raise `FitError` unless the fit ended well; the text has the remedy and the numbers it reached."""
    status, at_bound = fitted.result.status, " and ".join(fitted.result.at_bound)
    if not status.ok:
        which = f" ({at_bound})" if at_bound else ""
        raise FitError(
            f"the fit of the prior to {fitted.where} ended {status.value}{which}: {fitted.advice} "
            "Nothing was published. To go on with the numbers it reached, put them into the job:\n"
            f"{prior_table(job, fitted)}"
        )


def prior_table(job: Job, fitted: FittedPrior) -> str:
    """``[prior]`` of a job file with the fitted numbers, ready to paste."""
    numbers = [f"{name} = {value:.6g}" for name, value, _ in fitted.estimates()]
    return "\n".join(
        ["[prior]", f'kernel = "{job.prior.kernel}"', f"mean = {_quoted(job.prior.mean)}", *numbers]
    )


def _quoted(text: str) -> str:
    """Write text as TOML does."""
    import json

    return json.dumps(text, ensure_ascii=False)
