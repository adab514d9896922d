"""Error bars on fields that no prior describes: every way of recalibration, for exact and unfinished solves.

    python -m pipelines.experiments.real_field [--quick] [--output FOLDER] [--seeds N] [--kinds KIND ...]
        [FIELD ...]

Of each field some points are observed, others kept for calibration and others predicted, at random in
proportion to area or by blocks of the globe, so that a test point has no neighbour that was observed. The
solver predicts calibration and test points (exactly, and by block Gauss-Seidel after 2 and 5 sweeps), and
every method corrects the distributions of the test points by the errors of the calibration points; of the
exact solve also by the leave-one-out errors of the observed points. A sharp GP takes dozens of solves and is
there for the first field at random points, where 2,500 points at most are observed, from one draw. FIELD is
one of ``global`` (the built-in field, a field drawn from its prior and one with a known scale, on one grid),
``sparse`` (these with a quarter of the observed points), ``europe`` and ``uk`` (every 36th hour of a month),
the last two from ``../shared/data``, each beside fields drawn from the prior that was fitted to it; all that
are there by default.

Prints tables, mean over the seeds and its standard error; writes ``real-field-FIELD-KIND.zarr`` and draws
``real-field.png`` of ``global``. Strata are fifths of *roughness*: the standard deviation of the values at
the ten observed points nearest to a test point, which says nothing of the value there; and, in the column of
the one whose coverage is furthest from 90 %, bands of latitude, land, sea and coast too, of 500 values.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr
from scipy.special import ndtr
from scipy.stats import kstest

import cagp_dist as cagp
from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.local_scale import FittedLocalScale, LocalScale
from cagp_dist.calibration.recalibration.methods import Fitted, Recalibration, Unchanged
from cagp_dist.calibration.recalibration.quantile_curve import Kuleshov
from cagp_dist.calibration.recalibration.sharp import Sharp
from cagp_dist.calibration.recalibration.stretched import DenseModel
from cagp_dist.calibration.verification.strata import (
    Strata,
    by_roughness,
    roughness_of,
    strata_of,
    surface_terms,
)
from cagp_dist.errors import ArgumentError
from cagp_dist.posterior.left_out import each_left_out
from cagp_dist.predictive import Gaussian, Predictive, StudentT
from pipelines.experiments.other_recalibrations import Marx, SplitConformal, Steps, Vovk
from pipelines.experiments.output import COLOURS, drawn, few_colours, parser, print_table, save
from pipelines.experiments.real_fields import (
    EUROPE,
    FIELDS,
    UNITED_KINGDOM,
    Field,
    Kind,
    Parts,
    prior_and_mean,
    with_drawn,
)

SEEDS = 3
SWEEPS = (2, 5)
LEVEL = 0.9
KINDS: tuple[Kind, ...] = ("random", "blocks")
LEFT_OUT, EXACT = "exact, leave-one-out", "exact"
NUMBERS = ("nll", "crps", "ks", "width", "coverage")
SHOWN = (LEFT_OUT, "local-scale")
SHARP = "sharp"
SHARP_LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
MOST_SHARP = 2500
STRATUM = 500

METHODS: dict[str, Callable[[], Recalibration]] = {
    "none": Unchanged,
    "kuleshov": Kuleshov,
    "vovk": Vovk,
    "marx": Marx,
    "split-conformal": lambda: SplitConformal(neighbours=40),
    "local-scale": partial(LocalScale, terms=surface_terms),
}
"""What corrects distributions. That of Vovk et al. is the randomised one, which has no density."""


@dataclass(frozen=True, eq=False)
class Known:
    """Laws of calibration points beside what was observed there, and laws of the points to predict.

    Attributes
    ----------
    solver : str
    distribution, values : Gaussian and array, shape (T, N)
    X : array, shape (N, 3)
    test : Gaussian, shape (T, q)
    training : tuple of arrays or None
        What the solver was given, (n, 3) and (T, n), where calibration points are none of that.
    blocks : array of int, shape (N,), or None
        Which block each calibration point lies in, where whole blocks were kept.
    model : DenseModel or None
        What a sharp GP stretches, where one is wanted.
    """

    solver: str
    distribution: Gaussian
    values: Array
    X: Array
    test: Gaussian
    training: tuple[Array, Array] | None = None
    blocks: Indices | None = None
    model: DenseModel | None = None

    def fit(self, method: str, some: Indices | int) -> Fitted:
        """Let a method learn from the errors of some of the fields."""
        distribution, values = self.distribution[some], self.values[some]
        made = (
            Sharp(self.model, levels=SHARP_LEVELS, starts=2, steps=3)
            if method == SHARP
            else METHODS[method]()
        )
        if isinstance(made, LocalScale) and self.training is not None:
            places, given = self.training
            return made.fit(distribution, values, self.X, training=(places, given[some]), groups=self.blocks)
        return made.fit(distribution, values, self.X)


@dataclass(frozen=True, eq=False)
class Problem:
    """A field with its parts drawn and its prior fitted."""

    field: Field
    parts: Parts
    prior: cagp.Prior
    mean: Array
    points: Array
    sharp: bool = False

    @classmethod
    def drawn(cls, field: Field, counts: tuple[int, int, int], seed: int, kind: Kind) -> "Problem":
        """Draw parts and fit the prior to what is observed."""
        generator = np.random.default_rng([seed, KINDS.index(kind)])
        parts = Parts.drawn(field, counts, generator, kind)
        prior, mean = prior_and_mean(field, parts, generator)
        if field.prior is None:
            field, mean = with_drawn(field, mean, prior, parts, generator)
        points = cagp.unit_sphere(*field.places)
        order = cagp.space_filling_order(points[parts.observed], block_size=block_size(len(parts.observed)))
        parts = replace(parts, observed=parts.observed[order])
        sharp = seed == 0 and kind == "random" and len(parts.observed) <= MOST_SHARP
        return cls(field, parts, prior, mean, points, sharp)

    def solved(self) -> Iterator[Known]:
        """Solve exactly and by sweeps; each with the errors that it is corrected by."""
        field, parts, noise = self.field, self.parts, self.prior.noise_variance
        X, targets = self.points[parts.observed], np.concatenate([parts.calibration, parts.test])
        y = np.ascontiguousarray((field.values - self.mean)[:, parts.observed].T)
        kept = len(parts.calibration)

        def known(name: str, mean: Array, variance: Array) -> Known:
            shape = (len(field.values), len(targets))
            distribution = Gaussian(
                mean.reshape(len(targets), -1).T + self.mean[:, targets],
                np.broadcast_to(np.sqrt(variance + noise), shape),
            )
            place = parts.calibration
            training = X, field.values[:, parts.observed]
            return Known(
                name,
                distribution[:, :kept],
                field.values[:, place],
                self.points[place],
                distribution[:, kept:],
                training,
                parts.blocks,
                DenseModel(self.prior, X) if self.sharp and name == EXACT else None,
            )

        exact = cagp.condition(self.prior, X, y, self.points[targets], solver=cagp.Cholesky())
        with_columns = known(EXACT, exact.mean, exact.variance)
        left_out = each_left_out(self.prior, X, y)
        of_each = Gaussian(left_out.mean + self.mean[:, parts.observed], np.sqrt(left_out.variance))
        yield Known(LEFT_OUT, of_each, field.values[:, parts.observed], X, with_columns.test)
        yield with_columns
        solver = cagp.BlockGaussSeidel(max(SWEEPS), block_size=block_size(len(X)))
        swept = cagp.condition(self.prior, X, y, self.points[targets], solver=solver)
        for sweeps in SWEEPS:
            step = next(step for step in swept.trace if step.iteration == sweeps)
            yield known(f"block Gauss-Seidel, m = {sweeps}", step.mean, step.variance)

    def roughness(self) -> Array:
        """Give the standard deviation of what was observed at the nearest points, (T, q)."""
        X, test = self.points[self.parts.observed], self.points[self.parts.test]
        return roughness_of(self.field.values[:, self.parts.observed], X, test)

    def strata(self, some: Indices | int) -> list[Strata]:
        """Ways to divide the test points of some of the fields."""
        latitude, longitude = (axis[self.parts.test] for axis in self.field.places)
        return strata_of(latitude, longitude, roughness=self.roughness()[some])


def block_size(n: int) -> int:
    """About ten blocks, of 1,024 points at most."""
    return min(1024, max(64, n // 10))


def mean_crps(distribution: Predictive, observed: Array) -> Array:
    """Mean CRPS of distributions (T, q): twice the mean pinball loss over levels, by the midpoint rule.

    For distributions of many pieces that is a fiftieth of the work of their own ``crps``, and within 1e-3 of
    it.
    """
    if isinstance(distribution, Gaussian | StudentT):
        return np.asarray(distribution.crps(observed).mean())
    edges = np.linspace(-5.0, 5.0, 201)
    total = 0.0
    for z, share in zip(0.5 * (edges[1:] + edges[:-1]), np.diff(ndtr(edges)), strict=True):
        distance = distribution.at_normal_score(np.array(z)) - observed
        total += 2.0 * share * float(np.mean(((distance > 0.0) - ndtr(z)) * distance))
    return np.asarray(total)


def judged(distribution: Predictive, observed: Array, strata: Sequence[Strata]) -> dict[str, Array]:
    """Scores of distributions (T, q), and coverage of their 90 % intervals by stratum."""
    lower, upper = distribution.interval(LEVEL)
    inside = (lower <= observed) & (observed <= upper)
    *_, fifths = strata
    shares = {
        f"{division.kind}: {name}": inside[np.broadcast_to(division.member == number, inside.shape)]
        for division in strata
        for number, name in enumerate(division.names)
    }
    return {
        "nll": np.array(np.nan)
        if isinstance(distribution, Steps)
        else -distribution.log_density(observed).mean(),
        "crps": mean_crps(distribution, observed),
        "ks": kstest(distribution.cdf(observed).ravel(), "uniform").statistic,
        "width": (upper - lower).mean(),
        "coverage": inside.mean(),
        "coverage_by_fifth": np.array([inside[fifths.member == part].mean() for part in range(5)]),
        "strata": {name: share.mean() for name, share in shares.items() if share.size >= STRATUM},
    }


def results(
    problem: Problem, methods: Sequence[str]
) -> Iterator[tuple[tuple[str, str, str], dict[str, Array]]]:
    """Yield what each method makes of each solve of each field: names of the three, and scores.

    A method that cannot learn from so few errors is left out.
    """
    names = np.array(problem.field.names)
    observed, X_test = problem.field.values[:, problem.parts.test], problem.points[problem.parts.test]
    for known in problem.solved():
        for name in dict.fromkeys(problem.field.names):
            rows = np.flatnonzero(names == name)
            some = rows if rows.size > 1 else rows[0]
            strata = problem.strata(some)
            for method in [*methods, *[SHARP] * (known.model is not None and name == names[0])]:
                try:
                    fitted = known.fit(method, some)
                except ArgumentError as error:
                    print(f"{name}, {known.solver}, {method}: {error}")
                    continue
                distribution = fitted(known.test[some], X_test)
                found = judged(distribution, observed[some], strata)
                if isinstance(fitted, FittedLocalScale):
                    found["scale"] = fitted.scale(known.test[some], X_test)
                found["probability"] = distribution.cdf(observed[some])
                yield (name, known.solver, method), found


def dataset(runs: Sequence[dict[tuple[str, str, str], dict[str, Array]]]) -> xr.Dataset:
    """Scores of all seeds, (seed, row); rows are named by field, solver and method."""
    rows = list(dict.fromkeys(row for run in runs for row in run))
    names = np.array(rows).T

    def values(name: str, missing: Array | float = np.nan) -> Array:
        return np.array([[run[row][name] if row in run else missing for row in rows] for run in runs])

    data: dict[str, tuple[tuple[str, ...], Array]] = {
        name: (("seed", "row"), values(name)) for name in NUMBERS
    }
    data["coverage_by_fifth"] = ("seed", "row", "fifth"), values("coverage_by_fifth", np.full(5, np.nan))
    strata = list(dict.fromkeys(name for run in runs for found in run.values() for name in found["strata"]))
    if strata:
        of_each = [
            [[run.get(row, {"strata": {}})["strata"].get(name, np.nan) for name in strata] for row in rows]
            for run in runs
        ]
        data["coverage_of_stratum"] = ("seed", "row", "stratum"), np.array(of_each)
    coordinates = {
        axis: ("row", values) for axis, values in zip(("field", "solver", "method"), names, strict=True)
    }
    if strata:
        coordinates["stratum"] = "stratum", np.array(strata)
    return xr.Dataset(data, coords=coordinates)


def table(found: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of the table: means over seeds, with standard errors of the scores."""
    for row in range(found.sizes["row"]):
        one = found.isel(row=row)

        def figure(name: str, digits: int, one: xr.Dataset = one) -> str:
            values = one[name].values[np.isfinite(one[name].values)]
            if not values.size:
                return "-"
            chance = f" ± {values.std(ddof=1) / np.sqrt(values.size):.{digits}f}" if values.size > 1 else ""
            return f"{values.mean():.{digits}f}{chance}"

        furthest = "-"
        if "coverage_of_stratum" in one:
            of_each = one.coverage_of_stratum.mean("seed").dropna("stratum")
            worst = of_each[int(np.argmax(np.abs(of_each.values - LEVEL)))]
            furthest = f"{float(worst):.2f} ({worst.stratum.item()})"
        yield (
            *(str(one[name].values) for name in ("field", "solver", "method")),
            figure("nll", 3),
            figure("crps", 3),
            figure("ks", 3),
            f"{float(one.width.mean()):.2f}",
            f"{float(one.coverage.mean()):.3f}",
            " ".join(f"{value:.2f}" for value in one.coverage_by_fifth.mean("seed").values),
            furthest,
        )


HEAD = (
    "field",
    "solver",
    "method",
    "NLL",
    "CRPS [K]",
    "KS",
    "width of 90 % [K]",
    "inside",
    "by fifth of roughness",
    "furthest stratum",
)


def draw(path: Path, problem: Problem, found: dict[tuple[str, str, str], dict[str, Array]]) -> None:
    """Draw the scale of the built-in field and the known one, and coverage by stratum."""
    latitude, longitude = (axis[problem.parts.test] for axis in problem.field.places)
    roughness = problem.roughness()
    built_in, *_, last = dict.fromkeys(problem.field.names)
    levels = np.linspace(0.05, 0.95, 19)
    with drawn(path, height_inches=6.2) as figure:
        axes = figure.subplots(2, 2)
        for place, name in zip(axes[0], (built_in, last), strict=True):
            scale = np.log2(found[name, *SHOWN]["scale"])
            dots = place.scatter(
                (longitude + 180.0) % 360.0 - 180.0,
                latitude,
                c=scale,
                s=3,
                cmap="RdBu_r",
                vmin=-3.0,
                vmax=3.0,
            )
            place.set_title(f"scale of the error bars, field: {name}", loc="left", fontsize=9)
            place.set_xticks([-180, -90, 0, 90, 180])
            place.set_yticks([-60, 0, 60])
        bar = figure.colorbar(dots, ax=axes[0], ticks=[-3, -2, -1, 0, 1, 2, 3], shrink=0.9)
        bar.ax.set_yticklabels(["1/8", "1/4", "1/2", "1", "2", "4", "8"])
        shades = ["#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08306b"]
        fifth = by_roughness(roughness[0]).member
        for place, method in zip(axes[1], ("none", "local-scale"), strict=True):
            probability = found[built_in, SHOWN[0], method]["probability"]
            for part, shade in enumerate(shades):
                distance = 2.0 * np.abs(probability[fifth == part] - 0.5)
                place.plot(
                    levels, [np.mean(distance <= level) for level in levels], color=shade, linewidth=1.4
                )
            place.plot([0, 1], [0, 1], color=COLOURS["truth"], linestyle=":", linewidth=1.0)
            title = "the model's own error bars" if method == "none" else "with a local scale"
            place.set_title(f"share inside by level, {title}", loc="left", fontsize=9)
        axes[1, 1].text(0.35, 0.05, "from light to dark: fifths, smooth to rough", fontsize=8)
    few_colours(path, count=256)


def main(arguments: Sequence[str] | None = None) -> None:
    """Solve, correct, print, save and draw."""
    command = parser(__doc__)
    command.add_argument("--seeds", type=int, default=SEEDS, help="draws of the parts (%(default)s)")
    command.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of parts (both)")
    command.add_argument("fields", nargs="*", choices=[[], *FIELDS], metavar="FIELD", help=", ".join(FIELDS))
    chosen = command.parse_args(arguments)
    missing = {"europe": not EUROPE.exists(), "uk": not UNITED_KINGDOM.exists()}
    for name in chosen.fields or [field for field in FIELDS if not missing.get(field)]:
        make, counts = FIELDS[name]
        if chosen.quick:
            counts = (counts[0] // 10 + 100, counts[1] // 10 + 100, counts[2] // 10)
        seeds = 1 if chosen.quick else chosen.seeds
        for kind in chosen.kinds:
            runs = []
            for seed in range(seeds):
                problem = Problem.drawn(make(np.random.default_rng([seed, 9])), counts, seed, kind)
                runs.append(dict(results(problem, list(METHODS))))
                if name == "global" and kind == "random" and seed == 0:
                    draw(chosen.output / "real-field.png", problem, runs[0])
            found = dataset(runs)
            print(f"{name}: {', '.join(f'{count:,}' for count in counts)} points, {kind}\n")
            print_table(HEAD, table(found))
            save(chosen.output / f"real-field-{name}-{kind}.zarr", found)


if __name__ == "__main__":
    main()
