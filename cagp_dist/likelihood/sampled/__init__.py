"""The gradient of the likelihood by sampling, for points too many for a factor: `pathwise`, by `sweeps`."""
