from pathlib import Path

import numpy as np
import pytest

from .viewed_runs import DAYS, publish_viewed


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output folder of a run of three times all around, longitudes from 0 to 360."""
    root = tmp_path_factory.mktemp("world") / "out"
    publish_viewed(root, np.arange(-90.0, 90.1, 5.0), np.arange(0.0, 360.0, 5.0), times=DAYS[:3])
    return root
