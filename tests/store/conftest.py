"""What is stored is put on the disk here, as it is outside of tests."""

import shutil
from pathlib import Path

import pytest

from . import publisher


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_disks() -> None:
    """Files are synchronised with the disk."""


@pytest.fixture(scope="module", autouse=True)
def zarr_stays_in_its_thread() -> None:
    """Chunks are handed to threads."""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A root with one published run, to be copied."""
    root = tmp_path_factory.mktemp("template") / "out"
    publisher.publish_index(root, 1, small=False)
    return root


@pytest.fixture
def root(template, tmp_path):
    return Path(shutil.copytree(template, tmp_path / "out"))
