"""Gaussian-process maps at any size, whose error bars count the computation that was not done.

Start with `Prior` and `condition`. Names are imported when they are first used, so that importing
the package is quick.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cagp_dist.assembly import Step
    from cagp_dist.geometry import area_weights, space_filling_order, unit_sphere
    from cagp_dist.gp import Posterior, Prior, Progress, condition, posterior_mean
    from cagp_dist.gram import DenseGram, LatLonGrid, LeaveOneOut, MaskedRings, RingGram, TiledGram
    from cagp_dist.grid_posterior import condition_on_grid
    from cagp_dist.kernels import Matern12, Matern32, Matern52, SquaredExponential
    from cagp_dist.likelihood.fit import fit
    from cagp_dist.likelihood.result import FitResult, FitStatus, StandardErrors
    from cagp_dist.runtime import open_executor
    from cagp_dist.solvers import (
        BlockGaussSeidel,
        Cholesky,
        ConjugateGradient,
        GaussSeidel,
        GridState,
        RandomActions,
        Rings,
        Stats,
        Status,
        conjugate_gradient_on_grid,
        gauss_seidel_on_grid,
    )

__version__ = version("cagp-dist")

_HOME = {
    "area_weights": "geometry",
    "space_filling_order": "geometry",
    "unit_sphere": "geometry",
    "Posterior": "gp",
    "Prior": "gp",
    "Progress": "gp",
    "Step": "assembly",
    "condition": "gp",
    "condition_on_grid": "grid_posterior",
    "posterior_mean": "gp",
    "DenseGram": "gram",
    "LatLonGrid": "gram",
    "LeaveOneOut": "gram",
    "MaskedRings": "gram",
    "RingGram": "gram",
    "TiledGram": "gram",
    "Matern12": "kernels",
    "Matern32": "kernels",
    "Matern52": "kernels",
    "SquaredExponential": "kernels",
    "fit": "likelihood.fit",
    "FitResult": "likelihood.result",
    "FitStatus": "likelihood.result",
    "StandardErrors": "likelihood.result",
    "open_executor": "runtime",
    "BlockGaussSeidel": "solvers",
    "Cholesky": "solvers",
    "ConjugateGradient": "solvers",
    "GaussSeidel": "solvers",
    "GridState": "solvers",
    "RandomActions": "solvers",
    "Rings": "solvers",
    "Stats": "solvers",
    "Status": "solvers",
    "conjugate_gradient_on_grid": "solvers",
    "gauss_seidel_on_grid": "solvers",
}

__all__ = [
    "BlockGaussSeidel",
    "Cholesky",
    "ConjugateGradient",
    "DenseGram",
    "FitResult",
    "FitStatus",
    "GaussSeidel",
    "GridState",
    "LatLonGrid",
    "LeaveOneOut",
    "MaskedRings",
    "Matern12",
    "Matern32",
    "Matern52",
    "Posterior",
    "Prior",
    "Progress",
    "RandomActions",
    "RingGram",
    "Rings",
    "SquaredExponential",
    "StandardErrors",
    "Stats",
    "Status",
    "Step",
    "TiledGram",
    "area_weights",
    "condition",
    "condition_on_grid",
    "conjugate_gradient_on_grid",
    "fit",
    "gauss_seidel_on_grid",
    "open_executor",
    "posterior_mean",
    "space_filling_order",
    "unit_sphere",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
