"""Run the benchmark: every case in its own process, ratios at the end, all of it as JSON.

Usage: ``python -m pipelines.benchmarks [--output FILE] [--large] [CASE ...]``
"""

import argparse
import json
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from pipelines.benchmarks.cases import CASES, LARGE, Figures


def run_case(name: str) -> Figures:
    """Run one case in a fresh interpreter and return its figures."""
    print(f"{name} ...", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.benchmarks.cases", name],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    for key, value in figures.items():
        print(f"    {key:32s} {value:12.4g}")
    return figures


@dataclass(frozen=True)
class Line:
    """One figure of the summary; ``wanted`` is the bound it is held against."""

    text: str
    value: float
    wanted: str = ""

    @property
    def held(self) -> bool:
        """Whether the value is within the bound (true where there is none)."""
        if not self.wanted:
            return True
        sign, bound = self.wanted.split()
        return self.value >= float(bound) if sign == ">=" else self.value <= float(bound)


def summary(results: dict[str, Figures]) -> list[Line]:
    """Ratios and figures that the documentation quotes, from the cases that were run."""
    lines: list[Line] = []
    if product := results.get("gram_product"):
        lines += [
            Line("Gram product, 1 column: times blocked NumPy", product["ratio_1_columns"], ">= 4"),
            Line("Gram product, 25 columns: times blocked NumPy", product["ratio_25_columns"], ">= 2"),
        ]
    if both := results.get("sum_product"):
        lines += [
            Line("sum of two kernels, 1 column: times one by one", both["ratio_1_columns"], ">= 1"),
            Line("sum of two kernels, 25 columns: times one by one", both["ratio_25_columns"], ">= 1"),
        ]
    if (ours := results.get("gauss_seidel")) and (dense := results.get("gauss_seidel_scipy")):
        if abs(ours["check"] - dense["check"]) > 1e-8 * abs(dense["check"]):
            raise SystemExit(f"results differ: {ours['check']!r} and {dense['check']!r}")
        lines += [
            Line(
                "CAGP-GS 10,638 points, m = 80: times dense SciPy", dense["seconds"] / ours["seconds"], ">= 5"
            ),
            Line("    its peak memory, MiB", ours["peak_mebibytes"], "<= 600"),
            Line("    peak memory of dense SciPy, MiB", dense["peak_mebibytes"]),
        ]
        if long := results.get("gauss_seidel_long"):
            lines.append(Line("    times dense SciPy at lengthscale 1", dense["seconds"] / long["seconds"]))
    if large := results.get("large"):
        lines += [
            Line("block Gauss-Seidel 64,700 points, m = 5: seconds", large["seconds"]),
            Line("    its peak memory, MiB", large["peak_mebibytes"], "<= 3072"),
        ]
    if near := results.get("neighbours"):
        lines += [
            Line(
                "map of 64,800 among 10^6 points, by neighbours: times a k-d tree", near["times_tree"], "<= 2"
            ),
            Line("    two threads: times serial", near["ratio_threads"], ">= 1.6"),
            Line("    two Dask workers: times serial", near["ratio_dask"]),
        ]
    if ships := results.get("shared_errors"):
        text = "errors of 1,000 ships from 10^5 points, and a map of 64,800: processor seconds"
        lines += [
            Line(text, ships["processor_seconds"]),
            Line("    times the map without them", ships["times_alone"]),
            Line("    peak memory, MiB", ships["peak_mebibytes"]),
        ]
    if ships := results.get("shared_errors_large"):
        text = "errors of 10,000 ships from 10^6 points, and a map of 64,800: processor seconds"
        lines += [
            Line(text, ships["processor_seconds"]),
            Line("    peak memory, MiB", ships["peak_mebibytes"]),
        ]
    if workers := results.get("dask_workers"):
        lines.append(Line("two Dask workers: times one", workers["ratio"], ">= 1.6"))
    if simulated := results.get("calibration"):
        lines += [
            Line(
                "1,000 simulated fields, n = 400, q = 441: seconds", simulated["seconds_gauss_seidel"], "<= 5"
            ),
            Line("    of conjugate gradients, seconds", simulated["seconds_conjugate_gradients"], "<= 5"),
        ]
    if products := results.get("sweeps"):
        text = "product with G in an affine solver: times Gauss-Seidel"
        lines.append(Line(text, products["largest_ratio"], "<= 1.2"))
        lines.append(
            Line("    on a whole 1-degree grid, by rings", products["rings_largest_ratio"], "<= 1.2")
        )
    lines += _grid_summary(results)
    lines += _bounds_summary(results)
    lines += _scattered_summary(results)
    lines += _times_summary(results)
    lines += _kernel_summary(results)
    if picture := results.get("first_picture"):
        lines += [
            Line("page of 30 days of 721 x 1440, first picture: seconds", picture["seconds"], "<= 3"),
            Line("    the longest of five", picture["longest_seconds"]),
        ]
    if variances := results.get("pathwise_variances"):
        lines += [
            Line("variances at 4,050 targets by samples: times columns", variances["ratio"], ">= 5"),
            Line("    their stated relative error", variances["stated_relative_error"], "<= 0.07"),
            Line("    and that of this run", variances["relative_error"]),
        ]
    if job := results.get("map_job"):
        lines += [
            Line("job with a map of 16,200 cells: seconds", job["seconds"], "<= 30"),
            Line("    of all processors together", job["processor_seconds"]),
        ]
    if held := results.get("held_out_job"):
        lines += [
            Line("721 x 1440, 5,000 held out: processor seconds", held["processor_seconds"], "<= 60"),
            Line("    of the fit to the others", held["processor_seconds_fit"], "<= 60"),
        ]
    if hours := results.get("second_hour"):
        lines += [
            Line("a further hour with kept weights: part of the first", hours["part_known"], "<= 0.02"),
            Line("    where a mean is estimated", hours["part_estimated"], "<= 0.02"),
            Line("    difference from a full solve", hours["difference_known"], "<= 1e-12"),
            Line("    where a mean is estimated", hours["difference_estimated"], "<= 1e-12"),
        ]
    if sharp := results.get("sharp"):
        lines += [
            Line("sharp GP, 25 levels, 2,000 + 1,000 points: seconds", sharp["seconds_isotropic"], "<= 60"),
            Line("    a lengthscale for each of 4 coordinates", sharp["seconds_anisotropic"], "<= 60"),
        ]
    if scale := results.get("local_scale"):
        lines += [
            Line("local scale of 10,000 errors: seconds", scale["seconds_10000"], "<= 1"),
            Line("    and of 721 x 1440", scale["seconds_grid"], "<= 20"),
            Line("    of all processors together", scale["processor_seconds_grid"]),
        ]
    if startup := results.get("startup"):
        lines += [
            Line("import cagp_dist, seconds", startup["import_seconds"], "<= 0.5"),
            Line("cagp --help, seconds", startup["help_seconds"], "<= 1"),
        ]
    return lines


def _kernel_summary(results: dict[str, Figures]) -> list[Line]:
    lines: list[Line] = []
    if kernels := results.get("kernels"):
        lines += [
            Line(
                "kernel of two factors, space and time: times one",
                kernels["product_with_time_ratio"],
                "<= 1.5",
            ),
            Line("    space and variables", kernels["product_with_variables_ratio"], "<= 1.5"),
            Line("    of an ellipse", kernels["ellipse_ratio"], "<= 1.05"),
        ]
    if together := results.get("cokriging"):
        text = "one of two variables among 2 x 500,000 values: times one"
        lines += [
            Line(text, together["first_of_two_ratio"], "<= 2.5"),
            Line("    both of them", together["both_ratio"], "<= 2.5"),
        ]
    if fit := results.get("variables_fit"):
        text = "fit of two variables at 300 places: times one at 600"
        lines.append(Line(text, fit["ratio"], "<= 3"))
    return lines


def _grid_summary(results: dict[str, Figures]) -> list[Line]:
    lines: list[Line] = []
    if whole := results.get("whole_grid"):
        factor = whole["seconds_factor_logdet"]
        lines += [
            Line(
                "721 x 1440: factors, logdet, one solve: seconds",
                whole["seconds_factor_logdet_solve"],
                "<= 10",
            ),
            Line("    its peak memory, MiB", whole["peak_mebibytes_factor_logdet_solve"], "<= 4096"),
            Line("    each further solve, seconds", whole["seconds_solve"], "<= 0.5"),
            Line("    each further sample, seconds", whole["seconds_sample"], "<= 0.5"),
            Line("    leave-one-out: times factors", whole["seconds_leave_one_out"] / factor, "<= 1.5"),
            Line("    block Gauss-Seidel sweep, seconds", whole["seconds_sweep"], "<= 2"),
        ]
    if likelihood := results.get("grid_likelihood"):
        lines.append(Line("72 x 144 likelihood, gradient: times dense", likelihood["ratio"], ">= 500"))
    if fit := results.get("grid_fit"):
        lines.append(Line("fit to 114,720 points: seconds", fit["seconds"], "<= 12"))
    return lines


def _bounds_summary(results: dict[str, Figures]) -> list[Line]:
    lines: list[Line] = []
    if (ours := results.get("elbo")) and (dense := results.get("elbo_dense")):
        for key in ("value", "gradient_length"):
            if abs(ours[key] - dense[key]) > 1e-9 * abs(dense[key]):
                raise SystemExit(f"results differ: {key} {ours[key]!r} and {dense[key]!r}")
        ratio = dense["seconds"] / ours["seconds"]
        lines += [
            Line("ELBO, 16,384 points, 512 actions: times dense SciPy", ratio, ">= 5"),
            Line("    its peak memory, MiB", ours["peak_mebibytes"], "<= 1024"),
            Line("    peak memory of dense SciPy, MiB", dense["peak_mebibytes"]),
        ]
    if large := results.get("elbo_large"):
        lines += [
            Line("ELBO, 114,720 points, 512 actions: seconds", large["seconds_114720"], "<= 90"),
            Line("    of all processors together", large["processor_seconds_114720"]),
            Line("    exponent of these in the number of points", large["exponent_of_processor_seconds"]),
            Line("    its peak memory, MiB", large["peak_mebibytes"], "<= 3072"),
        ]
    return lines


def _scattered_summary(results: dict[str, Figures]) -> list[Line]:
    lines: list[Line] = []

    def solved(figures: Figures, text: str, sizes: str, most_seconds: int | None = None) -> None:
        """Hold seconds against a bound, those of processors against what two cores do in that time."""
        wall = "" if most_seconds is None else f"<= {most_seconds}"
        both = "" if most_seconds is None else f"<= {2 * most_seconds}"
        lines.extend(
            [
                Line(f"scattered: {text}, error bars: seconds", figures[f"seconds_{sizes}"], wall),
                Line("    of all processors together", figures[f"processor_seconds_{sizes}"], both),
                Line("    peak memory, MiB", figures[f"peak_mebibytes_{sizes}"], "<= 2048" if wall else ""),
            ]
        )

    if usual := results.get("scattered"):
        solved(usual, "10^5 points, 64,800 targets", "100000_64800")
        solved(usual, "10^6 points, 64,800 targets", "1000000_64800", 4)
    if large := results.get("scattered_large"):
        solved(large, "10^6 points, 10^6 targets", "1000000_1000000", 30)
        solved(large, "10^7 points, 64,800 targets", "10000000_64800")
    for figures in (usual, large):
        if figures:
            text = "    exponent of processor seconds in their number"
            lines.append(Line(text, figures["exponent_of_processor_seconds"], "<= 1.1"))
    for name, text, most_seconds in (
        ("scattered_fit", "10,000 points", 5),
        ("scattered_fit_large", "10^6 points", 30),
    ):
        if fit := results.get(name):
            lines += [
                Line(f"scattered: fit to {text}: seconds", fit["seconds"], f"<= {most_seconds}"),
                Line("    of all processors together", fit["processor_seconds"], f"<= {2 * most_seconds}"),
                Line("    standard errors off the truth, at most", fit["standard_errors_off"], "<= 4"),
            ]
    if found := results.get("transformed"):
        text = "transforms: 10^5 points, 64,800 targets, processor seconds over plain: "
        lines.append(Line(f"{text}square root", found["times_sqrt"], "<= 1.1"))
        lines += [Line(f"    {name}", found[f"times_{name}"]) for name in ("log", "box_cox")]
    if found := results.get("censored"):
        text = "censored: 10^5 points, 30 % of them zero, processor seconds over plain"
        lines.append(Line(text, found["times_sqrt"], "<= 5"))
    if found := results.get("checked"):
        lines += [
            Line("check: 10^6 values: seconds", found["seconds"], "<= 60"),
            Line("    of all processors together", found["processor_seconds"], "<= 120"),
            Line("    part of wrong values that is found", found["found"], ">= 0.98"),
            Line("    part of flags that is false", found["false"], "<= 0.07"),
        ]
    if workers := results.get("stored_workers"):
        text = "neighbours from store to store: two Dask workers times one"
        lines.append(Line(text, workers["ratio_stored"], ">= 1.8"))
        lines.append(Line("    by processor seconds of the busiest", workers["processor_ratio_stored"]))
        lines.append(Line("    in memory, where the client searches", workers["ratio_in_memory"], ">= 1.8"))
        lines.append(Line("    by processor seconds of the busiest", workers["processor_ratio_in_memory"]))
    if large := results.get("stored_large"):
        for q, text in (("100000", "10^5"), ("1000000", "10^6")):
            lines += [
                Line(f"store to store: 10^7 points, {text} targets: seconds", large[f"seconds_{q}"]),
                Line("    peak memory of a worker, MiB", large[f"worker_mebibytes_{q}"]),
                Line("    and of the client, MiB", large[f"client_mebibytes_{q}"]),
            ]
    return lines


def _times_summary(results: dict[str, Figures]) -> list[Line]:
    lines: list[Line] = []
    for case, name, text, most_seconds in (
        ("days_on_grid", "posterior", "30 days of 721 x 1440: posterior", 600),
        ("days_on_grid", "likelihood", "30 days of 721 x 1440: likelihood", 600),
        ("swath_window", "fit", "10^6 of a swath in 10 days: fit", 120),
        ("swath_window", "map", "10^6 of a swath in 10 days: map of 64,800", 60),
        ("observed_hours", "fit_and_maps", "744 hours of 1,617 cells, 5 % observed", 180),
    ):
        if figures := results.get(case):
            lines += [
                Line(f"{text}: seconds", figures[f"seconds_{name}"], f"<= {most_seconds}"),
                Line(
                    "    of all processors together",
                    figures[f"processor_seconds_{name}"],
                    f"<= {2 * most_seconds}",
                ),
                Line("    peak memory so far, MiB", figures[f"peak_mebibytes_{name}"], "<= 4096"),
            ]
    return lines


def main() -> None:
    """Run the named cases, or all that take no minutes."""
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="CASE",
        help=f"cases to run (default: all but {', '.join(LARGE)}): {', '.join(CASES)}",
    )
    parser.add_argument("--large", action="store_true", help="also those of minutes and gibibytes")
    parser.add_argument("--output", type=Path, default=Path("out/benchmark.json"), help="where the JSON goes")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"unknown case {', '.join(sorted(unknown))}; choose from {', '.join(CASES)}")
    usual = [name for name in CASES if arguments.large or name not in LARGE]
    results = {name: run_case(name) for name in arguments.cases or usual}
    lines = summary(results)
    print()
    for line in lines:
        verdict = (
            "" if not line.wanted else f"   wanted {line.wanted}" + ("" if line.held else "   NOT REACHED")
        )
        print(f"{line.text:55s} {line.value:10.4g}{verdict}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    document = {
        "machine": machine,
        "summary": [asdict(line) for line in lines],
        "cases": results,
    }
    arguments.output.write_text(json.dumps(document, indent=2) + "\n")
    print(f"\nwritten to {arguments.output}")


if __name__ == "__main__":
    main()
