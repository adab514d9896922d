"""Observations that arrive in parts: stages are appended to a solve instead of starting it again (math 14).

Every call adds affine stages that act on the points there are so far. As a stage on all n points it is the
same with zeros in the other rows and columns, so that one matrix A maps all data to the estimate, and the
posterior is calibrated after every call, like that of any other list of stages (math 1.1)::

    forward    v = A b and r = b - G v are kept; new points bring rows of v that are zero, rows of r that
               take one product with v, and then the stages of the call
    adjoint    all stages, the last ones first; a call knows only the points it had, so that the columns
               ``Y = V' - ...`` lose their later rows from one call to the one before it

Points without stages change nothing: their rows of A are zero (T36).
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.checks import as_numbers, as_points, as_variances
from cagp_dist.errors import ArgumentError
from cagp_dist.posterior.result import Posterior, on_targets, shaped_as_targets
from cagp_dist.prior import Prior, check_prior
from cagp_dist.tiling import block_ranges

if TYPE_CHECKING:
    from cagp_dist.budget import Demand, Plan
    from cagp_dist.gram.functionals import LinearFunctionals
    from cagp_dist.gram.targets import Targets
    from cagp_dist.latlon import LatLonGrid
    from cagp_dist.runtime import Executor
    from cagp_dist.solvers import Problem
    from cagp_dist.solvers.affine import Affine
    from cagp_dist.solvers.base import State

TARGETS_AT_ONCE = 1024
"""Targets that the adjoint pass goes through together: what it leaves over is then 8 KiB for each point."""


@dataclass(frozen=True)
class Phase:
    """The stages of one call.

    Attributes
    ----------
    solver : Affine
        Whose cycle is gone through, and how often.
    n : int
        Points that there were.
    first : int
        Blocks with points from this one on are visited; 0: all.
    """

    solver: "Affine"
    n: int
    first: int


@dataclass(frozen=True, eq=False)
class Observed:
    """Observations so far, and what the stages have made of them.

    Attributes
    ----------
    X, noise_variance : array, shape (n, p) and (n,)
        Points and noise, in the order in which they came.
    b, v, r : array, shape (n, T)
        Values less the prior mean, weights ``A b``, and the residual ``b - G v``.
    single : bool
        Whether values came without an axis for fields.
    """

    X: Array
    noise_variance: Array
    b: Array
    v: Array
    r: Array
    single: bool

    def followed_by(self, new: "Observed", seen: Array) -> "Observed":
        """Add points without stages, at which the weights so far give ``seen`` (k, T)."""
        return Observed(
            np.concatenate([self.X, new.X]),
            np.concatenate([self.noise_variance, new.noise_variance]),
            np.concatenate([self.b, new.b]),
            np.concatenate([self.v, new.v]),
            np.concatenate([self.r, new.b - seen]),
            self.single,
        )


class GrowingData:
    """A solve to which observations can be added without starting it again.

    Parameters
    ----------
    prior : Prior
        Kernel, noise and mean.
    X_test : array_like, shape (q, p), LatLonGrid or LinearFunctionals
        Where the posterior is wanted.
    solver : GaussSeidel, BlockGaussSeidel, SOR, SSOR, Jacobi, BlockJacobi, Richardson, or a two-level method
        The stages that follow each part of the data, unless another solver is given with it.
    executor : Executor, optional
        Where tasks run; by default all cores of this process, at each call.
    memory_limit_bytes : int, optional
        What a call may allocate; by default four fifths of the free memory.

    Raises
    ------
    ArgumentError
        If an argument is not what is described, or the solver has a ``computational_share``, which ends
        targets after different numbers of sweeps.

    Notes
    -----
    The posterior is calibrated exactly, if the prior is right, as long as what is done, and when, does not
    depend on the values that were observed; it may depend on where they were.

    With n points so far, k of them new, T fields and a solver of m sweeps, `append` evaluates n k covariances
    and sweeps over T columns, 2 n^2 m T flops; of the new blocks alone 2 n k m T. Kept are 8 n (p + 3 T)
    bytes. `mean` takes n q evaluations. `posterior` goes through all stages backwards, 2 n^2 m q flops for
    each call so far, with the n it had.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.3), noise_variance=1e-3)
    >>> stream = cagp.GrowingData(prior, [[0.5]], solver=cagp.BlockGaussSeidel(4, block_size=20))
    >>> X = np.linspace(0.0, 1.0, 60).reshape(-1, 1)
    >>> stream.append(X[::2], np.sin(6.0 * X[::2, 0]))
    >>> before = stream.posterior()
    >>> stream.append(X[1::2], np.sin(6.0 * X[1::2, 0]))
    >>> after = stream.posterior()
    >>> bool(after.variance[0] < before.variance[0]), bool(abs(after.mean[0] - np.sin(3.0)) < 0.01)
    (True, True)
    """

    def __init__(
        self,
        prior: Prior,
        X_test: "ArrayLike | LatLonGrid | LinearFunctionals",
        *,
        solver: "Affine",
        executor: "Executor | None" = None,
        memory_limit_bytes: int | None = None,
    ) -> None:
        from cagp_dist.gram.functionals import LinearFunctionals
        from cagp_dist.latlon.grid import LatLonGrid

        check_prior(prior)
        if not isinstance(X_test, LatLonGrid | LinearFunctionals):
            X_test = as_points("X_test", X_test).copy()
        self._prior, self._X_test, self._solver = prior, X_test, _checked(solver)
        self._executor, self._limit = executor, memory_limit_bytes
        self._phases: list[Phase] = []
        self._seen: Observed | None = None

    @property
    def n(self) -> int:
        """Observations so far."""
        return 0 if self._seen is None else len(self._seen.X)

    def append(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        noise_variance: ArrayLike | None = None,
        solver: "Affine | None" = None,
        new_blocks: bool = False,
    ) -> None:
        """Add observations, and stages that take them in.

        Parameters
        ----------
        X : array_like, shape (k, p)
            Observed points, Euclidean distance; blocks are of consecutive points, over all parts.
        y : array_like, shape (k,) or (k, T)
            What was observed there, of one or T fields; as many as before.
        noise_variance : array_like, shape (k,), optional
            Of each, above zero; by default the one number of the prior.
        solver : Affine, optional
            In place of that of the stream; with ``iterations=0`` the data are only kept for later stages.
        new_blocks : bool
            Whether sweeps visit only the blocks that hold new points; for solvers that sweep.

        Raises
        ------
        ArgumentError
            If an argument has the wrong shape or value, or only new blocks are to be visited by a solver that
            does not sweep; the observations are then not added.
        BudgetError
            If the stages do not fit into memory; the observations are then not added.
        """
        from cagp_dist.gram.tiled import cross_product

        solver = self._solver if solver is None else _checked(solver)
        new = self._checked_part(X, y, noise_variance)
        with ExitStack() as stack:
            executor = self._opened(stack)
            if self._seen is None:
                self._advance(solver, new, executor)
                return
            seen = cross_product(self._prior.kernel, new.X, self._seen.X, self._seen.v, executor=executor)
            first = self.n if new_blocks else 0
            self._advance(solver, self._seen.followed_by(new, seen), executor, first=first)

    def advance(self, solver: "Affine | None" = None) -> None:
        """Go through more stages with the observations there are.

        Raises
        ------
        ArgumentError
            If nothing was observed yet.
        BudgetError
            If the stages do not fit into memory.
        """
        seen, _ = self._begun()
        with ExitStack() as stack:
            self._advance(self._solver if solver is None else _checked(solver), seen, self._opened(stack))

    def mean(self) -> Array:
        """Posterior mean at the targets, shape (q,) or (q, T), or of a grid (P, Q) or (T, P, Q).

        That of `posterior` up to rounding (T2), from the weights that are kept: n q evaluations.

        Raises
        ------
        ArgumentError
            If nothing was observed yet.
        """
        from cagp_dist.gram.targets import averaged, target_points
        from cagp_dist.gram.tiled import cross_product

        seen, targets = self._begun()
        points = target_points(targets)
        with ExitStack() as stack:
            found = cross_product(self._prior.kernel, points, seen.X, seen.v, executor=self._opened(stack))
        mean = averaged(targets, found + self._prior.mean_at(points))
        return shaped_as_targets(mean, mean[:, 0], targets=targets, single=seen.single)[0]

    def posterior(self, *, covariance: Literal["diagonal", "full"] = "diagonal") -> Posterior:
        """Posterior at the targets from all observations and stages so far.

        Its trace has two steps, the prior and this; ``stats.iterations`` counts the sweeps of all calls.

        Parameters
        ----------
        covariance : {"diagonal", "full"}
            Variances only, or also the (q, q) covariance.

        Raises
        ------
        ArgumentError
            If nothing was observed yet.
        BudgetError
            If the adjoint pass does not fit into memory: beside its sweeps, 24 bytes for each point and each
            of the targets that go together, up to 1,024, or all of them for a full covariance.
        NumericalError
            As for `condition`.
        """
        from cagp_dist.gram.exact_variance import beside_posterior
        from cagp_dist.gram.targets import averaged, target_points
        from cagp_dist.posterior.certificate import Certificate
        from cagp_dist.posterior.patterns import joint_plan
        from cagp_dist.posterior.problem import demand_of
        from cagp_dist.posterior.trace import Step, Trace
        from cagp_dist.solvers import Stats, Status

        if covariance not in ("diagonal", "full"):
            raise ArgumentError(f'covariance is {covariance!r}; expected "diagonal" or "full".')
        seen, targets = self._begun()
        started = time.perf_counter()
        problem = replace(self._problem(seen, targets, n=self.n), full_covariance=covariance == "full")
        points = target_points(targets)
        mean = np.broadcast_to(self._prior.mean_at(points), (len(points), seen.b.shape[1]))
        trace = Trace(problem, averaged(targets, mean))
        status, psd, plans = Status.COMPLETED, True, []
        with ExitStack() as stack:
            executor = self._opened(stack)
            demand = demand_of(problem, executor, self._memory(executor))
            batches = self._batches(problem)
            for start, stop in batches:
                state, made = self._replayed(problem, (start, stop), executor)
                plans += made
                if state is not None:
                    trace.add(replace(state, columns=slice(start, stop), going=None))
                    status, psd = state.status, state.downdate_psd
            description = executor.description
        status = trace.status(status)
        steps = tuple(
            Step(iteration, *shaped_as_targets(found, variance, targets=targets, single=seen.single))
            for iteration, found, variance in trace.steps()
        )
        together = max((stop - start for start, stop in batches), default=0)
        plan = joint_plan(plans or [self._no_plan(demand)], joint_bytes=self._leftover_bytes(together))
        exact = None if status is Status.EXACT else problem.exact_variance
        return Posterior(
            mean=steps[-1].mean,
            variance=steps[-1].variance,
            covariance=trace.covariance(),
            status=status,
            stats=Stats(
                iterations=steps[-1].iteration,
                seconds=time.perf_counter() - started,
                gram_entries=plan.gram_entries,
                relative_residual=None,
                plan=plan,
                executor=description,
                iterations_by_target=on_targets(trace.iterations, targets),
                downdate_psd=psd,
            ),
            trace=steps,
            certificate=Certificate(trace.steps()[-1][2], exact, beside_posterior(demand, plan)),
        )

    def _advance(self, solver: "Affine", seen: Observed, executor: "Executor", *, first: int = 0) -> None:
        """Go through the stages of a call, from the residual that there is; keeps what they reach."""
        from cagp_dist.posterior.problem import demand_of, plan_of_mean

        n, targets = len(seen.X), self._targets(seen)
        problem = replace(self._problem(seen, targets, n=n), residuals=seen.r, first=first)
        plan = plan_of_mean(solver, demand_of(problem, executor, self._memory(executor)))
        change, left = solver.forward(problem, executor=executor, plan=plan)
        self._seen = replace(seen, v=seen.v + change, r=left)
        self._phases.append(Phase(solver, n, first))

    def _replayed(
        self, problem: "Problem", columns: tuple[int, int], executor: "Executor"
    ) -> "tuple[State | None, list[Plan]]":
        """Go through all stages backwards for some targets; None where there are none."""
        from cagp_dist.gram.targets import as_list, part
        from cagp_dist.posterior.problem import demand_of
        from cagp_dist.solvers import Status

        seen, whole = self._begun()
        targets = part(as_list(whole), slice(*columns))
        phases = [phase for phase in self._phases if phase.solver.iterations > 0]
        begun: State | None = None
        plans, status, psd = [], Status.COMPLETED, True
        for number, phase in reversed(list(enumerate(phases))):
            asked = replace(
                self._problem(seen, targets, n=phase.n),
                full_covariance=problem.full_covariance,
                first=phase.first,
                start=begun,
                keep_leftover=number > 0,
            )
            demand = demand_of(asked, executor, self._memory(executor) - self._leftover_bytes(asked.q))
            plans.append(phase.solver.plan(demand))
            states = phase.solver.states(asked, executor=executor, plan=plans[-1])
            ends, left = [], []
            for state in states:
                if state.iteration == phase.solver.iterations:  # the last one of a batch
                    ends.append(state)
                    left += state.leftover() if number > 0 and state.leftover is not None else []
            psd &= all(state.downdate_psd for state in ends)
            if phase.n == self.n and number == len(phases) - 1:
                status = ends[-1].status
            begun = _joined(ends, left, rows=phases[number - 1].n)
        if begun is None:
            return None, plans
        total = sum(phase.solver.iterations for phase in phases)
        return replace(begun, iteration=total, status=status, downdate_psd=psd), plans

    def _batches(self, problem: "Problem") -> list[tuple[int, int]]:
        if problem.q == 0:
            return []
        return [(0, problem.q)] if problem.full_covariance else block_ranges(problem.q, TARGETS_AT_ONCE)

    def _problem(self, seen: Observed, targets: "Targets", *, n: int) -> "Problem":
        """Problem of the first n points."""
        from cagp_dist.gram import TiledGram
        from cagp_dist.solvers import Problem

        gram = TiledGram(self._prior.kernel, seen.X[:n], noise_variance=seen.noise_variance[:n])
        return Problem(gram, seen.b[:n], targets, full_covariance=False)

    def _targets(self, seen: Observed) -> "Targets":
        from cagp_dist.posterior.problem import as_targets

        return as_targets(self._X_test, columns=seen.X.shape[1])

    def _no_plan(self, demand: "Demand") -> "Plan":
        return replace(self._solver, iterations=0).plan(demand)

    def _leftover_bytes(self, q: int) -> int:
        """Bytes of what a phase leaves to the one before it: in parts, as a whole, and its rows."""
        return 3 * DOUBLE * self.n * q if len(self._phases) > 1 else 0

    def _memory(self, executor: "Executor") -> int:
        return executor.memory_bytes if self._limit is None else self._limit

    def _opened(self, stack: ExitStack) -> "Executor":
        from cagp_dist.runtime import given_or_threads

        return stack.enter_context(given_or_threads(self._executor, self._limit))[0]

    def _begun(self) -> "tuple[Observed, Targets]":
        if self._seen is None:
            raise ArgumentError("nothing was observed yet; append(X, y) first.")
        return self._seen, self._targets(self._seen)

    def _checked_part(self, X: ArrayLike, y: ArrayLike, noise_variance: ArrayLike | None) -> Observed:
        """Check new observations, and give them as those of a stream of their own, without stages."""
        points, before = as_points("X", X).copy(), self._seen
        if len(points) == 0 or (before is not None and points.shape[1] != before.X.shape[1]):
            columns = "p" if before is None else before.X.shape[1]
            raise ArgumentError(
                f"X has shape {points.shape}; expected (k, {columns}) with at least one point."
            )
        self._prior.kernel.check_coordinates(points)
        values, k = as_numbers("y", y), len(points)
        fits = values.ndim in (1, 2) and len(values) == k and values.size > 0
        if before is None:
            expected = f"({k},) or ({k}, T)"
        else:
            shape = (k,) if before.single else (k, before.b.shape[1])
            fits, expected = fits and values.shape == shape, f"{shape}, as many fields as before"
        if not fits:
            raise ArgumentError(f"y has shape {values.shape}; expected {expected}.")
        if not np.isfinite(values).all():
            raise ArgumentError("y holds NaN or infinity; append only what was observed.")
        centre, tall = self._prior.mean_at(points), values.reshape(k, -1)
        if centre.shape[1] not in (1, tall.shape[1]):
            raise ArgumentError(
                f"the prior mean has {centre.shape[1]} columns for {tall.shape[1]} fields; expected one "
                "column, or one per field."
            )
        b = tall - centre
        noise = self._noise_of(points, noise_variance)
        return Observed(points, noise, b, np.zeros_like(b), b, values.ndim == 1)

    def _noise_of(self, points: Array, noise_variance: ArrayLike | None) -> Array:
        if noise_variance is None:
            if isinstance(self._prior.noise_variance, np.ndarray):
                raise ArgumentError(
                    "the prior has a noise_variance for each of other points; give append() that of these, "
                    f"noise_variance of shape ({len(points)},)."
                )
            return np.full(len(points), float(self._prior.noise_variance))
        noise = as_variances("noise_variance", noise_variance)
        if noise.shape not in ((), (len(points),)):
            raise ArgumentError(
                f"noise_variance has shape {noise.shape}; expected ({len(points)},), one for each new point."
            )
        return np.broadcast_to(noise, len(points)).copy()


def _checked(solver: "Affine") -> "Affine":
    from cagp_dist.solvers.affine import Affine

    if not isinstance(solver, Affine):
        raise ArgumentError(
            f"solver is {solver!r}; stages can be appended to those of affine solvers, such as "
            "BlockGaussSeidel, alone."
        )
    if solver.computational_share is not None:
        raise ArgumentError(
            "solver has a computational_share, which ends targets after different numbers of sweeps; leave "
            "it out, and call advance() until the variance is small enough."
        )
    return solver


def _joined(ends: "list[State]", left: list[Array], *, rows: int) -> "State":
    """Put batches of targets together, for the phase before, which had so many points, to go on from."""
    whole = np.concatenate(left, axis=1)[:rows] if left else None
    return replace(
        ends[-1],
        iteration=0,
        columns=slice(0, ends[-1].columns.stop),
        mean=np.concatenate([state.mean for state in ends]),
        downdate=np.concatenate([state.downdate for state in ends]),
        leftover=None if whole is None else lambda: [whole],
        going=None,
    )
