"""What is asked and what comes of it, as frozen values: the same whoever asks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.calibration.verification.scores import PointScores
from cagp_dist.pipeline.background import Innovations
from cagp_dist.pipeline.carried import CarriedField
from cagp_dist.pipeline.field_solves import DrawnFields, Solution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.integration import distributions_of_observations
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.model_settings import ModelSettings
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.recalibration import NOT_ASKED, Distribution, Distributions, Recalibration
from cagp_dist.pipeline.split import Split
from cagp_dist.predictive import Gaussian
from cagp_dist.solvers import Solver


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Observations that are predicted without themselves: by no solve used, or by none that predicts them."""

    values: Array  # (T, k), NaN where there is none
    X: Array  # positions (k, p)
    known_noise: Array  # variance (k,), 0 where nothing is known of it
    folds: Indices | None = None  # (k,) of each; it is predicted from the other folds
    blocks: Indices | None = None  # (k,) that were held out as a whole
    # places (n, p) and values (T, n) that predict them, where these are points in space and time
    training: tuple[Array, Array] | None = None
    labels: Indices | None = None  # (k,) of several variables, which each is of
    limits: Mask | None = None  # (T, k), which values are limits of detection


@dataclass(frozen=True, eq=False)
class Task:
    """What is asked: frozen, and the same whoever asks."""

    observations: Observations  # all, held out ones too: fields, or points in space and time
    split: Split  # which of these are observed, and in folds which fold each is of
    targets: Targets  # among them those of kind "held out" and "calibration", where there are any
    model: ModelSettings
    solver: str | Solver = "auto"
    recalibration: Recalibration = NOT_ASKED
    held_out: HeldOut | None = None  # scored; of the kind "held out"
    calibrating: HeldOut | None = None  # of the kind "calibration"
    lead_hours: float | None = None  # how long before a target its observations end; None: later ones count
    window_hours: float | None = None  # how far in time from a target they may lie
    fitted_to: Observations | None = None  # whose values decide on the numbers, if not the observed ones
    refits: bool = True  # whether folds have fits of their own
    times: int | None = None  # of points in space and time, at how many times all targets are wanted
    carried: CarriedField | None = None  # what is known from times before, of a field that goes on from them

    @cached_property
    def observed(self) -> Observations:
        """Observations that the solve uses; the others are forgotten."""
        everything = self.observations
        if self.split.observed.size == everything.north.size:
            return everything
        return everything.only(self.split.observed)

    @property
    def folds(self) -> int:
        """How many folds; 0 without any."""
        folds = None if self.held_out is None else self.held_out.folds
        return 0 if folds is None else int(folds.max()) + 1

    @property
    def fits_folds(self) -> bool:
        """Whether folds have fits of their own: a fold with a part in its own numbers is not held out."""
        given = self.model.prior is not None or self.model.noise_variance is not None
        return bool(self.folds) and self.refits and not given and self.fitted_to is None

    @property
    def sees_all_times(self) -> bool:
        """Whether all observations inform each target, whenever they are of."""
        return self.lead_hours is None and self.window_hours is None

    def without(self, folds: Sequence[int]) -> "Task":
        """Predict the places of some folds from those of the others."""
        held = self.held_out
        assert held is not None
        assert held.folds is not None
        left = np.isin(held.folds, folds)
        at = np.flatnonzero(left)
        points = self.targets.points
        if self.times is not None:  # all of them at each time
            q = points.size // self.times
            at = (np.arange(self.times)[:, None] * q + at).ravel()
        return replace(
            self,
            split=self.split.without(folds),
            targets=Targets(points.part(at), {"held out": slice(0, int(left.sum()))}),
            held_out=HeldOut(
                held.values[:, left],
                held.X[left],
                held.known_noise[left],
                labels=None if held.labels is None else held.labels[left],
                limits=None if held.limits is None else held.limits[:, left],
            ),
            recalibration=NOT_ASKED,
            calibrating=None,
        )


@dataclass(frozen=True, eq=False)
class Priors:
    """The prior that a task was solved with, and that of each fold where they differ."""

    model: FittedModel
    of_folds: tuple[FittedModel, ...] = ()

    @property
    def fits_of_folds(self) -> int:
        """How many fits the priors of the folds are of."""
        return len(set(map(id, self.of_folds)))

    def of_fold(self, number: int) -> FittedModel:
        """Prior by which a fold is predicted."""
        return self.of_folds[number] if self.of_folds else self.model

    def noise_of(self, held: HeldOut) -> Array:
        """Noise variance (k,) of what is held out, by the prior with which each was predicted."""
        noise = self.model.noise_of(self.model.known_of(held.known_noise, held.labels))
        if held.folds is not None:
            for fold, model in enumerate(self.of_folds):
                own = held.folds == fold
                noise[own] = model.noise_of(model.known_of(held.known_noise, held.labels)[own])
        return noise


@dataclass(frozen=True, eq=False)
class Result:
    """What came of a task."""

    task: Task
    priors: Priors
    solution: Solution  # of all targets, those of folds from the others
    distributions: Distributions  # what corrects distributions of observations; perhaps nothing
    plain: PointScores | None = (
        None  # (T, k) of what is held out, before that; NaN where nothing was observed
    )
    scores: PointScores | None = None  # after it
    of_held_out: Distribution | None = None  # distributions there, where `has_distributions`
    innovations: Innovations | None = None  # what observations say of a background, where the mean is one

    @property
    def corrected(self) -> bool:
        """Whether distributions were recalibrated."""
        return self.distributions.corrected

    @property
    def usual_noise(self) -> float:
        """Noise variance of an observation where none was made."""
        return self.priors.model.usual_noise(self.task.observed)

    @property
    def has_distributions(self) -> bool:
        """Whether an observation has another distribution than the normal one of mean and std."""
        mixture = self.priors.model.integrated is not None or self.solution.drawn is not None
        return self.corrected or mixture or self.task.observations.transform is not None

    def distribution_at(self, kind: str | None = None) -> Distribution:
        """Distribution (T, q) of an observation with the usual noise at targets of a kind, or all."""
        at = slice(None) if kind is None else self.task.targets.of_kind(kind)
        targets = self.task.targets.points
        if kind is not None:
            targets = targets.part(np.arange(targets.size)[at])
        own = self.solution.of_targets(at)
        return self.distribution_of(own.mean, own.std, targets, kind, drawn=own.drawn)

    def distribution_of(
        self,
        mean: Array,
        std: Array,
        targets: MapPoints,
        kind: str | None = None,
        *,
        drawn: DrawnFields | None = None,
    ) -> Distribution:
        """Distribution (T, q) of an observation with the usual noise, where the field has mean and std.

        A sharp GP has standard deviations of its own at targets of a kind.
        """
        model, observed = self.priors.model, self.task.observed
        X = targets.X[: mean.shape[1], : self.task.observations.positions.shape[1]]
        if not self.corrected:
            known = np.full(mean.shape[1], model.usual_known_noise(observed))
            found = Distribution.room_for(mean.shape)
            parts = distributions_of_observations(mean, std, observed, model, targets, known, of_draws=drawn)
            for fields, some, distribution in parts:
                found.put(fields, some, distribution)
            return found
        noise = self.usual_noise
        known_at: Mask = np.asarray(~np.isnan(mean).any(axis=0))  # not before an observation
        plain = Gaussian(mean[:, known_at], np.sqrt(std[:, known_at] ** 2 + noise))
        stretched = self.distributions.stretched_at(kind, noise)
        return self.distributions.at(plain, X[known_at], stretched=stretched).among(known_at)
