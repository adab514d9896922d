"""Names of the methods of recalibration, for those who only check them: the methods themselves need SciPy."""

METHOD_NAMES = ("local-scale", "kuleshov", "conformal", "split-conformal", "marx", "none")
"""The keys of `cagp_dist.calibration.recalibration.RECALIBRATIONS`."""
