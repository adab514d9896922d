"""Rain of which a third is none, and what a check says of an accident.

    python -m pipelines.experiments.not_normal [--quick] [--geostat FOLDER] [--output FOLDER]

Rain of November 1989 at 286 gauges in Colorado, of which 101 are dry, is predicted in ten folds of blocks of
half a degree; everything is fitted to the other folds. Prints the CRPS of observations, and how probable no
rain was where there was none: the Brier score, and the share of dry gauges by classes of the probability.

SIC2004's *joker* (gamma dose rates in Germany) has an accident in the south-west. What `cagp_dist.check`
flags of its 200 stations is printed as it says it. Maps of both tables are among those of `pipelines.proof`.
"""

import time
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.calibration.verification.spatial_folds import block_folds
from cagp_dist.predictive import Predictive
from cagp_dist.predictive.transforms import Censored, Transformed
from pipelines.experiments.output import parser, print_table
from pipelines.proof.problems import of_observations

Array = NDArray[np.float64]

DATA = Path("../shared/data/geostat")
FOLDS, BLOCKS_DEGREES, SEED = 10, 0.5, 45
CLASSES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # of the probability of no rain
ELEVATION = {"mean": "elevation"}
DRY = 0.05  # no rain, in cm: half the step between readings
OF_COLORADO: dict[str, dict[str, Any]] = {
    "nothing set": {},
    "zeros are values": {"transform": cagp.BoxCox(0.5, shift=0.1)},
    "zeros censored, `auto`": {"transform": "auto"},
}


def _krige(table: pd.DataFrame, to: pd.DataFrame, settings: dict[str, Any]) -> tuple[Any, Predictive]:
    """Map a table."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of fits that end flat
        found = cagp.krige(table, to=to, progress=False, **settings)
    return found, of_observations(found)


def joker(folder: Path) -> None:
    """Print what a check says of the stations beside which there was an accident."""
    table = pd.read_csv(folder / "sic2004_train.csv")[["x", "y", "joker"]]
    for transform in ("as they are", "logarithms"):
        checked = table if transform == "as they are" else table.assign(joker=np.log(table.joker))
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            found = cagp.check(checked, columns={"x": "x", "y": "y"}, value="joker", progress=False)
        flagged = found[found.flag].sort_values("joker", ascending=False)
        print(f"Joker, {transform}: {len(flagged)} of {len(found)} stations flagged; the largest are")
        print(flagged.head(8).round(2).to_string(index=False), "\n", flush=True)


def colorado(folder: Path, settings: dict[str, Any]) -> tuple[Array, Array, list[float], float]:
    """Predict each fold from the others: dry, its probability, scores, and seconds."""
    table = pd.read_csv(folder / "colorado_1989_11.csv").rename(columns={"elevation_m": "elevation"})
    table = table[["latitude", "longitude", "elevation", "precipitation"]].dropna().reset_index(drop=True)
    fold = block_folds(
        table.latitude,
        table.longitude,
        count=FOLDS,
        blocks=BLOCKS_DEGREES,
        generator=np.random.default_rng(SEED),
    )
    used = ["latitude", "longitude", *(["elevation"] if "mean" in settings else [])]
    truth = table.precipitation.to_numpy()
    none, crps, mean = np.empty((3, len(table)))
    began = time.process_time()
    for number in range(FOLDS):
        left = fold == number
        found, of = _krige(table[~left][[*used, "precipitation"]], table[left][used], settings)
        none[left] = of.cdf(np.full(left.sum(), DRY))
        if isinstance(of, Transformed) and isinstance(of.transform, Censored):
            none[left] = of.least_probability
        crps[left], mean[left] = of.crps(truth[left]), found["mean"].values
    rmse = float(np.sqrt(np.mean((mean - truth) ** 2)))
    return truth == 0.0, none, [float(crps.mean()), rmse], time.process_time() - began


def colorado_rows(folder: Path, *, quick: bool) -> Iterator[Sequence[str]]:
    """Lines of the gauges in Colorado."""
    ways = OF_COLORADO | {f"{name}, elevation": way | ELEVATION for name, way in OF_COLORADO.items()}
    for name, settings in list(ways.items())[: 1 if quick else None]:
        dry, none, (crps, rmse), taken = colorado(folder, settings)
        known = np.searchsorted(CLASSES, none, side="right").clip(1, len(CLASSES) - 1) - 1
        shares = []
        for index in range(len(CLASSES) - 1):
            here = known == index
            shares.append(f"{dry[here].mean():.2f} of {here.sum()}" if here.any() else "")
        brier = float(np.mean((none - dry) ** 2))
        yield name, f"{crps:.3f}", f"{rmse:.2f}", f"{brier:.3f}", *shares, f"{taken:.0f} s"


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict what was held out, and print."""
    command = parser(__doc__)
    command.add_argument("--geostat", type=Path, default=DATA, help="folder of the tables (%(default)s)")
    chosen = command.parse_args(arguments)
    joker(chosen.geostat)
    classes = (f"{low:g} to {high:g}" for low, high in pairwise(CLASSES))
    print_table(
        ("Colorado", "CRPS [cm]", "RMSE [cm]", "Brier score", *classes, "time"),
        colorado_rows(chosen.geostat, quick=chosen.quick),
    )


if __name__ == "__main__":
    main()
