"""What labels of observations are: variables that go together, or who shares an error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Indices
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import joined_targets
from cagp_dist.kernels import DEPTH, NO_LABEL, PLACE, VARIABLE, in_order_of_columns
from cagp_dist.pipeline.observations import Observations


@dataclass(frozen=True)
class Labels:
    """What the labels of observations are."""

    bias_by: tuple[str, ...] = ()  # axes, all points with the same label of which share an error
    variables: tuple[str, ...] = ()  # names of the labels of "variable", where there are several
    nugget_correlation: bool = False  # whether errors of variables at one place go together

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self.bias_by or self.variables)


NO_LABELS = Labels()


def one_depth(points: Observations) -> float | None:
    """Give the depth of all observations; None where they have several, or none."""
    if DEPTH not in points.beside:
        return None
    seen = points.beside[DEPTH][points.there]
    return None if np.ptp(seen) > 0.0 else float(seen[0])


def without_depths(points: Observations) -> Observations:
    """Leave depths out, as where there is only one."""
    return replace(points, beside={axis: own for axis, own in points.beside.items() if axis != DEPTH})


def said_of_one_depth(depth: float) -> str:
    """Say what follows where all observations have one depth."""
    return (
        f"all observations have the depth {depth:g}, so the change of the field with depth is unknown: depth "
        "is ignored, and the map is for this depth alone."
    )


def check_groups(points: Observations, axes: Sequence[str]) -> None:
    """Raise `ArgumentError` where groups tell nothing: none, one for all observations, or one for each."""
    for axis in axes:
        groups, counts = np.unique(points.beside[axis][points.there], return_counts=True)
        named = groups != NO_LABEL
        if not named.any():
            raise ArgumentError(
                f"no observation has a name in {axis!r}: there is no error that any share; leave bias_by "
                "out, or name another column.",
                key="no-groups",
            )
        if groups.size < 2:
            raise ArgumentError(
                f"all observations have the same {axis!r}: an error that all share cannot be told from the "
                "mean, which has it already; leave bias_by out.",
                key="one-group",
            )
        if counts[named].max() < 2:
            raise ArgumentError(
                f"each observation has {axis!r} of its own: an error of one observation cannot be told from "
                "its noise; leave bias_by out.",
                key="groups-of-one",
            )


def with_pairs(points: Observations) -> Observations:
    """Say which values of several variables were measured together, and whose errors go together.

    These are the values at one place; of rows that repeat a place, the first of each variable, the second of
    each, and so on. Raises `DataError` where at one time some of them lack a variable.
    """
    place, row = rows_at_places(points)
    shape = place.max() + 1, int(points.beside[VARIABLE].max()) + 1
    of = np.ravel_multi_index((place, points.beside[VARIABLE].astype(np.intp)), shape)
    for there in points.present if row.any() else ():
        counts = np.bincount(of[there], minlength=shape[0] * shape[1]).reshape(shape)
        unclear = ((counts > 0) & (counts < counts.max(axis=1)[:, None])).any(axis=1)
        if unclear.any():
            at = int(np.argmax(place == unclear.argmax()))
            north, east = points.space.axes
            raise DataError(
                f"at {north} {points.north[at]:g}, {east} {points.east[at]:g} one variable has more values "
                "at one time than another, so that it cannot be told which were measured together; expected "
                "rows with all variables where a place has several. Or leave nugget_correlation out.",
                key="pairs-of-rows",
            )
    _, pair = np.unique(np.column_stack([place, row]), axis=0, return_inverse=True)
    return replace(points, beside={**points.beside, PLACE: pair.ravel().astype(np.float64)})


def rows_at_places(points: Observations) -> tuple[Indices, Indices]:
    """Give the number of the place of each value, and of the row of its variable that repeats it, (n,) each.

    Places are numbered from the south, and rows from 0 in their order.
    """
    east = np.where(points.space.is_pole(points.north), 0.0, points.east)
    keys = points.space.keys(points.north, east)
    if DEPTH in points.beside:
        keys = np.column_stack([keys, points.beside[DEPTH]])
    _, place = np.unique(keys, axis=0, return_inverse=True)
    place = place.ravel()
    labels = points.beside[VARIABLE].astype(np.intp)
    of = np.ravel_multi_index((place, labels), (place.max() + 1, labels.max() + 1))
    order = np.argsort(of, kind="stable")
    row = np.empty(of.size, dtype=np.intp)
    row[order] = np.arange(of.size) - np.searchsorted(of[order], of[order])
    return place, row


def shared_errors(
    points: Observations, axis: str, groups: int, variables: int | None = None
) -> LinearFunctionals:
    """Give the error of each group with a name as what its label adds to the field at a place of it.

    Of several variables, of which each has its own errors, those of one after the other.
    """
    if variables is not None:
        of_each = [_shared_errors(points, axis, groups, {VARIABLE: float(at)}) for at in range(variables)]
        found = joined_targets(of_each)
        assert isinstance(found, LinearFunctionals)
        return found
    return _shared_errors(points, axis, groups, {})


def _shared_errors(
    points: Observations, axis: str, groups: int, others: Mapping[str, float]
) -> LinearFunctionals:
    """Give these errors at points that have other labels, too."""
    labels, axes = points.beside[axis].astype(np.intp), in_order_of_columns(points.beside)
    first = np.zeros(groups, dtype=np.intp)
    named = np.flatnonzero(labels != NO_LABEL)[::-1]
    first[labels[named]] = named
    there = points.X[first]
    there[:, -len(axes) :] = [others.get(name, NO_LABEL) for name in axes]
    with_label = there.copy()
    with_label[:, axes.index(axis) - len(axes)] = np.arange(groups)
    nodes = np.stack([with_label, there], axis=1).reshape(2 * groups, -1)
    counts = np.full(groups, 2, dtype=np.intp)
    return LinearFunctionals.of_terms(nodes, np.tile([1.0, -1.0], groups), counts)
