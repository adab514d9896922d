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
WIDTH, HEIGHT = 100.0, 84.0


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
    """Draw the walk of one job, from the job file to the report."""
    d = Drawing()

    # what a job is made into
    d.box(
        1,
        71,
        22.5,
        12,
        "1  Job file",
        "service/jobfile/",
        "checked; an unknown key",
        "is an error",
        colour=JOB,
    )
    d.box(
        26.5,
        71,
        22.5,
        12,
        "2  Observations",
        "era5/, store/",
        "one canonical field in",
        "kelvin, with its digest",
        colour=JOB,
    )
    d.box(
        52,
        71,
        22.5,
        12,
        "3  Points",
        "service/design, geometry",
        "observed, held out, map;",
        "unit vectors X, X'",
        colour=JOB,
    )
    d.box(
        77.5,
        71,
        21.5,
        12,
        "4  Prior",
        "kernels, means,",
        "likelihood/ (fit)",
        "kernel, mean m0, noise",
        colour=JOB,
    )
    for x in (23.5, 49, 74.5):
        d.arrow((x, 77), (x + 3, 77))

    # the solve
    d.box(1, 13, 98, 54.5, "", colour=SOLVE)
    d.text(35.5, 65.2, "Solve:  gp.condition(prior, X, y, X', solver=...)", size=8.5, weight="bold")
    d.path((88.2, 71), (88.2, 69.2), (17, 69.2), (17, 63))

    d.box(3, 25, 28, 38, "5  Problem", "b = y - m0(X), targets X', and", "gram: Gram, all a solver sees of G")
    for row, (name, what) in enumerate(GRAMS.items()):
        d.box(4.5, 48.6 - 6.4 * row, 25, 5.9, name, what)
    d.text(4.8, 27.3, "latlon/: grids, wavenumbers, rings", colour=MUTED)
    d.arrow((31, 44), (35, 44))

    d.box(35, 25, 37, 38, "6  Solver", "solvers/: settings that yield states")
    d.box(36.5, 46.6, 19, 10.6, "Stages", "order, Mt and Mt', W:", "Gauss-Seidel, SOR,", "SSOR, Jacobi")
    d.box(36.5, 35.2, 19, 11, "Policy", "yields actions s:", "conjugate gradients,", "random actions")
    d.box(36.5, 26.2, 19, 8.4, "Exact", "the Gram's own solve:", "Cholesky, rings")
    for y, module, what in (
        (52.1, "engine", ["Algorithm 2"]),
        (40.7, "projection", []),
        (30.4, "exact", []),
    ):
        d.box(58.5, y - 2.95, 12, 5.9, module, *what)
        d.arrow((55.5, y), (58.5, y))
        d.arrow((70.5, y), (75, y))

    d.box(75, 15, 22.5, 48, "7  Posterior", "from the last state")
    d.box(
        76.5, 43.5, 19.5, 13.5, "State", "mean  V v", "downdate  V D V'", "leftover  Y0", "iteration, status"
    )
    d.arrow((86, 43.5), (86, 40))
    d.box(
        76.5,
        24,
        19.5,
        16,
        "posterior/",
        "one for every Gram:",
        "trace.py, sampling.py;",
        "gram/leave_one_out.py",
    )
    d.text(76.5, 21.5, "mean, variance, status,")
    d.text(76.5, 19.3, "stats, trace")

    d.box(3, 14.6, 69, 8.8, "Underneath", colour=SOLVE)
    d.text(16, 21.1, "budget: bytes and seconds, worked out first; too much is refused", colour=MUTED)
    d.text(16, 18.9, "runtime/: the same tasks in series, in threads or on a Dask cluster", colour=MUTED)
    d.text(16, 16.7, "compiled, lapack, krylov: kernel tiles, products, factors, iterations", colour=MUTED)

    # what becomes of it
    d.box(
        69,
        1,
        30,
        9.5,
        "8  Scores",
        "calibration/: errors, PIT, coverage,",
        "CRPS at the points held out",
        colour=JOB,
    )
    d.box(
        35,
        1,
        30.5,
        9.5,
        "9  Published run",
        "store/: staged, verified, immutable;",
        "CURRENT moves in one step",
        colour=JOB,
    )
    d.box(
        1,
        1,
        30.5,
        9.5,
        "10  Report",
        "report/: one page from the run alone:",
        "maps, histogram, verdict",
        colour=JOB,
    )
    d.arrow((86, 15), (86, 10.5))
    d.arrow((69, 5.7), (65.5, 5.7))
    d.arrow((35, 5.7), (31.5, 5.7))
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
