"""Latitude-longitude grids: their points, the Fourier transform along their rings, and blocks by wavenumber."""

from cagp_dist.latlon.grid import LatLonGrid

__all__ = ["LatLonGrid"]
