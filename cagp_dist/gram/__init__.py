"""Gram matrices: by tiles, dense, and of latitude-longitude grids; `Gram` is what all of them offer."""

from cagp_dist.gram.dense import DenseGram
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.leave_one_out import LeaveOneOut
from cagp_dist.gram.masked import MaskedRings
from cagp_dist.gram.ring_gram import RingGram
from cagp_dist.gram.tiled import TiledGram

__all__ = ["DenseGram", "Gram", "LeaveOneOut", "MaskedRings", "RingGram", "TiledGram"]
