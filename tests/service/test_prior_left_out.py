"""What a job may leave out, and the word that it uses for a region."""

import pytest

from cagp_dist.errors import ConfigurationError
from cagp_dist.service.jobfile.config import parse_job

from ..joined import one_after_another

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
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(text)
    assert refusal.value.key == "observations.region"


def test_without_a_kernel_it_is_chosen_where_its_numbers_are_fitted() -> None:
    """Numbers that are given without one are those of Matern 3/2, as ever: the job is the same."""
    numbers = "[prior]\nlengthscale = 0.05\nvariance = 22.0\nnoise_variance = 0.5\n"
    assert parse_job(JOB).prior.kernel == "auto"
    assert parse_job(JOB + numbers).prior == parse_job(f'{JOB}{numbers}kernel = "matern32"\n').prior
    for chosen in ("auto", "matern"):
        assert parse_job(f'{JOB}[prior]\nkernel = "{chosen}"\n').prior.parts == 1
        with pytest.raises(ConfigurationError) as refusal:
            parse_job(f'{JOB}{numbers}kernel = "{chosen}"\n')
        assert refusal.value.key == "prior"


@pytest.mark.parametrize("kernel", ["matern(0.8)", "matern(0.8) + squared-exponential", "matern(2)"])
def test_a_kernel_holds_its_smoothness(kernel: str) -> None:
    assert parse_job(f'{JOB}[prior]\nkernel = "{kernel}"\n').prior.kernel == kernel


@one_after_another
@pytest.mark.parametrize(
    "kernel",
    [
        "matern(20)",
        "matern(rough)",
        "matern(0.8) + matern33",
    ],
)
def test_what_is_no_smoothness_is_refused(kernel: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(f'{JOB}[prior]\nkernel = "{kernel}"\n')
    assert refusal.value.key == "prior.kernel"
