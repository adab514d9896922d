from collections.abc import Iterator
from pathlib import Path

import pytest

from cagp_dist.report import write_report

from ..conftest import blank_figures
from .make_run import HOURS, make_run


@pytest.fixture(scope="module", autouse=True)
def figures_are_not_rendered() -> None:
    """Figures are rendered here."""


@pytest.fixture
def without_figures() -> Iterator[None]:
    """For tests of words and files, which drawing says nothing about."""
    with blank_figures():
        yield


@pytest.fixture(scope="session")
def global_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Report of a global run of one time with a map."""
    return write_report(make_run(tmp_path_factory.mktemp("global")))


@pytest.fixture(scope="session")
def hourly_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Report of a recalibrated run of ten times around the meridian of Greenwich, without a map."""
    run = make_run(
        tmp_path_factory.mktemp("hourly"),
        times=HOURS,
        longitude=(-10.0, 2.0),
        latitude=(50.0, 58.0),
        test_count=60,
        map_step=None,
        recalibrated=True,
    )
    return write_report(run)
