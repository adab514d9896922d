"""Hours of stations by us and by GPBoost: the same values, kernels of space and time fitted by each.

    python -m pipelines.benchmarks.peers.hours [--environments FOLDER] [--data FILE]

200 points of the British Isles stand for stations, over 48 hours of ERA5. A fifth of their hours is not told,
and of a fifth of them nothing. One thread each. Prints a table.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array, Mask
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.runtime import ThreadExecutor
from pipelines.benchmarks.peers.catalogue import ADAPTERS, PEERS
from pipelines.benchmarks.peers.environments import asked
from pipelines.experiments.hours import LEVEL, stations
from pipelines.experiments.output import print_table
from pipelines.experiments.real_fields import UNITED_KINGDOM

STATIONS, HOURS = 200, 48
OURS = {
    "one kernel, metric Matern 3/2": (cagp.SpaceTime(cagp.Matern32(0.03, 2.0), lengthscale_time=6.0).family,),
    "a sum of two": (cagp.SpaceTime(cagp.Matern32(0.03, 2.0), lengthscale_time=6.0).family,) * 2,
}
THEIRS = {"one kernel, metric Matern 3/2": "matern_space_time"}


class Answer(NamedTuple):
    """Predictions of observations, (q,), and seconds of processors in all and of the fit."""

    mean: Array
    std: Array
    processor_seconds: float
    fit_seconds: float


def by_us(X: Array, y: Array, X_test: Array, families: tuple[object, ...]) -> Answer:
    """Fit by Vecchia's likelihood, and predict from the 64 nearest in space and time."""
    with ThreadExecutor(1) as executor:
        worked = time.process_time()
        prior = cagp.fit(
            families if len(families) > 1 else families[0], X, y, mean=0.0, executor=executor
        ).prior
        fitted = time.process_time() - worked
        found = cagp.condition(prior, X, y, X_test, solver=cagp.Neighbours(64), executor=executor)
        std = np.sqrt(found.variance + prior.noise_number)
        return Answer(found.mean, std, time.process_time() - worked, fitted)


def by_gpboost(X: Array, y: Array, X_test: Array, kernel: str, environments: Path) -> Answer:
    """Run its adapter in its environment; hours come first there."""
    X, X_test = (np.roll(each, 1, axis=1) for each in (X, X_test))
    adapter = ADAPTERS / "hours_by_gpboost.py"
    found = asked(PEERS["gpboost"], adapter, kernel, folder=environments, X=X, y=y, X_test=X_test)
    seconds = (float(found[name]) for name in ("processor_seconds", "fit_processor_seconds"))
    return Answer(found["mean"], found["std"], *seconds)


def main() -> None:
    """Compare, and print a table."""
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--environments", type=Path, default=Path(".peers"))
    command.add_argument("--data", type=Path, default=UNITED_KINGDOM)
    chosen = command.parse_args()
    places, values = stations(chosen.data, STATIONS, HOURS)
    rng = np.random.default_rng(3)
    alone = np.zeros(values.shape, dtype=bool)
    alone[:, rng.permutation(STATIONS)[: STATIONS // 5]] = True
    dropped: Mask = (rng.random(values.shape) < 0.2) & ~alone
    told = ~(alone | dropped)
    where = cagp.unit_sphere(places.latitude, places.longitude)
    X = np.column_stack([np.tile(where, (HOURS, 1)), np.repeat(np.arange(float(HOURS)), STATIONS)])
    centre, flat = values[told].mean(), told.ravel()
    methods: dict[tuple[str, str], Callable[[Array, Array, Array], Answer]] = {}
    for name, families in OURS.items():
        methods["cagp-dist", name] = lambda X, y, Z, families=families: by_us(X, y, Z, families)
    for name, kernel in THEIRS.items():
        methods["gpboost", name] = lambda X, y, Z, kernel=kernel: by_gpboost(
            X, y, Z, kernel, chosen.environments
        )
    rows = []
    for (program, name), method in methods.items():
        answer = method(X[flat], values.ravel()[flat] - centre, X[~flat])
        mean, std = np.empty((2, *values.shape))
        mean.ravel()[~flat], std.ravel()[~flat] = answer.mean + centre, answer.std
        cells = [program, name]
        for part in (dropped, alone):
            found = scores(mean[part], std[part], values[part], levels=(LEVEL,))
            cells += [
                f"{found.rmse:.3f}",
                f"{found.crps:.3f}",
                f"{float(np.asarray(found.coverage).item()):.3f}",
            ]
        rows.append([*cells, f"{answer.fit_seconds:.0f}", f"{answer.processor_seconds:.0f}"])
        print(" ".join(rows[-1]), flush=True)
    of_parts = [
        f"{score}, {part}"
        for part in ("hours", "stations")
        for score in ("RMSE [K]", "CRPS [K]", "90 % coverage")
    ]
    print_table(["program", "kernel", *of_parts, "seconds of the fit", "of all"], rows)


if __name__ == "__main__":
    main()
