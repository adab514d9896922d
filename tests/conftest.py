"""Settings of the whole suite: Hypothesis profiles, and one BLAS thread for small dense formulas."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

# `ci`, the default, draws the same examples in every run; HYPOTHESIS_PROFILE=dev looks for new ones.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", derandomize=True, database=None, max_examples=40, **_COMMON)
settings.register_profile("dev", max_examples=200, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="module")
def one_blas_thread() -> Iterator[None]:
    """For modules of many small dense products: threads that wait for each other make them much slower."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield
