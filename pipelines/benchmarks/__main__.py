"""Run the benchmark: every case in its own process, ratios at the end, all of it as JSON.

Usage: ``python -m pipelines.benchmarks [--output FILE] [CASE ...]``
"""

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path

from pipelines.benchmarks.cases import CASES, Figures


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


def summary(results: dict[str, Figures]) -> dict[str, float]:
    """Ratios and figures that the README quotes, from the cases that were run."""
    lines: dict[str, float] = {}
    if product := results.get("gram_product"):
        lines["Gram product, 1 column: times faster than blocked NumPy"] = product["ratio_1_columns"]
        lines["Gram product, 25 columns: times faster than blocked NumPy"] = product["ratio_25_columns"]
    if (ours := results.get("gauss_seidel")) and (dense := results.get("gauss_seidel_scipy")):
        if abs(ours["check"] - dense["check"]) > 1e-8 * abs(dense["check"]):
            raise SystemExit(f"results differ: {ours['check']!r} and {dense['check']!r}")
        lines["CAGP-GS n = 10,638, q = 25, m = 80: times faster than dense SciPy"] = (
            dense["seconds"] / ours["seconds"]
        )
        lines["    its peak memory, MiB"] = ours["peak_mebibytes"]
        lines["    peak memory of dense SciPy, MiB"] = dense["peak_mebibytes"]
    if large := results.get("large"):
        lines["block Gauss-Seidel n = 64,700, q = 100, m = 5: seconds"] = large["seconds"]
        lines["    its peak memory, MiB"] = large["peak_mebibytes"]
    if workers := results.get("dask_workers"):
        lines["two Dask workers against one: times faster"] = workers["ratio"]
    if startup := results.get("startup"):
        lines["import cagp_dist, seconds"] = startup["import_seconds"]
        lines["cagp --help, seconds"] = startup["help_seconds"]
    return lines


def main() -> None:
    """Run the named cases, or all of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="cases to run (default: all)")
    parser.add_argument("--output", type=Path, default=Path("out/benchmark.json"), help="where the JSON goes")
    arguments = parser.parse_args()
    results = {name: run_case(name) for name in arguments.cases or CASES}
    lines = summary(results)
    print()
    for text, value in lines.items():
        print(f"{text:70s} {value:10.4g}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    document = {
        "machine": machine,
        "summary": {key.strip(): value for key, value in lines.items()},
        "cases": results,
    }
    arguments.output.write_text(json.dumps(document, indent=2) + "\n")
    print(f"\nwritten to {arguments.output}")


if __name__ == "__main__":
    main()
