"""The page of a run as static files."""

import json
import os
import shutil
from pathlib import Path

from cagp_dist.errors import ConfigurationError
from cagp_dist.service.run import find_run
from cagp_dist.store.lock import run_in_use, whole_folder
from cagp_dist.store.manifest import manifest_path
from cagp_dist.view.site_files import DATA, DESCRIPTION, WRITTEN_BY, description, page_files


def export_page(out: Path | str, folder: Path | str) -> Path:
    """Write the page of a run, with the run, to a folder that any web server can hand out, at any address.

    ``out`` is as of `serve`, and so are the errors; a folder that this function wrote before is replaced,
    whole or not at all, any other one is refused; a link to it stays. Cost: one copy of the run, and 2 MB.
    Browsers do not let a page that was opened as a file read other files: hand it out, as with
    ``python -m http.server``.

    Examples
    --------
    >>> export_page("out", "public/maps")  # doctest: +SKIP
    PosixPath('public/maps/index.html')
    """
    run, target = Path(os.path.realpath(find_run(out))), Path(os.path.abspath(folder))
    told = description(run)
    _refuse_what_others_wrote(target)
    with (
        run_in_use(run),
        whole_folder(target) as stage,
    ):
        for address, path in page_files().items():
            (stage / address).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, stage / address)
        shutil.copytree(run, stage / DATA / run.name, symlinks=True, copy_function=shutil.copyfile)
        if manifest_path(run).is_file():
            shutil.copyfile(manifest_path(run), stage / DATA / manifest_path(run).name)
        (stage / DESCRIPTION).write_bytes(told)
    return target / "index.html"


def _refuse_what_others_wrote(target: Path) -> None:
    """Raise where a folder is neither empty nor what `export_page` wrote."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        if json.loads((target / DESCRIPTION).read_bytes())["written_by"] == WRITTEN_BY:
            return
    except (OSError, ValueError, TypeError, KeyError):
        pass
    raise ConfigurationError(
        f"{target} holds files that `cagp view --export` did not write, and they are not replaced. Name a "
        "new folder, or an empty one.",
        key="other-files",
    )
