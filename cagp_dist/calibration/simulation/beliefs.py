"""Errors of many fields in units of the error bars that a solver states for them.

A solver whose matrix does not depend on the data takes all fields in one pass. Conjugate gradients have a
covariance for each, ``K'' - U U'``; where the Gram matrix can be stored, all are solved at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.errors import NumericalError
from cagp_dist.gp import condition
from cagp_dist.latlon import LatLonGrid
from cagp_dist.memory import available_bytes
from cagp_dist.prior import Prior

if TYPE_CHECKING:
    from cagp_dist.budget import Plan
    from cagp_dist.runtime import ExecutorLike
    from cagp_dist.runtime.memo import Checkpoint, Memo, MemoWriter
    from cagp_dist.solvers import ConjugateGradient, Solver

NULL_SPACE = 1e-8  # Eigenvalues of a covariance below this fraction of the prior variance count as zero
TOGETHER_BYTES = 2**28  # Directions of the fields that conjugate gradients are run for at once, about

# Relative residual below which a field is solved and takes no further directions
RESIDUAL_AT_ROUNDING = 1e-14


class Standardised(NamedTuple):
    """Errors of t fields at q targets, in units of their error bars."""

    along: Array  # (t,): ``w' e / sqrt(w' S w)`` along a direction w
    mean_error: Array  # (q, t): ``e``, posterior mean minus latent field
    std: Array  # (q, t): root of the diagonal of S
    squares: Array  # (t,): ``e' S^+ e`` in the row space of S
    rank: Indices  # (t,): dimension of that space
    # (t,): ``|N' e|^2`` with N a basis of the null space of S, as a fraction of the prior variance; it has to
    # vanish (Definition 1 of [Hegde et al. 2025])
    null_squares: Array


@dataclass(frozen=True, eq=False)
class SimulatedFields:
    """Fields of a prior, and what was observed of them."""

    prior: Prior  # Of the solves: kernel, noise and mean
    X: Array | LatLonGrid  # (n, p): where they were observed
    y: Array  # (n, t), or (t, P, Q) on a grid: what was observed
    X_test: Array  # (q, p): targets
    latent: Array  # (q, t): their true values, without noise

    @property
    def on_grid(self) -> bool:
        """Whether fields stand along the first axis of y."""
        return isinstance(self.X, LatLonGrid)

    @property
    def count(self) -> int:
        """Number of fields, t."""
        return int(self.latent.shape[1])

    def part(self, chosen: slice) -> "SimulatedFields":
        """Take some of the fields."""
        y = self.y[chosen] if self.on_grid else self.y[:, chosen]
        return SimulatedFields(self.prior, self.X, y, self.X_test, self.latent[:, chosen])


@dataclass(frozen=True, kw_only=True)
class SimulatedSolves:
    """How simulated fields are solved for."""

    solver: "Solver"
    executor: "ExecutorLike" = None  # None: all cores of this process
    memory_limit_bytes: int | None = None
    checkpoints: "Memo | None" = None
    progress: Callable[[float], None] = lambda _: None  # Told which part of the solves is done
    on_plan: "Callable[[Plan], None] | None" = None


def standardised(fields: SimulatedFields, direction: Array, asked: SimulatedSolves) -> Standardised:
    """Solve for all fields and standardise their errors. Shapes: ``direction`` (q,)."""
    from cagp_dist.runtime import given_or_threads
    from cagp_dist.solvers.interface import check_solver

    check_solver(asked.solver)
    with given_or_threads(asked.executor, asked.memory_limit_bytes) as (executor, limit):
        asked = replace(asked, executor=executor)
        if asked.solver.many_fields:
            return _conditioned(fields, direction, asked)
        batch, checkpoints = _fields_at_once(fields, asked.solver, limit), asked.checkpoints
        found = _Found(
            None if checkpoints is None else checkpoints.of(_key(fields, asked.solver, direction, batch))
        )
        if batch:
            iterations = cast("ConjugateGradient", asked.solver).iterations
            parts = _conjugate_gradients(fields, iterations, direction, batch, begun=found.fields)
        else:
            alone = replace(asked, checkpoints=None, progress=lambda _: None, on_plan=None)
            parts = (
                _conditioned(fields.part(slice(i, i + 1)), direction, alone)
                for i in range(found.fields, fields.count)
            )
        for part in parts:
            found.add(part)
            asked.progress(found.fields / fields.count)
        return found.joined()


class _Found:
    """Errors of the fields that are done, one part after the other."""

    def __init__(self, checkpoint: "Checkpoint | None") -> None:
        self._checkpoint = checkpoint
        kept = None if checkpoint is None else checkpoint.latest()
        self._parts: list[Standardised] = []
        if kept is not None:
            arrays: list[Any] = [kept.read(name) for name in Standardised._fields]
            ends = np.cumsum([0, *kept.metadata["widths"]])
            self._parts = [
                Standardised(*(np.ascontiguousarray(array[..., first:last]) for array in arrays))
                for first, last in pairwise(ends)
            ]

    @property
    def fields(self) -> int:
        """How many fields are done."""
        return sum(part.along.size for part in self._parts)

    def add(self, part: Standardised) -> None:
        """Take the errors of some fields, and keep them if it is time to."""
        self._parts.append(part)
        if self._checkpoint is not None and self._checkpoint.due():
            self._checkpoint.save({"widths": [part.along.size for part in self._parts]}, self._write)

    def _write(self, writer: "MemoWriter") -> bool:
        named = self.joined()._asdict().items()
        return all(writer.write(name, array) for name, array in named)

    def joined(self) -> Standardised:
        """Errors of all fields so far."""
        return Standardised(*(np.concatenate(values, axis=-1) for values in zip(*self._parts, strict=True)))


def _key(fields: SimulatedFields, solver: "Solver", direction: Array, batch: int) -> str:
    """Key of the errors of single fields."""
    from cagp_dist.runtime.memo import key_of
    from cagp_dist.solvers.engine.solve_keys import in_full

    prior, X = fields.prior, fields.X
    points = X.points if isinstance(X, LatLonGrid) else X
    noise = np.asarray(prior.noise_variance)
    model = (in_full(solver), prior.kernel, prior.coefficient_names, batch)
    data = (points, noise, fields.y, fields.X_test, fields.latent, direction)
    return key_of("errors", model, *data)


def errors_bytes(*, targets: int, fields: int) -> int:
    """Count what a checkpoint of `standardised` takes where fields are solved one after the other."""
    return DOUBLE * fields * (2 * targets + 4)


def _conditioned(fields: SimulatedFields, direction: Array, asked: SimulatedSolves) -> Standardised:
    """All fields in one solve, with one covariance."""
    posterior = condition(
        fields.prior,
        fields.X,
        fields.y,
        fields.X_test,
        solver=asked.solver,
        covariance="full",
        executor=asked.executor,
        memory_limit_bytes=asked.memory_limit_bytes,
        checkpoints=asked.checkpoints,
        progress=lambda state: asked.progress(state.fraction),
        on_plan=asked.on_plan,
    )
    if posterior.covariance is None:
        raise NumericalError(
            "the solver returned no covariance although a full one was asked for.", key="no-covariance"
        )
    return of_one_covariance(
        posterior.mean.reshape(fields.latent.shape) - fields.latent,
        posterior.covariance,
        direction,
        scale=float(fields.prior.kernel.diagonal(fields.X_test).max()),
    )


def of_one_covariance(errors: Array, covariance: Array, direction: Array, *, scale: float) -> Standardised:
    """Standardise errors (q, t) by the covariance (q, q) that all of them share; q^3 flops."""
    variance = _positive(float(direction @ covariance @ direction))
    white, outside = _whitened(errors, covariance, scale=scale)
    count = errors.shape[1]
    std = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    return Standardised(
        along=np.asarray(direction @ errors / np.sqrt(variance)),
        mean_error=errors,
        std=np.repeat(std[:, None], count, axis=1),
        squares=np.asarray((white**2).sum(axis=0)),
        rank=np.full(count, len(white)),
        null_squares=np.asarray((outside**2).sum(axis=0)) / scale,
    )


def _whitened(errors: Array, covariance: Array, *, scale: float) -> tuple[Array, Array]:
    """Errors in the row space of a covariance, whitened (r, t), and those in its null space (q - r, t)."""
    from scipy.linalg import solve_triangular

    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        factor = np.zeros((1, 1))
    if factor.diagonal().min() ** 2 > NULL_SPACE * scale:
        return solve_triangular(factor, errors, lower=True, check_finite=False), errors[:0]
    values, vectors = np.linalg.eigh(covariance)
    turned, seen = vectors.T @ errors, values > NULL_SPACE * scale
    return turned[seen] / np.sqrt(values[seen])[:, None], turned[~seen]


def _positive(variance: float) -> float:
    if not variance > 0.0:
        raise NumericalError(
            f"the posterior variance along the random direction is {variance:g}; expected a positive number. "
            "Check the solver, or raise noise_variance.",
            key="negative-variance",
        )
    return variance


def _fields_at_once(fields: SimulatedFields, solver: "Solver", memory_limit_bytes: int) -> int:
    """Fields that are solved together with a stored Gram matrix; 0 if none are."""
    from cagp_dist.solvers import ConjugateGradient

    if not isinstance(solver, ConjugateGradient) or solver != ConjugateGradient(solver.iterations):
        return 0
    if isinstance(fields.X, LatLonGrid) or solver.iterations == 0 or fields.prior.estimates_mean:
        return 0
    n, q = len(fields.X), len(fields.X_test)
    stored = 8 * (2 * n**2 + n * q + 3 * q**2)
    each = 8 * (min(solver.iterations, n) * (2 * n + q) + 4 * (n + q))
    together = min(fields.count, max(1, TOGETHER_BYTES // each))  # whatever the memory: the same bits
    here = min(memory_limit_bytes, available_bytes())
    return together if stored + together * each <= here // 2 else 0


def _conjugate_gradients(
    fields: SimulatedFields, iterations: int, direction: Array, batch: int, *, begun: int = 0
) -> Iterator[Standardised]:
    """Standardise the errors of conjugate gradients, ``batch`` fields at a time; ``begun`` are left out."""
    from cagp_dist.posterior.problem import noise_of, patterns

    if isinstance(fields.X, LatLonGrid):
        raise TypeError("a grid has no stored Gram matrix")
    X, kernel = fields.X, fields.prior.kernel
    noise = noise_of(fields.prior.noise_variance, patterns(X, np.zeros(len(X)))[0].observed())
    G = kernel(X, X)
    G[np.diag_indices(len(X))] += noise
    V, prior_covariance = kernel(fields.X_test, X), kernel(fields.X_test, fields.X_test)
    scale = float(prior_covariance.diagonal().max())
    values, vectors = np.linalg.eigh(prior_covariance)
    seen = values > NULL_SPACE * scale
    root = vectors[:, seen] / np.sqrt(values[seen])
    before = float(direction @ prior_covariance @ direction)
    centre, ahead = fields.prior.mean_at(X), fields.prior.mean_at(fields.X_test)
    for start in range(begun, fields.count, batch):
        some = fields.part(slice(start, start + batch))
        mean, U = conjugate_gradient_beliefs(G, V, some.y - centre, iterations=iterations)
        errors = ahead + mean - some.latent
        along = np.tensordot(direction, U, axes=(0, 1))  # (i, t)
        spread = before - (along**2).sum(axis=0)
        _positive(float(spread.min()))
        # the inverse of I - B B' by that of I - B' B, one small matrix for each field
        a, B = root.T @ errors, np.tensordot(root, U, axes=(0, 1)).transpose(2, 1, 0)  # (r, t); (t, i, r)
        inner = np.eye(B.shape[1]) - B @ B.transpose(0, 2, 1)
        projected = np.einsum("tir,rt->ti", B, a)
        extra = np.linalg.solve(inner, projected[:, :, None])[:, :, 0]
        yield Standardised(
            along=np.asarray(direction @ errors / np.sqrt(spread)),
            mean_error=errors,
            std=np.sqrt(np.maximum(prior_covariance.diagonal()[:, None] - (U**2).sum(axis=0), 0.0)),
            squares=np.asarray((a**2).sum(axis=0) + (projected * extra).sum(axis=1)),
            rank=np.full(errors.shape[1], np.count_nonzero(seen)),
            null_squares=np.asarray(((vectors[:, ~seen].T @ errors) ** 2).sum(axis=0)) / scale,
        )


def conjugate_gradient_beliefs(G: Array, V: Array, b: Array, *, iterations: int) -> tuple[Array, Array]:
    """Conjugate gradients for each of t fields, with directions of its own (math 5): (q, t), (i, q, t)."""
    (n, count), q = b.shape, len(V)
    steps = min(iterations, n)
    residual, norms = b.copy(), np.linalg.norm(b, axis=0)
    directions, images = np.zeros((steps, n, count)), np.zeros((steps, n, count))
    mean, U = np.zeros((q, count)), np.zeros((steps, q, count))
    for i in range(steps):
        size = np.linalg.norm(residual, axis=0)
        going = size > RESIDUAL_AT_ROUNDING * norms
        if not going.any():
            break
        d = np.divide(residual, size, out=np.zeros_like(residual), where=going)
        for _ in range(2):
            for j in range(i):
                d -= directions[j] * np.einsum("nt,nt->t", images[j], d)
        z = G @ d
        curvature = np.einsum("nt,nt->t", d, z)
        going &= curvature > 0.0
        unit = np.divide(1.0, np.sqrt(np.where(going, curvature, 1.0)), out=np.zeros(count), where=going)
        directions[i], images[i] = d * unit, z * unit
        step = np.einsum("nt,nt->t", directions[i], residual)
        residual -= images[i] * step
        U[i] = V @ directions[i]
        mean += U[i] * step
    return mean, U
