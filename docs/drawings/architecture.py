"""Draw architecture.svg, the figure of docs/architecture.md: ``python docs/drawings/architecture.py``.

Everything that is written in the figure stands in this file as text, one call for each box.
"""

import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

INK, MUTED, LINE = "#22303c", "#5b6b78", "#8b99a5"
JOB, SOLVE, INSIDE = "#e8f0f7", "#f4f6f8", "#ffffff"
STYLE = {"font.family": "DejaVu Sans", "svg.fonttype": "path", "svg.hashsalt": "architecture"}
WIDTH, HEIGHT = 100.0, 96.0


class Drawing:
    """A figure of ``WIDTH`` x ``HEIGHT`` units, y upwards."""

    def __init__(self) -> None:
        self.figure = Figure(figsize=(WIDTH / 12.5, HEIGHT / 12.5))
        self.axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set(xlim=(0.0, WIDTH), ylim=(0.0, HEIGHT))
        self.axes.axis("off")

    def box(
        self, x: float, y: float, width: float, height: float, title: str, *lines: str, colour: str = INSIDE
    ) -> None:
        """A box with its lower left corner at (x, y); the title in bold, the other lines below it."""
        patch = FancyBboxPatch(
            (x + 0.6, y + 0.6),
            width - 1.2,
            height - 1.2,
            boxstyle="round,pad=0.6",
            facecolor=colour,
            edgecolor=LINE,
            linewidth=0.9,
        )
        self.axes.add_patch(patch)
        self.text(x + 1.2, y + height - 2.3, title, weight="bold", size=8.5)
        for row, line in enumerate(lines):
            self.text(x + 1.2, y + height - 4.6 - 2.1 * row, line, size=7.2, colour=MUTED)

    def text(
        self, x: float, y: float, text: str, *, size: float = 7.2, weight: str = "normal", colour: str = INK
    ) -> None:
        """A line of text that starts at (x, y)."""
        self.axes.text(x, y, text, fontsize=size, fontweight=weight, color=colour, va="center", ha="left")

    def arrow(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """An arrow between two points."""
        self.axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                arrowstyle="-|>",
                mutation_scale=9,
                linewidth=1.1,
                color=INK,
                shrinkA=0,
                shrinkB=0,
            )
        )

    def path(self, *points: tuple[float, float]) -> None:
        """An arrow along straight pieces."""
        self.axes.plot(*zip(*points[:-1], strict=True), color=INK, linewidth=1.1, solid_joinstyle="miter")
        self.arrow(points[-2], points[-1])


GRAMS = {
    "TiledGram": "points anywhere, tile by tile",
    "DenseGram": "stored whole: the oracle of the tests",
    "RingGram": "whole latitude-longitude grids",
    "MaskedRings": "grids with gaps",
}


def draw() -> Figure:
    """Draw both doors, the one path between them, and what the path stands on."""
    d = Drawing()

    # the two doors
    d.box(
        1,
        85,
        47,
        10,
        "cagp.krige(observations, to=...)    kriging/",
        "tables, data frames, xarray objects, names of sources;",
        "arguments of a call",
        colour=JOB,
    )
    d.box(
        52,
        85,
        47,
        10,
        "cagp run job.toml    service/",
        "files, stores, CDS, tables: kept by store/ with digests;",
        "settings checked by service/jobfile/",
        colour=JOB,
    )
    d.text(43.5, 83.4, "sources: fields/", colour=MUTED)
    for x in (24.5, 75.5):
        d.arrow((x, 85), (x, 80.5))

    # the one path
    d.box(1, 60, 98, 20.5, "pipeline/    the same bits for both", colour=SOLVE)
    steps = {
        "Task": ("Observations, Split,", "Targets, what is said", "of kernel and mean"),
        "FittedModel": ("kernel, mean, noise;", "likelihood/, or numbers", "integrated over"),
        "Solution": ("a solve for each", "pattern of gaps, planned", "before it begins"),
        "Distributions": ("error bars corrected by", "errors at places left out;", "calibration/"),
        "Result": ("distributions, scores,", "trace, status,", "what was chosen"),
    }
    for place, (name, what) in enumerate(steps.items()):
        x = 2.5 + 19.3 * place
        d.box(x, 62, 17.5, 13, name, *what)
        if place:
            d.arrow((x - 1.8, 68.5), (x, 68.5))
    d.arrow((49.9, 62), (49.9, 57.5))

    # the library under it
    d.box(
        1,
        13.5,
        98,
        44,
        "gp.condition(prior, X, y, X', solver=...)    the library, which works alone as well",
        colour=SOLVE,
    )
    d.box(3, 24, 28, 29.5, "Gram", "all that a solver sees of G = K + N")
    for row, (name, what) in enumerate(GRAMS.items()):
        d.box(4.5, 42 - 5.6 * row, 25, 5.4, name, what)
    d.arrow((31, 38.5), (35, 38.5))
    d.box(35, 24, 37, 29.5, "Solver", "settings that yield states")
    for y, room, what in (
        (42.2, "stationary", "cycles of stages: sweeps, polynomials"),
        (36.5, "actions", "projections that policies choose"),
        (30.8, "local", "neighbours, with exact error distributions"),
        (25.1, "exact", "dense factors, rings"),
    ):
        d.box(36.5, y, 34, 5.6, room, what)
    d.arrow((72, 38.5), (75, 38.5))
    d.box(
        75,
        24,
        22.5,
        29.5,
        "Posterior",
        "mean  V A b",
        "downdate  V D V'",
        "status, stats, trace,",
        "certificate,",
        "samples",
    )
    d.text(
        4,
        21.4,
        "solvers/engine: Algorithm 2; checkpoints, stopping rules and kept weights beside it",
        colour=MUTED,
    )
    d.text(4, 19.2, "budget: bytes, tasks and flops, worked out first; too much is refused", colour=MUTED)
    d.text(4, 17.0, "runtime/: the same tasks in series, in threads or on a Dask cluster", colour=MUTED)
    d.text(
        4, 14.8, "latlon, compiled, lapack, krylov: rings, kernel tiles, factors, iterations", colour=MUTED
    )

    # what comes out
    d.box(
        1, 1, 47, 9.5, "Dataset    kriging/", "mean, std and how they came about; plots, GeoTIFF", colour=JOB
    )
    d.box(
        52,
        1,
        47,
        9.5,
        "Published run    store/, report/",
        "verified before CURRENT names it, never changed;",
        "a page made from the run alone",
        colour=JOB,
    )
    for x in (24.5, 75.5):
        d.arrow((x, 13.5), (x, 10.5))
    return d.figure


def main() -> None:
    """Write the figure as SVG, or to the path that is given."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg")
    with mpl.rc_context(STYLE):
        figure = draw()
        metadata = {"Date": None} if target.suffix == ".svg" else None
        figure.savefig(target, dpi=110, facecolor="white", metadata=metadata)


if __name__ == "__main__":
    main()
