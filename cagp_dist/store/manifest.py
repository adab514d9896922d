"""The manifest of a run: SHA-256 of every file, in the format of ``sha256sum``, beside the run.

``runs/KEY.sha256`` lists the files of ``runs/KEY.zarr``, so that ``cd runs && sha256sum -c KEY.sha256``
checks a run on any machine. It lies beside the Zarr hierarchy and not in it, because Zarr readers warn
about files they do not know.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath

from cagp_dist.digest import file_sha256, read_regular
from cagp_dist.errors import StoreError
from cagp_dist.store.durable_files import files_below

_LINE = "{digest}  {name}/{file}\n"
_ADVICE = "Restore the run from a copy, or remove it and run the job again."
_DIGEST = re.compile("[0-9a-f]{64}")


def manifest_path(run_path: Path) -> Path:
    """Where the manifest of a run lies: ``KEY.sha256`` beside ``KEY.zarr``."""
    return run_path.with_suffix(".sha256")


def build(run_path: Path, *, name: str, known: Mapping[str, str] | None = None) -> str:
    """Text of the manifest of all files of a folder, as files of ``name``; some digests may be known."""
    known = known or {}
    return text_of(
        {file: known.get(file) or _digest(run_path / file) for file in files_below(run_path)}, name=name
    )


def text_of(digests: Mapping[str, str], *, name: str) -> str:
    """Text of the manifest of files whose digests are known, sorted, listed as files of ``name``."""
    return "".join(_LINE.format(digest=digests[file], name=name, file=file) for file in sorted(digests))


def compare(run_path: Path) -> None:
    """Recompute every digest of a run and compare it with its manifest; one read of all files."""
    listed, where = digests_of(run_path), manifest_path(run_path)
    present = set(files_below(run_path))
    for file in sorted(listed.keys() | present):
        if file not in present:
            raise StoreError(
                f"{run_path / file} is missing; the manifest {where} lists it. {_ADVICE}", key="damaged"
            )
        if file not in listed:
            raise StoreError(
                f"{run_path / file} does not belong there: {where} does not list it. {_ADVICE}", key="damaged"
            )
        if _digest(run_path / file) != listed[file]:
            raise _damaged(run_path, file)


def read_checked(run_path: Path, file: str) -> bytes:
    """Read one small file of a run, and compare it with the manifest; raises as `compare`."""
    listed, path = digests_of(run_path), run_path / file
    try:
        content = read_regular(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    if sha256(content).hexdigest() != listed.get(file):
        raise _damaged(run_path, file)
    return content


def _damaged(run_path: Path, file: str) -> StoreError:
    """Make the error of a file that is not what the manifest of its run says."""
    where = manifest_path(run_path)
    return StoreError(
        f"{run_path / file} is damaged: its SHA-256 differs from {where}. {_ADVICE}", key="damaged"
    )


def digests_of(run_path: Path) -> dict[str, str]:
    """Read the manifest of a run: the digest of each of its files, by their names."""
    where = manifest_path(run_path)
    if not run_path.is_dir():
        raise StoreError(
            f"there is no run at {run_path}; expected a folder KEY.zarr. {_ADVICE}", key="no-run"
        )
    try:
        text = read_regular(where)
    except OSError as error:
        raise StoreError(
            f"the manifest {where} cannot be read: {error.strerror}. {_ADVICE}", key="unreadable"
        ) from error
    return parse(text, name=run_path.name, where=where)


def parse(text: bytes, *, name: str, where: Path | str) -> dict[str, str]:
    """Read the text of a manifest: the digest of each file of ``name``, by names that stay in its folder."""
    lines, prefix = text.split(b"\n"), f"{name}/"
    listed: dict[str, str] = {}
    for number, line in enumerate(lines[:-1], start=1):
        digest, _, path = line.decode("utf-8", "replace").partition("  ")
        file = PurePosixPath(path.removeprefix(prefix))
        inside = file.name and not file.is_absolute() and ".." not in file.parts
        if not (_DIGEST.fullmatch(digest) and path == f"{prefix}{file}" and inside):
            raise StoreError(f"line {number} of the manifest {where} is damaged. {_ADVICE}", key="damaged")
        listed[str(file)] = digest
    if lines[-1] or not listed:
        raise StoreError(f"the manifest {where} is empty or cut off. {_ADVICE}", key="damaged")
    return listed


def _digest(path: Path) -> str:
    """Work out SHA-256 of a file of a run."""
    try:
        return file_sha256(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> StoreError:
    """Make the error of a file of a run that the disk does not give."""
    return StoreError(
        f"{path} cannot be read: {error.strerror}. Check the health of the disk, or restore the file.",
        key="unreadable",
    )
