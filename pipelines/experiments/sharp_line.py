"""Quantiles of sharp calibrated GPs on a line, beside those of one curve and of one width.

    python -m pipelines.experiments.sharp_line [--quick] [--output FOLDER]

What the pictures of Capone, Hirche & Pleiss (2023) show, with data of our own, since theirs are not stated:
``y = sin(2 x) + noise`` at points that are uniform on [-4, 4], noise of standard deviation 0.1 + 0.1 |x|; 25
for training, 60 for calibration, 400 for the test; ten draws. Prior, calibration and scores are those of
`pipelines.experiments.sharp`. Prints means over draws, and means and standard errors of what sharp GPs differ
from Kuleshov's curve by, draw by draw; draws ``sharp-line.png`` of the first one.
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
CURVE = "Kuleshov"
SHOWN = {"plain": MUTED, CURVE: COLOURS["conjugate gradients"], SHARP: COLOURS["Gauss-Seidel"]}
METHODS = (*SHOWN, "Marx")
SHOWN_SCORES = ("width", "crps", "interval")


def line(draw: int) -> Cases:
    """Draw cases; those of the test are in order along the line."""
    generator = np.random.default_rng(draw)
    parts = [generator.uniform(-4.0, 4.0, count) for count in (TRAINED, CALIBRATED, TESTED)]
    parts[2].sort()
    noise = [(0.1 + 0.1 * np.abs(x)) * generator.standard_normal(len(x)) for x in parts]
    y = [np.sin(2.0 * x) + each for x, each in zip(parts, noise, strict=True)]
    return Cases([x[:, None] for x in parts], y)


def scores_of(cases: Cases, found: dict[str, Array]) -> Array:
    """Share inside of 95 % intervals in per cent, and `SHOWN_SCORES`, of `METHODS`: (methods, 4)."""
    y, places = cases.y[2], [SCORES.index(score) for score in SHOWN_SCORES]
    return np.array(
        [
            [
                100.0 * np.mean((found[name][0] <= y) & (y <= found[name][-1])),
                *scored(found[name], found[CENTRE], y)[places],
            ]
            for name in METHODS
        ]
    )


def rows(scores: Array) -> Iterator[Sequence[str]]:
    """Lines of the table of scores (draws, methods, 4): means over draws, and a line of differences."""
    for name, (inside, *others) in zip(METHODS, scores.mean(axis=0), strict=True):
        yield name, f"{inside:.1f} %", *(f"{score:.3f}" for score in others)
    if len(scores) > 1:
        less = scores[:, METHODS.index(SHARP)] - scores[:, METHODS.index(CURVE)]
        error = less.std(axis=0, ddof=1) / np.sqrt(len(less))
        inside, *others = (f"{mean:.3f} ± {each:.3f}" for mean, each in zip(less.mean(0), error, strict=True))
        yield f"{SHARP} less {CURVE}", f"{inside} %", *others


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
    print_table(
        ("distribution", "inside of 95 %", "width of 95 %", "CRPS", "interval score"),
        rows(np.array([scores_of(*each) for each in found])),
    )
    draw(chosen.output / "sharp-line.png", *found[0])
    few_colours(chosen.output / "sharp-line.png")


if __name__ == "__main__":
    main()
