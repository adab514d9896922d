"""Calibration: whether error bars are honest, on real data and on simulated data."""
