"""Fields from files (GRIB, NetCDF, zips of them; lists, folders, patterns), decoded in a child process."""

import fcntl
import glob
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import numpy as np
import xarray as xr

import cagp_dist
from cagp_dist.arrays import Times
from cagp_dist.digest import joint_sha256, open_regular
from cagp_dist.errors import ConfigurationError, DataError, FullDiskError, NotReadyError
from cagp_dist.fields.calendars import named
from cagp_dist.fields.canonical import joined_times
from cagp_dist.fields.files import decoded_files
from cagp_dist.fields.files.file_catalogue import (
    FOLDER,
    Listed,
    Listing,
    Version,
    digests_of_files,
    file_version,
    known_of_files,
    listing_of,
    times_listed,
)
from cagp_dist.fields.files.sniff import HEAD_BYTES, file_kind
from cagp_dist.fields.gridded import explain_absent
from cagp_dist.fields.points import Points, joined_points
from cagp_dist.fields.selection import EVERYTHING, Selection, parse_times, time_positions
from cagp_dist.fields.stations import field_of_points
from cagp_dist.headway import Listener
from cagp_dist.memory import available_bytes
from cagp_dist.store.durable_files import full_disk, is_full
from cagp_dist.text import bytes_text, counted

logger = logging.getLogger(__name__)

DECODE_SECONDS = 600.0  # of a child process for a file; a year of hourly global GRIB takes 300 s
SEPARATOR = ";"  # between the paths of a list; a file whose own name holds it is taken as it is
BATCH_FILES = 32  # files that one child process decodes; it takes a second to start
POLL_SECONDS = 0.5  # from one look at a child process to the next
SAID_SECONDS = 10.0  # from one word on how far reading is to the next; what takes less says nothing

LIST_SECONDS = 120  # in which the times of a file are listed, and one more for each so many bytes of it
LIST_BYTES_PER_SECOND = 20 * 2**20
LISTED_FILES = 10_000  # whose times one child process lists

# a file that cannot be read and has changed within so many seconds may be on its way: it is looked at twice
RECENT_SECONDS, LOOK_SECONDS = 60.0, 0.5
ON_ITS_WAY = (".part", ".partial", ".filepart", ".crdownload", ".tmp")  # names of copies that are not done

# what is wrong with such a file is said when it is read
DATA_SUFFIXES = (".nc", ".nc4", ".grib", ".grib2", ".grb", ".grb2")

FileError = DataError | ConfigurationError  # of one file: it cannot be read, or does not go with the job

UNREADABLE = "unreadable"  # key of the error of a file that another try may read

_ZARR = ("zarr.json", ".zgroup", ".zmetadata", ".zarray")
_SECRETS = ("CDSAPI_KEY", "ECMWF_DATASTORES_KEY")


def open_file(
    address: str | os.PathLike[str],
    selection: Selection = EVERYTHING,
    *,
    scratch: Path,
    progress: Callable[[str], None] | None = None,
) -> xr.Dataset:
    """Decode the selected part of a field, in one file or several, into canonical form in a child process.

    ``progress`` is told every ten seconds how far it is; by default the log is. What it raises ends the child
    process and is raised here.
    """
    listener = progress if isinstance(progress, Listener) else Listener(progress or logger.info)
    found, wanted = files_at(address, scratch=scratch), selection.times
    paths = list(found)
    if wanted is not None and len(paths) > 1:
        paths = _holding(found, parse_times(wanted), scratch, selection, address, listener)
    try:
        parts, available = _decode(paths, scratch, selection, listener)
        if wanted is not None:
            _check_times(available, wanted, address)
        field = _joined(parts, selection, os.fspath(address))
        digests = digests_of_files(paths, scratch=scratch)
    except (DataError, OSError) as error:
        _check_still(paths, found, error)
        raise
    _check_still(paths, found, None)
    field.attrs |= {
        "source": named(f"file:{os.fspath(address)}", field),
        "source_sha256": digests[0] if len(paths) == 1 else joint_sha256(digests),
    }
    return field


def _joined(parts: Sequence[xr.Dataset | Points], selection: Selection, what: str) -> xr.Dataset:
    """Put the fields, or the points, of several files together."""
    fields = [part for part in parts if isinstance(part, xr.Dataset)]
    points = [part for part in parts if isinstance(part, Points)]
    if fields and points:
        raise DataError(
            f"{what} has fields in some files and points in others; expected one of them.", key="parts"
        )
    if points:
        return field_of_points(joined_points(points), selection, what)
    return fields[0] if len(fields) == 1 else joined_times(fields)


def _check_times(available: Times, wanted: Sequence[str], address: str | os.PathLike[str]) -> None:
    """Raise `DataError` unless all wanted times are there; what has none takes the one that is wanted."""
    if np.isnat(available).any():
        return
    try:
        time_positions(available, parse_times(wanted))
    except DataError as error:
        raise error.told(before=f"{os.fspath(address)}:") from error


def file_times(
    address: str | os.PathLike[str],
    selection: Selection = EVERYTHING,
    *,
    scratch: Path,
    damaged: Callable[[str, FileError], None] | None = None,
) -> Times:
    """List the times that a file, or files together, have; no value of their field is decoded.

    A file that cannot be read, or is none that was asked for, is an error, or is told to ``damaged`` and left
    out where others have times.
    """
    found = _listed(files_at(address, scratch=scratch), scratch, selection)
    return _available(found, selection, damaged)


def versions_by_time(
    address: str | os.PathLike[str], selection: Selection = EVERYTHING, *, scratch: Path
) -> dict[int, list[tuple[str, Version]]]:
    """Which files have each time, in nanoseconds since 1970, and the version of each of them."""
    found: dict[int, list[tuple[str, Version]]] = {}
    for each in _listed(files_at(address, scratch=scratch), scratch, selection):
        for moment in each.listing["times"]:
            found.setdefault(moment, []).append((os.fspath(each.path.absolute()), each.version))
    return found


def files_without_variable(
    address: str | os.PathLike[str], selection: Selection = EVERYTHING, *, scratch: Path
) -> list[str]:
    """List the files that can be read and do not have the variable."""
    found = _listed(files_at(address, scratch=scratch), scratch, selection)
    return [
        os.fspath(each.path) for each in found if each.listing["error"] is None and not each.listing["times"]
    ]


def _check_still(paths: Sequence[Path], before: Mapping[Path, Version], cause: Exception | None) -> None:
    """Raise `NotReadyError` where a file has changed since it was looked at first."""
    for path in paths:
        if file_version(path) != before[path]:
            raise _on_its_way(path) from cause


def _on_its_way(path: Path) -> NotReadyError:
    return NotReadyError(
        f"{path} is being written: it has changed while it was read. It is read when it is complete.",
        key="being-written",
    )


def _holding(
    files: Mapping[Path, Version],
    wanted: Times,
    scratch: Path,
    selection: Selection,
    address: str | os.PathLike[str],
    listener: Listener,
) -> list[Path]:
    """Those of the files that have wanted times, which are all there; others may be damaged.

    A file without times stands for the time that is wanted where no other one has times.
    """
    listed = _listed(files, scratch, selection, listener.check)
    bad = _faults(listed)
    for path, error in bad.items():
        left_out(path, error)
    found = [each for each in listed if str(each.path) not in bad]
    held = np.concatenate([each.times for each in found] or [np.empty(0, "datetime64[ns]")])
    timeless = [np.isnat(each.times).any() for each in found]
    absent = wanted[~np.isin(wanted, held) & (not any(timeless))]
    if absent.size and held.size:
        _check_told(held, wanted, address, bad)
    if absent.size and not held.size:
        _available(listed, selection, None)  # an error: no file can be read, or none has the variable
    return [
        each.path
        for each, without in zip(found, timeless, strict=True)
        if without or np.isin(each.times, wanted).any()
    ]


def _check_told(
    held: Times, wanted: Times, address: str | os.PathLike[str], bad: Mapping[str, FileError]
) -> None:
    """Raise `AbsentTimeError`: no file that can be read has a time; it may be in one that cannot be read."""
    try:
        time_positions(np.unique(held), wanted)
    except DataError as error:
        after = f"{counted(len(bad), 'file')} of it cannot be read." if bad else ""
        raise error.told(before=f"{os.fspath(address)}:", after=after) from error


_told: set[str] = set()  # of files that were left out, so that each is told once by a process


def left_out(path: str, error: FileError) -> None:
    """Log that a file cannot be read, once, unless it was told before."""
    if (said := str(error)) not in _told:
        _told.add(said)
        logger.warning("a file is left out: %s", said)


def _listed(
    files: Mapping[Path, Version],
    scratch: Path,
    selection: Selection,
    look: Callable[[], None] = lambda: None,
) -> list[Listed]:
    """List the times of files, each once."""
    # what changes nothing of the times: they are looked up once for all of it
    everything = replace(
        selection, noise_std=None, units=None, times=None, area=None, grid_degrees=None, check_range=True
    )

    def read(unknown: Sequence[Path]) -> list[Listing]:
        began = time.monotonic()
        found = _listings(unknown, scratch, everything, look)
        return _told_of_those_on_their_way(found, {path: files[path] for path in unknown}, began)

    return times_listed(files, scratch=scratch, selection=everything, read=read)


def _listings(
    paths: Sequence[Path], scratch: Path, selection: Selection, look: Callable[[], None]
) -> list[Listing]:
    """List the times of files in child processes; one that ends early ends with the file that it was at."""
    found: dict[Path, Listing] = {}
    for path in paths:
        try:
            check_file(path)
        except DataError as error:
            found[path] = listing_of(error)
    left = [path for path in paths if path not in found]
    while left:
        part = left[:LISTED_FILES]
        with scratch_folder(scratch) as folder:
            limits = [LIST_SECONDS + path.stat().st_size // LIST_BYTES_PER_SECOND for path in part]
            request = {**_request(part, folder, selection), "limits": limits}
            failed: DataError | None = None
            try:
                run_child(request, "it", float(sum(limits)) + DECODE_SECONDS, look)
            except DataError as error:
                failed = error
            listed = decoded_files.saved_listings(Path(folder))
        if failed is not None and len(listed) < len(part):
            listed.append(listing_of(failed))
        found |= zip(part, listed, strict=False)
        left = left[len(listed) :]
    return [found[path] for path in paths]


def _told_of_those_on_their_way(
    found: list[Listing], before: Mapping[Path, Version], began: float
) -> list[Listing]:
    """Say of files that cannot be read and still change that they are being written."""
    bad = [path for path, each in zip(before, found, strict=True) if each["error"] is not None]
    recent = [
        path
        for path in bad
        if (version := before[path]) is not None and abs(time.time() - version[1] / 1e9) < RECENT_SECONDS
    ]
    if recent:
        time.sleep(max(LOOK_SECONDS - (time.monotonic() - began), 0.0))
    written = {path for path in bad if file_version(path) != before[path]}
    return [
        listing_of(_on_its_way(path)) if path in written else each
        for path, each in zip(before, found, strict=True)
    ]


def _error_of(listed: Listed) -> FileError:
    """Make the error of a file that could not be read."""
    assert listed.listing["error"] is not None
    error = decoded_files.told_error(listed.listing["error"], what=str(listed.path))
    if isinstance(error, FullDiskError):
        raise error
    return error


def _faults(found: Sequence[Listed]) -> dict[str, FileError]:
    """Say by path which files cannot be read, or have a field without a time where others have times."""
    dated = any(each.times.size and not np.isnat(each.times).any() for each in found)
    faults: dict[str, FileError] = {}
    for each in found:
        if each.listing["error"] is not None:
            faults[str(each.path)] = _error_of(each)
        elif dated and np.isnat(each.times).any():
            faults[str(each.path)] = ConfigurationError(
                f"{each.path} has a field without a time, and other files have times; expected a coordinate "
                "with its date. Write it into the file, or take the file out of the source.",
                key="no-times",
            )
    return faults


def _available(
    found: Sequence[Listed], selection: Selection, damaged: Callable[[str, FileError], None] | None
) -> Times:
    """All times that files have; a file that could not be read is told, or raised."""
    times = np.unique(np.concatenate([each.times for each in found]))
    for path, error in _faults(found).items():
        if damaged is None or times.size == 0:
            raise error
        _told.add(str(error))
        damaged(path, error)
    if not np.isnat(times).all():  # of those that have none it was told
        times = times[~np.isnat(times)]
    if times.size == 0:
        absent = explain_absent(
            selection.variable,
            dict.fromkeys(name for each in found for name in each.listing["names"]),
        )
        raise absent.told(before=f"{found[0].path}:") if len(found) == 1 else absent
    return times


def files_at(address: str | os.PathLike[str], *, scratch: Path) -> dict[Path, Version]:
    """List the files that an address means, in the order of their names, each once, with their versions."""
    text = os.fspath(address)
    if SEPARATOR not in text or Path(text).expanduser().exists():
        return _files_at(text, scratch)
    pieces = [piece.strip() for piece in text.split(SEPARATOR) if piece.strip()]
    return {path: version for piece in pieces for path, version in _files_at(piece, scratch).items()}


def _files_at(address: str, scratch: Path) -> dict[Path, Version]:
    path = Path(address).expanduser()
    if path.is_dir() and not any((path / name).exists() for name in _ZARR):
        return _files_in(path, scratch)
    if path.exists() or not glob.has_magic(address):
        return {path: file_version(path)}
    matching = map(Path, sorted(glob.glob(str(path), recursive=True)))
    files = _with_versions(each for each in matching if each.suffix not in ON_ITS_WAY)
    if not files:
        raise DataError(
            f"no file matches {address}; expected at least one GRIB or NetCDF file. Check the pattern; it is "
            f"relative to {Path.cwd()}, and ** stands for folders of any depth.",
            key="no-file",
        )
    for path in _others(files, scratch):
        check_file(path)
    return files


def _files_in(folder: Path, scratch: Path) -> dict[Path, Version]:
    """Files of a folder that can be decoded; others, such as a README, are left out."""
    inside = _with_versions(path for path in sorted(folder.iterdir()) if not path.name.startswith("."))
    inside = {path: version for path, version in inside.items() if path.suffix not in ON_ITS_WAY}
    others = _others(inside, scratch)
    files = {path: version for path, version in inside.items() if path not in others}
    if not files:
        there = ", ".join(path.name for path in others[:5]) or "no file"
        raise DataError(
            f"the folder {folder} has no GRIB or NetCDF file; there is {there}. Files of its folders are "
            f"taken with the pattern file:{folder}/**/*.nc; write zarr:{folder} if it is a Zarr store.",
            key="no-field-file",
        )
    if others:
        logger.info("%d files of %s are neither GRIB nor NetCDF and are left out", len(others), folder)
    return files


def _with_versions(paths: Iterable[Path]) -> dict[Path, Version]:
    """Those of the paths that are files."""
    found = {path: file_version(path) for path in paths}
    return {path: version for path, version in found.items() if version is not None}


def _others(files: Mapping[Path, Version], scratch: Path) -> list[Path]:
    """Files that are no data, by the first bytes of those whose names do not tell."""
    unclear = {path: version for path, version in files.items() if path.suffix not in DATA_SUFFIXES}
    if not unclear:
        return []
    heads = known_of_files(
        unclear,
        scratch / FOLDER / "heads.json",
        lambda new: [*map(_fault, new)],
        lasting=lambda fault: fault != UNREADABLE,
    )
    return [path for path, fault in zip(unclear, heads, strict=True) if fault]


def _fault(path: Path) -> str:
    """Key of the error of a file that is no data; empty if it is."""
    try:
        check_file(path)
    except DataError as error:
        return error.key
    return ""


def check_file(path: Path) -> None:
    """Raise `DataError` unless a path is a file whose first bytes can be decoded."""
    if path.is_dir():
        raise DataError(
            f"{path} is a folder; expected one file. Write zarr:{path} if it is a Zarr store.", key="folder"
        )
    try:
        with open_regular(path) as stream:
            file_kind(stream.read(HEAD_BYTES), name=str(path))
    except OSError as error:
        raise DataError(
            f"cannot read {path} ({error.strerror}); expected a GRIB or NetCDF file. Check the path; it is "
            f"relative to {Path.cwd()}.",
            key=UNREADABLE,
        ) from error


def _decode(
    paths: Sequence[Path], scratch: Path, selection: Selection, listener: Listener
) -> tuple[list[xr.Dataset | Points], Times]:
    """Fields or points of files, by batches, and all their times; files without the variable are left out."""
    parts: list[xr.Dataset | Points] = []
    held: list[Times] = []
    names: dict[str, None] = {}
    for start in range(0, len(paths), BATCH_FILES):
        batch = paths[start : start + BATCH_FILES]
        before = f"{start:,} of {len(paths):,} files are read; " * (start > 0)
        with _decoder(batch, scratch, selection, _behind(before, listener)) as folder:
            held.append(np.load(folder / decoded_files.HELD, allow_pickle=False))
            names |= dict.fromkeys(json.loads((folder / decoded_files.NAMES).read_text()))
            found = decoded_files.saved_field(folder), decoded_files.saved_points(folder)
            parts += [part for part in found if part is not None]
    available = np.unique(np.concatenate(held))
    if available.size == 0:
        absent = explain_absent(selection.variable, names)
        raise absent.told(before=f"{paths[0]}:") if len(paths) == 1 else absent
    return parts, available


@contextmanager
def _decoder(
    paths: Sequence[Path], scratch: Path, selection: Selection, listener: Listener
) -> Iterator[Path]:
    """Have files decoded by a child process, and give the folder of what it found."""
    for path in paths:
        check_file(path)
    what = f"{paths[0]} and {len(paths) - 1} others" if len(paths) > 1 else str(paths[0])
    size = bytes_text(sum(path.stat().st_size for path in paths))
    with scratch_folder(scratch) as name:
        look = _looks(Path(name), f"reading {what} ({size})", listener)
        run_child(_request(paths, name, selection), what, DECODE_SECONDS * len(paths), look)
        yield Path(name)


def _behind(before: str, listener: Listener) -> Listener:
    """Give who is told a text behind another."""
    return replace(listener, say=lambda text: listener(f"{before}{text}"))


def _looks(folder: Path, what: str, listener: Listener) -> Callable[[], None]:
    """Give what asks whether reading may go on, and says every ten seconds how far a child process is."""
    told = time.monotonic()

    def look() -> None:
        nonlocal told
        listener.check()
        if time.monotonic() - told >= SAID_SECONDS:
            told = time.monotonic()
            said = decoded_files.saved_headway(folder)
            listener(f"{what}: {said}" if said else what)

    return look


def _request(paths: Sequence[Path], folder: str, selection: Selection) -> dict[str, object]:
    """Write what a child process is asked for."""
    absolute = [str(path.absolute()) for path in paths]
    return {"paths": absolute, "folder": folder, "selection": selection.as_json()}


@contextmanager
def scratch_folder(scratch: Path) -> Iterator[str]:
    """Give a folder for the arrays on their way, which is removed with its context.

    Each holds a shared lock of the cache folder. What dead processes left there is removed by the next one
    that is alone.
    """
    with ExitStack() as opened:
        try:
            scratch.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, descriptor)
            with suppress(OSError):  # others are at work there, or a file system has no locks of folders
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for left in scratch.glob("decode-*"):
                    shutil.rmtree(left, ignore_errors=True)
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            name = opened.enter_context(tempfile.TemporaryDirectory(prefix="decode-", dir=scratch))
        except OSError as error:
            raise cannot_write(scratch, error) from error
        yield name


def cannot_write(folder: Path, error: OSError) -> ConfigurationError | FullDiskError:
    """Give the error of a cache folder that cannot be written."""
    if is_full(error):
        return full_disk(folder, error.strerror)
    return ConfigurationError(
        f"cannot write to the cache folder {folder} ({error.strerror}); choose one that can be written.",
        key="cache-folder",
    )


def run_child(
    request: Mapping[str, object],
    what: str,
    time_limit_seconds: float,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Decode in a child process; what goes wrong there is raised here, naming ``what``.

    ``look`` is called twice a second; what it raises ends the child process.
    """
    folder = Path(str(request["folder"]))
    try:
        code, message = ended_child(request, time_limit_seconds, look)
    except subprocess.TimeoutExpired as error:
        raise _too_slow(what, f"{time_limit_seconds:g} s") from error
    if code == 0:
        return
    if code == decoded_files.DISK_IS_FULL:
        raise full_disk(folder)
    raise_told(folder, what)
    if code == -signal.SIGALRM:
        raise _too_slow(what, "its size allows")
    ending = f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
    said = next((line.strip() for line in reversed(message.splitlines()) if line.strip()), "nothing")
    raise DataError(
        f"the decoder of {what} {ending}. The file is damaged or does not fit into memory; fetch it again "
        f"or select less. Its message: {said}",
        key="damaged",
    )


def ended_child(
    request: Mapping[str, object], time_limit_seconds: float, look: Callable[[], None]
) -> tuple[int, str]:
    """Run a child process to its end: its exit code, and what it wrote as errors."""
    package = os.fspath(Path(cagp_dist.__file__).parents[1])
    environment = {key: value for key, value in os.environ.items() if key not in _SECRETS}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-P", "-m", "cagp_dist.fields.files._decode", str(available_bytes())]
    until = time.monotonic() + time_limit_seconds
    with (
        _as_input({**request, "parent": os.getpid()}, Path(str(request["folder"]))) as asked,
        subprocess.Popen(
            command,
            stdin=asked,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            errors="replace",
        ) as child,
    ):
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    _, message = child.communicate(timeout=POLL_SECONDS)
                    return child.returncode, message
                look()
                if time.monotonic() >= until:
                    raise subprocess.TimeoutExpired(command, time_limit_seconds)
        except BaseException:  # also of Ctrl-C
            child.kill()
            raise


def _as_input(request: Mapping[str, object], folder: Path) -> TextIO:
    """Write a request into a file: a pipe may be full before its reader has started."""
    path = folder / decoded_files.REQUEST
    try:
        path.write_text(json.dumps(request), encoding="utf-8")
        return path.open(encoding="utf-8")
    except OSError as error:
        raise cannot_write(folder, error) from error


def _too_slow(what: str, limit: str) -> DataError:
    return DataError(
        f"decoding {what} took longer than {limit} and was stopped. The file is damaged, or holds far more "
        "than was selected: split it.",
        key="time-limit",
    )


def raise_told(folder: Path, what: str) -> None:
    """Raise the error that the child has written down, if it came so far."""
    answer = folder / decoded_files.ERROR
    if answer.exists():
        raise decoded_files.told_error(json.loads(answer.read_text()), what=what)
