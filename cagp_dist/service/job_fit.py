"""The three numbers of a prior, fitted to the observations of a job by maximum likelihood."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from math import isfinite
from operator import add
from statistics import NormalDist
from typing import TypeVar, cast

import numpy as np

from cagp_dist.errors import DataError
from cagp_dist.factors import Directional
from cagp_dist.gram.ring_filter import RingFilter
from cagp_dist.kernels import DEPTH, TIME, Family, Kernel, chosen_by, name_of
from cagp_dist.pipeline import (
    NAMES,
    FitProgress,
    FitResult,
    Numbering,
    Observations,
    each,
)
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel, innovations_over_scale, no_nugget
from cagp_dist.pipeline.fitting import Sites, effective_times
from cagp_dist.pipeline.map_mean import MeansByLabel, mean_of
from cagp_dist.pipeline.robust_fit import fit_beside_outliers
from cagp_dist.pipeline.steps import fit
from cagp_dist.prior import Prior
from cagp_dist.remedies import advice
from cagp_dist.service.filtered_jobs import fit_in_time
from cagp_dist.service.jobfile.prior_table import FitTo, PriorTable
from cagp_dist.service.task import TIME_KERNELS, PreparedJob
from cagp_dist.space import Space
from cagp_dist.space_time import SpaceTime
from cagp_dist.text import counted

T = TypeVar("T")

HOURS, OF_DEPTH = "time_lengthscale_hours", "depth_lengthscale"
LEVEL = 0.95  # Of the intervals that are shown of the numbers
FEWEST_TIMES = 2  # To which a kernel in time is fitted
Z_OF_LEVEL = NormalDist().inv_cdf(0.5 + 0.5 * LEVEL)


@dataclass(frozen=True, eq=False)
class FittedPrior:
    """A prior whose numbers were fitted."""

    model: FittedModel  # kernel, noise and mean
    fit_to: FitTo  # what the job asked for
    where: str  # what they were fitted to, for people
    units: str  # of the values; empty where they are transformed
    space: Space  # in which the lengthscales are
    likelihood: str = "exact"  # which one, for people
    times: int = 1  # times whose fields share the three numbers
    # how many independent fields they are worth (`cagp_dist.likelihood.replicates`)
    effective_times: float = 1.0
    # standard error of the lengthscale in time of whole grids that go on; NaN where that is given
    hours_error: float | None = None
    days: RingFilter | None = None  # by which that was fitted

    @property
    def result(self) -> FitResult:
        """Estimates, standard errors, log-likelihood and status, as `cagp_dist.fit` gives them."""
        assert self.model.result is not None
        return self.model.result

    @property
    def prior(self) -> Prior:
        """Kernel and noise, beside what is known of it."""
        return numbers_of(self.model)

    @property
    def ok(self) -> bool:
        """Whether the numbers can be used: the fit ended well, but for a noise too small to be found."""
        return self.model.fit_is_usable

    def estimates(self) -> list[tuple[str, float, float]]:
        """Name, value and standard error of each number, in the order of the job file.

        Of several variables none: their numbers cannot be given.
        """
        if self.model.correlations is not None:
            return []
        parts, errors = len(self.prior.kernel.parts), self.result.standard_errors
        hours = () if self.hours_error is None else (self.hours_error,)
        of_all = (*each(errors.lengthscale), *each(errors.variance), errors.noise_variance)
        spread = [of_all[place] for place in self._places]
        spread[1:1] = hours
        own = (NAMES[0], *_beside(self.prior.kernel))
        of_parts = [f"_{part}" for part in range(1, parts + 1)] if parts > 1 else [""]
        names = [f"{name}{part}" for group in (own, (NAMES[1],)) for part in of_parts for name in group]
        return list(zip([*names, NAMES[2]], prior_numbers(self.prior), spread, strict=True))

    @property
    def noise_is_held(self) -> bool:
        """Whether there is no noise beside what is known: none was asked for, or none was found."""
        return bool(self.model.known_noise.any()) and NAMES[2] in self.model.held

    @property
    def _places(self) -> list[int]:
        """Which of the fitted numbers are those of the job file; others are said apart."""
        names = Numbering.of_kernel(self.result.prior.kernel).names
        shared = range(len(names) - 1 - len(self.model.bias_std), len(names) - 1)
        return [at for at, name in enumerate(names) if name.startswith(NAMES) and at not in shared]

    def intervals(self) -> list[tuple[float, float]]:
        """Central 95 % interval of each number, symmetric on the log scale, in the order of `estimates`."""
        if self.model.correlations is not None:
            return []
        ends = list(self.result.intervals(LEVEL).values())
        *others, (low, high) = (ends[place] for place in self._places)
        if (error := self.hours_error) is not None:
            hours = prior_numbers(self.prior)[1]
            reach = np.exp(Z_OF_LEVEL * error / hours)
            others.insert(1, (hours / reach, hours * reach))
        known = self.result.prior.noise_number - self.prior.noise_number
        return [*others, (max(low - known, 0.0), high - known) if isfinite(low) else (low, high)]

    @property
    def advice(self) -> str:
        """What the status of the fit means, and what to do in the job."""
        status = self.result.status
        if self.model.noise_is_negligible:
            return (
                "The noise variance is too small compared with the field to be distinguished from zero, so "
                "its standard error is missing or large. The posterior does not depend on it."
            )
        return f"{status.meaning} {advice(status.remedies, in_job=True)}".rstrip()

    @property
    def warning(self) -> str:
        """Say what is doubtful about the numbers where they are plugged in; empty where nothing is."""
        if self.ok:
            return ""
        kernel = self.result.prior.kernel
        named = Numbering.of_kernel(kernel).names
        called = dict(zip(named, [name for name, *_ in self.estimates()], strict=False))
        if not kernel.of_space_and_time:
            called = {}
        at_bound = [called.get(name, name) for name in self.result.at_bound]
        which = f" ({' and '.join(at_bound)})" if at_bound else ""
        return f"the fit of the prior to {self.where} ended {self.result.status.value}{which}: {self.advice}"

    def line(self) -> str:
        """Sum it up in one line."""
        numbers = ", ".join(
            f"{name.replace('_', ' ')} {value:.4g} ± {error:.1g}"
            for name, value, error in self.estimates()
            if name != NAMES[2] or not self.noise_is_held
        )
        text = f"{self.result.status.value}, {numbers or self._together()}"
        for shape in self.prior.kernel.parts[0].factors:
            if not isinstance(shape, Directional):
                continue
            text += (
                f", distances count {shape.ratio:.3g} times less along {shape.azimuth_degrees:.0f} degrees"
            )
            text += " from north than across"
        for (axis, std), error in zip(
            self.model.bias_std.items(), self.model.bias_std_errors.values(), strict=True
        ):
            text += f"; standard deviation of the errors by {axis!r} {std:.4g} ± {error:.1g}"
        if self.result.choice is not None:
            text += f"; {self.result.choice.line()}"
        if self.model.noise_is_negligible:
            text += "; the noise is too small to be distinguished from zero, which makes no difference"
        if self.times > 1:
            text += f"; {self.times:,} times as fields of one prior, worth {self.effective_times:.3g}"
            text += " independent ones"
        return text

    def _spread(self) -> dict[str, object]:
        """Give standard errors and intervals of the numbers."""
        if self.model.correlations is not None:
            return {}
        return {
            "standard_errors": by_name(self.prior, [_finite(error) for _, _, error in self.estimates()]),
            "intervals": by_name(self.prior, [[_finite(end) for end in ends] for ends in self.intervals()]),
            "intervals_level": LEVEL,
        }

    def _together(self) -> str:
        """Say how several variables go together."""
        assert self.model.correlations is not None
        assert isinstance(self.model.mean, MeansByLabel)
        names, known = self.model.mean.names, self.model.correlations
        lengthscales = " and ".join(f"{length:.4g}" for length in self.model.lengthscales)
        pairs = [
            f"{names[first]} with {names[second]} {known.values[first, second]:.2f} ± "
            f"{known.standard_errors[first, second]:.1g}"
            for first, second in combinations(range(len(names)), 2)
        ]
        return f"lengthscale {lengthscales}, correlation of {', '.join(pairs)}"

    def attributes(self) -> dict[str, object]:
        """Give what the published run says of the fit; a number that there is not is null."""
        result = self.result
        return {
            "fit_to": self.fit_to,
            "where": self.where,
            "likelihood": self.likelihood,
            "points": result.points,
            "times": self.times,
            "effective_times": round(self.effective_times, 2),
            "method": result.method,
            "status": result.status.value,
            "status_advice": self.advice,
            "log_likelihood": _finite(result.log_likelihood),
            **self._spread(),
            **{
                name: _finite(value) if isinstance(value, float) else value
                for name, value in self.model.ellipses.items()
            },
            **({} if result.choice is None else {"kernel_choice": result.choice.line()}),
            **(
                {"bias_std_standard_errors": {axis: _finite(error) for axis, error in errors.items()}}
                if (errors := self.model.bias_std_errors)
                else {}
            ),
            "gradient_norm": _finite(result.gradient_norm),
            "evaluations": result.evaluations,
        }


def numbers_of(model: FittedModel) -> Prior:
    """Kernel of the field and noise, beside what is known of it; mean and shared errors stand elsewhere."""
    return Prior(model.field_kernel, model.nugget or no_nugget(model.known_noise))


def kernel_keys(kernel: Kernel) -> dict[str, str | dict[str, float]]:
    """Write a kernel without its numbers as the keys of a job file do."""
    parts = kernel.parts
    if _beside(kernel) == (OF_DEPTH,):
        first, *others = parts[0].factors
        space, *deep = [getattr(factor.family, "kernel", factor.family) for factor in (first, *others)]
        way = name_of(cast("Family", deep[0])(1.0)) if deep else "metric"
        known = {"kernel": name_of(cast("Family", space)(1.0)), "depth_kernel": way}
        return known | (kernel_keys(first) if isinstance(first, Directional) else {})
    if isinstance(kernel, Directional):
        shape = {"ratio": kernel.ratio, "azimuth_degrees": kernel.azimuth_degrees}
        return {"kernel": name_of(kernel), "anisotropy": shape}
    if not all(isinstance(part, SpaceTime) for part in parts):
        return {"kernel": name_of(kernel)}
    own = cast("tuple[SpaceTime, ...]", parts)
    in_space = reduce(add, [part.space for part in own[1:]], cast("Kernel", own[0].space))
    in_time = None if own[0].time is None else own[0].time.family
    names = {family: name for name, family in TIME_KERNELS.items()}
    return {"kernel": name_of(in_space), "time_kernel": names[cast("Family | None", in_time)]}


def _beside(kernel: Kernel) -> tuple[str, ...]:
    """Key of the lengthscale that each part of a kernel has beside that in space, if it has one."""
    axes = () if kernel.layout is None else kernel.layout.axes
    return tuple(name for axis, name in ((TIME, HOURS), (DEPTH, OF_DEPTH)) if axis in axes)


def prior_numbers(prior: Prior) -> list[float]:
    """All numbers of a prior in the order of `Numbering`: lengthscales, variances and the noise variance."""
    parts = prior.kernel.parts
    lengthscales = [
        number
        for part in parts
        for number, axis in zip(part.numbers, part.number_axes, strict=True)
        if axis is not None
    ]
    return [*lengthscales, *(part.variance for part in parts), prior.noise_number]


def by_name(prior: Prior, numbers: Sequence[T]) -> dict[str, T | list[T]]:
    """Numbers in the order of `prior_numbers` by the keys of the job file: of a sum, lists of all parts."""
    beside = _beside(prior.kernel)
    own = 1 + len(beside)  # lengthscales of a part: one may be in time or depth
    ends = own * len(prior.kernel.parts)
    found = {NAMES[0]: list(numbers[:ends:own]), NAMES[1]: list(numbers[ends:-1])}
    for name in beside:
        found[name] = list(numbers[1:ends:own])
    named: dict[str, T | list[T]] = {key: of[0] if len(of) == 1 else of for key, of in found.items()}
    return {**named, NAMES[2]: numbers[-1]}


def _finite(number: float | None) -> float | None:
    return number if number is not None and np.isfinite(number) else None


def fit_prior(
    prepared: PreparedJob, execution: Execution, *, note: Callable[[str], None] = lambda text: None
) -> FittedPrior:
    """Fit the numbers of a job's kernel, of a sum all of them, and the noise variance."""
    task, table, points = prepared.to_fit, prepared.job.prior, prepared.points
    units = "" if points.transform is not None else points.variable.units
    decide = task.observed if task.fitted_to is None else task.fitted_to
    if decide.in_time:
        _check_times(decide)
        note(f"to values of all times, on {execution.executor.description}")
        execution.progress(None, "kernel of space and time, and noise")
        model = fit(task, execution)
        assert model.result is not None
        likelihood = model.result.method
        return FittedPrior(model, table.fit_to, model.fitted_to, units, points.space, likelihood)
    if task.model.outliers != "keep":
        execution.progress(None, "kernel and noise, beside values that look wrong")
        model = fit_beside_outliers(task, execution)
    else:
        model = fit(task, execution, progress=lambda state: execution.progress(None, _shown(state)))
    sites = model.sites
    assert sites is not None
    hidden = decide.censored is not None and bool(decide.censored.any())  # whose draws stand for fields
    where = model.fitted_to if hidden else fitted_to_sites(table, decide, sites)
    note(f"to {where}, on {execution.executor.description}")
    note(f"likelihood: {sites.likelihood}")
    mean = model.mean
    if isinstance(mean, Background) and mean.scales:
        decide, mean = innovations_over_scale(decide, mean, None)
    noise = np.broadcast_to(model.of_observations(decide).noise_variance, decide.north.shape)[sites.chosen]
    own = mean_of(mean, decide, sites.chosen, sites.times)
    worth = float(decide.fields) if hidden else effective_times(model.kernel, noise, sites, decide, own)
    hours_error, days = None, None
    if table.is_previous:
        model, hours_error, days = fit_in_time(prepared, model, execution)
    return FittedPrior(
        model,
        fit_to=table.fit_to,
        where=where,
        likelihood=sites.likelihood,
        times=decide.fields if hidden else sites.times.size,
        effective_times=worth,
        units=units,
        space=points.space,
        hours_error=hours_error,
        days=days,
    )


def _check_times(observed: Observations) -> None:
    """Raise `DataError` where a kernel in time has a single time to be fitted to."""
    times = np.unique(observed.hours[observed.there])
    if times.size < FEWEST_TIMES:
        raise DataError(
            f"[prior] time_kernel is fitted to observations of {counted(times.size, 'time')}; expected two "
            "or more. Give more times, a longer window_hours in [design], or the parameters of the prior.",
            key="few-times",
        )


def _shown(state: FitProgress) -> str:
    lengthscale, variance = (
        " + ".join(f"{number:.3g}" for number in each(numbers))
        for numbers in (state.lengthscale, state.variance)
    )
    return (
        f"likelihood {state.evaluations}: lengthscale {lengthscale}, variance {variance}, "
        f"noise {state.noise_variance:.2g}"
    )


def at_fit_times(count: int) -> str:
    """Say that the values of a fit are those of ``fit_times``."""
    return f", with the values of {counted(count, 'time')} in fit_times"


def fitted_to_sites(table: PriorTable, decide: Observations, sites: Sites) -> str:
    """Say which points and times of those that may decide do so."""
    kept, times, count = sites.times.size, decide.fields, decide.there.size
    at_times = f" at {kept:,} of {times:,} times"
    if decide.present[:, decide.there].all():
        where = fitted_to(table.fit_to, observed=count, field=sites.chosen.size)
        where += f"{at_times}, evenly spread" if kept < times else ""
    else:
        whole = fitted_to(table.fit_to, observed=count, field=count)
        where = f"{sites.chosen.size:,} of {whole},{at_times}"
    return where + (at_fit_times(times) if isinstance(table.fit_times, tuple) else "")


def fitted_to(fit_to: FitTo, *, observed: int, field: int | None) -> str:
    """Say what a fit uses; a field that was not read yet has None points."""
    if fit_to == "observed":
        return f"the {observed:,} observed points"
    size = "" if field is None else f" of {field:,} points"
    return f"the whole field{size}, test points included"


def prior_table(table: PriorTable, fitted: FittedPrior) -> str:
    """``[prior]`` of a job file with the fitted numbers, ready to paste; not of several variables."""
    if fitted.model.correlations is not None:
        named = "" if chosen_by(table.kernel) else f"\nkernel = {_quoted(table.kernel)}"
        return f"# The numbers of several variables are fitted by each run.\n[prior]{named}"
    written = by_name(fitted.prior, [f"{number:.6g}" for number in prior_numbers(fitted.prior)])
    numbers = [
        f"{name} = [{', '.join(value)}]" if isinstance(value, list) else f"{name} = {value}"
        for name, value in written.items()
    ]
    mean = [f"mean = {_quoted(table.mean)}"]
    if table.background is not None:
        mean = [f"background = {_quoted(table.background)}", *mean * table.estimates_mean]
    kernel = [f"{key} = {_written(name)}" for key, name in kernel_keys(fitted.prior.kernel).items()]
    if isinstance(fitted.model.mean, Background) and fitted.model.mean.scales:
        if isinstance(table.background_std, str):
            mean.append(f"background_std = {_quoted(table.background_std)}")
        said = "# The numbers are fitted by each run: the error of the background is a field."
        return "\n".join([said, "[prior]", *kernel, *mean])
    if table.covariates:
        mean.append(f"covariates = [{', '.join(map(_quoted, table.covariates))}]")
        if (marks := table.covariates_missing) is not None:
            listed = [marks] if isinstance(marks, float) else marks
            mean.append(f"covariates_missing = [{', '.join(map(repr, listed))}]")
    if table.bias_by:
        mean.append(f"bias_by = [{', '.join(map(_quoted, table.bias_by))}]")
        numbers.append(f"bias_std = [{', '.join(f'{std:.6g}' for std in fitted.model.bias_std.values())}]")
    if table.transforms:
        mean.append(f"transform = {_quoted(table.transform)}")
    return "\n".join(["[prior]", *kernel, *mean, *numbers])


def _written(value: str | dict[str, float]) -> str:
    """Write text, or numbers by name, as TOML does."""
    if isinstance(value, str):
        return _quoted(value)
    return "{ " + ", ".join(f"{name} = {number:.6g}" for name, number in value.items()) + " }"


def _quoted(text: str) -> str:
    """Write text as TOML does."""
    return json.dumps(text, ensure_ascii=False)
