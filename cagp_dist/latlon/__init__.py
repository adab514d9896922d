"""Latitude-longitude grids: points, the Fourier transform along rings, and blocks by wavenumber."""

from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.window import LatLonWindow

__all__ = ["LatLonGrid", "LatLonWindow"]
