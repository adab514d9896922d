"""Latitude-longitude grids: points, the Fourier transform along rings, and blocks by wavenumber."""

from cagp_dist.latlon.grid import LatLonGrid

__all__ = ["LatLonGrid"]
