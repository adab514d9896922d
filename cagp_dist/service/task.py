"""What a job comes to once its field is known: points, values, prior, solver and the run's name."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cagp_dist import tiling
from cagp_dist.era5.canonical import Points, observation_points
from cagp_dist.geometry import unit_sphere
from cagp_dist.gp import Prior
from cagp_dist.service.design import Design, design_points
from cagp_dist.service.mean import fit_mean
from cagp_dist.service.solve import kernel_of, solver_of
from cagp_dist.service.tables import Job
from cagp_dist.solvers import BlockGaussSeidel, Solver
from cagp_dist.store.arrays import content_sha256
from cagp_dist.store.publish import run_key

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Task:
    """Everything a solve needs.

    Attributes
    ----------
    job : Job
        The checked job file.
    points : Points
        All points of the field.
    design : Design
        Which of them are observed and scored, and the cells of the map.
    prior : Prior
        Kernel, noise, and the mean fitted to the observed values.
    solver : Solver
        Settings of the solve.
    provenance : mapping
        Source of the field and digests of it.
    """

    job: Job
    points: Points
    design: Design
    prior: Prior
    solver: Solver
    provenance: Mapping[str, str]

    @property
    def inputs(self) -> Array:
        """Observed points on the unit sphere, in solver order, shape (n, 3)."""
        train = self.design.train
        return unit_sphere(self.points.latitude_degrees[train], self.points.longitude_degrees[train])

    @property
    def targets(self) -> Array:
        """Observed values in kelvin, shape (n, T)."""
        return np.ascontiguousarray(self.points.values_kelvin[:, self.design.train].T)

    @property
    def new_inputs(self) -> Array:
        """Test points, then map cells, on the unit sphere, shape (q, 3)."""
        test, cells = self.design.test, self.design.cells
        latitude = [self.points.latitude_degrees[test]]
        longitude = [self.points.longitude_degrees[test]]
        if cells is not None:
            for axis, values in zip((latitude, longitude), cells.points(), strict=True):
                axis.append(values)
        return unit_sphere(np.concatenate(latitude), np.concatenate(longitude))

    @property
    def run_key(self) -> str:
        """Name of the run: a digest of all that decides its result, and of nothing else."""
        return run_key(
            job=self.job.canonical(),
            input_hash=self.provenance["content_sha256"],
            tiling={
                "block_size": block_size(self.solver),
                "column_group": tiling.COLUMN_GROUP,
                "smallest_row_tile": tiling.SMALLEST_ROW_TILE,
            },
            dtype="float64",
            code_version=version("cagp-dist"),
        )


def prepare(job: Job, field: "xr.Dataset") -> Task:
    """Choose points, fit the prior mean and build the solver.

    Parameters
    ----------
    job : Job
        A checked job file.
    field : xarray.Dataset
        The observed field in canonical form.

    Returns
    -------
    Task

    Raises
    ------
    DataError
        If the field has missing times.
    ConfigurationError
        If the design asks for more points than there are, or for overlapping ones.
    """
    points = observation_points(field)
    solver = solver_of(job)
    design = design_points(
        points.latitude_degrees,
        points.longitude_degrees,
        table=job.design,
        block_size=block_size(solver),
    )
    mean = fit_mean(
        job.prior.mean,
        points.latitude_degrees[design.train],
        points.values_kelvin[:, design.train].T,
    )
    return Task(
        job=job,
        points=points,
        design=design,
        prior=Prior(kernel_of(job), noise_variance=job.prior.noise_variance, mean=mean),
        solver=solver,
        provenance={
            "source": str(field.attrs["source"]),
            "source_sha256": str(field.attrs["source_sha256"]),
            "content_sha256": content_sha256(field),
        },
    )


def block_size(solver: Solver) -> int:
    """Points of a block in solver order."""
    return solver.block_size if isinstance(solver, BlockGaussSeidel) else tiling.POINT_TILE
