"""Files that are never replaced unasked."""

from collections.abc import Sequence
from pathlib import Path

from cagp_dist.errors import ConfigurationError


def refuse_existing(paths: Sequence[Path], *, force: bool) -> None:
    """Refuse to write over files, unless ``force`` says so."""
    for path in paths:
        if path.is_dir():
            raise ConfigurationError(f"{path} is a folder; expected the name of a file that may be written.")
        if path.exists() and not force:
            raise ConfigurationError(
                f"{path} exists; it is not replaced unasked. Add --force (force=True), or choose another "
                "output."
            )
