"""What a job comes to once its field is known: points, values, prior, solver and the run's name."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist import tiling
from cagp_dist.arrays import Array
from cagp_dist.era5.canonical import Points, observation_points
from cagp_dist.era5.climatology import open_climatology
from cagp_dist.geometry import unit_sphere
from cagp_dist.gp import Prior
from cagp_dist.service.design import Design, design_points
from cagp_dist.service.jobfile.tables import Job
from cagp_dist.service.jobfile.values import climatology_address
from cagp_dist.service.mean import FieldMean, fit_mean
from cagp_dist.service.solve import prior_of
from cagp_dist.solvers import BlockGaussSeidel, Rings, Solver
from cagp_dist.solvers.whole_grid import place_on_grid
from cagp_dist.store.arrays import content_sha256
from cagp_dist.store.publish import run_key

if TYPE_CHECKING:
    import xarray as xr


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
    mean : FieldMean
        The prior mean, fitted to the observed values.
    prior : Prior or None
        Kernel, noise and mean; None where the job leaves its numbers out, which are fitted first.
    solver : Solver
        Settings of the solve.
    provenance : mapping
        Source of the field and digests of it, and of the climatology if the mean is one.
    """

    job: Job
    points: Points
    design: Design
    mean: FieldMean
    prior: Prior | None
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
        """Name of the run: a digest of all that decides its result, and of nothing else.

        Numbers that are fitted have no part in it: they follow from the job, the data and the versions.
        """
        contents = (self.provenance.get(name) for name in ("content_sha256", "climatology_sha256"))
        return run_key(
            job=self.job.canonical(),
            input_hash=" ".join(content for content in contents if content is not None),
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
        If the field has missing times, or the climatology cannot be read.
    ArgumentError
        If the solver needs a whole grid and the observed points are none.
    ConfigurationError
        If the design asks for more points than there are, or for overlapping ones, or the climatology does
        not cover them.
    """
    points, design = choose(job, field)
    address = climatology_address(job.prior.mean)
    climatology = None if address is None else open_climatology(address, variable=job.observations.variable)
    if climatology is not None and design.cells is not None:
        climatology.check_covers(*design.cells.points())
    mean = fit_mean(job.prior.mean, points, design.train, climatology=climatology)
    provenance = {
        "source": str(field.attrs["source"]),
        "source_sha256": str(field.attrs["source_sha256"]),
        "content_sha256": content_sha256(field),
    }
    if climatology is not None:
        provenance |= {"climatology": str(address), "climatology_sha256": climatology.content_sha256}
    return Task(
        job=job,
        points=points,
        design=design,
        mean=mean,
        prior=prior_of(job, mean),
        solver=solver_on(job, points, design),
        provenance=provenance,
    )


def solver_on(job: Job, points: Points, design: Design) -> Solver:
    """Build the solver of a job for its points; that of whole grids finds its grid or raises."""
    solver = job.solver.build()
    if not isinstance(solver, Rings):
        return solver
    train = design.train
    X = unit_sphere(points.latitude_degrees[train], points.longitude_degrees[train])
    return Rings(place_on_grid(X).grid)


def choose(job: Job, field: "xr.Dataset") -> tuple[Points, Design]:
    """Points of the field, and which of them are observed, scored and mapped; raises as `prepare`."""
    points = observation_points(field)
    design = design_points(
        points.latitude_degrees,
        points.longitude_degrees,
        table=job.design,
        block_size=block_size(job.solver.build()),
    )
    return points, design


def block_size(solver: Solver) -> int:
    """Points of a block in solver order."""
    return solver.block_size if isinstance(solver, BlockGaussSeidel) else tiling.POINT_TILE
