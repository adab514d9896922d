"""``[prior]`` of a job file: kernel, mean, and the numbers that are given or fitted."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WrapValidator, model_validator

from cagp_dist.kernels import AUTO, FITTED, FORMS, KERNELS, chosen_by, families_of
from cagp_dist.mapping import NAMES, Hyperparameters, way_of
from cagp_dist.means import MEANS
from cagp_dist.prior import EstimatedMean
from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.fields import NOISE_VARIANCE, Times, key
from cagp_dist.service.jobfile.table_base import JobTable
from cagp_dist.service.jobfile.times_key import EXPECTED as EXPECTED_TIMES
from cagp_dist.text import alternatives

FitTo = Literal["observed", "field"]
"""Whose values decide where the numbers of a prior are fitted: the observed points, or the whole field."""

KEPT = "matern32"
"""The kernel of numbers that are given without one."""

if TYPE_CHECKING:
    KernelSum = str
    EachLengthscale = float | tuple[float, ...] | None
    EachVariance = float | tuple[float, ...] | None
else:
    KernelSum = Annotated[Literal[AUTO, FITTED, *KERNELS], WrapValidator(values.kernel), PlainSerializer(str)]
    _EACH = (WrapValidator(values.each_part), PlainSerializer(values.as_list))
    EachLengthscale = Annotated[float | None, Field(gt=0.0), AfterValidator(values.lengthscale), *_EACH]
    EachVariance = Annotated[float | None, Field(gt=0.0, le=1e12), *_EACH]


@dataclass(frozen=True)
class PriorNumbers:
    """The three numbers of a prior: chord on the unit sphere, K^2, K^2; of a sum the first two by part."""

    lengthscale: float | tuple[float, ...]
    variance: float | tuple[float, ...]
    noise_variance: float


class PriorTable(JobTable):
    """``[prior]``: kernel, mean and the three numbers, which are fitted first if all are left out."""

    kernel: KernelSum = key(
        AUTO, f'{alternatives(FORMS)}, or a sum of them, "matern32 + matern32"', "matern32"
    )
    mean: Annotated[str, AfterValidator(values.mean)] = key(
        "quadratic-latitude", values.EXPECTED_MEAN, "quadratic-latitude"
    )
    mean_estimate: Literal["generalised", "ordinary"] = key(
        "generalised",
        '"generalised": by generalised least squares with the field, counted in the error '
        'bars; or "ordinary": by least squares before, taken as known',
        "generalised",
    )
    persistence: float | None = key(
        None,
        'of mean = "previous", the correlation of the field about its mean with itself '
        "24 hours later: a number above 0 and below 1",
        0.8,
        gt=0.0,
        lt=1.0,
    )
    covariates: Annotated[
        tuple[Annotated[str, AfterValidator(values.checked_covariate)], ...], BeforeValidator(values.as_tuple)
    ] = key(
        (),
        'a list of fields that the mean depends on, "file:PATH:VARIABLE" or "zarr:ADDRESS:VARIABLE"',
        ["file:static.nc:elevation"],
        max_length=20,
    )
    covariates_missing: Annotated[float | tuple[float, ...] | None, BeforeValidator(values.as_tuple)] = key(
        None,
        "a number that stands in covariates where they are not known, or a list of all such "
        "numbers, which is empty where all are known",
        -9999,
    )
    fit_to: FitTo = key("observed", '"observed" or "field"', "observed")
    fit_times: Times | None = key(
        None,
        f"times of the source whose values the numbers are fitted to: {EXPECTED_TIMES}",
        {"last": "30d", "at": "12:00"},
    )
    hyperparameters: Annotated[Hyperparameters, BeforeValidator(way_of)] = key(
        "auto",
        '"integrate" over numbers that are fitted, "plug-in" those of maximum likelihood, or '
        '"auto": integrate for up to 200 observations, and up to 500 places where the likelihood is flat',
        "auto",
    )
    lengthscale: EachLengthscale = key(
        None, "a positive chord length on the unit sphere, at most 2, or of a sum a list of them", 0.05
    )
    variance: EachVariance = key(
        None, "a positive variance in the squared unit of the variable, or of a sum a list of them", 22.0
    )
    noise_variance: Annotated[float | None, NOISE_VARIANCE] = None

    @model_validator(mode="before")
    @classmethod
    def _nothing_to_choose_by(cls, table: object) -> object:
        """Name the kernel of numbers that are given without one: it is chosen where they are fitted."""
        if isinstance(table, dict) and "kernel" not in table and {*NAMES} <= table.keys():
            return {"kernel": KEPT, **table}
        return table

    @model_validator(mode="after")
    def _all_numbers_or_none(self) -> Self:
        given = {name: getattr(self, name) for name in ("lengthscale", "variance", "noise_variance")}
        missing = [name for name, number in given.items() if number is None]
        if 0 < len(missing) < len(given):
            stated = [name for name, number in given.items() if number is not None]
            raise ValueError(
                f"{' and '.join(stated)} came without {' and '.join(missing)}; give all three "
                "numbers, or none of them to have them fitted (`cagp fit` prints them). Values that suit "
                "global 2 m temperature: lengthscale = 0.05 (chord on the unit sphere), variance = 22.0 "
                "(K^2), noise_variance = 0.5 (K^2)"
            )
        return self

    @model_validator(mode="after")
    def _kernel_of_the_numbers(self) -> Self:
        if chosen_by(self.kernel) is not None and self.numbers is not None:
            raise ValueError(
                f'kernel = "{self.kernel}" came with lengthscale, variance and noise_variance; a kernel is '
                "chosen where these are fitted. Write the kernel that they belong to, or leave them out"
            )
        return self

    @model_validator(mode="after")
    def _times_of_a_fit(self) -> Self:
        if self.fit_times is not None and self.numbers is not None:
            raise ValueError(
                "fit_times came with lengthscale, variance and noise_variance, which are not fitted then; "
                "leave either out"
            )
        return self

    @model_validator(mode="after")
    def _numbers_to_integrate_over(self) -> Self:
        if self.hyperparameters == "integrate" and self.numbers is not None:
            raise ValueError(
                'hyperparameters = "integrate" came with lengthscale, variance and noise_variance, which are '
                "known then; leave either out"
            )
        return self

    @model_validator(mode="after")
    def _one_number_for_each_part(self) -> Self:
        parts = self.parts
        for name, example in (("lengthscale", [0.05, 0.5]), ("variance", [5.0, 20.0])):
            numbers = getattr(self, name)
            count = len(numbers) if isinstance(numbers, tuple) else None
            if numbers is None or count == (None if parts == 1 else parts):
                continue
            came = f"a list of {count}" if count is not None else f"one number, {numbers:g}"
            if parts == 1:
                raise ValueError(
                    f'{name} is {came}, but kernel = "{self.kernel}" is no sum; expected one number, or a '
                    f'sum such as kernel = "{self.kernel} + {self.kernel}"'
                )
            raise ValueError(
                f'{name} is {came}, but kernel = "{self.kernel}" has {parts} parts; expected a list of '
                f"{parts} numbers, one for each part in the same order, for example {example} for two"
            )
        return self

    @model_validator(mode="after")
    def _persistence_of_the_field(self) -> Self:
        if self.is_previous and self.persistence is None:
            raise ValueError(
                'mean = "previous" came without persistence, the correlation of the field about its mean '
                "with itself 24 hours later; give it, for example persistence = 0.8"
            )
        if not self.is_previous and self.persistence is not None:
            raise ValueError(
                f'persistence came with mean = "{self.mean}", which takes nothing from the run before; leave '
                'it out, or write mean = "previous"'
            )
        if self.is_previous and self.mean_estimate != "generalised":
            raise ValueError(
                f'mean_estimate = "{self.mean_estimate}" came with mean = "previous", whose mean by latitude '
                "is estimated with the field; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _covariates_beside_coefficients(self) -> Self:
        if self.covariates_missing is not None and not self.covariates:
            raise ValueError("covariates_missing came without covariates; leave it out")
        if self.covariates and self.reads_mean:
            raise ValueError(
                f'covariates came with mean = "{self.mean}", which has no coefficients; leave them out, or '
                'write mean = "constant" or a mean by latitude'
            )
        if self.covariates and self.is_previous:
            raise ValueError(
                'covariates came with mean = "previous", the map of a run, which does not tell how they vary '
                'between its cells; leave them out, or write mean = "quadratic-latitude"'
            )
        return self

    @property
    def parts(self) -> int:
        """How many kernels are added."""
        return 1 if chosen_by(self.kernel) else len(families_of(self.kernel))

    @property
    def is_previous(self) -> bool:
        """Whether the mean is the posterior of the run before."""
        return self.mean == values.PREVIOUS

    @property
    def family(self) -> str:
        """Name of what is fitted or read: beside the run before, a mean by latitude."""
        return "quadratic-latitude" if self.is_previous else self.mean

    @property
    def reads_mean(self) -> bool:
        """Whether the mean is read, and has no coefficients but a shift."""
        return ":" in self.mean

    @property
    def estimates_mean(self) -> bool:
        """Whether coefficients of the mean are estimated with the field."""
        return self.mean_estimate == "generalised" and not self.reads_mean

    @property
    def coefficients(self) -> int:
        """How many coefficients of the mean are estimated with the field."""
        family = MEANS.get(self.family)
        if not self.estimates_mean or not isinstance(family, EstimatedMean):
            return 0
        return len(family.coefficient_names) + len(self.covariates)

    @property
    def numbers(self) -> PriorNumbers | None:
        """The three numbers, or None if they are to be fitted."""
        if self.lengthscale is None or self.variance is None or self.noise_variance is None:
            return None
        return PriorNumbers(self.lengthscale, self.variance, self.noise_variance)
