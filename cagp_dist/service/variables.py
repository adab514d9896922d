"""Of a job with several variables, what is of each of them: it is published as a job of one variable is."""

from dataclasses import replace

import numpy as np

from cagp_dist.arrays import Indices
from cagp_dist.kernels import DEPTH
from cagp_dist.pipeline import Split
from cagp_dist.pipeline.labelled_fit import variances_of
from cagp_dist.pipeline.task import HeldOut, Priors, Result
from cagp_dist.service.task import PreparedJob


def of_variable(prepared: PreparedJob, result: Result, label: int) -> tuple[PreparedJob, Result]:
    """Give what a job of one of its variables would have come to with the same distributions."""
    points, design, m = prepared.points, prepared.design, len(prepared.variables)
    n, q = points.north.size // m, design.test.size // m
    rows = np.arange(label * n, (label + 1) * n)
    kept = [axis for axis in points.beside if axis == DEPTH or axis in prepared.labels]
    noise = points.noise_variance
    own_noise = None if noise is None or not noise[rows].any() else noise[rows]
    in_folds = design.in_folds
    if in_folds is not None and in_folds.folds is not None:
        test, folds = design.test[:q], in_folds.folds[:q]
        in_folds = Split(test, test, folds, folds, in_folds.blocks)
    places, first = np.unique(design.train % n, return_index=True)  # of any variable, in the same order
    train = places[np.argsort(first)]
    own = replace(
        prepared,
        points=replace(
            points.at(rows),
            variable=prepared.variables[label],
            noise_variance=own_noise,
            beside={axis: points.beside[axis][rows] for axis in kept},
        ),
        design=replace(
            design,
            train=train,
            test=design.test[:q],
            test_weights=design.test_weights[:q],
            in_folds=in_folds,
        ),
        variables=(),
    )
    columns = np.concatenate([_part(prepared.columns[kind], label, m) for kind in own.columns])
    held, plain = result.task.held_out, result.plain
    assert held is not None
    assert plain is not None
    at = np.arange(label * q, (label + 1) * q)
    solution, fine = result.solution.of_targets(columns), result.solution.fine_mean
    of_fine = None if fine is None else np.split(fine, m, axis=1)[label]
    held_out = HeldOut(
        held.values[:, at],
        held.X[at],
        result.priors.noise_of(held)[at],
        None if held.folds is None else held.folds[at],
    )
    model = result.priors.model
    _, pairs = variances_of(model.kernel, m)  # nuggets that go together are a part of the kernel
    known = np.broadcast_to(model.noise_variance, points.north.shape)[rows] + pairs[label]
    scores = plain[:, at]
    return own, replace(
        result,
        task=replace(
            result.task,
            observations=own.points,
            split=Split(own.design.train, own.design.test),
            targets=own.predicted,
            held_out=held_out,
        ),
        priors=Priors(replace(model, known_noise=known, nugget=0.0, nuggets=None)),
        solution=replace(solution, fine_mean=of_fine, drift=None),
        plain=scores,
        scores=scores,
    )


def _part(kind: slice, label: int, variables: int) -> Indices:
    """Columns of targets of a kind that are of one variable."""
    size = (kind.stop - kind.start) // variables
    return np.arange(kind.start + label * size, kind.start + (label + 1) * size)
