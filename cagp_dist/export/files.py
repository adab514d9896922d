"""Files that are there whole or not at all, and are never replaced unasked."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cagp_dist.errors import ConfigurationError
from cagp_dist.store.manifest import disk_errors


def refuse_existing(paths: Sequence[Path], *, force: bool) -> None:
    """Refuse to write over files, unless ``force`` says so.

    Raises
    ------
    ConfigurationError
        Naming the first file that exists; or a folder, which is not replaced even by force.
    """
    for path in paths:
        if path.is_dir():
            raise ConfigurationError(f"{path} is a folder; expected the name of a file that may be written.")
        if path.exists() and not force:
            raise ConfigurationError(
                f"{path} exists; it is not replaced unasked. Add --force (force=True), or choose another "
                "output."
            )


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside a file, which takes the place of the file if all goes well.

    Raises
    ------
    ConfigurationError, StoreError
        If the disk refuses; the file is then as it was before.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
