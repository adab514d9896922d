"""Kriging in one call: observations of xarray, pandas, polars or a file in, maps with error bars out."""

from cagp_dist.kriging.accessor import Maps
from cagp_dist.kriging.checking import check
from cagp_dist.kriging.kriging_model import Kriging, krige
from cagp_dist.kriging.stored import krige_store

__all__ = ["Kriging", "Maps", "check", "krige", "krige_store"]
