"""Every file is decoded by a child process of its own here, as it is outside of tests.

A test that is not about that process may ask for ``decoder_in_this_process``.
"""

import pytest


@pytest.fixture(scope="module", autouse=True)
def sample_is_decoded_once() -> None:
    """The built-in field is decoded whenever it is opened."""
