"""Kernels of observations with labels: errors that they share, and several variables that go together.

The model of shared errors is ``k(x, x') + b^2 [same ship]`` (math 25). That of several variables is a sum of
one or two terms ``B[v, v'] k(x, x')``, and a nugget of each variable, which may go together at a place as
well; it is fitted in units of the standard deviation of each variable (math 23). Which kernel in space, and
whether there is a second term, the likelihood says, less one for each number.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import cast

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Work
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.factors import Coregion, SameLabel, SameLabelOf
from cagp_dist.kernels import (
    AUTO,
    DEPTH,
    FITTED,
    PLACE,
    ROW,
    UNITS,
    VARIABLE,
    Along,
    Elementary,
    Family,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    MaternOf,
    Product,
    Sum,
    chosen_by,
    families_of,
)
from cagp_dist.likelihood.ellipses import GAIN, GAIN_ASKED, AnisotropyLike, Ellipse
from cagp_dist.likelihood.exact.integrated import way_of
from cagp_dist.likelihood.fit_result import FitProgress
from cagp_dist.likelihood.fit_work import FitSize, fit_work
from cagp_dist.likelihood.kernel_choice import CANDIDATES, likelihood_of
from cagp_dist.likelihood.numbering import NAMES, Model, Numbering
from cagp_dist.likelihood.starts import FoundStart, Start
from cagp_dist.pipeline.defaults import NO_NUGGET
from cagp_dist.pipeline.field_fit import (
    fit_depths,
    stretched,
    stretched_numbers,
    ways_in_depth,
    ways_of_field,
)
from cagp_dist.pipeline.fitted_model import (
    Correlations,
    FittedModel,
    ellipse_of,
    families,
    fit_model,
    sites_of_fit,
)
from cagp_dist.pipeline.fitting import Sites, method_of
from cagp_dist.pipeline.labels import NO_LABELS, Labels
from cagp_dist.pipeline.likely_numbers import Fields, likely_kernels
from cagp_dist.pipeline.map_mean import MeanLike, MeansByLabel, mean_of
from cagp_dist.pipeline.model_settings import FitWork, KernelLike, ModelSettings
from cagp_dist.pipeline.observations import Observations
from cagp_dist.prior import Prior
from cagp_dist.text import counted

LEAST_NOISE = 1e-6  # Of a variable, in units of its variance, below the nugget that is fitted
MOST_DRAWN = 400  # Values of several variables up to which their numbers are integrated over: some seconds
MOST_EXACT = 500  # Values of a variable by itself whose likelihood is exact: where searches begin
LEAST_SHARE, MOST_SHARE = 1e-6, 1e4  # Variances that are sought of shared errors, in units of the first
NUGGET_SHARE = 0.3  # Of the noise of observations, where the search for shared errors begins


def fit_labelled(observed: Observations, asked: ModelSettings, work: FitWork) -> FittedModel:
    """Fit kernel, noise and what observations with the same label have in common."""
    kernel = asked.kernel
    if chosen_by(kernel) == FITTED:
        raise ArgumentError(
            f"kernel is {kernel!r}, whose smoothness is fitted, and the observations have labels; expected "
            'a kernel with its smoothness, such as "matern(0.8)", or "auto".',
            key="smoothness-with-labels",
        )
    tried = CANDIDATES if chosen_by(kernel) is not None else None
    search = _Search(observed, asked, work)
    own = [(family,) for family in tried] if tried is not None else [families(kernel)]
    if asked.labels.variables:
        return search.of_variables(own)
    single = all(len(each) == 1 and isinstance(each[0], type | MaternOf) for each in own)
    sought = isinstance(asked.anisotropy, str) and asked.anisotropy != "none"
    if sought and single and not asked.fixed and DEPTH not in observed.beside:
        ellipse = ellipse_of(asked.anisotropy, observed)
        circles = search.of_shared_errors(own, anisotropy="none")
        return circles if ellipse is None else search.with_ellipse(ellipse, circles)
    if DEPTH in observed.beside:
        return search.of_shared_errors_in_depth()
    whole = asked.anisotropy != "none"  # which is chosen with the kernel
    return search.of_shared_errors([kernel] if whole else own, anisotropy=asked.anisotropy)


def work_of_searches(
    sites: Sites,
    kernel: str,
    labels: Labels,
    values: Sequence[int],
    *,
    deviating: bool,
    in_depth: bool,
    workers: int,
) -> tuple[int, Work]:
    """Count the searches of `fit_labelled`, and what they take, about.

    ``values``: how many each of several variables has; ``deviating``: each point has a noise; ``in_depth``:
    kernels of depth are compared.
    """
    kernels = len(CANDIDATES) if chosen_by(kernel) is not None else 1
    size = FitSize(sites.method, sites.chosen.size, 1, fields=sites.times.size)
    if labels.variables:
        alone: list[FitSize] = [
            size._replace(points=own, method="dense" if own <= MOST_EXACT else "vecchia") for own in values
        ]
        twice = 1 if kernels == 1 else 1 + _starts_of_unlike(len(values))
        parts = [2] * kernels + [3] * twice  # a nugget is one of them
    elif in_depth:  # one alone, then all ways in depth, the other kernels of space, and all values at last
        alone = [size] if labels.bias_by else []
        parts = [1 + len(labels.bias_by)] * (len(ways_in_depth(Matern32)[AUTO]) + kernels)
    else:
        own_parts = 1 if kernels > 1 else len(families_of(kernel))
        alone = [size._replace(parts=own_parts, deviating=deviating)] * kernels
        parts = [own_parts + len(labels.bias_by)] * kernels
    together = [size._replace(parts=count, started=True) for count in parts]
    works = [fit_work(each, workers=workers) for each in (*alone, *together)]
    return len(works), reduce(add, works)


def _starts_of_unlike(variables: int) -> int:
    """Count the starts of two terms of different smoothness."""
    return 2 if variables == 2 else 1


@dataclass(frozen=True, eq=False)
class _Search:
    """What fits have in common."""

    observed: Observations
    asked: ModelSettings
    work: FitWork

    @property
    def labels(self) -> Labels:
        """What the labels are."""
        return self.asked.labels

    @property
    def there(self) -> Indices:
        """Points with a value."""
        return self.observed.there

    def of_shared_errors(self, kernels: Sequence[KernelLike], *, anisotropy: AnisotropyLike) -> FittedModel:
        """Fit each kernel with errors that groups share, from a fit without them; take the likeliest."""
        best: FittedModel | None = None
        search = replace(self, asked=replace(self.asked, anisotropy=anisotropy))
        for kernel in kernels:
            found = self._from_field(search._alone(kernel, self.there), self.there)
            if best is None or _likelihood(found) > _likelihood(best):
                best = found
        assert best is not None
        return best

    def of_shared_errors_in_depth(self) -> FittedModel:
        """Find the kernel of space and depth together with errors that groups share.

        One that is chosen before takes these errors for noise, or for a rough field.
        """

        def fitted(family: Family, places: Indices, start: Start | None) -> FittedModel:
            if start is not None:
                return self._with_shared((family,), places, start)
            return self._from_field(self._alone((family,), places), places)

        return fit_depths(self.observed, self.asked, fitted)

    def _from_field(self, alone: FittedModel, places: Indices) -> FittedModel:
        """Fit a field and errors that groups share together, from a fit that takes all of these for noise."""
        noise, least = float(np.mean(alone.noise_variance)), float(np.min(alone.known_noise))
        begin = max((1.0 - NUGGET_SHARE) * noise, least, NO_NUGGET)
        if least > 0.0 and self.asked.nugget_std is not None:  # which holds it
            begin = least + self.asked.nugget_std**2
        errors = [NUGGET_SHARE * noise] * len(self.labels.bias_by)
        return self._beside_errors(alone.kernel.parts, errors, begin, places)

    def with_ellipse(self, ellipse: Ellipse, circles: FittedModel) -> FittedModel:
        """Fit an ellipse beside errors that groups share, from circles, which stay if nearly as likely."""
        field, *errors = circles.kernel.parts
        assert circles.result is not None
        family, length = field.family, field.common_lengthscale
        circle = ellipse.circle(length)
        noise = circles.result.prior.noise_number
        begin = [max(error.variance, NUGGET_SHARE * NUGGET_SHARE * noise) for error in errors]
        own = ellipse.family(family)(circle, field.variance)
        found = self._beside_errors((own,), begin, noise, self.there)
        gain = _likelihood(found) - _likelihood(circles)
        if gain >= (GAIN if ellipse.asked == "auto" else GAIN_ASKED):
            return found
        if ellipse.asked == "auto":
            return circles
        kernel = Sum((replace(ellipse, asked=(1.0, 0.0)).of(field), *errors))
        prior = replace(circles.result.prior, kernel=kernel)
        return replace(circles, kernel=kernel, result=replace(circles.result, prior=prior))

    def _beside_errors(
        self, field: Sequence[Elementary], variances: Sequence[float], noise: float, places: Indices
    ) -> FittedModel:
        """Fit a field and errors that groups share together, from these numbers."""
        errors = [SameLabel(own, axis) for own, axis in zip(variances, self.labels.bias_by, strict=True)]
        free = [(LEAST_SHARE * own, MOST_SHARE * own) for own in variances]
        fixed = {name: [*numbers, *free] for name, numbers in self.asked.fixed.items()}
        search = replace(self, asked=replace(self.asked, fixed=fixed))
        own = [part.family for part in field]
        return search._with_shared(own, places, _start((*field, *errors), noise))

    def _with_shared(self, field: Sequence[Family], places: Indices, start: Start) -> FittedModel:
        """Fit a field and errors that groups share together."""
        shared = (cast("Family", SameLabelOf(axis)) for axis in self.labels.bias_by)
        search = replace(self, asked=replace(self.asked, anisotropy="none"))
        found = search._fitted((*field, *shared), self.observed, places, start)
        return replace(found, numbers=PLUGGED_IN)

    def of_variables(self, kernels: Sequence[tuple[Family, ...]]) -> FittedModel:
        """Fit one term, and a second one, with the variables in units of their standard deviations."""
        observed, m = self.observed, len(self.labels.variables)
        labels = observed.beside[VARIABLE]
        rows = [self.there[labels[self.there] == label] for label in range(m)]
        means = cast("MeansByLabel", self.asked.mean).means
        scales = np.array([float(np.nanstd(observed.values[:, own])) for own in rows])
        if not (scales > 0.0).all():
            which = self.labels.variables[int(np.argmin(scales))]
            raise ArgumentError(
                f"all values of {which!r} are the same, so that nothing is learned of it; leave it out.",
                key="constant",
            )
        if (parts := next((each for each in kernels if len(each) != 1), None)) is not None:
            raise ArgumentError(
                f"the kernel is a sum of {len(parts)} parts, and there are several variables, whose "
                "terms are found by the likelihood; expected a kernel of one part.",
                key="sum-of-variables",
            )
        over = scales[labels.astype(np.intp)]
        scaled = replace(
            observed,
            values=observed.values / over,
            noise_variance=None if observed.noise_variance is None else observed.noise_variance / over**2,
        )
        own_mean = MeansByLabel(
            tuple(_over(each, scale) for each, scale in zip(means, scales, strict=True)),
            self.labels.variables,
            VARIABLE,
        )
        single, way = self._each_alone(scaled, rows, own_mean, kernels[0][0])
        given = scaled.noise_variance
        known = np.zeros(labels.size) if given is None else given
        prepared = replace(scaled, noise_variance=np.where(known > 0.0, known, LEAST_NOISE))
        if not self.labels.nugget_correlation:
            prepared = replace(prepared, beside={**scaled.beside, ROW: np.arange(labels.size, dtype=float)})
        asked = replace(self.asked, mean=own_mean, noise_std=None, nugget_std=0.0, anisotropy="none")
        search = replace(self, observed=prepared, asked=asked)
        ellipse = ellipse_of(self.asked.anisotropy, observed)
        asks = ellipse if ellipse is not None and ellipse.asked != "auto" else None

        def field(space: Family) -> Family:
            """Give the kernel of a term by that of space."""
            found = ways_of_field(space, observed, self.asked, ellipse)[way]
            return found if asks is None else stretched(asks, found)

        start = _Start.of(single, self._together(scaled, rows), self.labels)
        start = start if asks is None else start.stretched(asks)
        best: FittedModel | None = None
        above: Mapping[int, float] = {}
        for (space,) in kernels:
            found, reached = search._of_terms((field(space),), start, above, 0.0)
            if found is not None and (best is None or _likelihood(found) > _likelihood(best)):
                best, above, chosen = found, reached, [space]
        assert best is not None
        pairs = {(chosen[0], chosen[0]), CANDIDATES_OF_TERMS if len(kernels) > 1 else (chosen[0], chosen[0])}
        one, more = best, m + m * (m - 1) // 2 + 1.0  # numbers
        for two in sorted(pairs, key=repr):
            for begin in _Start.of_two(one, single, self.labels, alike=two[0] is two[1]):
                by = more if best is one else 0.0
                terms = tuple(field(space) for space in two)
                found, reached = search._of_terms(terms, begin, above, by)
                if found is not None and _likelihood(found) > _likelihood(best) + by:
                    best, above, chosen = found, reached, [*two]
        if ellipse is not None and asks is None:
            circles, gain = tuple(field(space) for space in chosen), GAIN * len(chosen)
            if not any(isinstance(term, Along) for term in circles):  # one distance in space and depth
                begin = _Start.at(best, self.labels).stretched(ellipse)
                terms = tuple(stretched(ellipse, term) for term in circles)
                found, _ = search._of_terms(terms, begin, above, gain)
                if found is not None and _likelihood(found) >= _likelihood(best) + gain:
                    best = found
        model = self._in_units(best, scales, labels)
        own = self.asked.hyperparameters
        if way_of(own) == "plug-in" or self.observed.count > MOST_DRAWN:
            why = "as asked for" if way_of(own) == "plug-in" else f"there are {observed.count:,} observations"
            return replace(model, numbers=f"plugged in: {why}")
        likely = tuple(
            (weight, self._in_units(replace(best, kernel=kernel), scales, labels))
            for weight, kernel in search._likely(best)
        )
        if not likely:
            return replace(model, numbers="plugged in: draws of them are too unlike what the fit says")
        few = counted(observed.count, "observation")
        return replace(
            model,
            likely=likely,
            numbers=f"the most likely ones; as there are only {few}, error bars are averaged over "
            f"{len(likely)} other probable sets of parameters",
        )

    def _likely(self, found: FittedModel) -> list[tuple[float, Kernel]]:
        """Draw kernels by their probability, from the same values as those of the fit."""
        observed, sites = self.observed, found.sites
        assert found.result is not None
        assert sites is not None
        X = observed.X[sites.chosen]
        mean = mean_of(self.asked.mean, observed, sites.chosen, sites.times)
        prior = Prior(found.kernel, 1.0, mean)
        values = observed.values[np.ix_(sites.times, sites.chosen)].T - prior.known_at(X)
        noise = np.broadcast_to(cast("Array", observed.noise_variance), observed.north.shape)[sites.chosen]
        places = observed.positions[sites.chosen]
        extent = float(np.linalg.norm(np.ptp(places, axis=0)))
        fields = Fields(X, values, noise, prior.basis_at(X), extent)
        return likely_kernels(found.result, fields)

    def _each_alone(
        self, scaled: Observations, rows: Sequence[Indices], mean: MeansByLabel, space: Family
    ) -> tuple[list[FittedModel], int]:
        """Fit each variable by itself, and say which kernel of their axes suits all of them best."""
        asked = replace(self.asked, anisotropy="none", labels=NO_LABELS)
        ways = ways_of_field(space, scaled, asked, ellipse_of(self.asked.anisotropy, scaled))
        found = [
            [
                replace(self, asked=replace(asked, mean=own))._quickly(_own_noise(scaled.at(at)), (way,))
                for at, own in zip(rows, mean.means, strict=True)
            ]
            for way in ways
        ]
        best = int(np.argmax([sum(map(_likelihood, each)) for each in found]))
        return found[best], best

    def _of_terms(
        self, parts: tuple[Family, ...], start: "_Start", above: Mapping[int, float], by: float
    ) -> tuple[FittedModel | None, Mapping[int, float]]:
        """Fit terms of several variables and their nuggets, and say what was reached (`_Watch`).

        None where they will not be likelier by so much than what another search has reached.
        """
        terms = [
            cast("Product", family(own[0] if len(own) == 1 else own, 1.0) * Coregion(B, VARIABLE))
            for family, own, B in zip(parts, start.numbers, start.tables, strict=True)
        ]
        kernel: list[Elementary] = [_normalised(term) for term in terms]
        for axis, own in zip(self.labels.bias_by, start.shared, strict=True):
            of_each = Coregion(own, VARIABLE, independent=True)
            kernel.append(_normalised(cast("Product", SameLabel(1.0, axis) * of_each)))
        axis = PLACE if self.labels.nugget_correlation else ROW
        nuggets = Coregion(start.nuggets, VARIABLE, independent=not self.labels.nugget_correlation)
        kernel.append(_normalised(cast("Product", SameLabel(1.0, axis) * nuggets)))
        least = float(cast("Array", self.observed.noise_variance)[self.there].min())
        watch = _Watch(self.work.progress, above, by)
        try:
            found = replace(self, work=replace(self.work, progress=watch))._fitted(
                tuple(part.family for part in kernel),
                self.observed,
                self.there,
                _start(kernel, least),
                self._sites(),
            )
        except _HopelessError:
            return None, watch.reached
        return found, watch.reached

    def _alone(self, kernel: KernelLike, places: Indices) -> FittedModel:
        """Fit a kernel of the field alone, from which searches begin."""
        field = {axis: own for axis, own in self.observed.beside.items() if axis not in self.labels.bias_by}
        asked = replace(self.asked, kernel=kernel, labels=NO_LABELS)
        if DEPTH in field:
            asked = replace(asked, anisotropy="none")
        return fit_model(replace(self.observed, beside=field), asked, self.work, places=places)

    def _quickly(self, observed: Observations, parts: tuple[Family, ...]) -> FittedModel:
        """Fit a kernel to one variable, from which searches begin: of many points by Vecchia's likelihood."""
        field = {axis: own for axis, own in observed.beside.items() if axis in UNITS}
        alone, places = replace(observed, beside=field), np.arange(observed.north.size)
        sites = sites_of_fit(alone, places)
        if sites.chosen.size > MOST_EXACT and sites.grid is None:
            sites = replace(sites, method="vecchia")
        return self._fitted(parts, alone, places, sites=sites)

    def _fitted(
        self,
        parts: tuple[Family, ...],
        observed: Observations,
        places: Indices,
        start: Start | None = None,
        sites: Sites | None = None,
    ) -> FittedModel:
        """Fit all numbers of a sum of parts together."""
        own = replace(self.asked, kernel=parts)
        return fit_model(observed, own, self.work, places=places, start=start, sites=sites)

    def _sites(self) -> Sites:
        """Choose what decides: places that all times have, or one time where they lack a variable then."""
        observed = self.observed
        sites = sites_of_fit(observed, self.there)
        labels, m = observed.beside[VARIABLE].astype(np.intp), len(self.labels.variables)
        own = np.bincount(labels[self.there], minlength=m)
        if (np.bincount(labels[sites.chosen], minlength=m) < np.minimum(own, ENOUGH_VALUES)).any():
            present = observed.present[:, self.there]
            counts = np.array([np.bincount(labels[self.there][at], minlength=m) for at in present])
            time = int(counts.min(axis=1).argmax())
            chosen = self.there[present[time]]
            sites = Sites(chosen, np.array([time]), method_of(chosen.size))
        found = np.bincount(labels[sites.chosen], minlength=m)
        if (found < FEWEST_VALUES).any():
            name = self.labels.variables[int(found.argmin())]
            raise DataError(
                f"{name!r} has {counted(int(found.min()), 'value')} where the others have most; expected "
                f"{FEWEST_VALUES} at least, to learn how the variables go together.",
                key="few-observations",
            )
        return sites

    def _together(self, scaled: Observations, rows: Sequence[Indices]) -> Array:
        """Correlate variables where two were observed at one place; 0 where hardly any were."""
        at = scaled.positions
        if DEPTH in scaled.beside:
            at = np.column_stack([at, scaled.beside[DEPTH]])
        table, moments = np.eye(len(rows)), [at[own] for own in rows]
        for first in range(len(rows)):
            for second in range(first):
                here = {tuple(place): at for at, place in enumerate(moments[first].tolist())}
                pairs = [
                    (here[tuple(place)], at)
                    for at, place in enumerate(moments[second].tolist())
                    if tuple(place) in here
                ]
                if len(pairs) < FEWEST_PAIRS:
                    continue
                left, right = np.array(pairs).T
                a = scaled.values[0, rows[first][left]]
                b = scaled.values[0, rows[second][right]]
                both = np.isfinite(a) & np.isfinite(b)
                if np.count_nonzero(both) >= FEWEST_PAIRS:
                    found = np.corrcoef(a[both], b[both])[0, 1]
                    table[first, second] = table[second, first] = np.clip(found, -0.95, 0.95)
        values, vectors = np.linalg.eigh(table)
        table = vectors @ np.diag(np.maximum(values, 0.02)) @ vectors.T
        root = np.sqrt(table.diagonal())
        return np.asarray(table / np.outer(root, root))

    def _in_units(self, found: FittedModel, scales: Array, labels: Array) -> FittedModel:
        """Give the model in the units of the variables; nuggets that are independent become noise."""
        m, own = len(scales), labels.astype(np.intp)
        tables = [_table(part, m) * np.outer(scales, scales) for part in found.kernel.parts]
        parts: list[Elementary] = []
        noise = np.array(found.known_noise) * scales[own] ** 2
        known = [(noise[own == label] > LEAST_NOISE * scale**2).any() for label, scale in enumerate(scales)]
        nuggets = np.where(known, 0.0, LEAST_NOISE * scales**2)
        for part, table in zip(found.kernel.parts, tables, strict=True):
            if is_nugget(part):
                nuggets = nuggets + table.diagonal()
            if is_nugget(part) and not self.labels.nugget_correlation:
                noise = noise + table.diagonal()[own]
                continue
            *axes, known_as = part.factors
            independent = isinstance(known_as, Coregion) and known_as.independent
            parts.append(Product((*axes, Coregion(table, VARIABLE, independent=independent)), 1.0))
        kernel = parts[0] if len(parts) == 1 else Sum(tuple(parts))
        return replace(
            found,
            kernel=kernel,
            mean=self.asked.mean,
            known_noise=noise,
            nugget=0.0,
            correlations=_correlations(found, m),
            nuggets=nuggets,
            nuggets_of_kernel=variances_of(kernel, m)[1],
        )


class _HopelessError(Exception):
    """A search that will not reach the likelihood that is wanted."""


PATIENCE, SLOW = 12, 0.5  # A search that gains less in so many evaluations, and is below what is wanted, ends


@dataclass(eq=False)
class _Watch:
    """What sees each evaluation of a search, and ends it where there is no hope."""

    progress: Callable[[FitProgress], None] | None
    above: Mapping[
        int, float
    ]  # what another search has reached, by how many points it was on; may be nothing
    by: float  # how much more is wanted with all points, the most of these
    reached: dict[int, float] = field(default_factory=dict)
    before: list[float] = field(default_factory=list)  # the best so far at each evaluation on as many points

    def __call__(self, state: FitProgress) -> None:
        """Look at one evaluation."""
        if self.progress is not None:
            self.progress(state)
        n = state.points
        if n not in self.reached:
            self.before.clear()
        self.reached[n] = max(state.log_likelihood, self.reached.get(n, -np.inf))
        self.before.append(self.reached[n])
        slow = len(self.before) > PATIENCE and self.before[-1] - self.before[-1 - PATIENCE] < SLOW
        # of some points, with which a search begins, as much as in proportion to their number
        if slow and n in self.above and self.reached[n] < self.above[n] + self.by * n / max(self.above):
            raise _HopelessError


PLUGGED_IN = "Plugged in: numbers of observations with labels are not integrated over."
CANDIDATES_OF_TERMS: tuple[Family, Family] = (Matern12, Matern52)  # a rough term and a smooth one
MOST_OF_TERM = 0.85  # Of the variance of a variable, in the term in which it has most at the start
ENOUGH_VALUES, FEWEST_VALUES = 30, 5  # Of each variable, for a fit to several times, and for any
FEWEST_PAIRS = 10  # Places where two variables were observed, from which their correlation is guessed


@dataclass(frozen=True, eq=False)
class _Start:
    """Where a search of several variables begins, in units of their standard deviations."""

    numbers: list[tuple[float, ...]]  # of the kernel of each term, lengthscale in space first
    tables: list[Array]  # (m, m) of each term
    nuggets: Array  # (m, m)
    shared: list[Array] = field(default_factory=list)  # (m, m), diagonal, of errors that each axis shares

    @classmethod
    def of(cls, single: Sequence[FittedModel], correlations: Array, labels: Labels) -> "_Start":
        """Begin at the fits of the variables by themselves."""
        deviations = np.sqrt([float(each.kernel.variance) for each in single])
        noise = np.array([max(float(np.mean(each.noise_variance)), 1e-3) for each in single])
        numbers = np.array([each.kernel.parts[0].numbers for each in single])
        shared = [NUGGET_SHARE * np.diag(noise)] * len(labels.bias_by)
        nuggets = np.diag(noise)
        if labels.nugget_correlation:
            nuggets = 0.5 * correlations * np.sqrt(np.outer(noise, noise)) + 0.5 * np.diag(noise)
        mean = tuple(np.exp(np.mean(np.log(numbers), axis=0)).tolist())
        return cls([mean], [np.outer(deviations, deviations) * correlations], nuggets, shared)

    @classmethod
    def at(cls, found: FittedModel, labels: Labels) -> "_Start":
        """Begin where a search has ended."""
        m = len(labels.variables)
        parts, shared = found.kernel.parts, len(labels.bias_by)
        tables = [_table(part, m) for part in parts]
        terms = len(parts) - shared - 1
        numbers = [_numbers_of_term(part) for part in parts[:terms]]
        return cls(numbers, tables[:terms], tables[-1], tables[terms:-1])

    def stretched(self, ellipse: Ellipse) -> "_Start":
        """Begin at circles where ellipses are fitted."""
        return replace(self, numbers=[stretched_numbers(ellipse, own) for own in self.numbers])

    @classmethod
    def of_two(
        cls, one: FittedModel, single: Sequence[FittedModel], labels: Labels, *, alike: bool
    ) -> Iterator["_Start"]:
        """Begin two terms that are alike at halves of one, a shorter and a longer one.

        Others begin with most of each variable in one of them, which is where variables of different
        smoothness have it: from halves a search ends at a lower maximum.
        """
        m = len(labels.variables)
        begin = cls.at(one, labels)
        (table,), ((length, *others),) = begin.tables, begin.numbers
        diagonal, nuggets, shared = np.diag(table.diagonal()), begin.nuggets, begin.shared
        halves = [0.5 * (0.7 * table + 0.3 * diagonal), 0.5 * (0.9 * table + 0.1 * diagonal)]
        if alike:
            yield cls([(0.6 * length, *others), (2.0 * length, *others)], halves, nuggets, shared)
            return
        alone = np.array([float(each.kernel.parts[0].numbers[0]) for each in single])
        shorter = np.argsort(np.argsort(alone)) < m / 2
        for first in (shorter, ~shorter)[: _starts_of_unlike(m)]:
            share = np.where(first, MOST_OF_TERM, 1.0 - MOST_OF_TERM)
            tables = [
                (0.8 * table + 0.2 * diagonal) * np.sqrt(np.outer(own, own)) for own in (share, 1.0 - share)
            ]
            yield cls([(length, *others)] * 2, tables, nuggets, shared)


def variances_of(kernel: Kernel, variables: int) -> tuple[Array, Array]:
    """Prior variances (m,) of the fields of several variables, and of nuggets that go together at a place."""
    fields, nuggets = np.zeros((2, variables))
    for part in kernel.parts:
        own = _table(part, variables).diagonal()
        if is_nugget(part):
            nuggets += own
        elif not is_shared(part):
            fields += own
    return fields, nuggets


def shared_stds(kernel: Kernel, variables: int) -> dict[str, Array]:
    """Give the standard deviations (m,) of errors that observations share, of each variable, by axes."""
    shared = [part for part in kernel.parts if is_shared(part) and not is_nugget(part)]
    return {
        cast("SameLabel", part.factors[0]).axis: np.sqrt(_table(part, variables).diagonal())
        for part in shared
    }


def is_shared(part: Elementary) -> bool:
    """Whether a part of a kernel is of observations with the same label alone."""
    return isinstance(part.factors[0], SameLabel)


def is_nugget(part: Elementary) -> bool:
    """Whether it is of values that were measured together, or of each by itself."""
    first = part.factors[0]
    return isinstance(first, SameLabel) and first.axis in (ROW, PLACE)


def _numbers_of_term(part: Elementary) -> tuple[float, ...]:
    """Give the numbers of a term but those of its table of variables."""
    return tuple(number for factor in part.factors[:-1] for number in factor.numbers)


def _own_noise(observed: Observations) -> Observations:
    """Forget the noise of a variable of which nothing is known."""
    noise = observed.noise_variance
    return observed if noise is None or noise.any() else replace(observed, noise_variance=None)


def _correlations(found: FittedModel, m: int) -> Correlations:
    """Correlate the fields, without nuggets, with errors by the delta method."""
    result, kernel = found.result, found.kernel
    assert result is not None
    numbering = Numbering.of_kernel(kernel)
    model = Model(tuple(part.family for part in kernel.parts))
    numbers = np.array(
        [*(n for part in kernel.parts for n in part.numbers), *(p.variance for p in kernel.parts)]
    )

    def table(logarithms: Array) -> Array:
        lengths, variances, _ = numbering.grouped([*np.exp(logarithms), 1.0])
        parts = model.kernel(lengths, variances).parts
        return np.asarray(sum(_table(part, m) for part in parts if not is_shared(part)))

    def correlations(logarithms: Array) -> Array:
        B = table(logarithms)
        root = np.sqrt(B.diagonal())
        return np.asarray(B / np.outer(root, root))

    x, step = np.log(numbers), 1e-5
    slopes = np.array(
        [(correlations(x + step * e) - correlations(x - step * e)) / (2.0 * step) for e in np.eye(x.size)]
    )
    covariance = result.log_covariance[: x.size, : x.size]
    known = ~np.isnan(covariance.diagonal())
    own = covariance[np.ix_(known, known)]
    errors = np.sqrt(np.einsum("aij,ab,bij->ij", slopes[known], own, slopes[known]))
    return Correlations(correlations(x), errors)


def _normalised(term: Product) -> Product:
    """Give a term whose table has a one for label 0, as fits have it."""
    *others, table = term.factors
    assert isinstance(table, Coregion)
    first = table.covariance[0][0]
    same = Coregion(table.matrix / first, table.axis, independent=table.independent)
    return Product((*others, same), term.variance * first)


def _table(part: Elementary, m: int) -> Array:
    """Covariances (m, m) of the variables at one point, by a part of a kernel."""
    table = np.ones((m, m))
    for factor in part.factors:
        if isinstance(factor, Coregion) and factor.axis == VARIABLE:
            table = table * factor.matrix
    return np.asarray(part.variance * table)


def _start(parts: Sequence[Elementary], noise: float) -> Start:
    """Give the numbers of kernels as a search takes them."""
    numbering = Numbering.of_kernel(parts[0] if len(parts) == 1 else Sum(tuple(parts)))
    own = [
        part.parts[0].common_lengthscale if names == NAMES[:1] else part.parts[0].numbers
        for part, names in zip(parts, numbering.own, strict=True)
    ]
    if len(parts) == 1:
        alone: Start = {"lengthscale": own[0], "variance": float(parts[0].variance), "noise_variance": noise}
        return FoundStart(alone)
    variances = tuple(float(part.variance) for part in parts)
    return FoundStart({"lengthscale": tuple(own), "variance": variances, "noise_variance": noise})


def _likelihood(found: FittedModel) -> float:
    assert found.result is not None
    return likelihood_of(found.result)


def _over(mean: MeanLike, scale: float) -> MeanLike:
    """Give a mean in units of a scale; coefficients that are estimated take it up."""
    if isinstance(mean, int | float):
        return float(mean) / scale
    return mean
