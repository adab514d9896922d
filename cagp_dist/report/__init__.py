"""From a published run to one self-contained HTML page and PNG figures beside it.

``published`` reads the run, ``frame`` decides where a map is drawn, ``maps`` and ``charts`` draw,
``tables`` and ``wording`` turn numbers into text, ``page`` puts all of it on one page, whose ``templates``
escape it.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cagp_dist.errors import ConfigurationError
from cagp_dist.store.atomic_files import replacing
from cagp_dist.store.durable_files import full_disk, is_full
from cagp_dist.store.lock import refuse_linked_folders, run_in_use

if TYPE_CHECKING:
    from cagp_dist.report.published import PublishedRun

__all__ = ["report_page", "write_report"]


def write_report(run_path: str | os.PathLike[str], directory: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a published run: ``report.html`` and its figures as PNG files.

    The page stands alone and prints. The PNG files ``mean``, ``std``, ``residual``, ``pit``, ``reliability``,
    ``strata`` and ``convergence`` lie beside it; ``computational`` where the solver left something undone,
    ``scale`` where error bars have a local one, ``biases`` where observations share errors, ``times`` and
    ``regions`` for a run of several times. Writing it again replaces each file whole: two processes that do
    so at once leave the same. Of several variables or depths the first is there, and each other one in a
    folder of its name, to which the page has a link.

    Parameters
    ----------
    run_path : path-like
        ``OUT/runs/<run_key>.zarr``.
    directory : path-like, optional
        Where to write; ``OUT/report/<run_key>`` when omitted. Created with its parents.

    Returns
    -------
    Path
        ``report.html``. Cost: a few seconds and about 2 MB, whatever the size of the map. Of several times
        all are drawn, the more the smaller: 31 take some seconds more and 0.6 MB, 744 a minute and 4 MB.

    Raises
    ------
    StoreError, ConfigurationError
        If there is no run or it cannot be read; if the directory cannot be written, or is a link in an
        output folder.

    Examples
    --------
    >>> write_report("out/runs/4f1d.zarr")  # doctest: +SKIP
    PosixPath('out/report/4f1d/report.html')
    """
    from cagp_dist.cartography.chart_style import drawing_style
    from cagp_dist.report.published import read_run
    from cagp_dist.report.wording import page_of

    path = Path(run_path)
    target = Path(directory) if directory is not None else report_page(path).parent
    if directory is None:
        refuse_linked_folders(target.parents[1])
    with run_in_use(path), drawing_style():
        run = read_run(path)
        for name in run.variables[1:]:
            _write(path, read_run(path, name), target / name)
        for depth, name in enumerate(run.depths[1:], start=1):
            _write(path, read_run(path, depth=depth), target / page_of(name))
        return _write(path, run, target)


def _write(path: Path, run: "PublishedRun", target: Path) -> Path:
    """Write the report of a run, of one of its variables, with `drawing_style`."""
    from cagp_dist.report.charts import draw_charts
    from cagp_dist.report.drawing import inline_svg, save_png
    from cagp_dist.report.every_time import gallery, survey
    from cagp_dist.report.maps import ERRORS, draw_maps, map_scales
    from cagp_dist.report.page import render

    every = survey(path, run) if len(run.times) > 1 else None
    scales = None if every is None else map_scales(run, every.spans)  # the same at all times
    maps = draw_maps(run, scales, varying=ERRORS if every is None else every.varying)
    tall = float(maps[-1].figure.get_size_inches()[1])
    drawings = [*maps, *draw_charts(run, pit_height_inches=tall)]
    figures = {drawing.name: inline_svg(drawing) for drawing in drawings}
    page = render(run, figures, None if every is None or scales is None else gallery(run, every, scales))
    try:
        target.mkdir(parents=True, exist_ok=True)
        for drawing in drawings:
            save_png(drawing, target)
        with replacing(target / "report.html") as temporary:
            temporary.write_text(page, encoding="utf-8")
    except OSError as error:
        if is_full(error):
            raise full_disk(target, error.strerror) from error
        raise ConfigurationError(
            f"cannot write the report into {target} ({error.strerror or error}); "
            "choose a directory that exists or can be created, with a few megabytes free.",
            key="not-writable",
        ) from error
    return target / "report.html"


def report_page(run_path: Path) -> Path:
    """Where the report of a run is written by itself: below ``OUT``, or beside a moved run."""
    folder = run_path.absolute().parent
    return (folder.parent if folder.name == "runs" else folder) / "report" / run_path.stem / "report.html"
