"""Packages that a plain install leaves out: what needs one imports it here, or is told what to install."""

from importlib import import_module
from typing import Any

from cagp_dist.errors import ConfigurationError
from cagp_dist.remedies import installation


def from_extra(extra: str, module: str, purpose: str) -> Any:
    """Import a module that an extra brings, or raise `ConfigurationError`; ``purpose`` begins its text."""
    try:
        return import_module(module)
    except ImportError as error:
        raise no_package(extra, module, purpose, error) from error


def no_package(extra: str, what: str, purpose: str, error: ImportError) -> ConfigurationError:
    """Give the error of a package that is not installed."""
    return ConfigurationError(
        f"{purpose} needs {what} ({error}). Run: {installation(extra)}", key="no-package"
    )
