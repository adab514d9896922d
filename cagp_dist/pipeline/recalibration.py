"""Distributions of observations, recalibrated by errors of predictions that did not use them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.calibration.recalibration import methods
from cagp_dist.calibration.recalibration.corrected import corrected_distributions, in_parts
from cagp_dist.calibration.recalibration.local_scale import FittedLocalScale, LocalScale
from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS, SHARP, Fitted, Unchanged
from cagp_dist.calibration.recalibration.sharp import FittedSharp
from cagp_dist.calibration.verification.scores import PointScores, point_scores, unscored
from cagp_dist.errors import ArgumentError
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.predictive import Gaussian, Predictive, QuantileTable
from cagp_dist.predictive.transforms import Transform
from cagp_dist.text import counted

Errors = Literal["none", "points", "blocks", "drawn", "leave-one-out", "folds"]


@dataclass(frozen=True)
class Recalibration:
    """What corrects distributions of observations."""

    method: str = "none"  # of a job file; ``"none"`` where nothing does
    errors: Errors = "none"  # where its errors come from
    places: int = 0  # how many places have errors
    why_not: str = ""  # why the method that was asked for was left out; else empty
    blocks: float | None = None  # size of the blocks that calibration points, or folds, are made of, if given
    scored_by_folds: bool = False  # whether folds are scored, those of each by the errors of the others
    levels: tuple[float, ...] = ()  # of a sharp GP, those of its quantiles
    split: str = ""  # of a sharp GP, how the calibration points are used

    def key(self) -> dict[str, object]:
        """Give what a run key has to know; nothing where nothing is corrected."""
        if self.method == "none":
            return {}
        named = {"method": self.method, "errors": self.errors, "places": self.places}
        drawn = {"drawn": "blocks"} if self.errors == "points" and self.blocks is not None else {}
        return {"recalibration": named | drawn}

    def attributes(self) -> dict[str, str]:
        """Give what a run says of it."""
        return {"recalibration": self.method, "recalibration_statement": self.statement()}

    def statement(self) -> str:
        """Say it in one sentence."""
        if self.method == "none":
            return self.why_not or "The error bars are those of the model: no recalibration was asked for."
        source = {
            "points": f"errors at {counted(self.places, 'calibration point')}, none of them observed"
            + (", in separate blocks" if self.blocks is not None else ""),
            "drawn": f"errors at {counted(self.places, 'place')} that a solve without them predicted",
            "blocks": f"errors at {counted(self.places, 'place')} that were predicted from other blocks",
            "folds": f"errors at {counted(self.places, 'place')}, each predicted from other folds",
            "leave-one-out": f"leave-one-out errors of the {counted(self.places, 'observed point')}",
        }[self.errors]
        source += self._of_sharp()
        if self.scored_by_folds:
            source += "; the score of a place uses only errors of folds other than its own"
        return f"Predictive distributions are recalibrated ({self.method}) by {source}."

    def _of_sharp(self) -> str:
        """Say which quantiles have lengthscales of their own, and what is guaranteed."""
        if self.method != SHARP:
            return ""
        chosen = {
            "three-way": "chosen with one half of these points and scaled by the errors at the other half",
            "two-way": "chosen and scaled with the same points, which guarantees no probability",
        }[self.split]
        return (
            f": quantiles at {len(self.levels)} levels from {self.levels[0]:g} to {self.levels[-1]:g} each "
            f"have their own lengthscale, {chosen}"
        )


NOT_ASKED = Recalibration()


@dataclass(frozen=True, eq=False)
class Distribution:
    """Distributions of observations, each of T times and points, or of a grid (P, Q)."""

    std: Array  # (T, q), or (T, P, Q): in the unit of the variable, noise included
    # (T, L, q), or (T, L, P, Q): at the L levels of `cagp_dist.pipeline.defaults.QUANTILE_LEVELS`
    quantiles: Array
    local_scale: Array | None = None  # as std: by which the errors were multiplied, where a method has that
    recalibrated: bool = True  # if not, it is what the prior says, as it is

    @classmethod
    def room_for(cls, shape: tuple[int, ...]) -> Self:
        """Make room for distributions (T, q) that are not recalibrated."""
        return cls(
            np.full(shape, np.nan),
            np.full((shape[0], len(QUANTILE_LEVELS), shape[1]), np.nan),
            recalibrated=False,
        )

    def put(self, fields: Indices, places: Indices, distribution: Predictive) -> None:
        """Write those (T', q') of some fields and some places."""
        self.std[np.ix_(fields, places)] = distribution.std
        by_level = np.moveaxis(self.quantiles, 1, 0)
        for level, values in zip(by_level, distribution.quantile(QUANTILE_LEVELS), strict=True):
            level[np.ix_(fields, places)] = values

    def correction(self, std: Array, noise_variance: float | Array) -> Array:
        """Factor of the standard deviation of the field: it keeps its share of that of an observation."""
        if not self.recalibrated:
            return np.ones(self.std.shape)
        return np.asarray(self.std / np.sqrt(std**2 + noise_variance))

    def among(self, there: Mask) -> "Distribution":
        """Put those of some places among all (q,), NaN for the others."""
        if there.all():
            return self

        def among(values: Array) -> Array:
            found = np.full((*values.shape[:-1], there.size), np.nan)
            found[..., there] = values
            return found

        scale = None if self.local_scale is None else among(self.local_scale)
        return Distribution(among(self.std), among(self.quantiles), scale, self.recalibrated)

    def on_grid(self, fields: Callable[[Array], Array]) -> "Distribution":
        """Put values of cells (T, q) into fields (T, P, Q)."""
        return Distribution(
            fields(self.std),
            np.stack([fields(each) for each in np.moveaxis(self.quantiles, 1, 0)], axis=1),
            None if self.local_scale is None else fields(self.local_scale),
            self.recalibrated,
        )


@dataclass(frozen=True, eq=False)
class OutOfSampleErrors:
    """Predictions that did not use the values that they are compared with."""

    distribution: Gaussian  # (T, N) noise included
    observed: Array  # (T, N) NaN where nothing was observed
    X: Array  # (N, 3) where, on the unit sphere
    folds: Indices | None = None  # (N,) of a cross-validation, the fold of each place
    # places (n, 3) and values (T, n) that the predictions were made from, where these points are none of
    # them
    training: tuple[Array, Array] | None = None
    blocks: Indices | None = None  # (N,) which block each place lies in, where whole blocks were kept

    def fit(self, method: methods.Recalibration) -> Fitted:
        """Let a method learn from the errors."""
        if isinstance(method, LocalScale):
            return method.fit(
                self.distribution, self.observed, self.X, training=self.training, groups=self.blocks
            )
        return method.fit(self.distribution, self.observed, self.X)

    def fit_without_each(self, method: methods.Recalibration) -> tuple[Fitted, ...]:
        """Let a method learn from the errors of all folds but one, each in turn; the others stay together."""
        assert self.folds is not None
        found = []
        for fold in range(int(self.folds.max()) + 1):
            others = self.folds != fold
            left = self.folds[others]
            known = OutOfSampleErrors(
                self.distribution[:, others],
                self.observed[:, others],
                self.X[others],
                blocks=left if np.unique(left).size > 1 else None,
            )
            found.append(known.fit(method))
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Distributions:
    """What corrects distributions of observations, as it was learned."""

    found: Recalibration  # what was decided; ``method = "none"`` where nothing could be learned
    everywhere: Fitted  # from the errors that were decided on
    # of a cross-validation, for the places of each fold: from the errors of the other folds
    by_fold: tuple[Fitted, ...] = ()
    # of a sharp GP: latent standard deviations (S, T, q) at targets of each kind, for each of its kernels
    stretched: Mapping[str, Array] = field(default_factory=dict)

    @property
    def corrected(self) -> bool:
        """Whether a method changes the distributions."""
        return self.found.method != "none"

    def stretched_at(self, kind: str | None, noise_variance: float | Array) -> Array | None:
        """Give the standard deviations (S, T, q) of observations that a sharp GP has at targets of a kind."""
        latent = None if kind is None else self.stretched.get(kind)
        return None if latent is None else np.sqrt(latent**2 + noise_variance)

    def at(
        self, plain: Gaussian, X: Array, *, folds: Indices | None = None, stretched: Array | None = None
    ) -> Distribution:
        """Correct plain distributions (T, q) at points X (q, p)."""
        std, scale = np.empty(plain.shape), np.empty(plain.shape)
        quantiles = np.empty((plain.shape[0], len(QUANTILE_LEVELS), plain.shape[1]))
        for fitted, some in self._groups(plain.shape, folds, stretched):
            found = corrected_distributions(fitted, plain[:, some], X[some], levels=QUANTILE_LEVELS)
            std[:, some], quantiles[..., some], scale[:, some] = found
        return Distribution(std, quantiles, scale if self.found.method == "local-scale" else None)

    def scored(
        self,
        plain: Gaussian,
        X: Array,
        observed: Array,
        *,
        folds: Indices | None = None,
        stretched: Array | None = None,
        transform: Transform | None = None,
    ) -> PointScores:
        """Score observations (T, q), in units before a transform; NaN where there is none; see `at`."""
        shape, everywhere = plain.shape, unscored(plain.shape)
        for fitted, chosen in self._groups(shape, folds, stretched):
            for some in in_parts(chosen, times=shape[0]):
                times, places = np.nonzero(~np.isnan(observed[:, some]))
                if not times.size:
                    continue
                distribution = fitted(plain[:, some], X[some])[times, places]
                if transform is not None and self.corrected:
                    # as maps say it: Student t has no mean behind an exponential
                    distribution = QuantileTable(
                        np.array(QUANTILE_LEVELS), distribution.quantile(QUANTILE_LEVELS)
                    )
                found = point_scores(distribution, observed[times, some[places]], transform=transform)
                everywhere.put((times, some[places]), found)
        return everywhere

    def _groups(
        self, shape: tuple[int, ...], folds: Indices | None, stretched: Array | None
    ) -> Iterator[tuple[Fitted, Indices]]:
        """Yield the points that have one correction."""
        everywhere, points = self.everywhere, np.arange(shape[1])
        if isinstance(everywhere, FittedSharp) and stretched is not None:
            for some in in_parts(points, times=shape[0]):
                yield _Stretched(everywhere, stretched[:, :, some]), some
            return
        if folds is None or not self.by_fold:
            yield everywhere, points
            return
        for fold, fitted in enumerate(self.by_fold):
            yield fitted, np.flatnonzero(folds == fold)


@dataclass(frozen=True, eq=False)
class _Stretched:
    """Distributions of a sharp GP at points whose standard deviations (S, T, q) are known."""

    fitted: FittedSharp
    std: Array

    def __call__(self, distribution: Gaussian, X_new: ArrayLike | None) -> Predictive:
        return self.fitted.with_std(distribution.mean, self.std)


def unchanged(found: Recalibration = NOT_ASKED) -> Distributions:
    """Distributions that nothing corrects."""
    return Distributions(found, Unchanged())


def learn_distributions(
    found: Recalibration, errors: OutOfSampleErrors | None, of_folds: OutOfSampleErrors | None = None
) -> Distributions:
    """Learn from errors what corrects distributions of observations.

    Where places of folds are scored, no error of their own fold corrects them; values of it had a part in the
    predictions of the others.
    """
    if found.method == "none":
        return unchanged(found)
    assert errors is not None  # there is a method only where the plan finds errors
    method = RECALIBRATIONS[found.method]()
    try:
        everywhere = errors.fit(method)
        by_fold = () if of_folds is None else of_folds.fit_without_each(method)
    except ArgumentError as error:
        raise ArgumentError(f"recalibration {found.method!r}: {error}", key="recalibration") from error
    if isinstance(everywhere, FittedLocalScale) and everywhere.regression is None:
        said = (
            "The error bars are not recalibrated: a local scale would hardly make the errors at "
            f"{counted(found.places, 'place')} likelier."
        )
        return unchanged(Recalibration(why_not=said))
    return Distributions(found, everywhere, by_fold)
