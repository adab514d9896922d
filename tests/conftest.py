"""Settings of the whole suite: Hypothesis profiles and the problem most tests of the solvers share."""

import os

from hypothesis import HealthCheck, settings

# `ci`, the default, draws the same examples in every run; HYPOTHESIS_PROFILE=dev looks for new ones.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", derandomize=True, database=None, max_examples=40, **_COMMON)
settings.register_profile("dev", max_examples=200, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
