"""Small problems with every Gram matrix, on every executor, for identities of dense matrices.

Their points are few and far enough from each other for ``K = k(X, X)`` to be well conditioned: with the
observed points as targets, ``V A`` and ``V D V'`` then give back A and D themselves.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from distributed import Client
from scipy.linalg import cho_factor, cho_solve

import cagp_dist as cagp
from cagp_dist.posterior.problem import demand_of, plan_of_mean
from cagp_dist.runtime import Executor, SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.solvers import Problem, Solver, State
from cagp_dist.solvers.actions.known_actions import KnownActions
from cagp_dist.solvers.engine.affine import Affine

from ..oracle import Dense, assert_close, kernel_matrix
from ..solvers.engine import LIMIT, states_of
from ..solvers.stages import dense_cycles
from ..solvers.waves import coarse_waves, waves_of
from .grams import MAKERS, Case, Maker, regular, whole_grid

Array = np.ndarray
Made = TypeVar("Made")
N = 36
ANYWHERE = cagp.unit_sphere([3.0, -80.0, 40.0, 51.0, 12.0], [10.0, 250.0, 111.0, -30.0, 71.0])


UNUSUAL = ("tiled-64", "tiled-1", "rings with poles")
"""Tiles of other sizes are as good as those of 7; where copies of a pole are points, K is singular."""
GRAMS = {name: maker for name, maker in MAKERS.items() if name not in UNUSUAL} | {
    "rings that are not mirrored": Maker(whole_grid(regular, even_noise=False)),
}
UNEVEN = "masked rings with noise by point"
"""Where no rings are exact."""
EXECUTORS = ("serial", "threads", "dask")


@contextmanager
def opened(name: str, client: Callable[[], Client]) -> Iterator[Executor]:
    """An executor by its name; Dask's is that of a client, which is asked for when it is needed."""
    if name == "serial":
        yield SerialExecutor()
    elif name == "threads":
        with ThreadExecutor(2) as executor:
            yield executor
    else:
        yield DaskExecutor(client())


@dataclass(frozen=True, eq=False)
class Place:
    """A Gram matrix by its structure and as a dense matrix, and where its solvers run."""

    case: Case
    executor: Executor
    targets: Array = field(default_factory=lambda: ANYWHERE)
    """New points, (5, 3)."""
    _made: dict[tuple[str, Solver], Any] = field(default_factory=dict)

    @cached_property
    def dense(self) -> Dense:
        """G, the new points, and one field."""
        X, kernel = self.case.X, self.case.gram.kernel
        return Dense(
            G=self.case.G,
            V=kernel_matrix(kernel, self.targets, X),
            K2=kernel_matrix(kernel, self.targets, self.targets),
            b=np.random.default_rng(5).normal(size=N),
            centre=np.zeros(len(self.targets)),
        )

    @property
    def n_longitudes(self) -> int:
        """Points of a ring where the observed points make whole rings, else 0."""
        gram = self.case.gram
        if self.case.grid is None or gram.layout.missing.any():
            return 0
        if isinstance(gram, cagp.MaskedRings) and not gram.even_noise:
            return 0
        return gram.layout.grid.n_longitudes

    def problem(self, targets: Array, b: Array | None = None) -> Problem:
        """What a solver is given for right-hand sides b (n, T), by default the field."""
        b = self.dense.b[:, None] if b is None else b
        return Problem(self.case.gram, b, targets, full_covariance=True)

    def states(
        self, solver: Solver, targets: Array, b: Array | None = None, **settings: object
    ) -> list[State]:
        """Every state with its whole downdate."""
        b = self.dense.b[:, None] if b is None else b
        return states_of(self.case.gram, solver, b, targets, full=True, executor=self.executor, **settings)

    def at_new(self, solver: Solver) -> list[State]:
        """Every state of the field at the new points."""
        return self._once(
            "at new points",
            solver,
            lambda: self.states(solver, self.targets, keep_leftover=isinstance(solver, Affine)),
        )

    def condition(self, solver: Solver, mean: cagp.BasisMean) -> cagp.Posterior:
        """`cagp.condition` at the new points, with every unit vector as a field."""
        X, y, noise, grid = self.case.X, np.eye(N), self.case.noise, self.case.grid
        if grid is not None:
            observed = self.case.gram.layout.observed
            X, y, noise = grid, np.full((N, *grid.shape), np.nan), np.ones(grid.shape)
            y[:, observed], noise[observed] = np.eye(N), self.case.noise
        prior = cagp.Prior(self.case.gram.kernel, noise, mean)
        settings = {"covariance": "full", "executor": self.executor}
        return cagp.condition(prior, X, y, self.targets, solver=solver, **settings)

    def leftover(self, solver: Solver) -> Array:
        """``Y0 = V' - G A' V'`` (n, q): of stages what the engine has left over."""
        if isinstance(solver, Affine):
            (left,) = self.at_new(solver)[-1].leftover()
            return left
        return self.dense.V.T - self.dense.G @ self.matrices(solver)[-1][0].T @ self.dense.V.T

    def actions(self, solver: KnownActions) -> Array:
        """S (n, i) of a policy that does not look at the data."""
        return solver.made(self.case.gram, executor=self.executor).columns(N)

    def assert_projected(self, state: State, S: Array) -> None:
        """A state is the belief after the actions S (n, i), by the dense formula."""
        mean, covariance = self.dense.projected(S)
        assert_close(state.mean[:, 0], mean)
        assert_close(self.dense.K2 - state.downdate, covariance)

    def matrices(self, solver: Solver) -> list[tuple[Array, Array]]:
        """A and D after every iteration; of solvers that follow the field ``A b``, (n, 1), in place of A."""

        def made() -> list[tuple[Array, Array]]:
            factor = cho_factor(self.case.K)
            right = np.eye(N) if solver.many_fields else None
            return [
                (cho_solve(factor, state.mean), cho_solve(factor, cho_solve(factor, state.downdate).T))
                for state in self.states(solver, self.case.X, right)
            ]

        return self._once("matrices", solver, made)

    def _once(self, what: str, solver: Solver, make: Callable[[], Made]) -> Made:
        if (what, solver) not in self._made:
            self._made[what, solver] = make()
        return self._made[what, solver]

    def forward(self, solver: Affine, right: Array) -> tuple[Array, Array]:
        """``A b`` and ``b - G A b`` for b (n, T), by the stages themselves."""
        problem = replace(self.problem(self.case.X, right), full_covariance=False)
        plan = plan_of_mean(solver, demand_of(problem, self.executor, LIMIT))
        return solver.forward(problem, executor=self.executor, plan=plan)

    @property
    def mirrored(self) -> bool:
        """Whether rings and their mirror images are alike, where they are whole."""
        layout = self.case.gram.layout
        noise = self.case.noise[np.unique(self._ring, return_index=True)[1]]
        return bool(layout.grid.mirrored and np.array_equal(noise, noise[::-1]))

    @property
    def _ring(self) -> Array:
        layout = self.case.gram.layout
        return layout.index // layout.grid.n_longitudes

    def blocks(self, solver: Affine) -> Array:
        """Number of the block of each point: consecutive points, or rings and their mirror images."""
        size = solver.points_per_block
        if size is None or not self.n_longitudes:
            return np.arange(N) // (size or 1)
        ring, P = self._ring, self.case.gram.layout.grid.shape[0]
        if self.mirrored:
            ring = np.minimum(ring, P - 1 - ring)
        return ring // max(1, size // self.n_longitudes)

    def coarse(self, solver: Affine) -> Array | None:
        """Columns (n, k) of a coarse space of waves along whole rings; None where it is one of points."""
        if not self.n_longitudes or not solver.coarse_columns:
            return None
        layout = self.case.gram.layout
        single = layout.poles if len(self.case.X) < layout.grid.size else ()
        waves = waves_of(
            layout.grid.latitude_degrees, self.n_longitudes, mirrored=self.mirrored, single=tuple(single)
        )
        return coarse_waves(self.case.K, waves, solver.coarse_columns)

    def cycles(self, solver: Affine) -> list[Array]:
        """``Mt`` of every cycle as a dense matrix, the first one first."""
        return dense_cycles(solver, self.dense.G, self.blocks(solver), self.coarse(solver))


def place(gram: str, executor: Executor) -> Place:
    """A Gram matrix by its name, on an executor."""
    case = GRAMS[gram].make(cagp.Matern12(0.6, variance=2.0), N, 3, executor)
    return Place(case, executor)
