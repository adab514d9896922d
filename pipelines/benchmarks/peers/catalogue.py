"""Who is compared: what to install, which script to run, and what is different about each method."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ADAPTERS = Path(__file__).parent / "adapters"

Model = Literal["simple", "ordinary", "tapered"]
"""Known zero mean; constant mean estimated along; the kernel times a function of compact support."""


@dataclass(frozen=True)
class Method:
    """One way in which a peer predicts.

    Attributes
    ----------
    name : str
        As its adapter knows it.
    label : str
        As the table shows it.
    model : {"simple", "ordinary", "tapered"}
        Which dense formula its answer has to agree with.
    tolerance : float
        How far mean and standard deviation may be from it on the small problem, in standard deviations of the
        data; looser where the method is iterative.
    matrices : float
        n x n matrices of float64 that it holds at its peak; more than the free memory are not tried.
    needs_grid : bool
        Whether it works on grids alone.
    exact_spread : bool
        Whether its standard deviation has to agree too; not where it is larger by design.
    linear : bool
        Whether its cost is linear in the points: others are left out where there are very many.
    """

    name: str
    label: str
    model: Model = "simple"
    tolerance: float = 1e-6
    matrices: float = 0.0
    needs_grid: bool = False
    exact_spread: bool = True
    linear: bool = False


@dataclass(frozen=True)
class Peer:
    """A program to compare with.

    Attributes
    ----------
    name : str
        For the command line and the folder of its environment.
    adapter : path
        Script run under the interpreter of that environment.
    requirements : tuple of str
        What pip installs, ``name==version``; empty: the interpreter that runs the suite.
    methods : tuple of Method
        How it predicts.
    fits : tuple of Method
        How it estimates the hyperparameters; of each, name, label and matrices count.
    """

    name: str
    adapter: Path
    requirements: tuple[str, ...]
    methods: tuple[Method, ...]
    fits: tuple[Method, ...] = ()


OURS = "cagp-dist"

NEAR = 1e-3
"""Tolerance of methods that use 60 of the 70 points of the small problem."""

PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            OURS,
            ADAPTERS / "for_cagp_dist.py",
            requirements=(),
            methods=(
                Method("rings", "exact on the grid", needs_grid=True),
                Method("cholesky", "exact (Cholesky)", matrices=2),
                Method("neighbours", "64 nearest, in groups", tolerance=NEAR, linear=True),
                Method("neighbours-60", "60 nearest, each alone", tolerance=NEAR, linear=True),
                Method("sweeps-2", "block Gauss-Seidel, m = 2"),
                Method("sweeps-5", "block Gauss-Seidel, m = 5"),
                Method(
                    "conjugate-gradient", "conjugate gradients, m = 80", tolerance=1e-3, exact_spread=False
                ),
            ),
            fits=(
                Method("fit-rings", "likelihood on the grid", needs_grid=True),
                Method("fit-dense", "likelihood, dense", matrices=2),
                Method("fit-vecchia", "Vecchia, cells of 20 with 180 points", linear=True),
            ),
        ),
        Peer(
            "scikit-learn",
            ADAPTERS / "for_sklearn.py",
            requirements=("scikit-learn==1.9.1", "numpy==2.4.6", "scipy==1.17.1"),
            methods=(Method("cholesky", "exact (Cholesky)", matrices=3.5),),
            fits=(Method("fit", "likelihood, L-BFGS-B", matrices=9),),
        ),
        Peer(
            "gpytorch",
            ADAPTERS / "for_gpytorch.py",
            requirements=(
                "torch==2.13.0",
                "gpytorch==1.15.2",
                "pykeops==2.3",
                "numpy==2.4.6",
                "scipy==1.17.1",
            ),
            methods=(
                Method("cholesky", "exact (Cholesky)", matrices=6),
                Method("conjugate-gradient", "conjugate gradients, LOVE", tolerance=1e-2, matrices=2),
                Method("keops", "conjugate gradients, LOVE, KeOps", tolerance=1e-2),
            ),
            fits=(Method("fit", "likelihood, L-BFGS", matrices=9),),
        ),
        Peer(
            "fvgp",
            ADAPTERS / "for_fvgp.py",
            requirements=("fvgp==4.10.0", "imate==0.29.11", "numpy==2.4.6", "scipy==1.17.1"),
            methods=(
                Method("cholesky", "exact (Cholesky)", matrices=4),
                Method("gp2scale", "gp2Scale on Dask, tapered kernel", model="tapered", matrices=1.5),
            ),
        ),
        Peer(
            "gstools",
            ADAPTERS / "for_gstools.py",
            requirements=("gstools==1.7.0", "numpy==2.4.6", "scipy==1.17.1"),
            methods=(Method("simple-kriging", "simple kriging", matrices=6),),
            fits=(Method("fit", "least squares on the variogram"),),
        ),
        Peer(
            "pykrige",
            ADAPTERS / "for_pykrige.py",
            requirements=("pykrige==1.7.3", "numpy==2.4.6", "scipy==1.17.1"),
            methods=(
                Method("ordinary-kriging", "ordinary kriging", model="ordinary", matrices=6),
                Method("moving-window", "ordinary kriging, 100 nearest", model="ordinary", matrices=6),
            ),
        ),
        Peer(
            "gpboost",
            ADAPTERS / "for_gpboost.py",
            requirements=("gpboost==1.8.0", "numpy==2.4.6", "scipy==1.17.1"),
            methods=(Method("vecchia", "Vecchia, 60 nearest", tolerance=NEAR, linear=True),),
            fits=(
                Method("fit", "Vecchia, 20 nearest (its default)", linear=True),
                Method("fit-60", "Vecchia, 60 nearest", linear=True),
            ),
        ),
        Peer(
            "muygpys",
            ADAPTERS / "for_muygpys.py",
            requirements=("muygpys==0.9.1", "numpy==2.4.6", "scipy==1.17.1"),
            methods=(Method("nearest", "60 nearest, each alone", tolerance=NEAR, linear=True),),
        ),
    )
}
