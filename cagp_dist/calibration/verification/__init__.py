"""Whether stated error bars hold, on held-out observations.

- In numbers: `scores`, `pit`, and `strata` (by where points lie).
- In words: `verdict` for one run, `calibration_drift` for a row of times.
- Which points are held out: `spatial_folds`.
"""
