"""Quantiles of sharp calibrated GPs on a line, beside those of one curve and of one width.

    python -m pipelines.experiments.sharp_line [--quick] [--output FOLDER]

What the pictures of Capone, Hirche & Pleiss (2023) show, with data of our own, since theirs are not stated:
``y = sin(2 x) + noise`` at points that are uniform on [-4, 4], noise of standard deviation 0.1 + 0.1 |x|; 60
for training, 60 for calibration, 400 for the test; ten draws. Prior, calibration and scores are those of
`pipelines.experiments.sharp`. Prints means over draws and draws ``sharp-line.png`` of the first one.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.cartography.chart_style import INK, MUTED
from pipelines.experiments.output import COLOURS, drawn, few_colours, parser, print_table
from pipelines.experiments.sharp import CENTRE, LEVELS, SCORES, SHARP, Cases, quantiles, scored

TRAINED, CALIBRATED, TESTED, DRAWS = 25, 60, 400, 10
QUICK_DRAWS = 1
SHOWN = {"plain": MUTED, "Kuleshov": COLOURS["conjugate gradients"], SHARP: COLOURS["Gauss-Seidel"]}
METHODS = (*SHOWN, "Marx")


def line(draw: int) -> Cases:
    """Draw cases; those of the test are in order along the line."""
    generator = np.random.default_rng(draw)
    parts = [generator.uniform(-4.0, 4.0, count) for count in (TRAINED, CALIBRATED, TESTED)]
    parts[2].sort()
    noise = [(0.1 + 0.1 * np.abs(x)) * generator.standard_normal(len(x)) for x in parts]
    y = [np.sin(2.0 * x) + each for x, each in zip(parts, noise, strict=True)]
    return Cases([x[:, None] for x in parts], y)


def rows(found: Sequence[tuple[Cases, dict[str, Array]]]) -> Iterator[Sequence[str]]:
    """Lines of the table: means over draws."""
    for name in METHODS:
        each = [scored(laws[name], laws[CENTRE], cases.y[2]) for cases, laws in found]
        inside = [
            np.mean((laws[name][0] <= cases.y[2]) & (cases.y[2] <= laws[name][-1])) for cases, laws in found
        ]
        mean = dict(zip(SCORES, np.mean(each, axis=0), strict=True))
        yield (
            name,
            f"{100.0 * np.mean(inside):.1f} %",
            *(f"{mean[score]:.3f}" for score in ("width", "crps", "interval")),
        )


def draw(path: Path, cases: Cases, found: dict[str, Array]) -> None:
    """Draw 95 % and 80 % intervals of three distributions."""
    x, inner = cases.X[2][:, 0], int(np.argmin(np.abs(LEVELS - 0.1)))
    with drawn(path, width_inches=9.0, height_inches=2.8) as figure:
        panels = figure.subplots(1, len(SHOWN), sharey=True)
        for axes, (name, colour) in zip(panels, SHOWN.items(), strict=True):
            for place, shade in ((0, 0.2), (inner, 0.4)):
                low, high = found[name][[place, -1 - place]]
                axes.fill_between(x, low, high, color=colour, alpha=shade, linewidth=0)
            axes.plot(x, found[CENTRE], color=colour, linewidth=1.2)
            axes.plot(cases.X[0][:, 0], cases.y[0], ".", color=INK, markersize=2.5)
            axes.plot(cases.X[1][:, 0], cases.y[1], "+", color=MUTED, markersize=4)
            axes.set_title(name, loc="left", fontsize=9)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw cases, calibrate, print and draw."""
    chosen = parser(__doc__).parse_args(arguments)
    cases = [line(index) for index in range(QUICK_DRAWS if chosen.quick else DRAWS)]
    found = [(each, quantiles(each)) for each in cases]
    print_table(("distribution", "inside of 95 %", "width of 95 %", "CRPS", "interval score"), rows(found))
    draw(chosen.output / "sharp-line.png", *found[0])
    few_colours(chosen.output / "sharp-line.png")


if __name__ == "__main__":
    main()
