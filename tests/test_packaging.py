"""What wheel and sdist have, that the wheel works alone, and that the other files of a release agree."""

import importlib.util
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from .wheel import MOST_BYTES, tried

REPOSITORY = Path(__file__).parents[1]
SETTINGS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
LEFT_OUT = tuple(SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"].get("exclude", ()))
ON_CONDA = {"dask": "dask-core", "matplotlib": "matplotlib-base", "eccodes": "python-eccodes"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_has_the_package_with_its_data_and_nothing_else(built):
    named = f"cagp_dist-{PROJECT['version']}"
    with zipfile.ZipFile(built[0]) as archive:
        names = set(archive.namelist())
    inside = {name for name in names if name.startswith("cagp_dist/")}
    assert inside == {name for name in files_of("cagp_dist") if not name.startswith(LEFT_OUT)}
    assert {"cagp_dist/py.typed", "cagp_dist/pages/data/page.html"} <= inside
    assert names - inside == {
        f"{named}.dist-info/{name}"
        for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE")
    }


def test_the_sdist_has_what_the_tests_of_the_project_read(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("cagp_dist", "tests", "docs", "deploy", "pipelines"):
        assert files_of(folder) <= names
    beside = [path for pattern in ("*.md", "*.lock", "*.toml", "*.cff") for path in REPOSITORY.glob(pattern)]
    assert {"Makefile", "LICENSE", "NOTICE", *(path.name for path in beside)} <= names
    assert not [name for name in names if re.match(r"out/|dist/|\.venv|\.git/", name)]


@pytest.mark.exhaustive
def test_the_wheel_alone_does_the_demo(built, tmp_path):
    size, _ = tried(built[0], tmp_path, demo=True)
    assert size < MOST_BYTES
    (page,) = (tmp_path / "elsewhere" / "demo" / "report").glob("*/report.html")
    assert "</html>" in page.read_text()


def test_the_conda_recipe_asks_for_what_pyproject_does():
    recipe = yaml.safe_load((REPOSITORY / "deploy" / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == PROJECT["version"]
    assert PROJECT["requires-python"] == f">={recipe['context']['python_min']}"
    python, *needed = recipe["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert needed == [on_conda(text) for text in PROJECT["dependencies"]]
    of_extras = [
        on_conda(text)
        for extra, texts in PROJECT["optional-dependencies"].items()
        if extra not in ("all", "baselines")
        for text in texts
    ]
    assert recipe["requirements"]["run_constraints"] == list(dict.fromkeys(of_extras))
    (command,) = recipe["build"]["python"]["entry_points"]
    assert command == f"cagp = {PROJECT['scripts']['cagp']}"
    assert recipe["about"]["license"] == PROJECT["license"]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert str(citation["version"]) == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]


def test_versions_of_the_documentation_stand_side_by_side(tmp_path):
    spec = importlib.util.spec_from_file_location("versions", REPOSITORY / "docs" / "versions.py")
    versions = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(versions)
    built, site = tmp_path / "built", tmp_path / "site"
    built.mkdir()
    (site / "images").mkdir(parents=True)
    for version in ("0.9", "0.10.0", "0.11rc1", "0.9"):
        (built / "index.html").write_text(version)
        found = versions.add_version(built, site, version)
    assert found == ["0.11rc1", "0.10.0", "0.9"]
    assert (site / "versions.js").read_text() == f"window.documentedVersions = {found};\n".replace("'", '"')
    assert "url=0.10.0/index.html" in (site / "index.html").read_text()
    assert [(site / each / "index.html").read_text() for each in found] == found


def files_of(folder: str) -> set[str]:
    """Files of the repository below a folder, without what tools make."""
    made = {"__pycache__", "_build", "generated", "jupyter_execute", "node_modules"}
    return {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and not made & set(path.parts)
    }


def on_conda(text: str) -> str:
    """A requirement as conda writes it."""
    requirement = Requirement(text)
    return f"{ON_CONDA.get(requirement.name, requirement.name)} {requirement.specifier}"
