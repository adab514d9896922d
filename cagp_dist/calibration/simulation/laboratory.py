"""What error bars of a solver do on fields of its own prior: tests, a verdict in words, and a plot.

Errors of N fields are independent of each other: every test has the level it states (math 10.2). With e the
error of a field at q points, S its stated covariance and w one random direction::

    z = w' e / sqrt(w' S w)    one number per field: Kolmogorov-Smirnov, chi-square of sum z^2, mean, ranks
    u = S^(-1/2) e             r = rank S numbers per field: chi-square of sum u^2 with N r degrees of freedom
    N' e = 0                   in the null space of S (Definition 1 of [Hegde et al. 2025])
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from cagp_dist.arrays import Array
from cagp_dist.calibration.simulation.beliefs import SimulatedSolves, Standardised, standardised
from cagp_dist.calibration.simulation.field_draws import Drawn, draw
from cagp_dist.calibration.simulation.simulated_verdict import (
    JointTest,
    SimulationVerdict,
    joint_test,
    pvalues_of,
    rank_test,
    verdict_of,
)
from cagp_dist.calibration.verification.pit import (
    Histogram,
    NormalTests,
    histogram,
    normal_tests,
    unit_weights,
)
from cagp_dist.calibration.verification.scores import Scores, scores
from cagp_dist.checks import check_count
from cagp_dist.prior import Prior

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cagp_dist.budget import Plan
    from cagp_dist.latlon import LatLonGrid
    from cagp_dist.runtime import ExecutorLike
    from cagp_dist.runtime.memo import Memo
    from cagp_dist.solvers import Solver


@dataclass(frozen=True, eq=False)
class Calibration:
    """What `calibrate` found of N simulated fields at q points.

    Attributes
    ----------
    solver : str
        The solver under test.
    z : array, shape (N,)
        Standardised errors along ``direction``.
    pit : array, shape (N,)
        ``Phi(z)``, uniform on [0, 1] if calibrated.
    direction : array, shape (q,)
        Random unit vector.
    tests : NormalTests
        Kolmogorov-Smirnov, variance and mean test of z.
    rank_pvalue : float
        Chi-square test of the counts of the PIT histogram: where the truth ranks among draws of the belief.
    joint : JointTest
        Whitened errors at all points together, and the null space.
    point_std : array, shape (q,)
        Root mean square of the standardised errors at each point: below 1 its error bar is too wide, above 1
        too narrow. Standard error ``1 / sqrt(2 N)``.
    area_std, area_std_error : float
        The same over all points, by area, and its standard error.
    scores : Scores
        Of the latent values at all points and fields, with every value counted once and by area. Their
        p-values presume independent points, which these are not.
    verdict : SimulationVerdict
        All tests together, in words.
    relative_jitter : float
        What was added to the diagonal of the joint prior covariance to factor it, as a fraction of the
        kernel variance; 0 unless points nearly coincide or the kernel is very smooth, at most 1e-10.
    """

    solver: str
    z: Array
    pit: Array
    direction: Array
    tests: NormalTests
    rank_pvalue: float
    joint: JointTest
    point_std: Array
    area_std: float
    area_std_error: float
    scores: Scores
    verdict: SimulationVerdict
    relative_jitter: float

    @property
    def simulations(self) -> int:
        """Number of fields, N."""
        return self.z.size

    @property
    def histogram(self) -> Histogram:
        """PIT values in intervals, with the 95 % band of each count by itself."""
        return histogram(self.pit)

    @property
    def pvalues(self) -> dict[str, float]:
        """Every test's p-value by name."""
        return pvalues_of(self.tests, self.rank_pvalue, self.joint)

    def __str__(self) -> str:
        lines = [f"{self.solver}: {self.verdict.statement}"]
        lines += [f"  {name:18} p = {value:.3g}" for name, value in self.pvalues.items()]
        return "\n".join(lines)

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the PIT histogram, with the band in which a count lies in 95 of 100 cases if calibrated."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(6.0, 3.6), layout="constrained").subplots()
        counts = self.histogram
        axes.axhspan(counts.lower, counts.upper, color="#b9d3ea", linewidth=0, label="95 % of counts")
        axes.bar(
            counts.edges[:-1],
            counts.counts,
            width=0.94 * np.diff(counts.edges),
            align="edge",
            color="#3478b5",
        )
        axes.axhline(counts.expected, color="#1b2733", linewidth=1.0, linestyle=(0, (4, 2)), label="uniform")
        axes.set(
            xlim=(0.0, 1.0),
            xlabel="predicted probability of a value below the true one",
            ylabel="simulated fields",
            title=f"{self.solver}: {self.verdict.kind.replace('-', ' ')}",
        )
        axes.legend(frameon=False, ncols=2)
        return axes


def calibrate(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    X_test: ArrayLike,
    *,
    solver: "Solver",
    simulations: int = 1000,
    generator: np.random.Generator | None = None,
    observed: NDArray[np.bool_] | None = None,
    weights: ArrayLike | None = None,
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
    checkpoints: "Memo | None" = None,
    progress: Callable[[float], None] = lambda _: None,
    on_plan: "Callable[[Plan], None] | None" = None,
) -> Calibration:
    """Test the error bars of a solver on fields drawn from its own prior (math 10.2).

    N fields are drawn jointly at X and at the test points, observed with noise at X, and solved for. The
    errors of the means are compared with the stated covariance: along one random direction, at all points
    together, and in the null space. This tests a solver and its settings, not whether the prior suits a real
    field.

    Parameters
    ----------
    prior : Prior
        Distribution of the fields, and prior of the solver; its mean is a number or one column, or its
        coefficients are estimated for each field.
    X : array_like, shape (n, p), or LatLonGrid
        Observed points, in the order in which the solver visits them, or the grid that is observed.
    X_test : array_like, shape (q, p)
        Points at which errors are tested.
    solver : Solver
        Settings of the solver.
    simulations : int
        Number N of fields, at least 2. Along the direction the standard error of a scale is
        ``1 / sqrt(2 N)``, jointly ``1 / sqrt(2 N q)``.
    generator : numpy.random.Generator, optional
        Source of the direction and the fields; by default ``numpy.random.default_rng(0)``.
    observed : array of bool, shape (P, Q), optional
        Which points of a grid are observed; all by default.
    weights : array_like, shape (q,), optional
        Area that each test point represents, on any positive scale.
    executor : Executor, Dask client or cluster, or str, optional
        Where solves run; all cores of this process by default.
    memory_limit_bytes : int, optional
        What may be allocated, by default four fifths of the free memory.
    checkpoints : FolderMemo, optional
        Where iterations are kept (`cagp_dist.store.memo.FolderMemo`) or, where fields are solved one
        after the other, the errors of those that are done: the same call, with a generator in the same state,
        draws the fields again and continues from there after a loss, with the same bits.
    progress : callable
        Called with the part of the solves that is done, from 0 to 1.
    on_plan : callable, optional
        Called with the `cagp_dist.budget.Plan` of the solve, of solvers that take all fields in one.

    Returns
    -------
    Calibration

    Raises
    ------
    ArgumentError
        If an argument has the wrong shape or value.
    BudgetError
        If the joint covariance of all points, or a solve, does not fit into memory.
    NumericalError
        If that covariance cannot be factored, or the variance along the direction is not positive.

    Notes
    -----
    Beyond the solves, (n + q)^3 / 3 + 2 (n + q)^2 N flops for the draws, q^3 to whiten, and 16 (n + q)^2 +
    32 (n + q) N bytes. More than 4,096 points that lie on one latitude-longitude grid, as those of a
    reanalysis do, are drawn there, where that is less work: 4 P^2 Q flops for each field. Both ways are
    exact. Solvers that are calibrated exactly take all fields in one pass; conjugate gradients have
    directions for each field, 2 n^2 i N flops in all, and are run for all of them at once where the Gram
    matrix can be stored; other solvers are called N times.

    Examples
    --------
    >>> import cagp_dist as cagp, numpy as np
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=0.01)
    >>> found = cagp.calibrate(prior, X, X[:20] + 0.01, solver=cagp.GaussSeidel(2), simulations=500)
    >>> found.verdict.kind
    'consistent'
    >>> cagp.calibrate(
    ...     prior, X, X[:20] + 0.01, solver=cagp.ConjugateGradient(10), simulations=500
    ... ).verdict.kind
    'too-wide'
    """
    check_count("simulations", simulations, least=2)  # errors of scales come from their spread
    drawn = draw(
        prior,
        X,
        X_test,
        simulations=simulations,
        generator=np.random.default_rng(0) if generator is None else generator,
        observed=observed,
        memory_limit_bytes=memory_limit_bytes,
    )
    share = unit_weights(weights, (len(drawn.fields.X_test),))
    asked = SimulatedSolves(
        solver=solver,
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
        checkpoints=checkpoints,
        progress=progress,
        on_plan=on_plan,
    )
    errors = standardised(drawn.fields, drawn.direction, asked)
    return judged(drawn, errors, solver=str(solver), weights=share)


def judged(drawn: Drawn, errors: Standardised, *, solver: str, weights: Array) -> Calibration:
    """Put the errors of simulated fields to every test; ``weights`` (q,) of mean 1."""
    pit = np.asarray(ndtr(errors.along), dtype=np.float64)
    tests, rank_pvalue, joint = normal_tests(errors.along), rank_test(pit), joint_test(errors)
    latent = drawn.fields.latent.T
    scored = scores(latent + errors.mean_error.T, errors.std.T, latent, weights=weights)
    squares = (errors.mean_error / errors.std) ** 2
    by_field = (weights[:, None] * squares).mean(axis=0)
    area_std = float(np.sqrt(by_field.mean()))
    return Calibration(
        solver=solver,
        z=errors.along,
        pit=pit,
        direction=drawn.direction,
        tests=tests,
        rank_pvalue=rank_pvalue,
        joint=joint,
        point_std=np.sqrt(squares.mean(axis=1)),
        area_std=area_std,
        area_std_error=float(by_field.std(ddof=1) / np.sqrt(by_field.size) / (2.0 * area_std)),
        scores=scored,
        verdict=verdict_of(tests, rank_pvalue, joint, ratio=area_std, fields=pit.size, points=len(squares)),
        relative_jitter=drawn.relative_jitter,
    )
