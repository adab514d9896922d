"""Vecchia's likelihood of many points, by conditionals of groups on their neighbours (math 9).

With cells B of neighbouring points in an order, each conditioned on points N near it that come before,

    log p(y) ~ sum over cells of  weight * [log p(y_N, y_B) - log p(y_N)]

[Vecchia 1988; Stein, Chi & Welty 2004; Guinness 2018]. It is the likelihood itself where N holds all points
before. Every term is a conditional density of the model, so that the gradient has mean zero at the true
numbers. Of the Cholesky factor L of ``R`` at (N, B) only the last rows W of ``L^-1`` matter:

    R_(N,B)^-1 = W'W + R_N^-1,    z = W b,    T = W dR,    H = T W',    a = R_N^-1 b_N,

whence determinant ``2 sum log L_ii`` over B, quadratic form ``z'z``, trace ``tr H``, slope
``z'H z + 2 z'T a``, and the expected information ``tr(H_i H_j) + 2 <T_i, R_N^-1 T_j>``.

Some groups that lie together are a task, and the sums of tasks are added in their order: the bits do not
depend on who works.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.errors import BudgetError
from cagp_dist.gram.tiled import put_value
from cagp_dist.kernels import point_columns
from cagp_dist.lapack import cholesky_in_place, solve_lower
from cagp_dist.likelihood.exact.dense_likelihood import with_basis, without_scale
from cagp_dist.likelihood.exact.likelihood_evaluation import Evaluation, ModelLikelihood, information_of
from cagp_dist.likelihood.numbering import Families, Model, UnitModel
from cagp_dist.likelihood.vecchia.conditionals import GROUP, NEIGHBOURS, ConditionedGroup, group_conditionals
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, Handle, single_threaded_blas
from cagp_dist.text import bytes_text, counted

TASK_GROUPS = 32
"""Groups of a task: ten to twenty milliseconds."""


class VecchiaLikelihood(ModelLikelihood):
    """Likelihood and gradient of points anywhere, by conditionals of groups on their neighbours.

    Shapes: ``X`` (n, p), ``residuals`` (n, T), ``deviations``, ``basis`` (n,) and (n, k).
    """

    def __init__(
        self,
        kernel: Families | Model,
        X: Array,
        residuals: Array,
        *,
        executor: Executor,
        memory_limit_bytes: int,
        deviations: Array | None = None,
        basis: Array | None = None,
        curved: bool = False,
    ) -> None:
        columns, coefficients = with_basis(residuals, basis)
        super().__init__(kernel, len(residuals), residuals.shape[1], coefficients)
        self._executor = executor
        self._deviate = deviations is not None
        groups = group_conditionals(self._model.comparable(X), workers=executor.workers)
        parts = [groups[start : start + TASK_GROUPS] for start in range(0, len(groups), TASK_GROUPS)]
        places = [np.unique(np.concatenate([group.members for group in part])) for part in parts]
        needed = vecchia_bytes(
            sum(place.size for place in places),
            columns=columns.shape[1] + X.shape[1] + 1,
            numbers=self._model.numbering.lengthscales + self._model.parts,
            workers=executor.workers,
        )
        if needed > memory_limit_bytes:
            raise BudgetError(
                f"Vecchia's likelihood of {self.points:,} points and {counted(self.fields, 'field')} needs "
                f"{bytes_text(needed)}, more than the {bytes_text(memory_limit_bytes)} that may be used.",
                remedies=(Remedy.MORE_MEMORY, Remedy.FEWER_WORKERS, Remedy.FEWER_OBSERVED),
            )
        self.conditionals = sum(group.size for group in groups)
        self._beyond = sum(group.size * group.beyond for group in groups)
        self._curved = curved or self._beyond > 0.0
        self._tasks: list[tuple[Handle[VecchiaPiece], int]] = [
            (executor.submit(put_value, _piece(X, columns, deviations, place, part), home=index), index)
            for index, (place, part) in enumerate(zip(places, parts, strict=True))
        ]

    def evaluate(self, *numbers: float) -> Evaluation:
        """Evaluate at (lengthscale, ratio), or (lengthscales, weights, ratio) of a sum."""
        numbers, scale = without_scale(numbers, self._deviate)
        model, settings = self._model.at(numbers), (scale, self._coefficients, self._curved)
        with single_threaded_blas():
            parts = self._executor.gather(
                [
                    self._executor.submit(piece_sums, model, piece, *settings, home=index)
                    for piece, index in self._tasks
                ]
            )
        total, beyond = sum(parts, np.zeros_like(parts[0]))
        k = len(model.derivatives) + 1 + self._deviate
        squares = excess = None
        if self._curved:
            squares, total = total[-k * k :].reshape(k, k), total[: -k * k]
        if self._beyond > 0.0:
            traces = beyond[1 if self._coefficients else 2 :][:k]
            excess = information_of(
                beyond[-k * k :].reshape(k, k),
                traces[: len(model.derivatives) + 1],
                float(traces[-1]),
                self._beyond,
                self.fields,
                self._model.numbering,
            )
        return self._evaluation(total, squares=squares, excess=excess)


class VecchiaPiece(NamedTuple):
    """What a task needs: some points, what was observed there, and the groups among them.

    ``points`` (p, u) are coordinates, ``columns`` (u, c) residuals and the basis of a mean, ``deviations``
    (u,) or None; members of ``groups`` are places among them.
    """

    points: Array
    columns: Array
    deviations: Array | None
    groups: tuple[ConditionedGroup, ...]


def _piece(
    X: Array, columns: Array, deviations: Array | None, place: Indices, groups: Sequence[ConditionedGroup]
) -> VecchiaPiece:
    """Take the points of some groups out of all, those at the sorted ``place``."""
    return VecchiaPiece(
        point_columns(X[place]),
        columns[place],
        None if deviations is None else deviations[place],
        tuple(replace(group, members=np.searchsorted(place, group.members)) for group in groups),
    )


def piece_sums(model: UnitModel, piece: VecchiaPiece, scale: float, coefficients: int, curved: bool) -> Array:
    """Add up the sums of the groups of a task, each as `dense_sums` has it.

    Returns shape (2, size).
    """
    total: Array = np.zeros(())
    for group in piece.groups:
        members = group.members
        own = None if piece.deviations is None else scale * piece.deviations[members]
        points, columns = np.ascontiguousarray(piece.points[:, members]), piece.columns[members]
        sums = _group_sums(model, points, columns, own, group.before, coefficients, curved)
        total = total + np.outer([group.weight, group.beyond], sums)
    return total


def _group_sums(
    model: UnitModel,
    points: Array,
    columns: Array,
    own: Array | None,
    before: int,
    coefficients: int,
    curved: bool,
) -> Array:
    """Give the sums of one group: those of all its points less those of the points before."""
    from cagp_dist.compiled import evaluate

    m, ratio = len(columns), model.ratio
    stack = np.empty((1, m, m))
    evaluate(*model.kernel, points, points, stack[0])
    stack[0].flat[:: m + 1] += ratio if own is None else ratio + own
    cholesky_in_place(stack)
    log_determinant = 2.0 * float(np.log(stack[0].diagonal()[before:]).sum())
    white = columns.copy()
    solve_lower(stack, white[None])
    z = white[before:]
    # the last rows of L^-1, transposed, and R_N^-1 b_N above zeros
    both = np.zeros((m, m - before + columns.shape[1]))
    both[before:, : m - before] = np.eye(m - before)
    both[:before, m - before :] = white[:before]
    solve_lower(stack, both[None], transposed=True)
    W, a = np.ascontiguousarray(both[:, : m - before]), both[:, m - before :]
    tall = []
    for derivative in model.derivatives:
        slope = np.empty((m, m))
        evaluate(*derivative, points, points, slope)
        tall.append(slope @ W)
    tall.append(ratio * W)
    if own is not None:
        tall.append(own[:, None] * W)
    square = [W.T @ T for T in tall]
    forms = []
    for T, H in zip(tall, square, strict=True):
        across = z.T @ (T.T @ a)
        forms.append(z.T @ H @ z + across + across.T)
    traces = [float(np.trace(H)) for H in square]
    squares: Array = np.empty(0)
    if curved:
        solved = np.concatenate(tall, axis=1)
        solve_lower(stack, solved[None])
        flat = np.reshape(square, (len(square), -1))
        above = np.reshape(np.split(solved[:before], len(tall), axis=1), (len(tall), -1))
        squares = (flat @ flat.T + 2.0 * above @ above.T).ravel()
    gram = z.T @ z
    if coefficients:
        return np.concatenate([[log_determinant], traces, *map(np.ravel, (gram, *forms)), squares])
    return np.array([log_determinant, np.trace(gram), *traces, *map(np.trace, forms), *squares])


def vecchia_bytes(points: int, *, columns: int, numbers: int, workers: int) -> int:
    """Bytes of an evaluation: points and fields of all tasks, and for each worker the matrices of a group."""
    m = GROUP + NEIGHBOURS
    return DOUBLE * (points * columns + workers * (3 * m * m + m * (4 * columns + 3 * GROUP * numbers)))
