"""``[prior]`` of a job file: kernel, mean, and the numbers that are given or fitted."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self, cast

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WrapValidator, model_validator

from cagp_dist.arrays import Array
from cagp_dist.kernels import AUTO, FITTED, FORMS, KERNELS, chosen_by, families_of
from cagp_dist.means import (
    MEANS,
    EstimatedMean,
    FittedBefore,
    LatitudePolynomial,
    MeanFamily,
    PlacedFamily,
    ReadFamily,
    mean_family,
)
from cagp_dist.pipeline import NAMES, AnisotropyLike, Hyperparameters, each, way_of
from cagp_dist.pipeline.defaults import KERNEL, MEAN, TRANSFORMS
from cagp_dist.pipeline.outliers import Outliers
from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.fields import NOISE_VARIANCE, JobTable, Times, key
from cagp_dist.service.jobfile.times_key import EXPECTED as EXPECTED_TIMES
from cagp_dist.service.jobfile.times_key import Newest
from cagp_dist.space import Space
from cagp_dist.text import alternatives, counted

# Whose values decide where the numbers of a prior are fitted: the observed points, or the whole field
FitTo = Literal["observed", "field"]
BESIDE_PREVIOUS = "quadratic-latitude"  # The mean by latitude that is estimated beside the previous run
KEPT = "matern32"  # The kernel of numbers that are given without one

if TYPE_CHECKING:
    KernelSum = str
    EachLengthscale = float | tuple[float, ...] | None
    EachVariance = float | tuple[float, ...] | None
    EachStd = float | tuple[float, ...] | None
    EachHours = float | tuple[float, ...] | None
    Anisotropy = AnisotropyLike
    TransformName = str
else:
    TransformName = Annotated[Literal[TRANSFORMS], BeforeValidator(values.transform)]
    KernelSum = Annotated[Literal[AUTO, FITTED, *KERNELS], WrapValidator(values.kernel), PlainSerializer(str)]
    Anisotropy = Annotated[
        Literal["none", "auto", "fit"] | tuple[float, float],
        BeforeValidator(values.anisotropy),
        PlainSerializer(values.written_anisotropy),
    ]
    _EACH = (WrapValidator(values.each_part), PlainSerializer(values.as_list))
    EachLengthscale = Annotated[float | None, Field(gt=0.0), *_EACH]
    EachVariance = Annotated[float | None, Field(gt=0.0, le=1e12), *_EACH]
    EachStd = Annotated[float | None, Field(gt=0.0, le=1e6), *_EACH]
    EachHours = Annotated[float | None, Field(gt=0.0, le=1e7), *_EACH]


@dataclass(frozen=True)
class PriorNumbers:
    """The three numbers of a prior; of a sum the first two by part.

    The lengthscale is a chord on the unit sphere, or a distance in the unit of a plane; the variances are in
    the squared unit of the values, of transformed ones without a unit.
    """

    lengthscale: float | tuple[float, ...]
    variance: float | tuple[float, ...]
    noise_variance: float


class PriorTable(JobTable):
    """``[prior]``: kernel, mean and the three numbers, which are fitted first if all are left out."""

    kernel: KernelSum = key(
        KERNEL, f'{alternatives(FORMS)}, or a sum of them, "matern32 + matern32"', "matern32"
    )
    """Covariance of the field, chosen by likelihood with "auto"."""
    mean: Annotated[str, BeforeValidator(values.mean)] = key(
        MEAN, "the name of a prior mean", "quadratic-latitude"
    )
    """Mean of the field, such as "constant", whose coefficients are estimated with the field."""
    time_kernel: Literal["auto", "metric", "matern12", "matern32"] | None = key(
        None,
        '"matern12", "matern32", "metric" or "auto": how the field goes with itself at other times, all of '
        'which then inform each other; of mean = "previous" on whole grids one of the first two',
        "matern12",
    )
    time_lengthscale_hours: EachHours = key(
        None,
        "of time_kernel, a positive number of hours, or of a sum a list of them; fitted if left out",
        48.0,
    )
    depth_kernel: Literal["auto", "metric", "matern12", "matern32"] | None = key(
        None,
        'of observations with depths, "metric" for one distance in space and depth, "matern12" or "matern32" '
        'for a product with a kernel in depth, or "auto" for the likeliest, as if left out',
        "matern12",
    )
    depth_lengthscale: EachVariance = key(
        None,
        "of depth_kernel, a positive number in the unit of the depths; fitted if left out",
        100.0,
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
    background: Annotated[str, AfterValidator(values.checked_covariate)] | None = key(
        None,
        'a first guess of the field, which the observations correct: "file:PATH:VARIABLE" or '
        '"zarr:ADDRESS:VARIABLE", with %Y, %m, %d and %H in the path of a file of each day',
        "file:forecast.nc:t2m",
    )
    background_std: Annotated[float | str, AfterValidator(values.number_or_field)] | None = key(
        None,
        "standard deviation of the error of the background, which holds the variance: a number, or a field "
        "as the background; of an ensemble its spread if left out",
        2.0,
    )
    nugget_correlation: bool = key(
        False, "of several variables, true where their errors at one place go together, or false", True
    )
    bias_by: Annotated[
        tuple[Annotated[str, AfterValidator(values.axis_of_labels)], ...],
        BeforeValidator(values.names_of_columns),
    ] = key(
        (),
        "the name of a column that says which observations share an error, such as that of a ship, or a list "
        "of several",
        ["ship"],
        max_length=5,
    )
    bias_std: EachStd = key(
        None,
        "of bias_by, the standard deviation of the error that observations share, in the unit of the "
        "variable, or a list of one for each column; fitted if left out",
        1.5,
    )
    fit_to: FitTo = key("observed", '"observed" or "field"', "observed")
    """Which values the numbers are fitted to: those observed, or all of the source, those held out
    included."""
    fit_times: Times | None = key(
        None,
        f"times of the source whose values the numbers are fitted to: {EXPECTED_TIMES}",
        {"last": "30d", "at": "12:00"},
    )
    anisotropy: Anisotropy = key(
        "none",
        '"fit" an ellipse of the distances, in a plane or a region of the globe, or east against north on '
        'the whole globe, "auto": where the likelihood gains by it, "none", or { ratio = 3.0, '
        "azimuth_degrees = 30.0 }",
        "fit",
    )
    """Whether the field reaches further in one direction."""
    transform: TransformName = key(
        "none",
        f"{alternatives(TRANSFORMS)}: by what the values are made normal; results are those of the values. "
        "Zeros are censored",
        "log",
    )
    outliers: Outliers = key(
        "keep",
        '"robust": values that look wrong count less, where the likelihood gains by it; or "keep"',
        "robust",
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
    """Distance over which the field varies; in a plane, in its unit."""
    variance: EachVariance = key(
        None, "a positive variance in the squared unit of the variable, or of a sum a list of them", 22.0
    )
    """Variance of the field about its mean."""
    noise_variance: Annotated[float | None, NOISE_VARIANCE] = None
    """Variance of the error of an observation."""

    @model_validator(mode="before")
    @classmethod
    def _mean_is_estimated(cls, table: object) -> object:
        """Accept what jobs wrote of the mean when there was a choice, if it is what is done."""
        if not isinstance(table, dict) or "mean_estimate" not in table:
            return table
        table = dict(table)
        if (asked := table.pop("mean_estimate")) != "generalised":
            raise ValueError(
                f"mean_estimate = {asked!r} was removed: the coefficients of a mean are estimated with the "
                "field, and counted in the error bars; leave it out"
            )
        return table

    @model_validator(mode="before")
    @classmethod
    def _nothing_to_choose_by(cls, table: object) -> object:
        """Name the kernel of numbers that are given without one: it is chosen where they are fitted."""
        if isinstance(table, dict) and "kernel" not in table and {*NAMES} <= table.keys():
            return {"kernel": KEPT, **table}
        return table

    @model_validator(mode="before")
    @classmethod
    def _zero_beside_a_background(cls, table: object) -> object:
        """Name the mean of the innovations, which are what is mapped beside a background."""
        if isinstance(table, dict) and table.get("background") is not None and "mean" not in table:
            return {**table, "mean": values.ZERO}
        return table

    @model_validator(mode="after")
    def _keys_suit_each_other(self) -> Self:
        for wrong, said in self._mistakes():
            if wrong:
                raise ValueError(said)
        return self

    def _mistakes(self) -> Iterator[tuple[bool, str]]:
        """Yield what may not be, in the order in which it is looked at, and what is said of it."""
        stated = [name for name in NAMES if getattr(self, name) is not None]
        missing, known, previous = (
            [name for name in NAMES if name not in stated],
            self.numbers,
            self.is_previous,
        )
        numbers, mean = "lengthscale, variance and noise_variance", f'mean = "{self.mean}"'
        yield (
            bool(stated and missing),
            f"{' and '.join(stated)} given without {' and '.join(missing)}; give all three parameters, or "
            "none of them to have them fitted (`cagp fit` prints them). Values that suit global 2 m "
            "temperature: lengthscale = 0.05 (chord on the unit sphere), variance = 22.0 (K^2), "
            "noise_variance = 0.5 (K^2)",
        )
        yield (
            chosen_by(self.kernel) is not None and known is not None,
            f'kernel = "{self.kernel}" cannot be combined with {numbers}; a kernel is chosen where these are '
            "fitted. Write the kernel that they belong to, or leave them out",
        )
        yield (
            self.fit_times is not None and known is not None,
            f"fit_times cannot be combined with {numbers}, which are not fitted then; leave either out",
        )
        yield (
            self.hyperparameters == "integrate" and known is not None,
            f'hyperparameters = "integrate" cannot be combined with {numbers}, which are known then; leave '
            "either out",
        )
        shaped = f"anisotropy = {values.written_anisotropy(self.anisotropy)!r} cannot be combined with"
        yield (
            self.anisotropy in ("fit", "auto") and known is not None,
            f"{shaped} {numbers}, with which an ellipse is fitted; write the one that they belong to, or "
            "leave them out",
        )
        yield (
            self.anisotropy != "none" and self.parts > 1,
            f'{shaped} kernel = "{self.kernel}"; expected a single kernel',
        )
        yield (
            self.anisotropy != "none" and (previous or self.time_kernel is not None),
            f"{shaped} time_kernel, in whose distances no direction counts more; leave either out",
        )
        for name, example in (
            ("lengthscale", [0.05, 0.5]),
            ("variance", [5.0, 20.0]),
            ("time_lengthscale_hours", [12.0, 240.0]),
        ):
            yield self._wrong_count(name, example)
        yield from self._mistakes_of_time(previous, mean)
        yield from self._mistakes_of_depth(known is not None, numbers)
        yield (
            previous and self.time_kernel is None,
            f"{mean} given without time_kernel; {values.NO_PERSISTENCE}",
        )
        yield (
            self.covariates_missing is not None and not self.covariates,
            "covariates_missing given without covariates; leave it out",
        )
        yield from self._mistakes_of_transform()
        yield from self._mistakes_of_outliers(known is not None, numbers)
        yield from self._mistakes_of_shared_errors(known is not None, numbers)
        yield from self._mistakes_of_background(known is not None, numbers, mean)
        yield (
            bool(self.covariates) and self.reads_mean,
            f"covariates cannot be combined with {mean}, which has no coefficients; leave them out, or write "
            'mean = "constant" or a mean by latitude',
        )
        yield (
            bool(self.covariates) and previous,
            f"covariates cannot be combined with {mean}, the map of a run, which does not tell how they vary "
            'between its cells; leave them out, or write mean = "quadratic-latitude"',
        )

    def _mistakes_of_transform(self) -> Iterator[tuple[bool, str]]:
        """Yield what is said in the unit of values that are transformed."""
        others = {
            "time_kernel": self.time_kernel is not None,
            "fit_times": self.fit_times is not None,
            "bias_by": bool(self.bias_by),
            "background": self.background is not None,
            f'mean = "{self.mean}"': self.reads_mean or self.is_previous,
        }
        refused = " and ".join(name for name, there in others.items() if there)
        yield (
            self.transforms and bool(refused),
            f'transform = "{self.transform}" cannot be combined with {refused}; leave either out',
        )

    def _mistakes_of_outliers(self, known: bool, numbers: str) -> Iterator[tuple[bool, str]]:
        """Yield what has no noise that is wider for values that may be wrong."""
        others = {
            numbers: known,
            "fit_times": self.fit_times is not None,
            'fit_to = "field"': self.fit_to == "field",
            "time_kernel": self.time_kernel is not None,
            "depth_kernel": self.depth_kernel is not None,
            "bias_by": bool(self.bias_by),
            "a field as background_std": isinstance(self.background_std, str),
            f'mean = "{self.mean}"': self.reads_mean or self.is_previous,
        }
        refused = " and ".join(name for name, there in others.items() if there)
        yield (
            self.outliers != "keep" and bool(refused),
            f'outliers = "{self.outliers}" cannot be combined with {refused} yet; leave either out, or write '
            'quality = "flag" in [observations], which drops values that all others contradict',
        )

    def _mistakes_of_shared_errors(self, known: bool, numbers: str) -> Iterator[tuple[bool, str]]:
        """Yield what may not be beside errors that observations share."""
        others = {
            "time_kernel": self.time_kernel is not None,
            "a field as background_std": isinstance(self.background_std, str),
            'fit_to = "field"': self.fit_to == "field",
            'hyperparameters = "integrate"': self.hyperparameters == "integrate",
            f'mean = "{self.mean}"': self.reads_mean,
            f'kernel = "{FITTED}"': chosen_by(self.kernel) == FITTED,
        }
        refused = " and ".join(name for name, there in others.items() if there)
        yield (
            bool(self.bias_by and refused),
            f"bias_by cannot be combined with {refused} yet; leave either out",
        )
        yield len({*self.bias_by}) < len(self.bias_by), "bias_by names a column twice; name it once"
        given = self.bias_std is not None
        yield given and not self.bias_by, "bias_std given without bias_by; give both, or leave it out"
        yield (
            given and not known,
            f"bias_std given without {numbers}; give all of them, or none to have them fitted (`cagp fit` "
            "prints them)",
        )
        yield (
            bool(self.bias_by) and known and not given,
            f"bias_by cannot be combined with {numbers} alone; give bias_std, too, or leave these out",
        )
        count = len(each(self.bias_std)) if self.bias_std is not None else 0
        yield (
            given and count != len(self.bias_by),
            f"bias_std has {counted(count, 'number')}; expected one for each column of bias_by",
        )

    def _mistakes_of_depth(self, known: bool, numbers: str) -> Iterator[tuple[bool, str]]:
        """Yield what may not be of a kernel in depth."""
        given, way = self.depth_lengthscale is not None, self.depth_kernel
        yield (
            given and not known,
            f"depth_lengthscale given without {numbers}, with which it is fitted; give all of them, or leave "
            "it out",
        )
        yield (
            given and way in (None, "auto"),
            'depth_lengthscale given without depth_kernel; write the one that it belongs to: "metric", '
            '"matern12" or "matern32"',
        )
        yield (
            way is not None and known and not given,
            f"depth_kernel cannot be combined with {numbers} alone; give depth_lengthscale, too, or leave "
            "these out",
        )
        yield (
            way is not None and (chosen_by(self.kernel) == FITTED or self.parts > 1),
            f'kernel = "{self.kernel}" cannot be combined with depth_kernel; expected a single kernel with '
            'its smoothness, such as "matern32", or "auto"',
        )

    def _mistakes_of_background(self, known: bool, numbers: str, mean: str) -> Iterator[tuple[bool, str]]:
        """Yield what may not be beside a background, and what may not be without one."""
        there, std = self.background is not None, self.background_std is not None
        yield std and not there, "background_std given without background; give both, or leave it out"
        yield (
            (self.mean == values.ZERO and not there) or (there and (self.reads_mean or self.is_previous)),
            f"{mean} {'cannot be combined with' if there else 'given without'} background; leave mean out",
        )
        yield (
            there and bool(self.covariates),
            "covariates cannot be combined with background, which is the mean; leave them out",
        )
        yield (
            there and self.mean != values.ZERO and self.time_kernel is not None,
            f"{mean} cannot be combined with background and time_kernel yet; leave mean out",
        )
        yield (
            std and known,
            f"background_std cannot be combined with {numbers}: it is the root of the variance; leave either "
            "out",
        )
        yield (
            std and self.time_kernel is not None,
            "background_std cannot be combined with time_kernel yet; leave either out",
        )
        yield (
            std and self.parts > 1,
            f'background_std cannot be combined with kernel = "{self.kernel}": the variance is not shared '
            "out among parts of a sum; write a single kernel",
        )

    def _mistakes_of_time(self, previous: bool, mean: str) -> Iterator[tuple[bool, str]]:
        """Yield what may not be of a kernel in time."""
        timed, hours = self.time_kernel is not None, self.time_lengthscale_hours
        yield (
            not timed and hours is not None,
            "time_lengthscale_hours given without time_kernel; give both, or neither",
        )
        yield (
            timed and hours is None and self.numbers is not None,
            "time_kernel cannot be combined with lengthscale, variance and noise_variance alone; give "
            "time_lengthscale_hours, too, or leave all of them out and give fit_times",
        )
        if timed and previous:
            yield from self._mistakes_of_filter()
        elif timed:
            yield from self._mistakes_of_all_times(mean)

    def _mistakes_of_filter(self) -> Iterator[tuple[bool, str]]:
        """Yield what may not be of a kernel in time that carries whole grids from run to run."""
        yield (
            isinstance(self.fit_times, Newest),
            "time_kernel cannot be combined with fit_times that are the newest ones: the parameters would "
            "change each day, "
            "so the state of the day before could not be continued; give fit_times from and to",
        )
        yield (
            self.time_kernel in ("auto", "metric"),
            f'time_kernel = "{self.time_kernel}" cannot be combined with mean = "previous", which continues '
            'from run to run with "matern12" or "matern32"; write one of these',
        )
        yield (
            self.parts > 1,
            f'kernel = "{self.kernel}" cannot be combined with time_kernel; expected a single kernel',
        )
        yield (
            self.numbers is None and self.fit_times is None,
            "time_kernel given without lengthscale, variance and noise_variance, and without fit_times: the "
            "numbers would be others each day, and those of the day before would not go on; give either",
        )

    def _mistakes_of_all_times(self, mean: str) -> Iterator[tuple[bool, str]]:
        """Yield what may not be of a kernel in time with which all times inform each other."""
        yield (
            self.reads_mean,
            f"time_kernel cannot be combined with {mean}, which is read for each time by itself; write "
            'mean = "constant" or a mean by latitude',
        )
        yield (
            self.hyperparameters == "integrate",
            'hyperparameters = "integrate" cannot be combined with time_kernel, whose numbers are plugged '
            "in; leave it out",
        )
        yield (
            self.fit_to == "field",
            'fit_to = "field" cannot be combined with time_kernel, which is fitted to observed points; '
            "leave it out",
        )
        yield (
            chosen_by(self.kernel) == FITTED,
            f'kernel = "{self.kernel}" cannot be combined with time_kernel, and its smoothness is not fitted '
            'then; write kernel = "auto", or a smoothness: "matern(0.8)"',
        )
        yield (
            self.time_kernel == "auto" and self.numbers is not None,
            'time_kernel = "auto" cannot be combined with lengthscale, variance and noise_variance; a '
            "kernel is chosen "
            'where these are fitted. Write the one that they belong to: "metric", "matern12" or "matern32"',
        )
        yield (
            self.numbers is None and self.time_lengthscale_hours is not None,
            "time_lengthscale_hours given without lengthscale, variance and noise_variance, with which it is "
            "fitted; give all of them, or leave it out",
        )

    def _wrong_count(self, name: str, example: list[float]) -> tuple[bool, str]:
        """Compare how many numbers were given with the parts of the kernel."""
        numbers, parts, kernel = getattr(self, name), self.parts, f'kernel = "{self.kernel}"'
        count = len(numbers) if isinstance(numbers, tuple) else None
        if numbers is None or count == (None if parts == 1 else parts):
            return False, ""
        came = f"{name} is " + (f"a list of {count}" if count is not None else f"one number, {numbers:g}")
        if parts == 1:
            again = f'kernel = "{self.kernel} + {self.kernel}"'
            return True, f"{came}, but {kernel} is not a sum; expected one number, or a sum such as {again}"
        return True, (
            f"{came}, but {kernel} has {parts} parts; expected a list of {parts} numbers, one for each part "
            f"in the same order, for example {example} for two"
        )

    @property
    def parts(self) -> int:
        """How many kernels are added."""
        return 1 if chosen_by(self.kernel) else len(families_of(self.kernel))

    @property
    def is_previous(self) -> bool:
        """Whether whole grids go on exactly from the previous run."""
        return self.mean == values.PREVIOUS

    @property
    def in_time(self) -> bool:
        """Whether all times inform each other: each value is a point in space and time."""
        return not self.is_previous and self.time_kernel is not None

    @property
    def transforms(self) -> bool:
        """Whether the field may be one of transformed values, whose results are taken back."""
        return self.transform != "none"

    @property
    def family(self) -> str:
        """Name of what is fitted or read: beside the previous run, a mean by latitude."""
        if self.mean == values.ZERO:
            return MEAN  # of which nothing is fitted
        return BESIDE_PREVIOUS if self.is_previous else self.mean

    def mean_family(
        self, variable: str, places: tuple[Space, Array, Array] | None = None
    ) -> MeanFamily | EstimatedMean:
        """Give what the mean is fitted from, with its covariates; some are read, or depend on places."""
        if self.is_previous:
            return FittedBefore(cast("LatitudePolynomial", MEANS[BESIDE_PREVIOUS]))
        return mean_family(
            self.family,
            variable=variable,
            covariates=self.covariates,
            covariates_missing=self.covariates_missing,
            places=places,
        )

    def mean_sha256(self, variable: str) -> str:
        """Digest of what the mean is read from; empty where nothing is."""
        if not (self.covariates or self.reads_mean):
            return ""
        name = MEAN if self.covariates else self.family
        marks = self.covariates_missing
        family = mean_family(name, variable=variable, covariates=self.covariates, covariates_missing=marks)
        return cast("MeanFamily", family).content_sha256 or ""

    @property
    def reads_mean(self) -> bool:
        """Whether the mean is read, and has no coefficients but a shift."""
        return ":" in self.mean

    @property
    def estimates_mean(self) -> bool:
        """Whether coefficients of the mean are estimated with the field."""
        return not self.reads_mean and self.mean not in (values.PREVIOUS, values.ZERO)

    @property
    def coefficients(self) -> int:
        """How many coefficients of the mean are estimated with the field."""
        family = MEANS.get(self.family)
        if not self.estimates_mean or family is None or isinstance(family, ReadFamily):
            return 0
        count = family.count if isinstance(family, PlacedFamily) else len(family.coefficient_names)
        return count + len(self.covariates)

    @property
    def numbers(self) -> PriorNumbers | None:
        """The three numbers, or None if they are to be fitted."""
        if self.lengthscale is None or self.variance is None or self.noise_variance is None:
            return None
        return PriorNumbers(self.lengthscale, self.variance, self.noise_variance)
