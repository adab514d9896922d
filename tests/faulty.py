"""Solvers with a mistake, which the calibration laboratory has to find."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import cagp_dist as cagp
from cagp_dist.solvers import State


@dataclass(frozen=True)
class OffByOne:
    """The classic mistake: the mean of iteration m with the covariance of iteration m + 1."""

    iterations: int
    calibrated = "exact"
    many_fields = True
    needs_grid = False

    @property
    def _inner(self):
        return cagp.GaussSeidel(self.iterations + 1)

    def plan(self, demand):
        return self._inner.plan(demand)

    def states(self, problem, *, executor, plan) -> Iterator[State]:
        states = list(self._inner.states(problem, executor=executor, plan=plan))
        yield replace(states[-2], downdate=states[-1].downdate)


@dataclass(frozen=True)
class Altered:
    """Gauss-Seidel whose last state is changed by a function."""

    change: Callable[[State], State]
    iterations: int = 3
    calibrated = "exact"
    many_fields = True
    needs_grid = False

    def plan(self, demand):
        return cagp.GaussSeidel(self.iterations).plan(demand)

    def states(self, problem, *, executor, plan) -> Iterator[State]:
        *_, last = cagp.GaussSeidel(self.iterations).states(problem, executor=executor, plan=plan)
        yield self.change(last)


@dataclass(frozen=True)
class OneField:
    """A solver that is asked for one field at a time."""

    inner: cagp.GaussSeidel | cagp.ConjugateGradient
    calibrated = "approximate"
    many_fields = False
    needs_grid = False

    @property
    def iterations(self):
        return self.inner.iterations

    def plan(self, demand):
        return self.inner.plan(demand)

    def states(self, problem, *, executor, plan):
        return self.inner.states(problem, executor=executor, plan=plan)
