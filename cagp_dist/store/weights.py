"""Weights of targets in a folder: whole or not at all, checked file by file before they are used.

::

    FOLDER/KEY/manifest.json    what they are of, and SHA-256 of each file
              /NAME/            a Zarr array, float64

They are written under another name, flushed to the disk and renamed. Those that are damaged are made again.
Several processes may use one folder.
"""

import logging
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cagp_dist.errors import StoreError
from cagp_dist.solvers.engine.solve_checkpoints import CheckpointMetadata, CheckpointReader, CheckpointWriter
from cagp_dist.store.checkpoints import Folder, FolderKept, keep_folder, verified
from cagp_dist.store.lock import staged_for

_log = logging.getLogger(__name__)

UNUSED_SECONDS = 30 * 24 * 3600.0  # weights that were not used for so long are removed when others are made


@dataclass(frozen=True)
class KeptWeights:
    """A folder of weights, each 8 bytes for every observed point and target."""

    folder: Path  # made when something is kept

    def find(self, key: str) -> CheckpointReader | None:
        """Find weights that are whole; damaged ones are named in the log and removed."""
        path = self.folder / key
        if not path.is_dir():
            return None
        try:
            metadata = verified(path, what="the folder of weights")
            if metadata["key"] != key:
                raise StoreError(f"the folder of weights {path} is that of other weights")
        except StoreError as error:
            _log.warning("%s. They are made again.", error)
            shutil.rmtree(path, ignore_errors=True)
            return None
        with suppress(OSError):  # where nothing may be written they can be used all the same
            os.utime(path)
        return FolderKept(path, metadata)

    def save(self, key: str, write: Callable[[CheckpointWriter], CheckpointMetadata]) -> CheckpointReader:
        """Keep what ``write`` writes, with what it says of that; raises as `cagp_dist.store.publish`."""
        with staged_for(self.folder / key) as folder:
            for path in self.folder.glob("[0-9a-f]" * 64):
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime > UNUSED_SECONDS:
                        shutil.rmtree(path, ignore_errors=True)
            metadata = {**write(Folder(folder)), "key": key}
            # another process may have been first, with weights for other groups of targets
            found = keep_folder(Folder(folder), self.folder / key, metadata) or self.find(key)
        if found is None:
            raise StoreError(f"the folder of weights {self.folder / key} cannot be replaced; remove it.")
        return found
