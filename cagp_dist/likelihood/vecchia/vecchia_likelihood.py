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
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.errors import BudgetError
from cagp_dist.gram.tiled import put_value
from cagp_dist.kernels import point_columns
from cagp_dist.lapack import cholesky_in_place, multiply_symmetric, solve_lower
from cagp_dist.likelihood.exact.dense_likelihood import with_basis, without_scale
from cagp_dist.likelihood.exact.likelihood_evaluation import Evaluation, ModelLikelihood, information_of
from cagp_dist.likelihood.numbering import Families, Model, UnitModel
from cagp_dist.likelihood.vecchia.conditionals import GROUP, NEIGHBOURS, ConditionedGroup, group_conditionals
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, Handle, single_threaded_blas
from cagp_dist.text import bytes_text, counted

TASK_GROUPS = 16  # worked out at once, in some ten milliseconds: threads do not wait for each other's Python
AT_A_TIME = 4  # of these: their matrices fit into the cache of a core


class VecchiaLikelihood(ModelLikelihood):
    """Likelihood and gradient of points X (n, p), by conditionals of groups on their neighbours."""

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
        parts = _evenly(groups)
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
                key="memory",
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
    """What a task needs: some points, what was observed there, and the groups among them."""

    points: Array
    columns: Array
    deviations: Array | None
    groups: tuple[ConditionedGroup, ...]


def _evenly(groups: list[ConditionedGroup]) -> list[list[ConditionedGroup]]:
    """Cut groups into tasks of about as many."""
    tasks = -(-len(groups) // TASK_GROUPS)
    ends = [len(groups) * task // tasks for task in range(tasks + 1)]
    return [groups[start:stop] for start, stop in pairwise(ends)]


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
    """Add up the sums of the groups of a task, each as `dense_sums` has it, (2, size)."""
    alike: dict[tuple[int, int], list[ConditionedGroup]] = {}
    for group in piece.groups:
        alike.setdefault((group.members.size, group.before), []).append(group)
    total: Array = np.zeros(())
    for (_, before), found in alike.items():
        for start in range(0, len(found), AT_A_TIME):
            groups = found[start : start + AT_A_TIME]
            members = np.array([group.members for group in groups])
            sums = _stack_sums(model, piece, members, before, scale, coefficients, curved)
            total = total + np.array([[group.weight, group.beyond] for group in groups]).T @ sums
    return total


def _stack_sums(
    model: UnitModel,
    piece: VecchiaPiece,
    members: Indices,
    before: int,
    scale: float,
    coefficients: int,
    curved: bool,
) -> Array:
    """Give the sums (g, size) of groups with ``members`` (g, m): those of all less those of points before."""
    count, m = members.shape
    own = None if piece.deviations is None else scale * piece.deviations[members]
    stack, *slopes = _evaluated(model, piece.points, members)
    diagonal = np.arange(m)
    stack[:, diagonal, diagonal] += model.ratio if own is None else model.ratio + own
    cholesky_in_place(stack)
    log_determinant = 2.0 * np.log(stack[:, diagonal[before:], diagonal[before:]]).sum(axis=1)
    white = piece.columns[members]
    solve_lower(stack, white)
    z = white[:, before:]
    # the last rows of L^-1, transposed, and R_N^-1 b_N above zeros
    both = np.zeros((count, m, m - before + white.shape[2]))
    both[:, before:, : m - before] = np.eye(m - before)
    both[:, :before, m - before :] = white[:, :before]
    solve_lower(stack, both, transposed=True)
    W, a = np.ascontiguousarray(both[:, :, : m - before]), both[:, :, m - before :]
    tall = [multiply_symmetric(slope, W) for slope in slopes]
    tall.append(model.ratio * W)
    if own is not None:
        tall.append(own[:, :, None] * W)
    square = [_transposed(W) @ T for T in tall]
    forms = []
    for T, H in zip(tall, square, strict=True):
        across = _transposed(z) @ (_transposed(T) @ a)
        forms.append(_transposed(z) @ H @ z + across + _transposed(across))
    traces = [H.trace(axis1=1, axis2=2) for H in square]
    squares: Array = np.empty((count, 0))
    if curved:
        above = np.concatenate([T[:, :before] for T in tall], axis=2)
        solve_lower(stack, above)
        flat = np.stack(square, axis=1).reshape(count, len(tall), -1)
        above = np.stack(np.split(above, len(tall), axis=2), axis=1)
        above = above.reshape(count, len(tall), before * (m - before))
        squares = (flat @ _transposed(flat) + 2.0 * above @ _transposed(above)).reshape(count, -1)
    gram = _transposed(z) @ z
    sums = [log_determinant, *traces]
    if coefficients:
        return np.column_stack([*sums, *(form.reshape(count, -1) for form in (gram, *forms)), squares])
    sums.insert(1, gram.trace(axis1=1, axis2=2))
    return np.column_stack([*sums, *(form.trace(axis1=1, axis2=2) for form in forms), squares])


def _evaluated(model: UnitModel, points: Array, members: Indices) -> list[Array]:
    """Kernel of groups with ``members`` (g, m) and its derivatives, lower triangles of (g, m, m)."""
    from cagp_dist.compiled import evaluate_subsets, evaluate_subsets_and_slopes

    count, m = members.shape
    every = [model.kernel, *model.derivatives]
    found = [np.empty((count, m, m)) for _ in every]
    if isinstance(model.kernel[1], float) and len(model.derivatives) == 1:  # of one distance
        evaluate_subsets_and_slopes(*model.kernel, *model.derivatives[0], points, members, *found)
    else:
        for parameters, out in zip(every, found, strict=True):
            evaluate_subsets(*parameters, points, members, True, out)
    return found


def _transposed(stack: Array) -> Array:
    return stack.swapaxes(1, 2)


def vecchia_bytes(points: int, *, columns: int, numbers: int, workers: int) -> int:
    """Bytes of an evaluation: points and fields of all tasks, and for each worker the matrices of a group."""
    m = GROUP + NEIGHBOURS
    own = TASK_GROUPS * (2 * m * m + m * (4 * columns + 3 * GROUP * numbers))
    return DOUBLE * (points * columns + workers * own)
