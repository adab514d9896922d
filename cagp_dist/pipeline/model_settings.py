"""What is said of kernel, noise and mean before anything is fitted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cagp_dist.kernels import AUTO, Family, Kernel, Matern, Matern12, Matern32
from cagp_dist.likelihood.ellipses import AnisotropyLike
from cagp_dist.likelihood.exact.integrated import Hyperparameters
from cagp_dist.likelihood.fit_result import FitProgress
from cagp_dist.pipeline.labels import NO_LABELS, Labels
from cagp_dist.pipeline.map_mean import MeanLike
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.outliers import Outliers
from cagp_dist.pipeline.resources import Resources
from cagp_dist.prior import Prior
from cagp_dist.runtime.memo import Memo

KernelLike: TypeAlias = str | Family | type[Matern] | Sequence[Family] | Kernel

COMPARED_IN_TIME: "tuple[Family | None, ...]" = (None, Matern12, Matern32)
"""Kernels in time that are compared; None: a metric kernel of space and time together."""


@dataclass(frozen=True, eq=False)
class ModelSettings:
    """What is said of kernel, noise and mean; the rest is fitted."""

    kernel: KernelLike
    mean: MeanLike
    prior: Prior | None = None  # of which everything is given
    # lengthscale and variance, by part; two numbers are between what it lies
    fixed: Mapping[str, Sequence[float | tuple[float, float]]] = field(default_factory=dict)
    noise_std: float | None = None  # known of all observations
    nugget_std: float | None = None  # beside known noise; None: fitted
    noise_variance: float | None = None  # beside known noise, where the numbers of the kernel are given too
    anisotropy: AnisotropyLike = "none"
    outliers: Outliers = "keep"  # whether values that look wrong count less
    labels: Labels = NO_LABELS  # what the labels of observations are
    hyperparameters: Hyperparameters = "plug-in"
    obstacle: str | None = None  # why numbers are not integrated over, for people
    in_depth: str = AUTO  # which kernel in depth: one by its name, or the likeliest
    in_time: Sequence[Family | None] = COMPARED_IN_TIME  # kernels in time that are compared


@dataclass(frozen=True, eq=False)
class FitWork:
    """Where a fit is done, and who sees it."""

    resources: Resources
    narrator: Narrator
    progress: Callable[[FitProgress], None] | None = None
    checkpoints: Memo | None = None
