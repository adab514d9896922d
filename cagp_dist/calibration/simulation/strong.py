"""Strong calibration of a linear solver, in its own terms: the belief about the weights ``v* = G^-1 b``.

Definition 1 of [Hegde et al. 2025], for ``N(v, C)`` with ``C = G^-1 - D``: errors are standard normal in the
row space of C, and zero in its null space; seen in the coordinates ``u = L' v`` with ``G = L L'``.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.calibration.simulation.beliefs import NULL_SPACE, SimulatedFields, of_one_covariance
from cagp_dist.calibration.simulation.field_draws import Drawn
from cagp_dist.calibration.simulation.laboratory import Calibration, judged
from cagp_dist.checks import as_points, check_count
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.prior import Prior

if TYPE_CHECKING:
    from cagp_dist.solvers.engine.affine import Affine


def strong_calibration(
    prior: Prior,
    X: ArrayLike,
    *,
    solver: "Affine",
    simulations: int = 1000,
    generator: np.random.Generator | None = None,
) -> Calibration:
    """Test the belief of an affine solver about the weights, the null space of its covariance included.

    Residuals ``b ~ N(0, G)`` are drawn at X (n, p) and solved for by a cycle of stages such as `GaussSeidel`,
    with unit vectors instead of targets. Of Gauss-Seidel the null space holds what the last block determines:
    after a sweep its residual is zero. The mean of the prior has no part in it; the generator is
    ``numpy.random.default_rng(0)`` by default.

    Returns
    -------
    Calibration
        Of the n weights, instead of targets, in the coordinates of the module's page; ``joint`` has the null
        space. Its dimension is counted in floating point: sweeps over single points have one of exactly 1
        (Proposition 7 of Hegde et al.), and directions of which they leave less than 1e-8 are counted too. 9
        n^3 flops and 48 n^2 bytes beside the solve.

    Raises
    ------
    ArgumentError
        If the solver is no cycle of stages, or an argument is wrong.
    NumericalError
        If nothing is uncertain, as after an exact solve.

    Examples
    --------
    >>> import cagp_dist as cagp, numpy as np
    >>> X = np.random.default_rng(0).uniform(size=(60, 2))
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=0.01)
    >>> found = strong_calibration(prior, X, solver=cagp.BlockGaussSeidel(1, block_size=20))
    >>> found.verdict.ok, found.joint.null_dimension >= 20, found.joint.null_space_ok
    (True, True, True)
    """
    from cagp_dist.gram import DenseGram
    from cagp_dist.gram.tiled import TiledGram
    from cagp_dist.posterior.problem import demand_of, noise_of, patterns
    from cagp_dist.runtime import SerialExecutor
    from cagp_dist.solvers import Problem, State
    from cagp_dist.solvers.engine.affine import Affine

    if not isinstance(solver, Affine) or solver.iterations == 0:
        raise ArgumentError(
            f"solver is {solver!r}; expected at least one pass through its stages, as in "
            "GaussSeidel(iterations=1). `calibrate` tests any solver at points.",
            key="no-iterations",
        )
    points = as_points("X", X)
    check_count("simulations", simulations, least=1)
    generator = np.random.default_rng(0) if generator is None else generator
    n, executor = len(points), SerialExecutor()
    noise = noise_of(prior.noise_variance, patterns(points, np.zeros(n))[0].observed())
    gram = TiledGram(prior.kernel, points, noise_variance=noise)
    factor = DenseGram(prior.kernel, points, noise_variance=noise).factor
    direction = generator.standard_normal(n)
    direction /= np.linalg.norm(direction)
    white = generator.standard_normal((n, simulations))
    unit = State(0, slice(0, n), np.zeros((n, simulations)), np.zeros((n, n)), leftover=lambda: [np.eye(n)])
    problem = Problem(gram, factor @ white, points, full_covariance=True, start=unit)
    plan = solver.plan(demand_of(problem, executor, executor.memory_bytes))
    *_, last = solver.states(problem, executor=executor, plan=plan)
    covariance = np.eye(n) - factor.T @ last.downdate @ factor
    if covariance.trace() <= NULL_SPACE * n:
        raise NumericalError(
            f"{solver} leaves nothing uncertain of these weights: its covariance is zero up to rounding, "
            "and there is no error bar to test. Give it fewer iterations, or smaller blocks.",
            key="nothing-uncertain",
        )
    errors = of_one_covariance(factor.T @ last.mean - white, covariance, direction, scale=1.0)
    drawn = Drawn(SimulatedFields(prior, points, problem.residuals, points, white), direction, 0.0)
    return judged(drawn, errors, solver=str(solver), weights=np.ones(n))
