"""What a job may leave out, and the word that it uses for a region."""

import pytest

from cagp_dist.errors import ConfigurationError
from cagp_dist.service.jobfile.config import parse_job

JOB = """
[observations]
source = "sample"
[design]
train = { kind = "random", count = 100, seed = 0 }
test = { kind = "random", count = 10, seed = 1 }
"""


def test_without_a_prior_the_numbers_are_fitted_as_with_an_empty_one() -> None:
    assert parse_job(JOB).prior == parse_job(f"{JOB}[prior]\n").prior
    assert parse_job(JOB).prior.numbers is None


def test_a_region_is_called_area() -> None:
    text = JOB.replace("[design]", "region = [50, 0, 40, 10]\n[design]")
    with pytest.raises(ConfigurationError, match=r'unknown key \[observations\] region; nearest: "area"'):
        parse_job(text)
