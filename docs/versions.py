"""Put built documentation beside that of other versions: ``python docs/versions.py BUILT SITE``.

``SITE/VERSION`` has the pages, ``SITE/versions.js`` the versions of the list in the sidebar, newest first,
and ``SITE/index.html`` leads to the newest.
"""

import json
import shutil
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from packaging.version import InvalidVersion, Version


def add_version(built: Path, site: Path, version: str) -> list[str]:
    """Put the documentation of a version in its place, and list all that are there."""
    place = site / str(Version(version))
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(built, place)
    found = sorted(filter(None, map(_version, site.iterdir())), reverse=True)
    newest = next((each for each in found if not each.is_prerelease), found[0])
    names = [str(each) for each in found]
    (site / "versions.js").write_text(f"window.documentedVersions = {json.dumps(names)};\n")
    (site / "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={newest}/index.html">\n')
    return names


def _version(path: Path) -> Version | None:
    """Version whose documentation a folder has, if it has one."""
    try:
        return Version(path.name) if (path / "index.html").is_file() else None
    except InvalidVersion:
        return None


if __name__ == "__main__":
    built, site = map(Path, sys.argv[1:])
    print(*add_version(built, site, installed_version("cagp-dist")))
