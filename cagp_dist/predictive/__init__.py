"""Predictive distributions: what is said of a value that was not observed yet, in one small interface."""

from cagp_dist.predictive.curves import QuantileTable, Recalibrated
from cagp_dist.predictive.distribution import Predictive
from cagp_dist.predictive.families import Gaussian, StudentT
from cagp_dist.predictive.mixtures import Mixture

__all__ = ["Gaussian", "Mixture", "Predictive", "QuantileTable", "Recalibrated", "StudentT"]
