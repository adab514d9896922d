"""What several tests of experiments read."""

import gzip

import numpy as np
import pytest


@pytest.fixture(scope="module")
def regression_set(tmp_path_factory):
    """A set of 120 cases, one column constant, written as those of the collection are."""
    folder, generator = tmp_path_factory.mktemp("uci"), np.random.default_rng(0)
    X = np.column_stack([generator.uniform(-3.0, 3.0, (120, 2)), np.full(120, 7.0)])
    y = 50.0 + 4.0 * np.sin(X[:, 0]) + X[:, 1] + 0.1 * generator.standard_normal(120)
    held_out = (np.arange(120)[:, None] + np.arange(3)) % 4 == 0
    for name, rows in (("concrete", np.column_stack([X, y])), ("concrete.test_mask", 1 * held_out)):
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            np.savetxt(file, rows, delimiter=",")
    return folder
