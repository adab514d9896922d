"""SHA-256 in hexadecimal: of texts, of files, and of several digests together."""

import hashlib
from collections.abc import Sequence
from pathlib import Path


def text_sha256(text: str) -> str:
    """Hash a text, in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Hash a file; about 1 s per GB."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def joint_sha256(digests: Sequence[str]) -> str:
    """Give one digest for several in a row; a single one is its own."""
    return digests[0] if len(digests) == 1 else text_sha256("".join(digests))
