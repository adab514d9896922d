"""Section 5.1 of [Hegde, Adil & Cockayne 2025], twenty times, with every solver that takes points.

    python -m pipelines.experiments.h1_calibration [--quick] [--output FOLDER]

Matern 3/2 of lengthscale 0.2 and variance 1, noise 0.1; 400 points drawn uniformly on the unit square, a grid
of 21 x 21 test points, five iterations, 1,000 simulated fields. The paper prints one p-value of the
Kolmogorov-Smirnov test for each of three solvers; here twenty generators draw points, direction and fields
anew, so that the p-values of a calibrated solver are twenty independent uniform numbers. Prints a table,
writes ``h1.zarr`` and draws ``h1.png``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

import cagp_dist as cagp
from cagp_dist.calibration.verification.pit import normal_tests
from cagp_dist.cartography.chart_style import INK, MUTED
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Solver
from cagp_dist.solvers.registry import SOLVERS
from pipelines.experiments.output import COLOURS, drawn, parser, pit_bars, print_table, save

if TYPE_CHECKING:
    import xarray as xr

PRIOR = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=0.01)
POINTS, SIDE, BLOCK = 400, 21, 50
FIELDS, GENERATORS, ITERATIONS = 1000, 20, 5
QUICK_FIELDS, QUICK_GENERATORS = 200, 3
PRINTED = {"gauss-seidel": 0.6689, "random-actions": 0.6802, "conjugate-gradient": 0.0084}
"""KS p-values of the paper."""

SETTINGS: dict[str, dict[str, object]] = {
    "block-gauss-seidel": {"block_size": BLOCK},
    "block-jacobi": {"block_size": BLOCK},
    "two-level-block-gauss-seidel": {"block_size": BLOCK, "coarse": 40},
    "sor": {"relaxation": 1.5},
    "ssor": {"relaxation": 1.5},
}
TRIED = (
    "gauss-seidel",
    "block-gauss-seidel",
    "random-actions",
    "sor",
    "ssor",
    "jacobi",
    "block-jacobi",
    "richardson",
    "chebyshev",
    "two-level-block-gauss-seidel",
    "conjugate-gradient",
)


def solvers() -> dict[str, Solver]:
    """Solvers of the comparison, those of the registry that take five iterations."""
    made = {}
    for name in TRIED:
        if name in SOLVERS:
            make: type[cagp.GaussSeidel] = SOLVERS[name]  # type: ignore[assignment]
            made[name] = make(ITERATIONS, **SETTINGS.get(name, {}))  # type: ignore[arg-type]
    return made


def simulate(solver: Solver, *, generators: int, fields: int) -> "xr.Dataset":
    """Calibrate one solver with every generator: z by (generator, field), and the tests by generator."""
    import xarray as xr

    side = np.linspace(0.0, 1.0, SIDE)
    X_test = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    found = []
    for seed in range(generators):
        generator = np.random.default_rng([2025, seed])
        X = generator.uniform(size=(POINTS, 2))
        found.append(
            cagp.calibrate(
                PRIOR,
                X,
                X_test,
                solver=solver,
                simulations=fields,
                generator=generator,
                executor=SerialExecutor(),
            )
        )
    return xr.Dataset(
        {
            "z": (("generator", "field"), np.stack([one.z for one in found])),
            **{
                name: ("generator", np.array([value(one) for one in found]))
                for name, value in (
                    ("ks_pvalue", lambda one: one.tests.ks_pvalue),
                    ("variance_pvalue", lambda one: one.tests.variance_pvalue),
                    ("mean_pvalue", lambda one: one.tests.mean_pvalue),
                    ("rank_pvalue", lambda one: one.rank_pvalue),
                    ("joint_pvalue", lambda one: one.joint.pvalue),
                    ("joint_std", lambda one: one.joint.std),
                    ("point_std", lambda one: one.area_std),
                )
            },
        }
    )


def line(name: str, found: "xr.Dataset") -> Sequence[str]:
    """One line of the table."""
    ks, pooled = found.ks_pvalue.values, normal_tests(found.z.values)
    printed = PRINTED.get(name)
    return (
        name,
        "" if printed is None else f"{printed:.4f}",
        f"{np.median(ks):.2g}",
        f"{ks.min():.2g} to {ks.max():.2g}",
        f"{np.count_nonzero(ks < 0.01)}",
        f"{np.count_nonzero(ks < 0.05)}",
        f"{pooled.z_std:.3f}",
        f"{found.joint_std.values.mean():.4f}",
        f"{found.point_std.values.mean():.3f}",
    )


def draw(path: Path, found: "dict[str, xr.Dataset]") -> None:
    """Draw all KS p-values, and the PIT histograms of all generators together of two solvers."""
    with drawn(path, height_inches=3.9) as figure:
        left, *right = figure.subplots(1, 3, width_ratios=(2.2, 1.0, 1.0))
        for row, (name, data) in enumerate(found.items()):
            colour = (
                COLOURS["conjugate gradients"] if name == "conjugate-gradient" else COLOURS["Gauss-Seidel"]
            )
            left.plot(
                data.ks_pvalue, np.full(data.sizes["generator"], row), "o", color=colour, alpha=0.5, ms=4
            )
            if name in PRINTED:
                left.plot(
                    PRINTED[name], row, "x", color=INK, ms=7, mew=1.6, label="printed" if row == 0 else None
                )
        left.axvline(0.05, color=MUTED, linewidth=0.8, linestyle="--")
        left.set_xscale("log")
        left.set_yticks(range(len(found)), list(found))
        left.invert_yaxis()
        left.set_xlabel("p-value of the Kolmogorov-Smirnov test")
        left.legend(frameon=False, loc="center left", fontsize=8)
        for axes, name in zip(right, ("gauss-seidel", "conjugate-gradient"), strict=True):
            colour = COLOURS["conjugate gradients" if name == "conjugate-gradient" else "Gauss-Seidel"]
            pit_bars(axes, ndtr(found[name].z.values), colour=colour, title=name)
            axes.set(ylim=(0.0, 1.7), xlabel="PIT")
        right[0].set_ylabel("count / expected count")


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, print, save and draw."""
    import xarray as xr

    chosen = parser(__doc__).parse_args(arguments)
    counts = (QUICK_GENERATORS, QUICK_FIELDS) if chosen.quick else (GENERATORS, FIELDS)
    found = {
        name: simulate(solver, generators=counts[0], fields=counts[1]) for name, solver in solvers().items()
    }
    head = (
        "solver",
        "p printed",
        "KS p, median",
        "range",
        "< 0.01",
        "< 0.05",
        "std of z",
        "joint std",
        "point by point",
    )
    print_table(head, (line(name, data) for name, data in found.items()))
    every = xr.concat(list(found.values()), dim=xr.Variable("solver", np.array(list(found), dtype=object)))
    every.attrs["title"] = "Simulation-based calibration, section 5.1 of Hegde, Adil and Cockayne (2025)"
    save(chosen.output / "h1.zarr", every)
    draw(chosen.output / "h1.png", found)


if __name__ == "__main__":
    main()
