"""The common look of all figures: colours, fonts and axes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, RULE, PANEL = "#1b2733", "#5d6975", "#c9d0d7", "#e0e5ea"
ACCENT, BAND = "#3478b5", "#b9d3ea"


@contextmanager
def drawing_style() -> Iterator[None]:
    """Matplotlib settings of all figures, restored on leaving; figures are saved inside as well.

    A notebook becomes interactive with its first figure, and stays so.
    """
    import matplotlib as mpl

    with mpl.rc_context(
        {
            "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans"],
            "font.size": 8.5,
            "text.color": INK,
            "axes.edgecolor": MUTED,
            "axes.labelcolor": INK,
            "axes.linewidth": 0.7,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "xtick.labelcolor": INK,
            "ytick.labelcolor": INK,
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "svg.fonttype": "none",
            "text.parse_math": False,  # units and names may hold dollar signs
        }
    ):
        try:
            yield
        finally:
            interactive = mpl.is_interactive()
    mpl.interactive(interactive)


def quiet_grid(axes: "Axes", heading: str = "") -> None:
    """Faint horizontal rules behind the data, and a heading at the left."""
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    if heading:
        axes.set_title(heading, fontsize=8, loc="left", color=INK)


def date_axis(axes: "Axes", *, fewest: int | None = None, most: int, show_offset: bool = True) -> None:
    """Write dates below an axis, as short as they can be."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=fewest or 5, maxticks=most)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=show_offset))
