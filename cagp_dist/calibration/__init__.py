"""Calibration: whether error bars are as wide as the errors, on real and on simulated data."""
