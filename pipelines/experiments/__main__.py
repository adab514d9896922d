"""The experiments of the documentation at their published length, one after the other.

    python -m pipelines.experiments [NAME ...] [--output FOLDER] [--data FOLDER]

Each runs as a process of its own, with the arguments that its section of the documentation gives, and writes
its tables to FOLDER/NAME.txt as well. One that fails does not stop the others; the exit status says so.
"""

import argparse
import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pipelines.experiments.uci import DATA

FOLDER = Path(__file__).parent

PRINTING = ("limits",)
"""Scripts without arguments, which only print."""

DRAWING = (
    *("h1_calibration", "actions", "crossings", "time_to_accuracy", "long_lengthscales", "hybrids"),
    *("robustness", "block_sizes", "held_out", "smooth_means", "simulation", "whole_grid", "sample_grid"),
    *("time_by_size", "sharp_line"),
    *("fit_size", "fit_density", "sum_kernel", "solvers_compared", "exported_maps", "itergp"),
    *("real_field", "known_scale", "scattered_fits", "learned_on_field", "learned_subspaces"),
    *("neighbour_ratios", "neighbour_calibration", "satellite", "hours"),
    *("hourly_stations", "kernel_rules", "time_rules", "ellipses", "depth", "shared_labels"),
    *("few_observations", "outliers", "kinds", "not_normal"),
)
"""Scripts that need no more than a folder for what they draw and save, if anything."""

ALL_OF_THEM: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(PRINTING, ()),
    **dict.fromkeys(DRAWING, ("--output", "OUTPUT")),
    "uci": ("--output", "OUTPUT", "--data", "DATA"),
    "learned_actions": ("--output", "OUTPUT", "--data", "DATA"),
    "sharp": ("--output", "OUTPUT", "--data", "DATA", "--repetitions", "100"),
    "sharp_as_published": ("--output", "OUTPUT", "--data", "DATA"),
    "sharp_bounds": ("--output", "OUTPUT", "--data", "DATA", "--repetitions", "100"),
    "sharp_optimisation": ("--output", "OUTPUT", "--repetitions", "100"),
}
"""Names of the scripts, and their arguments; OUTPUT and DATA stand for the folders."""


def _purpose(name: str) -> str:
    """First line of a script's docstring."""
    text = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0]


def _chosen(arguments: Sequence[str] | None) -> argparse.Namespace:
    listed = "\n".join(f"  {name:19} {_purpose(name)}" for name in ALL_OF_THEM)
    command = argparse.ArgumentParser(
        prog="python -m pipelines.experiments",
        description=f"{__doc__}\nNames:\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("names", nargs="*", metavar="NAME", help="those to run (all)")
    command.add_argument(
        "--output",
        type=Path,
        default=Path("out/experiments"),
        help="folder of tables and figures (%(default)s)",
    )
    command.add_argument("--data", type=Path, default=DATA, help="folder of the UCI sets (%(default)s)")
    command.add_argument("--quick", action="store_true", help="small versions, where there are")
    chosen = command.parse_args(arguments)
    if unknown := sorted(set(chosen.names) - set(ALL_OF_THEM)):
        command.error(f"there is no experiment {', '.join(unknown)}; expected {', '.join(ALL_OF_THEM)}.")
    return chosen


def main(arguments: Sequence[str] | None = None) -> None:
    """Run them one after the other."""
    chosen = _chosen(arguments)
    chosen.output.mkdir(parents=True, exist_ok=True)
    folders = {"OUTPUT": str(chosen.output), "DATA": str(chosen.data)}
    failed = []
    for name in chosen.names or ALL_OF_THEM:
        given = [folders.get(each, each) for each in ALL_OF_THEM[name]]
        if chosen.quick and name not in PRINTING:
            given.append("--quick")
        call = [sys.executable, "-m", f"pipelines.experiments.{name}", *given]
        print(f"{name}: {_purpose(name)}", flush=True)
        with (chosen.output / f"{name}.txt").open("w", encoding="utf-8") as file:
            ended = subprocess.run(call, stdout=file, check=False)
        if ended.returncode:
            failed.append(name)
    if failed:
        raise SystemExit(f"ended with an error: {', '.join(failed)}")


if __name__ == "__main__":
    main()
