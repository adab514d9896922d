"""Kernel parameters learned from data: the marginal likelihood, its gradient, and the fit."""
