"""What the experiments have in common: their command line, Markdown tables, and the look of their figures."""

import argparse
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.pit import histogram
from cagp_dist.cartography.chart_style import ACCENT, INK, MUTED, drawing_style

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 110

COLOURS = {
    "Gauss-Seidel": ACCENT,
    "block Gauss-Seidel": "#2a9168",
    "conjugate gradients": "#d9772b",
    "random actions": "#8a63b5",
    "exact": INK,
    "truth": MUTED,
}


def parser(
    description: str | None, *, fields: int | None = None, quick_fields: int | None = None
) -> argparse.ArgumentParser:
    """Command line of an experiment: ``--quick`` and ``--output``; the script's docstring is its help.

    With numbers of fields, usual and quick, also ``--fields`` for another one; see `fields_asked`.
    """
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="a small version that takes seconds")
    made.add_argument(
        "--output", type=Path, default=Path("out/experiments"), help="folder of the figures (%(default)s)"
    )
    if fields is not None:
        usual = f"{fields}; {quick_fields} quick"
        made.add_argument("--fields", type=_several, metavar="COUNT", help=f"fields of each case ({usual})")
        made.set_defaults(usual_fields=fields, quick_fields=quick_fields)
    return made


def fields_asked(chosen: argparse.Namespace) -> int:
    """Give the number of fields that a command line of `parser` asks for."""
    usual = chosen.quick_fields if chosen.quick else chosen.usual_fields
    return int(usual if chosen.fields is None else chosen.fields)


def _several(text: str) -> int:
    if (count := int(text)) < 2:
        raise argparse.ArgumentTypeError(f"{count} fields; expected at least 2, for a standard error")
    return count


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def save(path: Path, results: "xr.Dataset") -> None:
    """Write results as a Zarr store, in place of one that is there."""
    from cagp_dist.store.zarr_arrays import ROOT, write_group

    if path.exists():
        shutil.rmtree(path)
    write_group(path, ROOT, results)
    print(f"written to {path}", flush=True)


def save_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {path}", flush=True)


@contextmanager
def drawn(path: Path, *, width_inches: float = 9.0, height_inches: float = 3.4) -> Iterator["Figure"]:
    """Yield an empty figure and save it as a PNG file at the end."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    with drawing_style(), rc_context({"text.parse_math": True}):  # powers of ten on logarithmic axes
        figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
        yield figure
        figure.savefig(path, dpi=DPI, facecolor="white")
    print(f"written to {path}", flush=True)


def few_colours(path: Path, *, count: int = 64) -> None:
    """Save a picture again with so many colours, at most 256: a third of the bytes."""
    from PIL import Image

    with Image.open(path) as image:
        reduced = image.convert("RGB").quantize(count, dither=Image.Dither.NONE)
    reduced.save(path, optimize=True)


def pit_bars(axes: "Axes", pit: Array, *, colour: str, title: str) -> None:
    """Draw a histogram of PIT values, with the 95 % range of a count between dashed lines."""
    counts = histogram(pit)
    axes.bar(
        counts.edges[:-1],
        counts.counts / counts.expected,
        width=0.94 * np.diff(counts.edges),
        align="edge",
        color=colour,
    )
    for bound in (counts.lower, counts.upper):
        axes.axhline(bound / counts.expected, color=INK, linewidth=0.8, linestyle="--")
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlim(0.0, 1.0)


def plain_ticks(axes: "Axes", values: Sequence[float]) -> None:
    """Put a logarithmic vertical axis, labelled with plain numbers."""
    axes.set_yscale("log")
    axes.set_yticks(values, [f"{value:g}" for value in values], minor=False)
    axes.set_yticks([], minor=True)


def count_ticks(axes: "Axes", counts: Sequence[int]) -> None:
    """Put a logarithmic axis of iteration counts, labelled with the numbers themselves."""
    axes.set_xscale("log")
    axes.set_xticks(counts, [str(count) for count in counts], minor=False)
    axes.set_xticks([], minor=True)
