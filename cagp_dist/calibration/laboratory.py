"""What error bars of a solver do on fields of its own prior: tests, a verdict in words, and a plot.

Errors of N fields are independent of each other, so that every test here has the level it states, whatever
the correlation between points (math 10.2). With e the error of a field at q points, S its stated covariance
and w one random direction::

    z = w' e / sqrt(w' S w)    one number per field: Kolmogorov-Smirnov, chi-square of sum z^2, mean, ranks
    u = S^(-1/2) e             r = rank S numbers per field: chi-square of sum u^2 with N r degrees of freedom
    N' e = 0                   in the null space of S (Definition 1 of [Hegde et al. 2025])
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from cagp_dist.arrays import Array
from cagp_dist.calibration.beliefs import NULL_SPACE, Standardised
from cagp_dist.calibration.pit import Histogram, NormalTests, histogram, normal_tests, unit_weights
from cagp_dist.calibration.scores import Scores, scores
from cagp_dist.calibration.simulation import Drawn, draw, errors_of
from cagp_dist.gp import Prior

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cagp_dist.latlon import LatLonGrid
    from cagp_dist.runtime import Executor
    from cagp_dist.solvers import Solver

Kind = Literal["consistent", "undecided", "too-narrow", "too-wide", "wrong-shape", "biased"]

SIGNIFICANCE = 0.0027
"""Probability of a false alarm of a verdict: that of three standard errors of a normal law."""

POWER = 0.95
"""Probability with which a fault is said to be found."""

DECISIVE_SCALE = 2.0
"""Simulations that would not reveal errors this many times as large as stated decide nothing."""

NULL_ERROR = 2.0 * NULL_SPACE**0.5
"""Largest root mean square error in a null space, in prior standard deviations, that is rounding."""


@dataclass(frozen=True)
class JointTest:
    """All errors of a field at once, made independent by the stated covariance.

    Attributes
    ----------
    std : float
        Root mean square of the whitened errors: how many times as large errors are as stated.
    pvalue : float
        Two-sided p-value of their sum of squares under chi-square.
    degrees_of_freedom : int
        Fields times the rank of the covariance.
    null_dimension : int
        Dimension of the null space, the largest over fields.
    null_error : float
        Root mean square error in it, in prior standard deviations; zero but for rounding if calibrated.
    """

    std: float
    pvalue: float
    degrees_of_freedom: int
    null_dimension: int
    null_error: float

    @property
    def null_space_ok(self) -> bool:
        """Whether errors in the null space are rounding."""
        return bool(self.null_error <= NULL_ERROR)


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
    verdict : Verdict
        All tests together, in words.
    relative_jitter : float
        See `SimulationResult`.
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
    verdict: "SimulationVerdict"
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
        return _pvalues(self.tests, self.rank_pvalue, self.joint)

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


@dataclass(frozen=True)
class SimulationVerdict:
    """What simulated fields say of error bars: a word for programs and sentences for people.

    ``undecided`` if nothing was found, and too few fields to find errors twice as large as stated; ``biased``
    if errors have one sign along the direction.
    """

    kind: Kind
    statement: str

    @property
    def ok(self) -> bool:
        """Whether nothing was found that chance does not explain."""
        return self.kind in ("consistent", "undecided")


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
    executor: "Executor | None" = None,
    memory_limit_bytes: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Calibration:
    """Test the error bars of a solver on fields drawn from its own prior (math 10.2).

    N fields are drawn jointly at X and at the test points, observed with noise at X, and solved for. The
    errors of the means are held against the stated covariance: along one random direction, at all points
    together, and in the null space. This tests a solver and its settings, not whether the prior suits a real
    field.

    Parameters
    ----------
    prior : Prior
        Law of the fields, and prior of the solver; its mean is a number or one column.
    X : array_like, shape (n, p), or LatLonGrid
        Observed points, in the order in which the solver visits them, or the grid that is observed.
    X_test : array_like, shape (q, p)
        Where errors are looked at.
    solver : Solver
        Settings of the solver.
    simulations : int
        Number N of fields. Along the direction the standard error of a scale is ``1 / sqrt(2 N)``, jointly
        ``1 / sqrt(2 N q)``.
    generator : numpy.random.Generator, optional
        Source of the direction and the fields; by default ``numpy.random.default_rng(0)``.
    observed : array of bool, shape (P, Q), optional
        Of a grid, which points are observed; all by default.
    weights : array_like, shape (q,), optional
        Area that each test point stands for, on any positive scale.
    executor : Executor, optional
        Where solves run; all cores of this process by default.
    memory_limit_bytes : int, optional
        What may be allocated, by default four fifths of the free memory.
    progress : callable
        Called with the part of the solves that is done, from 0 to 1.

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
    errors = errors_of(
        drawn, solver=solver, executor=executor, memory_limit_bytes=memory_limit_bytes, progress=progress
    )
    return judged(drawn, errors, solver=str(solver), weights=share)


def judged(drawn: Drawn, errors: Standardised, *, solver: str, weights: Array) -> Calibration:
    """Put the errors of simulated fields to every test; ``weights`` (q,) of mean 1."""
    pit = np.asarray(ndtr(errors.along), dtype=np.float64)
    tests, rank_pvalue, joint = normal_tests(errors.along), _rank_pvalue(pit), _joint(errors)
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
        area_std_error=float(by_field.std() / np.sqrt(by_field.size) / (2.0 * area_std)),
        scores=scored,
        verdict=_verdict(tests, rank_pvalue, joint, ratio=area_std, fields=pit.size, points=len(squares)),
        relative_jitter=drawn.relative_jitter,
    )


def _joint(errors: Standardised) -> JointTest:
    """Chi-square test of whitened errors, and the errors where none are stated."""
    freedom, total = int(errors.rank.sum()), float(errors.squares.sum())
    null = len(errors.mean_error) - errors.rank
    return JointTest(
        std=float(np.sqrt(total / freedom)) if freedom else 1.0,
        pvalue=_chi2_pvalue(total, freedom) if freedom else 1.0,
        degrees_of_freedom=freedom,
        null_dimension=int(null.max()),
        null_error=float(np.sqrt(errors.null_squares.sum() / max(1, null.sum()))),
    )


def _chi2_pvalue(total: float, freedom: int) -> float:
    from scipy.stats import chi2

    return min(1.0, 2.0 * min(float(chi2.cdf(total, freedom)), float(chi2.sf(total, freedom))))


def _rank_pvalue(pit: Array) -> float:
    """Chi-square test of PIT values in equal intervals, five values or more in each, at most twenty."""
    from scipy.stats import chi2

    if pit.size < 10:
        return 1.0
    counts = histogram(pit, intervals=min(pit.size // 5, 20))
    total = float(((counts.counts - counts.expected) ** 2).sum() / counts.expected)
    return float(chi2.sf(total, counts.counts.size - 1))


def _pvalues(tests: NormalTests, rank_pvalue: float, joint: JointTest) -> dict[str, float]:
    return {
        "Kolmogorov-Smirnov": tests.ks_pvalue,
        "variance": tests.variance_pvalue,
        "mean": tests.mean_pvalue,
        "ranks": rank_pvalue,
        "joint": joint.pvalue,
    }


def _verdict(
    tests: NormalTests, rank_pvalue: float, joint: JointTest, *, ratio: float, fields: int, points: int
) -> SimulationVerdict:
    """Say what all tests together find, each at its part of the significance."""
    pvalues = _pvalues(tests, rank_pvalue, joint)
    significance = SIGNIFICANCE / len(pvalues)
    faults = {name for name, pvalue in pvalues.items() if pvalue < significance}
    about_mean = fields * (tests.z_std**2 - tests.z_mean**2)
    lean = "mean" in faults and fields > 1 and _chi2_pvalue(about_mean, fields - 1) >= significance
    scales = {"variance": tests.z_std, "joint": joint.std}
    wrong = {scale > 1.0 for name, scale in scales.items() if name in faults}
    if not joint.null_space_ok:
        wrong.add(True)
    measured = (
        f"over {fields:,} field{'s' if fields != 1 else ''} drawn from the prior, errors at {points:,} "
        f"point{'s' if points != 1 else ''} are {ratio:.3f} times as large as their error bars, "
        f"{joint.std:.3f} times with the stated correlations and {tests.z_std:.3f} times along one random "
        "direction"
    )
    if not joint.null_space_ok:
        measured += (
            f"; where the covariance states no error at all there is one, of {joint.null_error:.1e} prior "
            "standard deviations"
        )
    if lean and joint.null_space_ok:
        return SimulationVerdict(
            "biased",
            f"The errors lean to one side, by {tests.z_mean:+.2f} error bars on average: {measured}.",
        )
    if wrong == {True}:
        return SimulationVerdict("too-narrow", f"The error bars are too narrow: {measured}.")
    if wrong == {False}:
        return SimulationVerdict("too-wide", f"The error bars are too wide: {measured}.")
    if wrong or faults:
        return SimulationVerdict("wrong-shape", f"The errors do not have the law that is stated: {measured}.")
    one, every = _revealed(fields), _revealed(joint.degrees_of_freedom)
    kind: Kind = "consistent" if min(one, every) < DECISIVE_SCALE else "undecided"
    return SimulationVerdict(
        kind,
        f"No fault found: {measured}. Errors {every:.3f} times as large as stated everywhere, or {one:.2f} "
        "times along that direction, would have been found in 95 % of cases.",
    )


def _revealed(freedom: int) -> float:
    """Smallest factor by which errors exceed error bars that chi-square finds with probability `POWER`."""
    from scipy.stats import chi2

    if freedom < 1:
        return float("inf")
    critical = float(chi2.isf(0.5 * SIGNIFICANCE / 5, freedom))
    return float(np.sqrt(critical / chi2.ppf(1.0 - POWER, freedom)))
