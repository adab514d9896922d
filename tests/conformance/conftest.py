"""Which tests of which solvers are quick."""

import pytest

from .registered import FURTHER

QUICK = (
    "test_exact_variance_bounds",
    "test_samples_have_the_stated_covariance_t7",
    "test_the_first_sweeps",
    "test_the_mean_alone",
    "test_threads",
)
"""What other orders and preconditioners of a solver are tested for in every run; the rest is exhaustive."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the other tests of other orders and preconditioners to the exhaustive run."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or item.path.parent.name != "conformance" or item.name.startswith(QUICK):
            continue
        if item.path.name == "test_identities.py":
            continue
        if any(name in callspec.id for name in FURTHER):
            item.add_marker(pytest.mark.exhaustive)
