"""The lock files install on the oldest Python that the package allows, not only on the one they were written with."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_every_locked_version_accepts_the_oldest_python(lock):
    allowed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    (oldest,) = SpecifierSet(allowed)
    assert oldest.operator == ">="
    locked = [Requirement(line) for line in (ROOT / lock).read_text().splitlines()]
    assert len(locked) > 50
    refused = {}
    for requirement in locked:
        wanted = metadata.metadata(requirement.name)["Requires-Python"]
        if wanted and not SpecifierSet(wanted).contains(f"{oldest.version}.0"):
            refused[str(requirement)] = wanted
    assert refused == {}
