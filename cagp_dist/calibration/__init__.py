"""Calibration: whether error bars are as wide as the errors, on real and on simulated data.

- `verification`: scores and verdicts on held-out observations.
- `recalibration`: error bars corrected by errors that the solve did not use.
- `simulation`: what error bars of a solver do on fields of its own prior.
"""
