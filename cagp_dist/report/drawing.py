"""Figures of reports, and how a Matplotlib figure becomes a PNG file and part of the page.

Figures are drawn once and saved twice: as a PNG on white beside the page, and as SVG inside it, where
the neutral colours become CSS variables so that text and lines follow the light or dark theme.
"""

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from cagp_dist.cartography.chart_style import BAND, INK, MUTED, RULE
from cagp_dist.store.atomic_files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_THEMED = {INK: "--ink", MUTED: "--muted", RULE: "--rule", BAND: "--band"}

PNG_DPI = 200
WIDTH_INCHES = 5.8


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure with its file name (no suffix) and what it shows, in words."""

    name: str
    figure: "Figure"
    description: str


def title(figure: "Figure", text: str, *lines: str) -> None:
    """Headline at the top left of a figure, and quieter lines below it."""
    height = figure.get_size_inches()[1]
    figure.text(
        0.012, 1.0 - 0.06 / height, text, va="top", ha="left", fontsize=10, fontweight="bold", color=INK
    )
    for number, line in enumerate(lines):
        top = 1.0 - (0.27 + 0.15 * number) / height
        figure.text(0.012, top, line, va="top", ha="left", fontsize=8, color=MUTED)


def chart(
    heading: str, subtitle: str, height: float, *, left: float = 0.095, right: float = 0.98
) -> "tuple[Figure, Axes]":
    """Figure with a headline and one pair of axes, ``height`` in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, height))
    title(figure, heading, subtitle)
    return figure, figure.add_axes((left, 0.52 / height, right - left, 1.0 - 1.1 / height))


def save_png(drawing: Drawing, directory: Path) -> Path:
    """Write the figure on white as ``directory/<name>.png``."""
    path = directory / f"{drawing.name}.png"
    with replacing(path) as temporary:
        drawing.figure.savefig(temporary, format="png", dpi=PNG_DPI, facecolor="white")
    return path


def inline_svg(drawing: Drawing) -> Markup:
    """Figure as an ``<svg>`` element: as wide as its box, readable aloud, coloured by CSS variables."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": drawing.name}):
        drawing.figure.savefig(buffer, format="svg", dpi=PNG_DPI, transparent=True, metadata=_NO_METADATA)
    text = buffer.getvalue()
    view = re.search(r"<svg [^>]*?(viewBox=\"[^\"]*\")[^>]*>", text)
    assert view is not None
    text = re.sub(r"<style[^>]*>[^<]*</style>", "", text[view.end() :], count=1)
    # Several figures share one document: what one defines must not be found under the name of another.
    prefix = f"{drawing.name}-"
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{prefix}", text).replace("xlink:href=", "href=")
    for colour, variable in _THEMED.items():
        text = text.replace(colour, f"var({variable})")
    return Markup(f'<svg {view[1]} role="img" aria-label="{escape(drawing.description)}">{text}')


_NO_METADATA: dict[str, None] = {"Creator": None, "Date": None, "Format": None, "Type": None}
