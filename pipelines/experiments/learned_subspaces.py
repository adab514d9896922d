"""The subspace of learned actions: their distance to the leading eigenvectors, and the parts of the variance.

    python -m pipelines.experiments.learned_subspaces [--quick] [--output FOLDER]

1,000 points of the built-in field over Europe are observed, the others there predicted, about the field's
quadratic mean. 64 block-sparse actions climb the evidence lower bound, with the hyperparameters, from those
of the likelihood's maximum and means of blocks. After some steps the span of the actions is compared with
that of the 64 leading eigenvectors of G, at the hyperparameters of that step: the Grassmann distance is the
root of the sum of squared principal angles. Beside them stand directions that are not learned: random ones,
means of blocks, and the Krylov space in which conjugate gradients move.

Then the variance at the others is taken apart, with the hyperparameters of the likelihood's maximum and with
those that were learned: the mathematical part is what the exact posterior has, the computational part what a
method adds for what it did not compute. 64 inducing points among those observed (SGPR) state a variance of
their own, and nothing is added. The entries of the learned actions are in both cases those of the last step.

Prints two tables, draws both for the learned hyperparameters, and writes ``learned-subspaces.zarr``.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr
from scipy.linalg import eigh, qr, subspace_angles

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.kernels import Kernel
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.optimise import LBFGS
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.memory import available_bytes
from cagp_dist.runtime import Executor, ThreadExecutor
from cagp_dist.solvers.actions.block_sparse import BlockLayout
from cagp_dist.solvers.stationary.low_rank import partial_cholesky
from pipelines.experiments.climbing import Way, climb
from pipelines.experiments.output import ACCENT, drawn, parser, print_table, save
from pipelines.experiments.sample_field import SampleField
from pipelines.experiments.sgpr import variational

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SOUTH, NORTH, WEST, EAST = 30.0, 70.0, -15.0, 45.0
"""Degrees."""

TRANSECT = 50.25
"""Latitude of the transect, a row of the grid."""

POINTS, QUICK_POINTS = 1000, 200
ACTIONS, QUICK_ACTIONS = 64, 16
STEPS, QUICK_STEPS = 100, 10
CANDIDATES = 8
"""Points for each inducing point among which it is looked for."""

DIRECTIONS = ("learned", "conjugate gradients", "means of blocks", "random")
LEARNED, CG, FIXED, INDUCING = "learned", "conjugate gradients", "means of blocks", "inducing points"
EXACT = "exact"
METHODS = (LEARNED, CG, FIXED, INDUCING)
COLOURS = dict(zip((*METHODS, "random"), (ACCENT, "#d9772b", "#2a9168", "#8a63b5", "#777777"), strict=True))


class Data(NamedTuple):
    """Observed points and values, others to be predicted, and where these are, in degrees."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    latitude: Array
    longitude: Array


class Variances(NamedTuple):
    """What a method says at the others, and the exact variance with the same prior."""

    mean: Array
    combined: Array
    mathematical: Array


def over_europe(count: int) -> Data:
    """Draw the observed points in proportion to area, no two the same."""
    field = SampleField.about("quadratic-latitude")
    grid = field.grid
    longitude = np.mod(np.arange(grid.n_longitudes) * 360.0 / grid.n_longitudes + 180.0, 360.0) - 180.0
    latitude, longitude = (
        each.ravel() for each in np.meshgrid(grid.latitude_degrees, longitude, indexing="ij")
    )
    there = np.flatnonzero((latitude > SOUTH) & (latitude < NORTH) & (longitude > WEST) & (longitude < EAST))
    weights = grid.area_weights.ravel()[there]
    chosen = np.random.default_rng(0).choice(there, count, replace=False, p=weights / weights.sum())
    others = np.setdiff1d(there, chosen)
    points, values = grid.points, field.residual.ravel()
    return Data(
        points[chosen],
        values[chosen],
        points[others],
        values[others],
        latitude[others],
        longitude[others],
    )


class Learning:
    """Actions that climb the bound, and those beside them.

    Parameters
    ----------
    data : Data
        What is observed and predicted.
    actions, steps : int
        How many.
    executor : Executor
        Where it is computed.
    """

    def __init__(self, data: Data, actions: int, steps: int, executor: Executor) -> None:
        self.data, self.actions, self._executor = data, actions, executor
        self.layout = BlockLayout.of(data.X, actions)
        start = cagp.fit(cagp.Matern32, data.X, data.y, mean=0.0, method="dense").prior
        seen = ProjectedData(
            cagp.Matern32,
            data.X,
            data.y[:, None],
            layout=self.layout,
            executor=executor,
            memory_limit_bytes=available_bytes(),
        )
        self._hyperparameters = seen.hyperparameters
        first = self._hyperparameters.write(start.kernel, start.noise_number)
        self.way: Way = climb(Elbo(seen), np.concatenate([first, np.ones(len(data.X))]), LBFGS(steps=steps))

    def prior(self, step: int) -> tuple[Kernel, float]:
        """Kernel and noise variance after so many steps."""
        return self._hyperparameters.read(self.way.vectors[step])

    def weights(self, step: int) -> Array:
        """Entries of the actions after so many steps."""
        return self.way.vectors[step][self._hyperparameters.size :]

    def distances(self, step: int) -> dict[str, float]:
        """Grassmann distances of `DIRECTIONS` to the leading eigenvectors of G."""
        kernel, noise = self.prior(step)
        n, i = len(self.data.X), self.actions
        gram = kernel(self.data.X, self.data.X) + noise * np.eye(n)
        leading = eigh(gram, subset_by_index=(n - i, n - 1))[1]
        spans = {
            LEARNED: self.layout.columns(self.weights(step)),
            CG: krylov_space(gram, self.data.y, i),
            FIXED: self.layout.columns(np.ones(n)),
            "random": np.random.default_rng(0).standard_normal((n, i)),
        }
        return {name: grassmann_distance(spans[name], leading) for name in DIRECTIONS}

    def variances(self, step: int) -> dict[str, Variances]:
        """Means and variances, exact and of each of `METHODS`, with the hyperparameters of a step."""
        kernel, noise = self.prior(step)
        prior = cagp.Prior(kernel, noise)
        data, n = self.data, len(self.data.X)
        posterior = cagp.condition(prior, data.X, data.y, data.X_test, solver=cagp.Cholesky())
        exact = posterior.variance
        solvers = {
            LEARNED: cagp.SparseActions(self.actions, values=self.weights(self.way.steps)),
            CG: cagp.ConjugateGradient(self.actions),
            FIXED: cagp.SparseActions(self.actions, values=np.ones(n), tuned=False),
        }
        found = {EXACT: Variances(posterior.mean, exact, exact)}
        for name, solver in solvers.items():
            posterior = cagp.condition(
                prior, data.X, data.y, data.X_test, solver=solver, executor=self._executor
            )
            found[name] = Variances(posterior.mean, posterior.variance, exact)
        inducing = space_filling(kernel, data.X, self.actions)
        sparse = variational(cagp.Matern32, prior, data.X, data.y, data.X_test, inducing=inducing)
        return {**found, INDUCING: Variances(sparse.mean[:, 0], sparse.variance, exact)}


def space_filling(kernel: Kernel, X: Array, count: int) -> Array:
    """Choose inducing points (m, 3) among the observed ones, far from each other."""
    if len(X) > CANDIDATES * count:
        order = cagp.space_filling_order(X, block_size=1)
        X = X[order[np.linspace(0, len(X) - 1, CANDIDATES * count).round().astype(int)]]
    return X[partial_cholesky(kernel, X, rank=count).chosen]


def krylov_space(gram: Array, residual: Array, size: int) -> Array:
    """Orthonormal basis of the span of ``b, G b, ...``, shape (n, size)."""
    basis = np.zeros((len(residual), size))
    column = residual
    for j in range(size):
        for _ in range(2):  # twice is enough for orthogonality to rounding
            column = column - basis[:, :j] @ (basis[:, :j].T @ column)
        basis[:, j] = column / np.linalg.norm(column)
        column = gram @ basis[:, j]
    return basis


def grassmann_distance(columns: Array, others: Array) -> float:
    """Root of the sum of squared principal angles between the spans of the columns of two matrices."""
    return float(np.linalg.norm(subspace_angles(qr(columns, mode="economic")[0], others)))


def distance_rows(distances: dict[int, dict[str, float]], learning: Learning) -> Iterator[tuple[str, ...]]:
    """Distances after some steps, with the hyperparameters there."""
    for step, found in distances.items():
        kernel, noise = learning.prior(step)
        yield (
            str(step),
            f"{kernel.lengthscale:.3g}",
            f"{kernel.variance:.3g}",
            f"{noise:.3g}",
            *(f"{found[name]:.2f}" for name in DIRECTIONS),
        )


def variance_rows(
    variances: dict[int, dict[str, Variances]], learning: Learning
) -> Iterator[tuple[str, ...]]:
    """Parts of the variance, averaged over the others, and scores, with the hyperparameters of some steps."""
    data = learning.data
    for step, name in ((step, name) for step, methods in variances.items() for name in methods):
        found, noise = variances[step][name], learning.prior(step)[1]
        deviation = np.sqrt(found.combined + noise)
        errors, score = data.y_test - found.mean, scores(found.mean, deviation, data.y_test)
        yield (
            str(step),
            name,
            f"{found.mathematical.mean():.2f}",
            f"{found.combined.mean() - found.mathematical.mean():+.2f}",
            f"{score.rmse:.3f}",
            f"{score.nll:.3f}",
            f"{(errors / deviation).std():.3f}",
        )


def draw_distances(axes: "Axes", distances: dict[int, dict[str, float]]) -> None:
    """Draw distances against steps."""
    steps = list(distances)
    for name in DIRECTIONS:
        values = [distances[step][name] for step in steps]
        axes.plot(steps, values, color=COLOURS[name], label=name, marker="o", markersize=3)
    axes.set_xlabel("steps")
    axes.set_ylim(bottom=0.0)
    axes.set_title("distance to the leading eigenvectors", loc="left", fontsize=9)
    axes.legend(frameon=False, fontsize=7)


def draw_variances(axes: "Axes", name: str, found: Variances, degrees: Array) -> None:
    """Draw mathematical and combined deviation along the transect."""
    order = np.argsort(degrees)
    exact, combined = (np.sqrt(values[order]) for values in (found.mathematical, found.combined))
    axes.fill_between(degrees[order], 0.0, exact, color="#c9c9c9", linewidth=0.0)
    wider = combined >= exact
    axes.fill_between(
        degrees[order], exact, combined, where=wider, color=COLOURS[name], alpha=0.5, linewidth=0.0
    )
    axes.plot(degrees[order], combined, color=COLOURS[name], linewidth=1.0)
    axes.set_title(name, loc="left", fontsize=9)
    axes.set_xlabel("degrees east")


def dataset(
    distances: dict[int, dict[str, float]], variances: dict[str, Variances], data: Data
) -> xr.Dataset:
    """Distances by step and directions, variances by method and point."""
    return xr.Dataset(
        {
            "grassmann_distance": (
                ("step", "directions"),
                [[found[name] for name in DIRECTIONS] for found in distances.values()],
            ),
            "combined_variance": (("method", "point"), [found.combined for found in variances.values()]),
            "mathematical_variance": (("point",), next(iter(variances.values())).mathematical),
        },
        coords={
            "step": list(distances),
            "directions": np.array(DIRECTIONS, dtype=object),
            "method": np.array(list(variances), dtype=object),
            "latitude": (("point",), data.latitude),
            "longitude": (("point",), data.longitude),
        },
        attrs={"title": "Span and variances of learned actions over Europe"},
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn, compare, print, draw and save."""
    chosen = parser(__doc__).parse_args(arguments)
    points, actions, steps = (
        (QUICK_POINTS, QUICK_ACTIONS, QUICK_STEPS) if chosen.quick else (POINTS, ACTIONS, STEPS)
    )
    data = over_europe(points)
    with ThreadExecutor() as executor:
        learning = Learning(data, actions, steps, executor)
        distances = {step: learning.distances(step) for step in learning.way.vectors}
        variances = {step: learning.variances(step) for step in (0, learning.way.steps)}
    print_table(
        ("step", "lengthscale", "variance", "noise variance", *DIRECTIONS), distance_rows(distances, learning)
    )
    print_table(
        (
            "hyperparameters of step",
            "method",
            "mathematical variance",
            "added",
            "RMSE [K]",
            "NLL",
            "std of z",
        ),
        variance_rows(variances, learning),
    )
    last = variances[learning.way.steps]
    with drawn(chosen.output / "learned-subspaces.png", width_inches=11.0, height_inches=2.8) as figure:
        first, *others = figure.subplots(1, 1 + len(METHODS), width_ratios=[1.6, *[1.0] * len(METHODS)])
        draw_distances(first, distances)
        there = np.isclose(data.latitude, TRANSECT)
        top = 1.05 * np.sqrt(max(found.combined[there].max() for found in last.values()))
        for axes, name in zip(others, METHODS, strict=True):
            found = last[name]
            draw_variances(axes, name, Variances(*(values[there] for values in found)), data.longitude[there])
            axes.set_ylim(0.0, top)
        others[0].set_ylabel("standard deviation [K]")
    save(chosen.output / "learned-subspaces.zarr", dataset(distances, last, data))


if __name__ == "__main__":
    main()
