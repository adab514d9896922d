"""A public table: its rows, what is observed and what is wanted, who predicts it, and scores."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.kriging.result_distribution import distribution_of
from cagp_dist.predictive import Gaussian, Predictive

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Figures = dict[str, float]

LEVEL = 0.9
DATA = Path("../shared/data")


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows of a table with splits of them.

    Attributes
    ----------
    rows : DataFrame, n rows
        Coordinates, covariates and the value.
    axes : tuple of str
        Columns of the coordinates: longitude and latitude in degrees, or x and y in a plane.
    value : str
        Column of what is mapped.
    observed, wanted : array of bool, shape (S, n)
        Rows that are observed, and those to predict, of every split.
    """

    rows: pd.DataFrame
    axes: tuple[str, str]
    value: str
    observed: Mask
    wanted: Mask

    @property
    def geographic(self) -> bool:
        """Whether coordinates are degrees."""
        return "latitude" in self.axes

    @property
    def truth(self) -> Array:
        """Values to predict, split after split."""
        values = self.rows[self.value].to_numpy(dtype=np.float64)
        return np.concatenate([values[wanted] for wanted in self.wanted])


class Scored(Protocol):
    """What scores ask of a distribution."""

    def interval(self, level: float) -> tuple[Array, Array]:
        """Give the ends of central intervals."""
        ...

    def crps(self, values: Array) -> Array:
        """CRPS at values."""
        ...


@dataclass(frozen=True, eq=False)
class Answer:
    """Predictions of observations at what is wanted, split after split, and what they took."""

    distribution: "Scored"
    mean: Array
    median: Array
    seconds: float
    processor_seconds: float
    peak_mebibytes: float | None = None


def scores(answer: Answer, truth: Array) -> Figures:
    """Score an answer: MAE of the median, RMSE of the mean, CRPS, and what the 90 % intervals hold."""
    lower, upper = answer.distribution.interval(LEVEL)
    found = {
        "MAE": float(np.abs(answer.median - truth).mean()),
        "RMSE": float(np.sqrt(np.mean((answer.mean - truth) ** 2))),
        "CRPS": float(answer.distribution.crps(truth).mean()),
        "coverage": float(np.mean((lower <= truth) & (truth <= upper))),
        "seconds": answer.processor_seconds,
    }
    return found if answer.peak_mebibytes is None else found | {"MiB": answer.peak_mebibytes}


def split_in_two(train: pd.DataFrame, valid: pd.DataFrame) -> tuple[pd.DataFrame, Mask, Mask]:
    """Rows of both, with the first observed and the second to predict."""
    seen = np.arange(len(train) + len(valid)) < len(train)
    return pd.concat([train, valid], ignore_index=True), seen[None], ~seen[None]


def leave_one_out(rows: pd.DataFrame) -> tuple[Mask, Mask]:
    """Give splits in each of which one row is to be predicted from the others."""
    wanted = np.eye(len(rows), dtype=bool)
    return ~wanted, wanted


def kriged(*, covariates: Sequence[str] = (), **settings: Any) -> Callable[[Problem], Answer]:
    """Predict by `cagp_dist.krige` with these arguments; covariates are terms of its mean."""

    def predict(problem: Problem) -> Answer:
        read = [*problem.axes, *covariates]
        means: dict[str, Any] = {"mean": covariates[0] if len(covariates) == 1 else tuple(covariates)}
        given = (means if covariates else {}) | {"value": problem.value, "progress": False} | settings
        if not problem.geographic:
            given["columns"] = dict(zip(("x", "y"), problem.axes, strict=True))
        parts: list[tuple[Predictive, Array, Array]] = []
        began, worked = time.perf_counter(), time.process_time()
        for observed, wanted in zip(problem.observed, problem.wanted, strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of fits that end flat
                found = cagp.krige(
                    problem.rows.loc[observed, [*read, problem.value]],
                    to=problem.rows.loc[wanted, read],
                    **given,
                )
            centre = found["median"] if "median" in found else found["mean"]
            parts.append((of_observations(found), found["mean"].values, centre.values))
        return Answer(
            Joined([part for part, _, _ in parts]),
            np.concatenate([mean for _, mean, _ in parts]),
            np.concatenate([median for _, _, median in parts]),
            time.perf_counter() - began,
            time.process_time() - worked,
        )

    return predict


def of_observations(found: Any) -> Predictive:
    """Give the distribution of observations at the targets of a result of `krige`."""
    if "median" in found:
        return distribution_of(found, of="observation").distribution
    return Gaussian(found["mean"].values, np.hypot(found["std"].values, found.attrs["noise_std"]))


@dataclass(frozen=True, eq=False)
class Joined:
    """Distributions of several splits as one."""

    parts: Sequence[Predictive]

    def interval(self, level: float) -> tuple[Array, Array]:
        """Give the ends of central intervals."""
        lower, upper = zip(*(part.interval(level) for part in self.parts), strict=True)
        return np.concatenate(lower), np.concatenate(upper)

    def crps(self, values: Array) -> Array:
        """CRPS at values (q,)."""
        sizes = np.cumsum([len(part.interval(LEVEL)[0]) for part in self.parts])[:-1]
        pieces = np.split(values, sizes)
        return np.concatenate([part.crps(each) for part, each in zip(self.parts, pieces, strict=True)])


@dataclass(frozen=True, eq=False)
class Drawn:
    """A distribution that is known by equally many draws (q, s) at each place."""

    draws: Array

    def interval(self, level: float) -> tuple[Array, Array]:
        """Give the ends of central intervals."""
        lower, upper = np.quantile(self.draws, [0.5 - level / 2, 0.5 + level / 2], axis=1)
        return lower, upper

    def crps(self, values: Array) -> Array:
        """CRPS at values (q,): mean distance to the draws, less half of that between them."""
        ordered, count = np.sort(self.draws, axis=1), self.draws.shape[1]
        weights = (2.0 * np.arange(1, count + 1) - count - 1) / count**2
        return np.abs(self.draws - values[:, None]).mean(axis=1) - ordered @ weights


@dataclass(frozen=True)
class Peer:
    """A program that pip installs, by one of its methods, with these covariates or none.

    Attributes
    ----------
    program, method : str
        Names of the environment and of the method in its adapter.
    covariates : tuple of str
        Columns that it is given beside the coordinates.
    matrices : float
        n x n matrices of float64 that it holds at least; more than the memory here are not tried.
    """

    program: str
    method: str
    covariates: tuple[str, ...] = ()
    matrices: float = 2.0


@dataclass(frozen=True)
class Published:
    """Figures that others published for the same rows and splits, and where."""

    figures: Mapping[str, float]
    source: str


@dataclass(frozen=True)
class Table:
    """One comparison on public data.

    Attributes
    ----------
    name, title, source, conditions : str
        Command line name, heading, where the data are from, and what is predicted from what.
    unit : str
        Unit of MAE, RMSE and CRPS.
    problem : callable
        Reads the table from the folder of the data.
    ours : mapping of str to callable
        Ways in which this package predicts it, or finds figures of another kind from the folder.
    peers : mapping of str to Peer
        Other programs, by the name of their row.
    published : mapping of str to Published
        Rows that others published.
    """

    name: str
    title: str
    source: str
    conditions: str
    unit: str
    problem: Callable[[Path], Problem]
    ours: Mapping[str, Callable[[Problem], Answer]]
    peers: Mapping[str, Peer]
    published: Mapping[str, Published]


def usual_peers(*covariates: str) -> dict[str, Peer]:
    """Programs with the settings that their documentation begins with; again with covariates."""
    found = {
        "PyKrige, ordinary kriging": Peer("pykrige", "ordinary", matrices=6.0),
        "GSTools, ordinary kriging": Peer("gstools", "ordinary", matrices=6.0),
        "scikit-learn, Matern 3/2": Peer("scikit-learn", "process", matrices=3.5),
        "GPBoost, Matern 3/2": Peer("gpboost", "gaussian", matrices=0.0),
    }
    if covariates:
        named = ", ".join(covariates)
        found |= {
            f"PyKrige, universal kriging, {named}": Peer("pykrige", "universal", covariates, matrices=6.0),
            f"GSTools, external drift, {named}": Peer("gstools", "external", covariates, matrices=6.0),
            f"scikit-learn, {named} as columns": Peer("scikit-learn", "columns", covariates, matrices=3.5),
            f"GPBoost, {named}": Peer("gpboost", "gaussian", covariates, matrices=0.0),
        }
    return found
