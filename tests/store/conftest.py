"""What is stored is put on the disk here, as it is outside of tests."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_disks() -> None:
    """Files are synchronised with the disk."""


@pytest.fixture(scope="module", autouse=True)
def zarr_stays_in_its_thread() -> None:
    """Chunks are handed to threads."""
