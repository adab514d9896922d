"""Pages show what they draw: every cell that draws has a picture on the built page, and a thumbnail."""

import re
from pathlib import Path

_CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
_DRAWS = re.compile(
    r"\bplt\.(subplots|figure|plot|scatter|imshow|pcolormesh|contourf?|hist)\(|\.cagp\.plot(\.\w+)?\("
)
_IMAGE = re.compile(r'<img\b[^>]*\bsrc="([^"]+)"')


def missing_figures(source: Path, page: Path) -> list[str]:
    """Name the cells of a notebook page that draw a figure which the built page does not show.

    Parameters
    ----------
    source : path
        The page in MyST Markdown, with its code cells.
    page : path
        The HTML that was built from it.

    Returns
    -------
    list of str
        One line for each figure that is absent, or whose file is absent or empty; empty if all are there.
    """
    cells = _CELL.findall(source.read_text(encoding="utf-8"))
    built = re.split(r'<div class="cell[ "]', page.read_text(encoding="utf-8"))[1:]
    if len(cells) != len(built):
        return [f"{page.name} has {len(built)} executed cells; {source.name} has {len(cells)}"]
    found = []
    for number, (code, shown) in enumerate(zip(cells, built, strict=True), start=1):
        if not _DRAWS.search(code):
            continue
        images = _IMAGE.findall(shown.partition("cell_output")[2])
        if not images:
            found.append(f"cell {number} of {source.name} draws a figure and {page.name} shows none")
        for image in images:
            file = page.parent / image
            if not file.is_file() or not file.stat().st_size:
                found.append(f"cell {number} of {source.name}: the picture {image} is not there")
    return found


def make_thumbnail(page: Path, target: Path, *, width: int = 480) -> None:
    """Write the first picture of a built page with so many pixels across."""
    from PIL import Image

    first = next(image for image in _IMAGE.findall(page.read_text(encoding="utf-8")) if "_images/" in image)
    with Image.open(page.parent / first) as picture:
        picture.convert("RGB").reduce(max(1, picture.width // width)).save(target, optimize=True)
