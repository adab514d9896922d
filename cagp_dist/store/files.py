"""Single files that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cagp_dist.store.manifest import disk_errors


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
