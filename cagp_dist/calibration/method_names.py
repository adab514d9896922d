"""Names of the methods of recalibration, for those who only check them: the methods themselves need SciPy."""

SHARP = "sharp"
"""`cagp_dist.calibration.sharp.Sharp`, which needs the observed points and a solver beside errors."""

METHOD_NAMES = ("local-scale", "kuleshov", SHARP, "none")
"""Those of job files: the keys of `cagp_dist.calibration.recalibration.RECALIBRATIONS`, and `SHARP`."""

REMOVED = {
    "conformal": 'write "kuleshov", which has the same laws',
    "marx": 'write "kuleshov", or "local-scale" where widths should vary with the place',
    "split-conformal": 'write "local-scale", whose widths follow the errors near by, too',
}
"""Names that runs of earlier versions may have, and what to use instead."""

SHARP_LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
"""Levels of a sharp GP where a job does not say: the quantiles that runs publish."""
