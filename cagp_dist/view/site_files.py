"""The files of the page of a run, and the description of the run that the page reads first."""

import json
import os
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from cagp_dist.errors import StoreError
from cagp_dist.service.run import find_run
from cagp_dist.store.series import current_version

DESCRIPTION = "view.json"
WRITTEN_BY = "cagp view"
DATA = "data"  # Folder of the runs, below the page


def page_files() -> dict[str, Path]:
    """List the files of the page by their addresses: its own, the vendored libraries and the coast lines."""
    page = Path(str(resources.files("cagp_dist.view") / "page"))
    data = Path(str(resources.files("cagp_dist.cartography") / "data"))
    own = {path.relative_to(page).as_posix(): path for path in sorted(page.rglob("*")) if path.is_file()}
    coast = {"coastline.npy": "coastline_50m.npy", "coastline-fine.npy": "coastline_10m.npy"}
    return {**own, **{address: data / name for address, name in coast.items()}}


def description(run: Path, *, live: bool = False, series: Path | None = None) -> bytes:
    """Say where the run of a page is, and the series beside it; ``live`` if there may be a newer run."""
    told = {"written_by": WRITTEN_BY, "live": live, **_contents(run)}
    return json.dumps({**told, "series": None if series is None else _contents(series)}).encode()


def _contents(run: Path) -> dict[str, object]:
    """Address of a run, and the arrays of its groups: a page cannot list the folders of a web server."""
    if not (run / "zarr.json").is_file():
        raise StoreError(
            f"there is no published run at {run}; expected a Zarr store OUT/runs/KEY.zarr.", key="no-run"
        )
    contents: dict[str, list[str]] = {}
    for array in sorted(run.glob("*/*/zarr.json")):
        contents.setdefault(array.parts[-3], []).append(array.parts[-2])
    if not any(name in contents for name in ("map", "posterior")):
        raise StoreError(
            f"{run} has neither a map nor predictions at points, so that there is nothing to show. Run its "
            "job again.",
            key="nothing-to-show",
        )
    if "y" in {name for group in contents.values() for name in group}:
        raise StoreError(
            f"{run} lies in a plane of x and y, and the page draws latitudes and longitudes. See its report "
            "(`cagp report`), whose maps are in x and y, or export the map (`cagp export`).",
            key="page-of-plane",
        )
    return {"path": f"{DATA}/{run.name}", "contents": contents}


@dataclass
class Site:
    """What a server hands out for ``out``: the page, and the runs that it was told of."""

    out: Path | str
    _page: dict[str, Path] = field(default_factory=page_files)
    _runs: dict[str, Path] = field(default_factory=dict)

    def find(self, address: str) -> Path | bytes | None:
        """Give the file at an address below the page, or what is in its place; None if there is none."""
        if address == DESCRIPTION:
            run = Path(os.path.realpath(find_run(self.out)))
            self._runs[run.name] = run
            folder = Path(os.path.realpath(self.out))
            live = folder.is_dir() and folder != run
            series = current_version(folder) if live else None
            if series is not None:
                self._runs[series.name] = series = Path(os.path.realpath(series))
            return description(run, live=live, series=series)
        parts = (address or "index.html").split("/")
        if parts[0] == DATA and len(parts) > 2 and parts[1] in self._runs:
            return _file_within(self._runs[parts[1]], parts[2:])
        return self._page.get("/".join(parts))


def _file_within(folder: Path, parts: list[str]) -> Path | None:
    """Give a file below a folder; None if there is none, or a link on the way, which may lead anywhere."""
    if any(not part or part.startswith(".") or set(part) & {"/", "\\", "\0"} for part in parts):
        return None
    path = folder.joinpath(*parts)
    try:
        return path if os.path.realpath(path) == os.fspath(path) and path.is_file() else None
    except OSError:  # a name that is too long
        return None
