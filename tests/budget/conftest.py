"""Compiled functions, before allocations are counted."""

import importlib

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.tiling import POINT_TILE

from .allocation import gaussian_problem


@pytest.fixture(scope="module")
def warm():
    """Imports and compiled code are there before memory is measured: also that of several tiles."""
    importlib.import_module("scipy.sparse.linalg")  # of the Lanczos iteration for eigenvectors
    X, y, X_test = gaussian_problem(POINT_TILE + 100, 20, 1)
    for solver in (
        cagp.BlockGaussSeidel(2, 30),
        cagp.ConjugateGradient(2),
        cagp.SparseActions(4),
        cagp.Cholesky(),
    ):
        cagp.condition(cagp.Prior(cagp.Matern32(0.1), 0.1), X, y, X_test, solver=solver)


@pytest.fixture(scope="module")
def warm_grids():
    """Imports and compiled code of grids are there before memory is measured."""
    grid, prior = cagp.LatLonGrid([-40.0, 0.0, 30.0], 8), cagp.Prior(cagp.Matern32(0.3), 0.1)
    for solver in (
        cagp.Rings(),
        cagp.BlockGaussSeidel(2, 8),
        cagp.BlockJacobi(2, 8),
        cagp.ConjugateGradient(2),
        cagp.SparseActions(4),
    ):
        for field in (np.ones((3, 8)), np.where(np.eye(3, 8) > 0.0, np.nan, 1.0)):
            cagp.condition(prior, grid, field, grid, solver=solver)
            cagp.condition(prior, grid, field, grid.points[:3] + 0.01, solver=solver, covariance="full")
