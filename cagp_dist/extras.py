"""Packages that a plain install leaves out: what needs one imports it here, or is told what to install."""

from importlib import import_module
from typing import Any

from cagp_dist.errors import ConfigurationError
from cagp_dist.remedies import installation


def from_extra(extra: str, module: str, purpose: str) -> Any:
    """Import a module that an extra of this package brings.

    Parameters
    ----------
    extra : str
        Extra of ``pyproject.toml``, such as ``"grib"``.
    module : str
        Name of the module.
    purpose : str
        What needs it, as the beginning of a sentence.

    Returns
    -------
    module

    Raises
    ------
    ConfigurationError
        It cannot be imported. The text says what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(f"{purpose} needs {module} ({error}). Run: {installation(extra)}") from error
