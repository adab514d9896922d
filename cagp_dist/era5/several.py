"""Fields from several files: lists, folders and patterns, joined along time."""

import glob
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

import numpy as np
import xarray as xr

from cagp_dist.arrays import Times
from cagp_dist.digest import file_sha256, joint_sha256, open_regular
from cagp_dist.era5.axis_layout import explain_absent
from cagp_dist.era5.calendars import named
from cagp_dist.era5.canonical import joined_times
from cagp_dist.era5.local_files import (
    DECODE_SECONDS,
    check_file,
    decoded,
    file_times,
    open_file,
    run_child,
    scratch_folder,
)
from cagp_dist.era5.selection import Choice, FileSelection, parse_times, time_positions
from cagp_dist.era5.sniff import HEAD_BYTES, file_kind
from cagp_dist.errors import DataError

logger = logging.getLogger(__name__)

SEPARATOR = ";"
"""Between the paths of a list; a file whose own name holds it is taken as it is."""

BATCH_FILES = 32
"""Files that one child process decodes; it takes a second to start."""

_ZARR = ("zarr.json", ".zgroup", ".zmetadata", ".zarray")


def open_files(address: str, *, scratch: Path, **selection: Unpack[FileSelection]) -> xr.Dataset:
    """Decode the selected part of the field that files hold together."""
    paths = files_at(address)
    if len(paths) == 1:
        return open_file(paths[0], scratch=scratch, **selection)
    parts: list[xr.Dataset] = []
    held: list[Times] = []
    names: dict[str, None] = {}
    for batch in _batches(paths):
        part, times, others = _decode(batch, scratch, selection, times_only=False)
        parts += [] if part is None else [part]
        held.append(times)
        names |= dict.fromkeys(others)
    variable = selection.get("variable", "t2m")
    available = _known(held, variable, names)
    wanted = selection.get("times")
    time_positions(available, None if wanted is None else parse_times(wanted))
    field = joined_times(parts)
    digest = joint_sha256([file_sha256(path) for path in paths])
    field.attrs |= {"source": named(f"file:{address}", field), "source_sha256": digest}
    return field


def times_of_files(
    address: str,
    *,
    variable: str = "t2m",
    level: float | None = None,
    select: Mapping[str, Choice] | None = None,
    scratch: Path,
) -> Times:
    """List the times that files hold together; no value of their field is decoded."""
    paths = files_at(address)
    selection = FileSelection(variable=variable, level=level, select=select)
    if len(paths) == 1:
        return file_times(paths[0], variable=variable, level=level, select=select, scratch=scratch)
    held: list[Times] = []
    names: dict[str, None] = {}
    for batch in _batches(paths):
        _, times, others = _decode(batch, scratch, selection, times_only=True)
        held.append(times)
        names |= dict.fromkeys(others)
    return _known(held, variable, names)


def files_at(address: str) -> list[Path]:
    """List the files that an address means, in the order of their names, each once."""
    whole = Path(address).expanduser()
    if SEPARATOR not in address or whole.exists():
        return _files_at(address)
    pieces = [piece.strip() for piece in address.split(SEPARATOR) if piece.strip()]
    return list(dict.fromkeys(path for piece in pieces for path in _files_at(piece)))


def _files_at(address: str) -> list[Path]:
    path = Path(address).expanduser()
    if path.is_dir() and not any((path / name).exists() for name in _ZARR):
        return _files_in(path)
    if path.exists() or not glob.has_magic(address):
        return [path]
    found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
    files = [each for each in found if each.is_file()]
    if not files:
        raise DataError(
            f"no file matches {address}; expected at least one GRIB or NetCDF file. Check the pattern; it is "
            f"relative to {Path.cwd()}, and ** stands for folders of any depth."
        )
    for each in files:
        check_file(each)
    return files


def _files_in(folder: Path) -> list[Path]:
    """Files of a folder that can be decoded; others, such as a README, are left out."""
    files: list[Path] = []
    others: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            (files if _decodable(path) else others).append(path)
    if not files:
        inside = ", ".join(path.name for path in others[:5]) or "no file"
        raise DataError(
            f"the folder {folder} has no GRIB or NetCDF file; there is {inside}. Files of its folders are "
            f"taken with the pattern file:{folder}/**/*.nc; write zarr:{folder} if it is a Zarr store."
        )
    if others:
        logger.info("%d files of %s are neither GRIB nor NetCDF and are left out", len(others), folder)
    return files


def _decodable(path: Path) -> bool:
    try:
        with open_regular(path) as stream:
            file_kind(stream.read(HEAD_BYTES), name=str(path))
    except (DataError, OSError):
        return False
    return True


def _batches(paths: Sequence[Path]) -> list[Sequence[Path]]:
    return [paths[start : start + BATCH_FILES] for start in range(0, len(paths), BATCH_FILES)]


def _decode(
    paths: Sequence[Path], scratch: Path, selection: FileSelection, *, times_only: bool
) -> tuple[xr.Dataset | None, Times, list[str]]:
    """Field that some files hold, if any, the times that they have, and the fields of those without it."""
    for path in paths:
        check_file(path)
    what = f"{paths[0]} and {len(paths) - 1} others" if len(paths) > 1 else str(paths[0])
    with scratch_folder(scratch) as name:
        folder = Path(name)
        job = {
            "paths": [str(path.absolute()) for path in paths],
            "folder": name,
            "selection": selection,
            "times_only": times_only,
        }
        run_child(job, what, DECODE_SECONDS * len(paths))
        held = np.load(folder / "held.npy", allow_pickle=False)
        names = json.loads((folder / "names.json").read_text())
        field = decoded(folder) if (folder / "values.npy").exists() else None
    return field, held, names


def _known(held: Sequence[Times], variable: str, names: dict[str, None]) -> Times:
    """All times together; files that hold the variable nowhere are an error that names what they hold."""
    found = np.unique(np.concatenate(held))
    if found.size == 0:
        raise explain_absent(variable, names)
    return found
