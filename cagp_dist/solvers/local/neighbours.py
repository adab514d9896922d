"""Kriging from the observations near each target: exact error distributions at linear cost.

If weights W do not depend on the data, the errors of ``W b`` have a known distribution (math 20): normal with
covariance ``K'' - V W' - W V' + W G W'``. The row of a target is that of the posterior given what is near it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar, get_args

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.plan import check_peak, plan_without_tiles
from cagp_dist.checks import check_count, check_word
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.gram.dense import DenseGram
from cagp_dist.gram.exact_variance import with_bounds
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.metric import Metric, metric
from cagp_dist.gram.neighbourhoods import (
    AT_ONCE,
    ENTRIES,
    LEAF,
    PIECE,
    Cell,
    CellOfGroups,
    CellPosterior,
    Groups,
    Settings,
    around,
    cell_count,
    cell_distributions,
    cell_of_groups,
    cell_weights,
    cells,
    downdated,
    flops_alone,
    joint_downdate,
    least_bytes,
    sampled,
    wide,
)
from cagp_dist.gram.targets import list_targets, part, target_points
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, Handle, single_threaded_blas
from cagp_dist.runtime.memo import Checkpoint, MemoMetadata, MemoWriter
from cagp_dist.solvers.engine.kept_weights import write_sparse
from cagp_dist.solvers.interface import (
    SOME_POINTS,
    Calibrated,
    Problem,
    State,
    check_no_start,
    no_op,
)
from cagp_dist.solvers.local.shared_errors import SharedErrors, Sharing, extent_of, incidence
from cagp_dist.solvers.status import Status
from cagp_dist.text import counted
from cagp_dist.tiling import block_ranges

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_log = logging.getLogger(__name__)
T = TypeVar("T")

NEIGHBOURS = {"description": 'an integer of at least 1, or "auto"', "example": 64}

Drift = Literal["none", "constant", "linear"]
SharedErrorsFrom = Literal["all", "near"]

JOINT_ROWS = 256  # Targets of a task of the joint distribution

# What a pair of observations of a wide region takes beside its kernel value, and what each weight takes
PAIR_FLOPS, WEIGHT_FLOPS = 50, 3_600

# Neighbours and coarse means that "auto" tries, the cheapest first
TRIALS = ((32, 0), (64, 0), (128, 0), (64, 64), (128, 64), (128, 128), (128, 256))

WIDE = 1.05  # From where on a warning says that standard deviations are wider than they could be

# What "auto" asks for: standard deviations this close to those of four times as many neighbours, at this part
# of targets
CLOSE, USUAL = 1.01, 0.99

MOST_COARSE = 512  # Coarse means of what "auto" compares with, at most

ROOM = 2  # Observations around a sampled target among which its neighbours and means are looked for, for each

# Targets that they are compared at, at most and at least, and flops that this may take in between
TRIED_TARGETS, FEWEST_TRIED, TRIED_FLOPS = 128, 32, 1e10


@dataclass(frozen=True)
class Neighbours:
    """Kriging from the nearest observations, in groups of targets, with the variance of its own error.

    Each target has the exact posterior given its ``neighbours`` nearest observations, and those of the other
    targets in its group. Calibrated exactly, at every target and jointly, because the weights do not depend
    on the data (math 20, T37): the error bars include the effect of leaving the other observations out. Cost
    and memory are linear in observations and targets.

    Parameters
    ----------
    neighbours : int or "auto"
        Nearest observations of each target, in the metric of the kernel; at most all n. "auto" tries 32, 64
        and 128, then coarse means beside them, until the standard deviation at 99 of 100 sampled targets is
        within 1 % of that from four times as many of both, and logs what it took. More never raise the
        variance of a target that shares with no other.
    coarse : int
        Number of means of 8 observations each, leaves of a k-d tree, on which every target is conditioned in
        addition. They carry the information of thousands of observations, for much noise and lengthscales
        that are long compared with the spacing.
    group : int, optional
        Targets that may share their neighbours; by default up to 64, if that costs no more than separate
        targets. Within a group the map has no jumps. 1: each target separately.
    drift : {"none", "constant", "linear"}
        A trend beside the mean of the prior; every neighbourhood estimates its own coefficients. The variance
        includes their uncertainty, whatever the coefficients are (T42).
    causal : bool
        For kernels of space and time: do not use observations after the time of a target, as in forecasts and
        honest hindcasts. A target before all observations keeps the prior. Each time with different
        observations has its own search.
    shared_errors : {"all", "near"}
        From which observations errors are found that labels share (`SameLabel`). "all": from all of them,
        beside neighbours of the field alone: the exact posterior where these are all, else nearly, with
        standard deviations of the field up to 2 % and of errors up to 8 % too short where observations are
        dense and noisy (math 25); up to 4 bytes for each pair of groups, and 16 for each
        observation and neighbour. "near": from the neighbours, as all else: calibrated exactly, and wide, as
        other observations of a group are far away. So it is with a drift, and causal.
    wider : float, optional
        What "auto" found: the median of the ratio of standard deviations at the sampled targets.

    Notes
    -----
    ``k^3 / 3 + k^2`` flops and ``k^2`` kernel evaluations for each target alone; groups share them, at no
    higher cost. 8 (n + q) (3 p + 2) bytes for the search. Joint covariances and means over wide regions take
    an evaluation for each pair of observations that have weights in them. Coefficients of a mean that is
    estimated come from up to 2,048 observations, spread evenly, and those that a column is most about; they
    are counted as such.

    References
    ----------
    Vecchia (1988); Stein, Chi & Welty (2004); Katzfuss & Guinness (2021); Rulliere et al. (2018).

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=1e-3)
    >>> y = np.sin(6.0 * X[:, 0]) * X[:, 1]
    >>> posterior = cagp.condition(prior, X, y, [[0.5, 0.5]], solver=cagp.Neighbours(64))
    >>> bool(abs(posterior.mean[0] - 0.5 * np.sin(3.0)) < 4.0 * posterior.variance[0] ** 0.5)
    True
    """

    neighbours: "int | Literal['auto']" = field(default=64, metadata=NEIGHBOURS)
    coarse: int = field(default=0, metadata={"least": 0, "most": 10_000, "example": 256})
    group: int | None = field(default=None, metadata={"least": 1, "most": 2048, "example": 64})
    drift: Drift = "none"
    causal: bool = field(default=False, metadata={"job": False})
    shared_errors: SharedErrorsFrom = "all"
    wider: float | None = field(default=None, compare=False, repr=False, metadata={"job": False})

    iterations: ClassVar[int] = 1
    calibrated: ClassVar[Calibrated] = "exact"
    many_fields: ClassVar[bool] = True
    needs_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.neighbours != "auto":
            check_count("neighbours", self.neighbours, least=1)
        check_count("coarse", self.coarse, least=0)
        if self.group is not None:
            check_count("group", self.group, least=1)
        check_word("drift", self.drift, get_args(Drift))
        check_word("shared_errors", self.shared_errors, get_args(SharedErrorsFrom))

    def members(self, n: int) -> int:
        """Count what a target by itself is conditioned on, of n observations."""
        k = self.neighbours
        assert k != "auto"
        return min(k, n) + (min(self.coarse, -(-n // LEAF)) if k < n else 0)

    @property
    def _settings(self) -> Settings:
        k = self.neighbours
        assert k != "auto"
        return Settings(k, self.coarse, 64 if self.group is None else self.group, self.drift)

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and flops; see `cagp_dist.solvers.interface.Solver.plan`."""
        n, q = demand.n, demand.target_points
        k = min(64 if self.neighbours == "auto" else self.neighbours, max(n, 1))
        if self.neighbours == "auto":
            fewest, most = TRIALS[0][0], TRIALS[-1][0]
            method = f"{fewest} to {most} nearest neighbours as it turns out, planned as {k}"
        else:
            method = f"{k:,} nearest neighbours"
            if self.coarse:
                method += f" and {self.coarse:,} means of {LEAF}"
            if self.wider is not None:
                method += f" (error bars {self.wider:.3f} times those of four times as many)"
        entries, flops = self.work(n, q)
        if self.neighbours == "auto":  # a search, and both of a trial
            flops += round(SEARCH_FLOPS * n + 2 * TRIED_FLOPS)
        least = least_bytes(
            n, q, demand.p, demand.fields, neighbours=k, coarse=self.coarse, workers=demand.workers
        )
        peak = least.total
        weights = self.weights_of_target(n)
        if demand.wide:
            # weights of all nodes, some twice while they are put together; then pairs of what each touches
            nodes, touched = (sum(each) for each in zip(*demand.wide, strict=True))
            largest = max(observations for _, observations in demand.wide)
            tasks = 8 * min(demand.workers, len(demand.wide)) * min(ENTRIES, largest * PIECE)
            peak = max(peak + 32 * nodes * weights, 24 * touched + tasks + 8 * (n + q) * (3 * demand.p + 2))
            # of each: its observations with one another and with its nodes, and products with its weights
            pairs = sum(observations * (observations + own) for own, observations in demand.wide)
            entries += pairs
            flops += PAIR_FLOPS * pairs + WEIGHT_FLOPS * nodes * weights
        if demand.full_covariance:
            support = min(n, q * k)
            peak += 24 * demand.q**2 + 12 * q * weights
            entries += support * min(n, JOINT_ROWS * k) * -(-demand.q // JOINT_ROWS)
        if shared := demand.groups if self._takes_errors_from_all else 0:
            method += f", and errors of {counted(shared, 'group')} from all observations"
            beside = extent_of(n, shared, k, q * weights, dense=demand.dense)
            peak, entries, flops = peak + beside.nbytes, entries + beside.entries, flops + beside.flops
        remedies = Remedy.FEWER_TEST_POINTS, Remedy.FROM_STORE
        check_peak(demand, method, peak, *remedies, *[Remedy.ERRORS_FROM_NEAR] * bool(shared))
        cells = cell_count(q)
        plan = plan_without_tiles(demand, method, None, peak, entries, flops, cells)
        plan = replace(
            plan,
            kept_columns=0 if shared else demand.fields + 1,
            # the process that asks finds the neighbours of all, and then each cell is solved by itself
            chain_flops=SEARCH_FLOPS * (n + q) + plan.work.flops // max(cells, 1),
            caller_bytes=peak - least.at_once * least.task,
            task_bytes=least.task,
        )
        return with_bounds(plan, demand) if demand.bounds and n <= FEW_FOR_BOUNDS else plan

    def work(self, n: int, q: int) -> tuple[int, int]:
        """Kernel evaluations and flops for q targets among n observations, about."""
        k = min(64 if self.neighbours == "auto" else self.neighbours, max(n, 1))
        flops = q * flops_alone(k + self.coarse, self.coarse)
        # a microsecond for each observation in the search, ten for each target, a quarter for each neighbour
        return q * (k + LEAF * self.coarse) ** 2, round(flops + 45_000 * (n + 10 * q) + 11_000 * q * k)

    def settled(self, problem: Problem, *, executor: Executor) -> "Neighbours":
        """Choose what "auto" leaves open, by points, kernel and noise alone; the solver itself otherwise."""
        if self.neighbours != "auto":
            return self
        if (sharing := self.sharing(problem)) is not None:
            targets, _ = sharing.field_of(list_targets(problem.targets))
            problem = replace(problem, gram=sharing.gram, targets=targets)
        if problem.q == 0:
            return replace(self, neighbours=TRIALS[0][0])
        gram, places = problem.gram, target_points(problem.targets)  # of functionals the nodes
        targets = places[sampled(len(places), TRIED_TARGETS)]
        found: dict[Neighbours, Array] = {}
        around: list[Indices] = []
        asked = 0  # observations around each

        def deviations(solver: Neighbours, count: int, *, further: int = 1) -> Array:
            nonlocal around, asked
            if len(found.get(solver, ())) < count:
                work, room = _Work(solver, gram, targets[:count], executor), ROOM * solver._settings.reach
                if asked < room or len(around) < count:
                    asked = further * room  # few searches among all observations
                    around = work.around_each(asked)
                downdate = work.downdates(around)
                found[solver] = downdated(gram.kernel, targets[:count], downdate)
            return found[solver][:count]

        n, best, ratio = gram.shape[0], self, np.ones(1)
        least = np.full(len(targets), np.inf)
        for k, coarse in TRIALS:
            best = replace(self, neighbours=k, coarse=max(self.coarse, coarse))
            more = replace(best, neighbours=4 * k, coarse=min(4 * best.coarse, MOST_COARSE))
            flops = flops_alone(more.members(n), more.coarse)
            count = min(len(targets), max(FEWEST_TRIED, int(TRIED_FLOPS / flops)))
            own, last = deviations(best, count, further=4), (k, coarse) == TRIALS[-1]
            if not last and np.quantile(_over(own, least[:count]), USUAL) > CLOSE:
                continue  # wider than what was found before
            least[:count] = np.minimum(least[:count], deviations(more, count))
            ratio = _over(own, least[:count])
            if best.members(n) >= n or np.quantile(ratio, USUAL) <= CLOSE:
                break
        _say(best, ratio)
        return replace(best, wider=float(np.median(ratio)))

    def touched(
        self, X: Array, functionals: LinearFunctionals, *, scale: Metric
    ) -> tuple[tuple[int, int], ...]:
        """Count nodes and observations with weights, at most, of each functional over a wide region."""
        n, k = len(X), 64 if self.neighbours == "auto" else self.neighbours
        near = around(functionals, X, scale=scale, neighbours=k)
        most = np.minimum(near, functionals.counts * self.weights_of_target(n))
        spread = np.flatnonzero(near)
        return tuple(zip(functionals.counts[spread].tolist(), most[spread].tolist(), strict=True))

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the one state, of all targets."""
        check_no_start(problem)
        if (sharing := self.sharing(problem)) is not None:
            yield self._with_shared_errors(problem, sharing, executor)
            return
        solver = self.settled(problem, executor=executor)
        work = _Work(solver, problem.gram, list_targets(problem.targets), executor, problem.heard)
        with single_threaded_blas():
            mean, downdate, left_out, exact = work.distributions(
                problem.residuals, checkpoint=problem.checkpoint
            )
            if problem.full_covariance:
                square = work.joint(work.weights())
                square[np.diag_indices(len(square))] = downdate
                downdate = square
        yield State(
            1,
            slice(0, problem.q),
            mean,
            downdate,
            _status(problem.gram, exact),
            downdate_psd=False,
            dropped=left_out,
        )

    @property
    def _takes_errors_from_all(self) -> bool:
        return self.shared_errors == "all" and self.drift == "none" and not self.causal

    def sharing(self, problem: Problem) -> Sharing | None:
        """Which observations share errors; None where none do, or neighbours tell them apart alone."""
        if not self._takes_errors_from_all:
            return None
        return Sharing.of(problem.gram)

    def _of_field(
        self, problem: Problem, sharing: Sharing, executor: Executor
    ) -> "tuple[Neighbours, _Work, Indices]":
        """Give the solver and the work of the field alone, and which targets have a part of it."""
        solver = self.settled(problem, executor=executor)
        targets, which = sharing.field_of(list_targets(problem.targets))
        return solver, _Work(solver, sharing.gram, targets, executor, problem.heard), which

    def _with_shared_errors(self, problem: Problem, sharing: Sharing, executor: Executor) -> State:
        """Give the state of a problem whose observations share errors (math 25)."""
        solver, work, which = self._of_field(problem, sharing, executor)
        beside, columns = sharing.errors_of(list_targets(problem.targets)), problem.residuals
        with single_threaded_blas():
            found = work.of_groups(columns, sharing.groups, sharing.variances.size)
        left = beside - _scattered(found.of_groups, which, problem.q)
        errors = SharedErrors(sharing, left, neighbours=solver.neighbours_of_all, executor=executor)
        mean = left @ errors.estimate(columns)
        mean[which] += found.mean
        if problem.full_covariance:
            own = beside.multiply(sharing.variances) @ beside.T
            downdate = own.toarray() - errors.covariance()
            with single_threaded_blas():
                downdate[np.ix_(which, which)] += work.joint(work.weights())
        else:
            downdate = beside.multiply(beside) @ sharing.variances - errors.variances()
            downdate[which] += found.downdate
        n = sharing.gram.shape[0]
        status = _status(problem.gram, found.fewest == n and errors.neighbours == n - 1)
        return State(
            1, slice(0, problem.q), mean, downdate, status, downdate_psd=False, dropped=found.left_out
        )

    @property
    def neighbours_of_all(self) -> int:
        """Neighbours that were settled on."""
        assert self.neighbours != "auto"
        return self.neighbours

    def mean(
        self,
        problem: Problem,
        *,
        executor: Executor,
        plan: Plan,
        done: Callable[[int], None] = no_op,
        search: "NeighbourSearch | None" = None,
    ) -> tuple[Array, Status]:
        """``W b`` (q, T) for right-hand sides (n, T); a search serves all of those of one problem."""
        search = search or NeighbourSearch(-1)
        if (sharing := self.sharing(problem)) is not None:
            found, status = self._mean_with_shared_errors(problem, sharing, executor, search)
            done(1)
            return found, status
        solver = self.settled(problem, executor=executor)
        with single_threaded_blas():
            work = _Work(solver, problem.gram, list_targets(problem.targets), executor)
            found, _, _, exact = work.distributions(problem.residuals, search=search)
        done(1)
        return found, _status(problem.gram, exact)

    def _mean_with_shared_errors(
        self, problem: Problem, sharing: Sharing, executor: Executor, search: "NeighbourSearch"
    ) -> tuple[Array, Status]:
        """Give means alone, and keep the estimate of errors for other right-hand sides."""
        solver, work, which = self._of_field(problem, sharing, executor)
        columns = problem.residuals
        if search.errors is None:
            beside = sharing.errors_of(list_targets(problem.targets))
            with single_threaded_blas():
                found = work.of_groups(columns[:, :0], sharing.groups, sharing.variances.size)
            left = beside - _scattered(found.of_groups, which, problem.q)
            search.errors = SharedErrors(
                sharing, left, neighbours=solver.neighbours_of_all, executor=executor
            )
        mean = search.errors.left @ search.errors.estimate(columns)
        with single_threaded_blas():
            of_field, _, _, exact = work.distributions(columns, search=search)
        mean[which] += of_field
        return mean, _status(problem.gram, exact and search.errors.neighbours == sharing.gram.shape[0] - 1)

    def weights_of_target(self, n: int) -> int:
        """Observations that have a weight for a target, about: in groups as many as were measured."""
        k = 64 if self.neighbours == "auto" else self.neighbours
        return min(n, (k if self.group == 1 else 2 * k + 110) + LEAF * self.coarse)

    def write_weights(
        self, problem: Problem, writer: MemoWriter, *, executor: Executor, plan: Plan
    ) -> MemoMetadata:
        """Write sparse weights and downdates, and say how they were made: twice the cost of `states`."""
        with single_threaded_blas():
            work = _Work(self, problem.gram, list_targets(problem.targets), executor)
            _, downdate, _, exact = work.distributions(problem.residuals[:, :0])
            about = write_sparse(writer, work.parts(), downdate)
        return {
            **about,
            "iterations": 1,
            "status": (Status.EXACT if exact else Status.NEIGHBOURS).name,
            "downdate_psd": False,
        }

    def points_of_mean(self, gram: Gram) -> Indices:
        """Observed points that coefficients of a mean come from: all, or `SOME_POINTS` spread evenly."""
        from scipy.spatial import cKDTree

        if self.causal:
            raise ArgumentError(
                "causal is True, and coefficients of the mean would be estimated from observations of all "
                "times; expected a mean that is known.",
                key="causal-mean",
            )
        n = gram.shape[0]
        if n <= SOME_POINTS:
            return np.arange(n)
        order = cKDTree(gram.X * metric(gram.kernel, gram.X.shape[1])).indices
        return np.sort(order[np.linspace(0, n - 1, SOME_POINTS).round().astype(np.intp)])


SEARCH_FLOPS = 45_000  # Of the search for the neighbours of a point, which takes as long as so many

# Observed points up to which a plan counts the certificate, which takes all pairs of points and targets
FEW_FOR_BOUNDS = 20_000


def _over(deviations: Array, least: Array) -> Array:
    """Ratio of standard deviations to the least that were found; one where that is zero."""
    return np.divide(deviations, least, out=np.ones(len(least)), where=least > 0.0)


def _say(solver: Neighbours, ratio: Array) -> None:
    """Log what "auto" took and how near it is."""
    usual = float(np.quantile(ratio, USUAL))
    common = f" and {solver.coarse} coarse means" if solver.coarse else ""
    _log.log(
        logging.INFO if usual < WIDE else logging.WARNING,
        "%s neighbours%s: error bars at %s sampled targets are %.4f times those of four times as many "
        "(median), %.4f at most%s",
        solver.neighbours,
        common,
        len(ratio),
        float(np.median(ratio)),
        float(ratio.max()),
        ""
        if usual <= CLOSE
        else "; they are right, but wider than they could be, as the lengthscale is long against the "
        "neighbourhood. Sweeps (BlockGaussSeidel) and exact solvers use all observations",
    )


@dataclass(eq=False)
class NeighbourSearch:
    """What was found around the targets of a problem, kept for other right-hand sides where there is room."""

    room_bytes: int
    cells: list[tuple[Cell, Groups]] = field(default_factory=list)
    weights: "csr_array | None" = None  # of functionals over wide regions
    whole: bool = False  # all cells are there
    errors: SharedErrors | None = None  # that observations share

    def fits(self, size: int) -> bool:
        """Take so many bytes of the room; drop all cells where there is not enough."""
        self.room_bytes -= size
        if self.room_bytes < 0:
            self.cells.clear()
        return self.room_bytes >= 0


class _Work:
    """Neighbourhoods of targets on an executor."""

    def __init__(
        self,
        solver: Neighbours,
        gram: Gram,
        targets: Array | LinearFunctionals,
        executor: Executor,
        heard: Callable[[float], None] = no_op,
    ) -> None:
        self._heard = heard
        self._gram, self._targets, self._executor = gram, targets, executor
        self._settings, self._kernel, self._causal = solver._settings, gram.kernel, solver.causal
        if solver.causal and not gram.kernel.of_space_and_time:
            raise ArgumentError(
                f"causal is True, and {gram.kernel!r} knows of no time; expected a kernel of space and time.",
                key="causal-without-time",
            )
        self._scale = metric(gram.kernel, gram.X.shape[1])

    def distributions(
        self, columns: Array, *, checkpoint: Checkpoint | None = None, search: NeighbourSearch | None = None
    ) -> tuple[Array, Array, int, bool]:
        """Means (q, T), downdates (q,) unless it searches, observations left out, and if all were used."""
        targets, gram = self._targets, self._gram
        q, n = len(targets), gram.shape[0]
        mean, downdate, begun = np.zeros((q, columns.shape[1])), np.zeros(q), 0
        kept = None if checkpoint is None else checkpoint.latest()
        narrow = np.arange(q)
        if isinstance(targets, LinearFunctionals) and q:
            spread = wide(targets, gram.X, scale=self._scale, neighbours=self._settings.neighbours)
            narrow = np.setdiff1d(narrow, spread)
            if spread.size and kept is None:
                weights = None if search is None else search.weights
                if weights is None:
                    weights = self._of_wide(targets.part(spread))
                mean[spread] = weights @ columns
                if search is None:
                    downdate[spread] = self._each(weights, targets.part(spread))
                elif search.weights is None and search.fits(weights.data.nbytes + weights.indices.nbytes):
                    search.weights = weights
        chosen = part(targets, narrow)
        left_out, exact = 0, narrow.size == q
        if kept is not None:
            mean, downdate = kept.read("mean"), kept.read("downdate")
            begun, left_out, exact = (kept.metadata[name] for name in ("cells", "left_out", "exact"))

        def write(writer: MemoWriter) -> bool:
            return writer.write("mean", mean) and writer.write("downdate", downdate)

        known = search.cells if search is not None and search.whole else None
        keep = search is not None and known is None and search.fits(0)

        def submit(cell: Cell, home: int) -> Handle[CellPosterior]:
            halo, here = cell.halo, narrow[cell.targets]
            return self._executor.submit(
                cell_distributions,
                self._kernel,
                *(rows.take(halo, axis=0) for rows in (gram.X, gram.noise_variance, columns)),
                part(targets, here),
                self._settings,
                None if known is None else known[home][1],
                keep,
                home=home,
            )

        every = None if known is None else [cell for cell, _ in known]
        for done, (cell, found) in enumerate(self._cells(chosen, submit, every, begun=begun), begun + 1):
            here = narrow[cell.targets]
            mean[here], downdate[here] = found.mean, found.downdate
            left_out += found.left_out
            exact = exact and found.fewest == n
            if search is not None and keep and found.groups is not None:
                search.cells.append((cell, found.groups))
                keep = search.fits(sum(each.nbytes for each in (*cell, *found.groups)))
            if checkpoint is not None and checkpoint.due():
                checkpoint.save({"cells": done, "left_out": int(left_out), "exact": bool(exact)}, write)
        if search is not None and keep:
            search.whole = True
        exact = exact and self._settings.drift == "none" and not self._causal
        return mean, downdate, left_out, exact

    def of_groups(self, columns: Array, groups: Indices, count: int) -> CellOfGroups:
        """Means (q, T) and downdates (q,), and the weights (q, count) of groups (n, axes) of observations."""
        from scipy.sparse import csr_array

        targets, gram = self._targets, self._gram
        q, n = len(targets), gram.shape[0]
        mean, downdate, left_out, fewest = np.zeros((q, columns.shape[1])), np.zeros(q), 0, n
        narrow, parts = np.arange(q), list[tuple[Indices, "csr_array"]]()
        if isinstance(targets, LinearFunctionals) and q:
            spread = wide(targets, gram.X, scale=self._scale, neighbours=self._settings.neighbours)
            narrow = np.setdiff1d(narrow, spread)
            if spread.size:
                weights, fewest = self._of_wide(targets.part(spread)), 0
                mean[spread] = weights @ columns
                downdate[spread] = self._each(weights, targets.part(spread))
                parts.append((spread, csr_array(weights @ incidence(groups, count))))
        chosen = part(targets, narrow)

        def submit(cell: Cell, home: int) -> Handle[CellOfGroups]:
            halo, here = cell.halo, narrow[cell.targets]
            return self._executor.submit(
                cell_of_groups,
                self._kernel,
                *(rows.take(halo, axis=0) for rows in (gram.X, gram.noise_variance, columns)),
                groups[halo],
                part(targets, here),
                self._settings,
                count,
                home=home,
            )

        for cell, found in self._cells(chosen, submit):
            here = narrow[cell.targets]
            mean[here], downdate[here] = found.mean, found.downdate
            left_out, fewest = left_out + found.left_out, min(fewest, found.fewest)
            parts.append((here, found.of_groups))
        return CellOfGroups(mean, downdate, _stacked(parts, count), left_out, fewest)

    def weights(self) -> "csr_array":
        """Sparse weights (q, n) of all observations."""
        return _stacked(self.parts(), self._gram.shape[0])

    def parts(self) -> "Iterator[tuple[Indices, csr_array]]":
        """Sparse weights (r, n) of some targets after others, and which they are."""
        targets = self._targets
        if not isinstance(targets, LinearFunctionals):
            yield from self._of_narrow(targets)
            return
        spread = wide(targets, self._gram.X, scale=self._scale, neighbours=self._settings.neighbours)
        narrow = np.setdiff1d(np.arange(len(targets)), spread)
        for rows, made in self._of_narrow(targets.part(narrow)):
            yield narrow[rows], made
        if spread.size:
            yield spread, self._of_wide(targets.part(spread))

    def _of_narrow(self, targets: Array | LinearFunctionals) -> "Iterator[tuple[Indices, csr_array]]":
        from scipy.sparse import csr_array

        gram, n = self._gram, self._gram.shape[0]

        def submit(cell: Cell, home: int) -> "Handle[csr_array]":
            halo = cell.halo
            return self._executor.submit(
                cell_weights,
                self._kernel,
                gram.X[halo],
                gram.noise_variance[halo],
                halo,
                part(targets, cell.targets),
                self._settings,
                n,
                home=home,
            )

        without = np.ones(len(targets), dtype=bool)
        for cell, made in self._cells(targets, submit):
            without[cell.targets] = False
            yield cell.targets, made
        if without.any():  # what has no observation before it has no weights
            yield np.flatnonzero(without), csr_array((int(without.sum()), n))

    def _of_wide(self, functionals: LinearFunctionals) -> "csr_array":
        """Add the weights of the nodes up."""
        from scipy.sparse import csr_array

        of_nodes = _stacked(self._of_narrow(functionals.nodes), self._gram.shape[0])
        made = csr_array(functionals.matrix().T @ of_nodes)
        made.sum_duplicates()
        return made

    def _each(self, weights: "csr_array", functionals: LinearFunctionals) -> Array:
        """Downdate of each functional by itself: pairs of the observations that it has."""
        gram = self._gram
        tasks = []
        for index in range(len(functionals)):
            own = weights[index : index + 1]
            used = np.unique(own.indices)
            arguments = (
                gram.X[used],
                gram.noise_variance[used],
                own[:, used],
                functionals.part(slice(index, index + 1)),
            )
            submit = self._executor.submit
            tasks.append(submit(joint_downdate, self._kernel, *arguments, slice(0, 1), home=index))
        return np.array([found[0, 0] for found in self._executor.gather(tasks)])

    def joint(self, weights: "csr_array") -> Array:
        """``V W' + W V' - W G W'`` (q, q)."""
        used = np.unique(weights.indices)
        arguments = self._gram.X[used], self._gram.noise_variance[used], weights[:, used], self._targets
        rows = [slice(*rows) for rows in block_ranges(weights.shape[0], JOINT_ROWS)]
        tasks = [
            self._executor.submit(joint_downdate, self._kernel, *arguments, each, home=home)
            for home, each in enumerate(rows)
        ]
        square = np.concatenate([*self._executor.gather(tasks), np.zeros((0, weights.shape[0]))])
        return np.asarray(0.5 * (square + square.T))

    def _near(self, where: Array) -> Iterator[Cell]:
        """Deal targets out with the observations that their neighbours are among."""
        return cells(self._gram.X, where, scale=self._scale, neighbours=self._settings.reach)

    def _by_time(self, where: Array) -> Iterator[Cell]:
        """Deal them out with observations up to their time; targets before all of these are left out."""
        for own, known in self._seen(where):
            X = self._gram.X[known]
            for cell in cells(X, where[own], scale=self._scale, neighbours=self._settings.reach):
                yield Cell(own[cell.targets], known[cell.halo])

    def _seen(self, where: Array) -> Iterator[tuple[Indices, Indices]]:
        """Targets up to whose time there are the same observations, and these, if there are any."""
        X = self._gram.X
        order = np.argsort(X[:, -1], kind="stable")
        seen = np.searchsorted(X[order, -1], where[:, -1], side="right")
        for count in np.unique(seen[seen > 0]):
            yield np.flatnonzero(seen == count), np.sort(order[:count])

    def around_each(self, count: int) -> list[Indices]:
        """List some observations that each target sees, the nearest first; none where it sees none."""
        from scipy.spatial import cKDTree

        X, where = self._gram.X, target_points(self._targets)
        found = [np.empty(0, dtype=np.intp)] * len(where)
        everything = [(np.arange(len(where)), np.arange(len(X)))]
        for own, known in self._seen(where) if self._causal else everything:
            points = (X[known] if self._causal else X) * self._scale
            tree = cKDTree(points, balanced_tree=False, compact_nodes=False)
            ranks = np.arange(1, min(count, len(known)) + 1)
            nearest = np.asarray(tree.query(where[own] * self._scale, ranks)[1])
            for target, near in zip(own, nearest, strict=True):
                found[target] = known[near]
        return found

    def downdates(self, around: list[Indices]) -> Array:
        """Downdate (q,) of each target by itself, among the first of the observations around it."""
        gram, downdate, room = self._gram, np.zeros(len(self._targets)), ROOM * self._settings.reach
        alone = replace(self._settings, most=1)
        seen = [index for index in range(len(downdate)) if around[index].size]
        halos = [np.sort(around[index][:room]) for index in seen]
        tasks = [
            self._executor.submit(
                cell_distributions,
                self._kernel,
                gram.X[halo],
                gram.noise_variance[halo],
                np.zeros((len(halo), 0)),
                part(self._targets, np.array([index])),
                alone,
                home=index,
            )
            for index, halo in zip(seen, halos, strict=True)
        ]
        downdate[seen] = [found.downdate[0] for found in self._executor.gather(tasks)]
        return downdate

    def _cells(
        self,
        targets: Array | LinearFunctionals,
        submit: Callable[[Cell, int], Handle[T]],
        every: Iterable[Cell] | None = None,
        *,
        begun: int = 0,
    ) -> Iterator[tuple[Cell, T]]:
        """Hand out cells after the first ones, some at a time, and give what they found, in order."""
        where = targets.centres if isinstance(targets, LinearFunctionals) else targets
        waiting: list[tuple[Cell, Handle[T]]] = []
        done = 0

        def first() -> Iterator[tuple[Cell, T]]:
            nonlocal done
            some = [waiting.pop(0) for _ in waiting[: self._executor.workers]]
            found = self._executor.gather([handle for _, handle in some])
            for (cell, _), each in zip(some, found, strict=True):
                yield cell, each
                done += len(cell.targets)
                if done < len(where):  # the state tells of the end
                    self._heard(done / len(where))  # what was found is kept: who hears may end the solve

        if every is None:
            every = self._by_time(where) if self._causal else self._near(where)
        for number, cell in enumerate(every):
            if number < begun:
                done += len(cell.targets)
                continue
            waiting.append((cell, submit(cell, number)))
            if len(waiting) == AT_ONCE * self._executor.workers:
                yield from first()
        while waiting:
            yield from first()


def _status(gram: Gram, exact: bool) -> Status:
    """Say how a solve ended in which every neighbourhood held all points, or did not."""
    if not exact:
        return Status.NEIGHBOURS
    try:  # once, beside the factors of all groups of targets
        dense = DenseGram(gram.kernel, gram.X, noise_variance=gram.noise_variance)
        return Status.of_direct_solve(dense.condition_number)
    except NumericalError:
        return Status.ILL_CONDITIONED


def _stacked(parts: "Iterable[tuple[Indices, csr_array]]", n: int) -> "csr_array":
    """Sparse rows of some targets in the order of all."""
    from scipy.sparse import csr_array, vstack

    found = list(parts)
    if not found:
        return csr_array((0, n))
    order = np.argsort(np.concatenate([rows for rows, _ in found]))
    return csr_array(vstack([made for _, made in found], format="csr")[order])


def _scattered(rows: "csr_array", which: Indices, q: int) -> "csr_array":
    """Sparse rows of some targets as those of all q."""
    from scipy.sparse import csr_array

    if len(which) == q:
        return rows
    counts = np.zeros(q + 1, dtype=np.intp)
    counts[1 + which] = np.diff(rows.indptr)
    return csr_array((rows.data, rows.indices, np.cumsum(counts)), shape=(q, rows.shape[1]))
