"""Samples of the posterior, and variances from samples where there are many more targets than samples.

The adjoint pass of `cagp_dist.condition` carries a column for each target. A sample takes one column however
many targets there are (math 1.5), so that 400 of them give the error bars of a fine map, to 3.5 %, at a cost
that hardly depends on how fine it is.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import check_count, check_generator
from cagp_dist.errors import ArgumentError
from cagp_dist.posterior.result import Progress, shaped_as_targets
from cagp_dist.prior import Prior, check_prior

if TYPE_CHECKING:
    from cagp_dist.budget import Plan
    from cagp_dist.gram.functionals import LinearFunctionals
    from cagp_dist.gram.targets import Targets
    from cagp_dist.latlon import LatLonGrid
    from cagp_dist.posterior.problem import Pattern
    from cagp_dist.posterior.sampling import Sampler
    from cagp_dist.runtime import ExecutorLike
    from cagp_dist.runtime.memo import Memo
    from cagp_dist.solvers import Solver, Status
    from cagp_dist.tiling import Range


@dataclass(frozen=True, eq=False)
class SampledPosterior:
    """Mean and variance of the field at the targets, the variance estimated from samples.

    Attributes
    ----------
    mean : array, shape (q,), or (q, T) for T fields; with a grid as target (P, Q) or (T, P, Q)
        Posterior mean, unit of y; not estimated.
    variance : array, shape (q,), or (P, Q); with different gaps (q, T), or (T, P, Q)
        Mean square of the errors of the samples: an unbiased estimate of the variance that `condition`
        states, latent, squared unit of y.
    samples : int
        Of each pattern of gaps.
    relative_error : float
        Standard error of the variance by chance, relative to it, at most; that of the standard deviation is
        half of it. Errors of neighbouring targets go together.
    drawn : str
        How the prior was drawn, for people.
    """

    mean: Array
    variance: Array
    samples: int
    relative_error: float
    drawn: str


def sample_posterior(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    y: ArrayLike,
    X_test: "ArrayLike | LatLonGrid | LinearFunctionals",
    *,
    solver: "Solver",
    samples: int = 200,
    generator: np.random.Generator,
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_status: "Callable[[Status], None] | None" = None,
) -> Array:
    """Draw joint samples of the field at all targets, given the observations: by Matheron's rule.

    With fields and noise (f', e') drawn from the prior, ``y' = f'(X) + e'`` and A the matrix of the solver
    after its iterations, a sample is ``f'(X') + V A (y - y')``. Its distribution, given y, is exactly the
    posterior of `condition` with the same solver, converged or not: that mean, and that covariance of all
    targets.

    Parameters
    ----------
    prior, X, y, X_test, memory_limit_bytes
        As for `cagp_dist.condition`.
    solver : Solver
        Any solver. An affine solver does all iterations, whatever its `computational_share`. With a solver
        that depends on the data, such as `ConjugateGradient`, every sample takes its own solve, and the
        distribution of the samples is a parametric bootstrap instead of the stated posterior: if the prior is
        right, each observation falls below the p-quantile of its samples with probability p, averaged over
        data sets.
    samples : int
        Samples of each field, independent of each other and between fields.
    generator : numpy.random.Generator
        Source of randomness: equal states give equal samples.
    executor : Executor, Dask client or cluster, or str, optional
        Where tasks run; by default all cores of this process. Samples do not depend on it.
    progress : callable, optional
        Called with a `Progress` after every iteration that is handed out.
    on_status : callable, optional
        Called with the `Status` of every solve of some samples at once.

    Returns
    -------
    array of float64, shape (samples, q) or (samples, q, T); of a grid (samples, P, Q) or (samples, T, P, Q)
        Latent field, unit of y. Add noise for samples of observations. Cost 2 n^2 flops for each sample and
        sweep, as much as for one target of `condition`, and 2 n q for its values.

    Raises
    ------
    ArgumentError, BudgetError, NumericalError, ClusterError
        As for `condition`.

    Notes
    -----
    The prior is drawn exactly if observed points and targets are at most 4,096 together, or lie on one
    latitude-longitude grid with few other points. For up to 65,536 other points and a Matern kernel up to
    smoothness 3/2, the joint prior is drawn by conditionals on 60 neighbours, which leaves variances within
    0.13 %. Otherwise it is drawn by 1,024 random waves; their covariance is exact on average over
    frequencies, and 64 samples share them. See `cagp_dist.posterior.prior_draws`.

    References
    ----------
    [Wilson et al. 2020]; math 1.5 for solvers that have not converged.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 50).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern52(lengthscale=0.3), noise_variance=1e-4)
    >>> paths = cagp.sample_posterior(
    ...     *(prior, X, np.sin(6.0 * X[:, 0]), [[0.4], [0.5]]),
    ...     solver=cagp.BlockGaussSeidel(3, block_size=25),
    ...     samples=5,
    ...     generator=np.random.default_rng(0),
    ... )
    >>> paths.shape, bool(np.abs(paths[:, 1] - np.sin(3.0)).max() < 0.1)
    ((5, 2), True)
    """
    work = _SamplerWork(prior, X, y, X_test, solver, samples, generator, memory_limit_bytes, progress)
    found = np.empty((samples, work.q, work.fields))
    with ExitStack() as stack:
        for pattern, sampler, prior_mean in work.samplers(executor, stack, kept=found.nbytes):
            t = len(pattern.fields)
            here = np.empty((work.q, t * samples))
            groups, plans = work.planned(sampler, draws=t * samples)
            for mean, (first, last), errors, status in work.drawn(sampler, groups, plans):
                if on_status is not None:
                    on_status(status)
                if first == 0:
                    known = prior_mean + mean
                here[:, first:last] = errors
            for column, field in enumerate(pattern.fields):
                own = here[:, column * samples : (column + 1) * samples]
                found[:, :, field] = own.T + known[:, column]
    return _shaped(found, work.targets, single=work.single)


def posterior_by_samples(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    y: ArrayLike,
    X_test: "ArrayLike | LatLonGrid | LinearFunctionals",
    *,
    solver: "Solver",
    samples: int = 400,
    generator: np.random.Generator,
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
    checkpoints: "Memo | None" = None,
    progress: Callable[[Progress], None] | None = None,
    on_plan: "Callable[[Plan], None] | None" = None,
) -> SampledPosterior:
    """Mean and variance at many targets; the variance is estimated from samples.

    Parameters
    ----------
    prior, X, y, X_test, solver, generator, executor, memory_limit_bytes, progress
        As for `sample_posterior`. Solvers that depend on the data are refused, because their variance is not
        that of their samples.
    samples : int
        N: the variance has a relative standard error of ``sqrt(2 / N)``, 7 % for 400, and the standard
        deviation half of that. With random waves it is up to 6 % more, see `SampledPosterior.relative_error`.
    checkpoints : FolderMemo, optional
        Where sums over samples are kept (`cagp_dist.store.memo.FolderMemo`), after groups of 64 to
        512 of them: the same call, with a generator in the same state, continues after a loss, with
        the same bits.
    on_plan : callable, optional
        Called with the `cagp_dist.budget.Plan` of each pattern of gaps before its work starts.

    Returns
    -------
    SampledPosterior
        Nothing of the size (samples, q) is kept: a few draws at a time.

    Raises
    ------
    ArgumentError, BudgetError, NumericalError, ClusterError
        As for `condition`.
    """
    from cagp_dist.posterior.kept_sums import KeptSums
    from cagp_dist.runtime.memo import key_of
    from cagp_dist.solvers.interface import check_solver

    check_solver(solver)
    if not solver.many_fields:
        raise ArgumentError(
            f"solver is {solver!r}, which follows the data: the spread of its samples is not its variance. "
            "Use condition(), or an affine solver such as BlockGaussSeidel.",
            key="solver-follows-data",
        )
    work = _SamplerWork(prior, X, y, X_test, solver, samples, generator, memory_limit_bytes, progress)
    of_targets = (work.q, work.fields, work.patterns, samples)
    sums = KeptSums(
        None if checkpoints is None else checkpoints.of(key_of("samples", of_targets, solver, np.asarray(y))),
        generator,
        targets=work.q,
        fields=work.fields,
        patterns=work.patterns,
    )
    mean, variance = sums.mean, np.empty((work.q, work.fields))
    drawn, excess = "", 0.0
    with ExitStack() as stack:
        samplers = work.samplers(executor, stack, kept=mean.nbytes)
        for number, (pattern, sampler, prior_mean) in enumerate(samplers):
            squares = sums.squares[:, number]
            groups, plans = work.planned(sampler, draws=samples, on_plan=on_plan)
            begun = sums.begin(sampler.problem, sampler.solver, plans, prior_mean)
            for part, (first, _), errors, _ in work.drawn(sampler, groups, plans, begun=begun):
                if first == 0:
                    mean[:, pattern.fields] = prior_mean + part
                squares += np.einsum("ij,ij->i", errors, errors)
                sums.keep()
            variance[:, pattern.fields] = (squares / samples)[:, None]
            drawn, excess = sampler.prior.description, max(excess, sampler.prior.excess)
    shared = variance[:, 0] if work.patterns == 1 else variance
    shaped = shaped_as_targets(mean, shared, targets=work.targets, single=work.single)
    return SampledPosterior(*shaped, samples, float(np.sqrt((2.0 + excess) / samples)), drawn)


class _SamplerWork:
    """Checked arguments, and the samplers that follow from them: one for each pattern of gaps."""

    def __init__(
        self,
        prior: Prior,
        X: "ArrayLike | LatLonGrid",
        y: ArrayLike,
        X_test: "ArrayLike | LatLonGrid | LinearFunctionals",
        solver: "Solver",
        samples: int,
        generator: np.random.Generator,
        memory_limit_bytes: int | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        from cagp_dist.gram.targets import target_count
        from cagp_dist.posterior.problem import as_targets, check_observed, patterns
        from cagp_dist.solvers.engine.affine import Affine
        from cagp_dist.solvers.interface import check_one_field, check_solver

        check_prior(prior)
        check_solver(solver)
        check_observed(X, None)
        check_count("samples", samples, least=1)
        check_generator(generator)
        self._parts = patterns(X, y)
        if not solver.many_fields:
            check_one_field(len(self._parts[0].y))
        # without variances there are no shares of them
        self._solver: Solver = (
            replace(solver, computational_share=None) if isinstance(solver, Affine) else solver
        )
        self.targets: Targets = as_targets(X_test, columns=self._parts[0].columns)
        self.q, self.fields = target_count(self.targets), len(self._parts[0].y)
        self.single, self.patterns = self._parts[0].single, len(self._parts)
        self._prior, self._generator, self._limit = prior, generator, memory_limit_bytes
        self._progress, self._started, self._number = progress, time.perf_counter(), 0

    def samplers(
        self, executor: "ExecutorLike", stack: ExitStack, *, kept: int
    ) -> "Iterator[tuple[Pattern, Sampler, Array]]":
        """Give pattern, sampler and prior mean (q, 1) or (q, t) of one pattern after the other."""
        from cagp_dist.posterior.coefficients import plan_of_weights
        from cagp_dist.posterior.prior_draws import prior_draws
        from cagp_dist.posterior.prior_mean import remove_mean
        from cagp_dist.posterior.problem import Problems, demand_of
        from cagp_dist.posterior.sampling import Sampler
        from cagp_dist.runtime import given_or_threads
        from cagp_dist.solvers.interface import settle

        executor, limit = stack.enter_context(given_or_threads(executor, self._limit))
        problems = Problems(
            self._prior, self.targets, full_covariance=False, executor=executor, memory_limit_bytes=limit
        )
        for number, part in enumerate(self._parts):
            self._number = number
            problem = problems.of(part)
            self._solver = settle(self._solver, problem, executor=executor)
            demand = demand_of(problem, executor, limit)
            plan = plan_of_weights(self._solver, demand, coefficients=len(self._prior.coefficient_names))
            removed = remove_mean(
                self._prior, problem, part, self._solver, plan=plan, executor=executor, variances=False
            )
            draws = prior_draws(problem.gram, self.targets, executor=executor)
            sampler = Sampler(
                removed.problem, self._solver, draws, demand, executor, 2 * kept, removed.coefficients
            )
            yield part, sampler, removed.at_targets

    def planned(
        self, sampler: "Sampler", *, draws: int, on_plan: "Callable[[Plan], None] | None" = None
    ) -> "tuple[list[Range], list[Plan]]":
        """Divide draws into groups, and plan each."""
        from cagp_dist.posterior.sampling import draw_groups, joint_plan_of_draws

        groups = draw_groups(draws, points=sampler.demand.n + sampler.demand.target_points)
        plans = sampler.plans(groups)
        if on_plan is not None:
            sums = self.fields + self.patterns
            on_plan(joint_plan_of_draws(plans, sampler.demand, draws=draws, sums=sums))
        return groups, plans

    def drawn(
        self, sampler: "Sampler", groups: "list[Range]", plans: "list[Plan]", *, begun: int = 0
    ) -> "Iterator[tuple[Array, Range, Array, Status]]":
        """Give draws, their errors (q, draws) and status by groups, and ``V A b`` (q, t) with the first."""
        found = sampler.groups(
            self._generator, groups, plans, done=lambda group, i: self._report(plans, group, i), begun=begun
        )
        for group, (seen, errors, status) in zip(groups[begun:], found, strict=True):
            yield seen, group, errors, status

    def _report(self, plans: "list[Plan]", group: int, iteration: int) -> None:
        if self._progress is None:
            return
        # what follows the last iteration, values at the targets, counts as one more
        iterations = plans[group].iterations
        done = (group + iteration / (iterations + 1)) / len(plans)
        self._progress(
            Progress(
                iteration,
                iterations,
                (self._number + done) / self.patterns,
                time.perf_counter() - self._started,
                None,
                self._number * len(plans) + group + 1,
                self.patterns * len(plans),
            )
        )


def _shaped(found: Array, targets: "Targets", *, single: bool) -> Array:
    """Give samples (S, q, T) the shape that users get."""
    from cagp_dist.latlon.grid import LatLonGrid

    if single:
        found = found[:, :, 0]
    elif isinstance(targets, LatLonGrid):
        found = np.moveaxis(found, 2, 1)
    if not isinstance(targets, LatLonGrid):
        return found
    return np.ascontiguousarray(found).reshape(*found.shape[:-1], *targets.shape)
