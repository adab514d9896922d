"""Gaussian-process maps at any size, whose error bars count the computation that was not done.

Start with `Prior` and `condition`. Names are imported when they are first used, so that importing
the package is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from cagp_dist.accessors import register_accessor
from cagp_dist.versions import version

if TYPE_CHECKING:
    from cagp_dist.calibration.simulation.laboratory import Calibration, calibrate
    from cagp_dist.factors import Anisotropic, AxiallySymmetric, Coregion, SameLabel
    from cagp_dist.fields.covariates import covariate
    from cagp_dist.geometry import area_weights, space_filling_order, unit_sphere
    from cagp_dist.gp import condition, posterior_mean
    from cagp_dist.gram import DenseGram, LeaveOneOut, MaskedRings, RingGram, TiledGram
    from cagp_dist.gram.area_means import area_means
    from cagp_dist.gram.cell_means import CellMeans, cell_means
    from cagp_dist.gram.functionals import LinearFunctionals
    from cagp_dist.gram.gradients import gradients
    from cagp_dist.gram.ring_filter import RingFilter, RingState
    from cagp_dist.kernels import Matern, Matern12, Matern32, Matern52, Product, SquaredExponential, Sum
    from cagp_dist.kriging import Kriging, check, krige, krige_store
    from cagp_dist.latlon import LatLonGrid, LatLonWindow
    from cagp_dist.likelihood.fit import fit
    from cagp_dist.likelihood.fit_result import FitResult, FitStatus, StandardErrors
    from cagp_dist.means import MEANS, BasisMean, LatitudeMean, LatitudePolynomial, mean_family
    from cagp_dist.over_times import (
        PosteriorOverTimes,
        condition_over_times,
        leave_one_out_over_times,
        log_likelihood_over_times,
        sample_over_times,
    )
    from cagp_dist.posterior.result import Posterior, Progress
    from cagp_dist.posterior.trace import Step
    from cagp_dist.predictive.transforms import Arcsinh, BoxCox
    from cagp_dist.prior import Prior
    from cagp_dist.regions import Box, Polygon
    from cagp_dist.runtime import open_executor
    from cagp_dist.samples import SampledPosterior, posterior_by_samples, sample_posterior
    from cagp_dist.service.run import run
    from cagp_dist.solvers import (
        SOR,
        SSOR,
        BlockGaussSeidel,
        BlockJacobi,
        Chebyshev,
        Cholesky,
        ConjugateGradient,
        Eigenvectors,
        GaussSeidel,
        Hybrid,
        Jacobi,
        KrylovActions,
        MixedActions,
        Neighbours,
        PseudoInputs,
        RandomActions,
        Richardson,
        Rings,
        SparseActions,
        Stats,
        Status,
        SubsetOfData,
        TwoLevelBlockGaussSeidel,
        TwoLevelBlockJacobi,
        UnitVectors,
    )
    from cagp_dist.space_time import SpaceTime
    from cagp_dist.time_factors import Gneiting, Periodic

__version__ = version("cagp-dist")

register_accessor()

_HOMES = {
    "calibration.simulation.laboratory": "calibrate Calibration",
    "fields.covariates": "covariate",
    "geometry": "area_weights space_filling_order unit_sphere",
    "gp": "condition posterior_mean",
    "gram": "DenseGram LeaveOneOut MaskedRings RingGram TiledGram",
    "gram.area_means": "area_means",
    "gram.cell_means": "cell_means CellMeans",
    "gram.functionals": "LinearFunctionals",
    "gram.gradients": "gradients",
    "gram.ring_filter": "RingFilter RingState",
    "factors": "Anisotropic AxiallySymmetric Coregion SameLabel",
    "kernels": "Matern Matern12 Matern32 Matern52 Product SquaredExponential Sum",
    "kriging": "check krige krige_store Kriging",
    "latlon": "LatLonGrid LatLonWindow",
    "likelihood.fit": "fit",
    "likelihood.fit_result": "FitResult FitStatus StandardErrors",
    "means": "BasisMean LatitudeMean LatitudePolynomial mean_family MEANS",
    "over_times": "condition_over_times leave_one_out_over_times log_likelihood_over_times sample_over_times "
    "PosteriorOverTimes",
    "posterior.result": "Posterior Progress",
    "posterior.trace": "Step",
    "predictive.transforms": "Arcsinh BoxCox",
    "prior": "Prior",
    "regions": "Box Polygon",
    "runtime": "open_executor",
    "samples": "posterior_by_samples sample_posterior SampledPosterior",
    "service.run": "run",
    "solvers": (
        "BlockGaussSeidel BlockJacobi Chebyshev Cholesky ConjugateGradient Eigenvectors GaussSeidel "
        "Hybrid Jacobi KrylovActions MixedActions Neighbours PseudoInputs RandomActions Richardson "
        "Rings SOR SparseActions SSOR Stats Status SubsetOfData TwoLevelBlockGaussSeidel "
        "TwoLevelBlockJacobi UnitVectors"
    ),
    "space_time": "SpaceTime",
    "time_factors": "Gneiting Periodic",
}
"""Public names by the modules they are in."""

_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "MEANS", "SOR", "SSOR", "Anisotropic", "Arcsinh", "AxiallySymmetric", "BasisMean",
    "BlockGaussSeidel", "BlockJacobi", "Box", "BoxCox", "Calibration", "CellMeans", "Chebyshev",
    "Cholesky", "ConjugateGradient", "Coregion", "DenseGram", "Eigenvectors", "FitResult", "FitStatus",
    "GaussSeidel", "Gneiting", "Hybrid", "Jacobi", "Kriging", "KrylovActions", "LatLonGrid",
    "LatLonWindow", "LatitudeMean", "LatitudePolynomial", "LeaveOneOut", "LinearFunctionals",
    "MaskedRings", "Matern", "Matern12", "Matern32", "Matern52", "MixedActions", "Neighbours",
    "Periodic", "Polygon", "Posterior", "PosteriorOverTimes", "Prior", "Product", "Progress",
    "PseudoInputs", "RandomActions", "Richardson", "RingFilter", "RingGram", "RingState", "Rings",
    "SameLabel", "SampledPosterior", "SpaceTime", "SparseActions", "SquaredExponential",
    "StandardErrors", "Stats", "Status", "Step", "SubsetOfData", "Sum", "TiledGram",
    "TwoLevelBlockGaussSeidel", "TwoLevelBlockJacobi", "UnitVectors", "area_means", "area_weights",
    "calibrate", "cell_means", "check", "condition", "condition_over_times", "covariate", "fit",
    "gradients", "krige", "krige_store", "leave_one_out_over_times", "log_likelihood_over_times",
    "mean_family", "open_executor", "posterior_by_samples", "posterior_mean", "run", "sample_over_times",
    "sample_posterior", "space_filling_order", "unit_sphere"
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
