"""Kernel of a field by itself: of space, of an ellipse there, and of depths, whichever the likelihood takes.

A kernel of depths is one of a single distance in space and depth, or a product. Both have one number more
than a kernel of space alone, so that their likelihoods are compared as they are (math 23). Some 1,000 values
decide, all depths of some places; the likeliest is fitted to all values. An ellipse is one of space, so that
with depths it is a factor of a product.
"""

from collections.abc import Callable, Sequence
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
    Elementary,
    Family,
    Matern12,
    Matern32,
    Product,
    ProductOf,
    Sum,
    chosen_by,
)
from cagp_dist.likelihood.ellipses import GAIN, Ellipse
from cagp_dist.likelihood.fit_result import FitResult
from cagp_dist.likelihood.kernel_choice import CANDIDATES, likelihood_of, start_of, usable
from cagp_dist.likelihood.observed import spread_cells
from cagp_dist.likelihood.starts import Start
from cagp_dist.pipeline.fitted_model import FittedModel, ellipse_of, families, fit_model
from cagp_dist.pipeline.model_settings import FitWork, ModelSettings
from cagp_dist.pipeline.observations import Observations

PLUGGED_IN = "Plugged in: numbers of observations with depths are not integrated over."
COMPARED = 1_000  # Values by which kernels are compared, about
PLACES_CELL = 8  # Places of the cells that are kept whole where not all places can be chosen

Fit = Callable[[Family, Indices, Start | None], FittedModel]


def fit_field(observed: Observations, asked: ModelSettings, work: FitWork) -> FittedModel:
    """Fit what is asked of a field to all its values, which share no errors."""
    if DEPTH not in observed.beside:
        return fit_model(observed, asked, work)

    def fitted(family: Family, places: Indices, start: Start | None) -> FittedModel:
        own = replace(asked, kernel=(family,), anisotropy="none")
        model = fit_model(observed, own, work, places=places, start=start)
        return replace(model, numbers=PLUGGED_IN)

    return fit_depths(observed, asked, fitted)


def fit_depths(observed: Observations, asked: ModelSettings, fitted: Fit) -> FittedModel:
    """Find the kernel of space and depth, by ``fitted``, which fits one of them and what goes with it.

    What goes with it are errors that observations share, further parts of the kernel.
    """
    kernel, there = asked.kernel, observed.there
    first, *others = CANDIDATES if chosen_by(kernel) is not None else families(kernel)
    if chosen_by(kernel) == FITTED or (others and chosen_by(kernel) is None):
        raise ArgumentError(
            f"kernel is {kernel!r}, and the observations have depths; expected a kernel of one part with its "
            'smoothness, such as "matern32", or "auto".',
            key="kernel-of-depths",
        )
    ellipse, some = ellipse_of(asked.anisotropy, observed), _whole_profiles(observed, there)
    ways = ways_of_field(first, observed, asked, ellipse)
    model = _likeliest((first, *others), ways, fitted, some, observed, asked, ellipse)
    if ellipse is not None:
        model = _with_ellipse(ellipse, model, fitted, some)
    if some.size == there.size:
        return model
    return fitted(model.kernel.parts[0].family, there, start_of(_result(model)))


def _likeliest(
    spaces: Sequence[Family],
    ways: Sequence[Family],
    fitted: Fit,
    some: Indices,
    observed: Observations,
    asked: ModelSettings,
    ellipse: Ellipse | None,
) -> FittedModel:
    """Fit all ways of the first kernel of space, and the likeliest way of the others; take the likeliest."""
    found: list[tuple[int, FittedModel]] = []

    def compare(space: Family, ways: Sequence[int]) -> None:
        """Fit kernels of space and depth, those after the first from where one has ended."""
        families = ways_of_field(space, observed, asked, ellipse)
        for way in ways:
            begun = [model for own, model in found if own == way] or [model for _, model in found]
            start = start_of(_result(begun[0])) if begun else None
            try:
                found.append((way, fitted(families[way], some, start)))
            except NumericalError:  # its matrices are too smooth for this noise
                if not found:
                    raise

    def likeliest() -> tuple[int, FittedModel]:
        those = [each for each in found if usable(_result(each[1]))] or found
        return max(those, key=lambda each: likelihood_of(_result(each[1])))

    compare(spaces[0], range(len(ways)))
    best = likeliest()[0]
    for space in spaces[1:]:
        compare(space, (best,))
    return likeliest()[1]


def _with_ellipse(ellipse: Ellipse, circles: FittedModel, fitted: Fit, some: Indices) -> FittedModel:
    """Fit an ellipse in space from the end of a fit of circles, and keep these where that is not better."""
    part, *others = circles.kernel.parts
    if not isinstance(part, Product):  # one distance in space and depth, which is likelier than a product
        return circles
    result, family = _result(circles), stretched(ellipse, part.family)
    begin = family(stretched_numbers(ellipse, part.numbers), part.variance)
    kernel = Sum((begin, *others)) if others else begin
    start = start_of(replace(result, prior=replace(result.prior, kernel=kernel)))
    found = fitted(family, some, start)
    if ellipse.asked == "auto" and likelihood_of(_result(found)) - likelihood_of(result) < GAIN:
        return circles
    return found


def ways_of_field(
    space: Family, observed: Observations, asked: ModelSettings, ellipse: Ellipse | None = None
) -> tuple[Family, ...]:
    """Give the kernels of the axes of observations that go with one of space; with circles there."""
    if DEPTH not in observed.beside:
        return (space,)
    ways = ways_in_depth(space)
    if ellipse is None or ellipse.asked == AUTO:
        return ways[asked.in_depth]
    products = tuple(way for way in ways[asked.in_depth] if isinstance(way, ProductOf))
    if not products:
        raise ArgumentError(
            f'anisotropy is {asked.anisotropy!r} beside a kernel in depth that is "{asked.in_depth}", of one '
            'distance in space and depth; expected "matern12" or "matern32", or no anisotropy.',
            key="anisotropy-in-depth",
        )
    return products


def ways_in_depth(space: Family) -> dict[str, tuple[Family, ...]]:
    """Give the kernels of space and depth that go with one of space by their names: metric, and products."""
    products: dict[str, Family] = {
        name: cast("Product", space(1.0, 1.0) * depth(1.0, axis=DEPTH)).family
        for name, depth in (("matern12", Matern12), ("matern32", Matern32))
    }
    found: dict[str, Family] = {"metric": Along(space, (SPACE, DEPTH)), **products}
    return {AUTO: (*found.values(),), **{name: (own,) for name, own in found.items()}}


def stretched(ellipse: Ellipse, family: Family) -> Family:
    """Give a kernel of a field with an ellipse in place of circles in space."""
    if not isinstance(family, ProductOf):
        return ellipse.family(family)
    space, *others = family.families
    factors: list[Elementary] = [ellipse.family(space)(ellipse.circle(1.0)), *(own(1.0) for own in others)]
    return cast("Product", factors[0] * factors[1]).family


def stretched_numbers(ellipse: Ellipse, numbers: Sequence[float]) -> tuple[float, ...]:
    """Give the numbers of such a kernel where they are those of circles."""
    length, *others = numbers
    circle = ellipse.circle(length)
    return *(circle if isinstance(circle, tuple) else (circle,)), *others


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
