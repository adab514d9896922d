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
        raise ConfigurationError(f"{purpose} needs {module} ({error}). Run: {installation(extra)}") from error
