"""Kernel of observations at several depths: of one distance in space and depth together, or a product.

Both have one number more than a kernel of space alone, so that their likelihoods are compared as they are
(math 23). Some 1,000 values decide, all depths of some places; the likeliest is fitted to all values.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from cagp_dist.arrays import Indices
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.kernels import (
    AUTO,
    DEPTH,
    FITTED,
    SPACE,
    Along,
    Family,
    Matern12,
    Matern32,
    Product,
    chosen_by,
)
from cagp_dist.likelihood.fit_result import FitResult
from cagp_dist.likelihood.kernel_choice import CANDIDATES, likelihood_of, start_of, usable
from cagp_dist.likelihood.observed import spread_cells
from cagp_dist.likelihood.starts import Start
from cagp_dist.pipeline.fitted_model import FittedModel, families, fit_model
from cagp_dist.pipeline.model_settings import FitWork, ModelSettings
from cagp_dist.pipeline.observations import Observations

PLUGGED_IN = "Plugged in: numbers of observations with depths are not integrated over."
COMPARED = 1_000  # Values by which kernels are compared, about
PLACES_CELL = 8  # Places of the cells that are kept whole where not all places can be chosen


def fit_in_depth(observed: Observations, asked: ModelSettings, work: FitWork) -> FittedModel:
    """Fit the kernels that go with one of space, or with several to choose from; take the likeliest."""
    kernel, there = asked.kernel, observed.there
    first, *others = CANDIDATES if chosen_by(kernel) is not None else families(kernel)
    if chosen_by(kernel) == FITTED or (others and chosen_by(kernel) is None):
        raise ArgumentError(
            f"kernel is {kernel!r}, and the observations have depths; expected a kernel of one part with its "
            'smoothness, such as "matern32", or "auto".',
            key="kernel-of-depths",
        )

    def fitted(family: Family, places: Indices, start: Start | None = None) -> FittedModel:
        own = replace(asked, kernel=(family,))
        model = fit_model(observed, own, work, places=places, start=start)
        return replace(model, numbers=PLUGGED_IN)

    some = _whole_profiles(observed, there)
    found: list[tuple[int, FittedModel]] = []

    def compare(space: Family, ways: Sequence[int]) -> None:
        """Fit kernels of space and depth, those after the first from where one has ended."""
        for way in ways:
            begun = [model for own, model in found if own == way] or [model for _, model in found]
            start = start_of(_result(begun[0])) if begun else None
            try:
                found.append((way, fitted(ways_in_depth(space)[asked.in_depth][way], some, start)))
            except NumericalError:  # its matrices are too smooth for this noise
                if not found:
                    raise

    def likeliest() -> tuple[int, FittedModel]:
        those = [each for each in found if usable(_result(each[1]))] or found
        return max(those, key=lambda each: likelihood_of(_result(each[1])))

    compare(first, range(len(ways_in_depth(first)[asked.in_depth])))
    best = likeliest()[0]
    for space in others:
        compare(space, (best,))
    model = likeliest()[1]
    if some.size == there.size:
        return model
    (family,) = (part.family for part in model.kernel.parts)
    return fitted(family, there, start_of(_result(model)))


def ways_in_depth(space: Family) -> dict[str, tuple[Family, ...]]:
    """Give the kernels of space and depth that go with one of space by their names: metric, and products."""
    products: dict[str, Family] = {
        name: cast("Product", space(1.0, 1.0) * depth(1.0, axis=DEPTH)).family
        for name, depth in (("matern12", Matern12), ("matern32", Matern32))
    }
    found: dict[str, Family] = {"metric": Along(space, (SPACE, DEPTH)), **products}
    return {AUTO: (*found.values(),), **{name: (own,) for name, own in found.items()}}


def _whole_profiles(observed: Observations, places: Indices) -> Indices:
    """Choose about `COMPARED` of some values: all depths of places in cells of neighbours."""
    if places.size <= COMPARED:
        return places
    own, of = np.unique(observed.positions[places], axis=0, return_inverse=True)
    kept = spread_cells(own, COMPARED * len(own) // places.size, cell_size=PLACES_CELL)
    return places[np.isin(of.reshape(-1), kept)]


def _result(model: FittedModel) -> FitResult:
    """Give the fit of a model that has one."""
    assert model.result is not None
    return model.result
