"""What the group of simulated fields of a run holds, and what its arrays mean."""

from collections.abc import Mapping

NUMBERS = (
    "error_ratio_joint",
    "error_ratio_along",
    "error_ratio_by_area",
    "error_ratio_by_area_standard_error",
    "ks_statistic",
    "ks_pvalue",
    "variance_pvalue",
    "mean_pvalue",
    "rank_pvalue",
    "joint_pvalue",
    "null_space_error",
)
"""Numbers of the simulations as a whole."""

DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("z", "pit"), ("simulation",)),
    **dict.fromkeys(("error_ratio", "area_weight"), ("point",)),
    "pit_bin": ("pit_edge",),
    "pit_count": ("pit_interval",),
    **dict.fromkeys(("coverage", "coverage_area_weighted"), ("level",)),
    **dict.fromkeys(NUMBERS, ()),
}

LATENT = (
    "Of the field without noise, on fields drawn from the prior: the prior is right there, by construction."
)
INDEPENDENT = "Fields are independent of each other: uniform on [0, 1] if the solver is calibrated."

_RATIO = "root mean square of error over stated standard deviation"
_LONG_NAMES = {
    "z": "error of the posterior mean over its stated standard deviation, along one random direction",
    "error_ratio": _RATIO,
    "error_ratio_joint": "root mean square of errors at all points, whitened by their stated covariance",
    "error_ratio_along": "root mean square of z",
    "error_ratio_by_area": f"{_RATIO}, points weighted by area",
    "error_ratio_by_area_standard_error": "standard error of error_ratio_by_area",
    "variance_pvalue": "chi-square p-value of the sum of squares of z",
    "mean_pvalue": "p-value of the mean of z",
    "rank_pvalue": "chi-square p-value of pit_count",
    "joint_pvalue": "chi-square p-value of the whitened errors",
    "null_space_error": "root mean square error, in prior standard deviations, where the stated covariance "
    "is zero",
}
_COMMENTS = {
    "z": f"{LATENT} Standard normal if the solver is calibrated.",
    "error_ratio": f"{LATENT} Above 1 where error bars are too narrow, below 1 where they are too wide.",
    "error_ratio_by_area_standard_error": "From the scatter between fields.",
    "null_space_error": "Zero but for rounding if the solver is calibrated.",
}

ATTRIBUTES: Mapping[str, dict[str, str | int | float | bool]] = {
    name: {
        "units": "1",
        "long_name": said,
        "comment": _COMMENTS.get(name, INDEPENDENT if name.endswith("_pvalue") else LATENT),
    }
    for name, said in _LONG_NAMES.items()
}
"""CF attributes of the arrays that no other group has."""

RANGES: Mapping[str, tuple[float, float]] = {
    "error_ratio": (0.0, float("inf")),
    **{name: (0.0, 1.0 if name.endswith("_pvalue") else float("inf")) for name in NUMBERS},
}
