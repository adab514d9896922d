"""Numbers that decide where nobody says: one of each, with its reason."""

# The mean is a constant that is estimated with the field and counted in the error bars (ordinary kriging):
# few observations do not know it, and no trend is assumed that nobody asked for.
MEAN = "constant"
KERNEL = "auto"  # Matern 3/2 unless the likelihood says otherwise: the roughness of a field is rarely known
TRANSFORMS = ("none", "log", "sqrt", "box-cox", "asinh", "normal-score", "auto")  # By name, the usual first
# What a station sees beyond its known noise is fitted, as known errors are rarely all. One noise for all, or
# one beside a kernel whose numbers are given, is taken as it is.
NUGGET = "auto"
# Error bars are those of the model unless a correction is asked for: samples, differences and means over
# cells and regions have none, and errors of predictions that did not use their values take solves more.
RECALIBRATION = "none"
RECALIBRATION_BY_POINTS = "local-scale"  # Of calibration points that are kept without a method
# Points anywhere up to which the likelihood is exact, some seconds; beyond, it is Vecchia's
MOST_FITTED_DENSE = 2_000
# Points times times of a fit: beyond, evenly spread times are fitted to, which say nearly as much
MOST_VALUES = 5_000_000
NO_NUGGET = 1e-6  # Nugget in units of the least known noise where none was found beside it
LEAST_FILLED = 0.5  # Part of a grid that must be observed; with less, its points are better taken one by one
QUICK_SECONDS = 5.0  # Work up to which nothing is said
HOUR_SECONDS = 3600.0  # After which a map is stopped, unless another limit is given
# Pairs of an observation and a target up to which bounds of unfinished computation are worked out: seconds
MOST_CERTIFIED = 5e7
# Of block Gauss-Seidel, where nothing was said: it stops when the share of unfinished computation in every
# variance is below the last
MOST_SWEEPS, BLOCK_SIZE, SHARE = 200, 1024, 0.05
USUAL_SWEEPS = 10  # Of it where samples are drawn, which have no variances
# Targets from whose full covariance samples are drawn: 130 MB, and 20 s. More are drawn pathwise.
MOST_SAMPLED = 4_000
JITTER = 1e-10  # Of the prior variance, added to a covariance so that rounding leaves it positive definite
# Places whose errors correct error bars where they are not left out one by one, and observed ones for each of
# them, at least. On ERA5 temperature the 90 % error bars that such errors correct hold 89 to 91 % of random
# points, and those that errors at blocks of 5 degrees correct 84 %.
MOST_DRAWN, OBSERVED_FOR_EACH = 2_000, 5
FEWEST_DRAWN = 500  # Of them; where it would be fewer, folds of blocks have an error of every place
FOLDS = 10  # Of a cross-validation: each place is predicted from nine tenths of the others
# Of leave-one-out errors of a grid: some minutes of one core. Beyond, folds or calibration points are taken.
MOST_LEFT_OUT_FLOPS = 2 * 10**12
# Of published quantiles: the median, and the ends of central intervals of 50, 90 and 95 %
QUANTILE_LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
INTERVAL = (0.05, 0.95)  # Quantiles of the numbers of a prior that are said where these are integrated over
# Part of the prior variance that is left at targets about which the observations say nothing
UNINFORMED = 0.99
FLAG_RATE = 0.05  # Of flags of a check that are false
