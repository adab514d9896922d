"""Gram matrices: by tiles that are never stored, and dense as the oracle."""

from cagp_dist.gram.base import Gram
from cagp_dist.gram.dense import DenseGram
from cagp_dist.gram.grid import LatLonGrid
from cagp_dist.gram.masked import MaskedRings
from cagp_dist.gram.rings import LeaveOneOut, RingGram
from cagp_dist.gram.tiled import TiledGram

__all__ = ["DenseGram", "Gram", "LatLonGrid", "LeaveOneOut", "MaskedRings", "RingGram", "TiledGram"]
