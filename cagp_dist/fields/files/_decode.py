"""Child process that decodes untrusted files: ``python -m cagp_dist.fields.files._decode BYTES < REQUEST``.

A damaged file can crash a GRIB or HDF5 decoder, keep it busy for ever, or have it take all memory: here that
costs one clear error. The answer is plain arrays, or ``error.json``, in a folder that the parent chose.
"""

import errno
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import H5NetCDFStore

from cagp_dist.errors import CagpError, DamagedFileError, DataError, FullDiskError
from cagp_dist.fields.axes import is_axis_by_name
from cagp_dist.fields.calendars import decode
from cagp_dist.fields.canonical import canonical, joined_times, points_of, time_axis
from cagp_dist.fields.files import decoded_files
from cagp_dist.fields.files.file_catalogue import Listing
from cagp_dist.fields.files.hdf5_links import check_hdf5
from cagp_dist.fields.files.sniff import HEAD_BYTES, FileKind, file_kind
from cagp_dist.fields.gridded import GROUP, AbsentVariableError, find_variable
from cagp_dist.fields.groups import paths_to, the_group, with_those_above
from cagp_dist.fields.points import Points, joined_points
from cagp_dist.fields.selection import Selection, parse_times
from cagp_dist.store.durable_files import disk_usage, full_disk, is_full
from cagp_dist.text import bytes_text

LIBRARY_BYTES = 2**29  # of memory that libraries take before anything is decoded
# modules that read bytes: what they raise is the fault of the file
DECODERS = ("h5netcdf", "h5py", "eccodes", "gribapi", "scipy.io", "zipfile", "zlib", "xarray.backends",
            "xarray.coding", "xarray.conventions", "cagp_dist.fields.files.grib")  # fmt: skip
MANY_SCALARS = 256  # variables of a file; each takes milliseconds to open
HEADWAY_SECONDS = 1.0  # from one writing of how far the work is to the next
MOST_PACKED, FREELY_UNPACKED_BYTES = 300, 2**28  # times the size of a member; fields pack to a tenth or so


def decode_command(alarm: Callable[[int], object] = lambda seconds: None) -> int:
    """Decode the files that a request on the standard input names.

    The times of each file are listed within a limit of seconds, for which ``alarm`` is set.
    """
    request = json.load(sys.stdin)
    if "parent" in request:
        threading.Thread(target=_end_with, args=(request["parent"],), daemon=True).start()
    folder = Path(request["folder"])
    request["selection"] = Selection(**request["selection"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # decoders warn about their own future
            if "limits" in request:
                _list_times(request, folder, alarm)
            else:
                _decode(request, folder)
    except Exception as error:
        told = decoded_files.told_of(_explained(error, folder))
        try:
            (folder / decoded_files.ERROR).write_text(json.dumps(told, default=str))
        except OSError as full:
            if not is_full(full):
                raise
            return decoded_files.DISK_IS_FULL
        return 1
    return 0


def _end_with(parent: int) -> None:
    """End this process when its parent does: a job that was killed leaves nobody behind who decodes."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _list_times(request: dict[str, Any], folder: Path, alarm: Callable[[int], object]) -> None:
    """Write what each file has: its times, or the names of other fields, or an error; each at once."""
    selection = request["selection"]
    for number, (path, seconds) in enumerate(zip(request["paths"], request["limits"], strict=True)):
        alarm(seconds)
        listing = _listing(Path(path), folder / f"file-{number}", request, selection)
        alarm(0)
        with (folder / decoded_files.LISTED).open("a") as stream:
            stream.write(json.dumps(listing, default=str) + "\n")


def _listing(path: Path, members: Path, request: dict[str, Any], selection: Selection) -> Listing:
    """List what a file has."""
    found: Listing = {"times": [], "names": [], "error": None, "looked": time.time()}
    try:
        with _opened_file(path, members, request) as datasets:
            held = time_axis(datasets, selection)
            found["times"] = held.astype("datetime64[ns]").astype(np.int64).tolist()
    except AbsentVariableError as error:
        found["names"] = list(error.names)
    except Exception as error:
        explained = _explained(error, members.parent)
        if isinstance(explained, FullDiskError):  # which is nothing of this file
            raise explained from error
        found["error"] = decoded_files.told_of(explained)
    return found


@contextmanager
def _opened_file(path: Path, members: Path, request: dict[str, Any]) -> Iterator[list[xr.Dataset]]:
    """Open a file, with a folder for what is packed in it."""
    members.mkdir()
    try:
        with ExitStack() as opened:
            yield [opened.enter_context(dataset) for dataset in _datasets_in(path, members, request)]
    finally:
        shutil.rmtree(members, ignore_errors=True)


def _decode(request: dict[str, Any], folder: Path) -> None:
    """Decode the wanted times of files, one after the other; those without the variable are left out."""
    selection = request["selection"]
    wanted = None if selection.times is None else parse_times(selection.times)
    held: list[NDArray[np.datetime64]] = [np.empty(0, dtype="datetime64[ns]")]
    parts: list[xr.Dataset] = []
    points: list[Points] = []
    names: dict[str, None] = {}
    paths = [Path(path) for path in request["paths"]]
    for number, path in enumerate(paths):
        request["report"] = _headway(folder, f"file {number + 1} of {len(paths)}" if len(paths) > 1 else "")
        try:
            with _opened_file(path, folder / f"file-{number}", request) as datasets:
                held.append(time_axis(datasets, selection))
                times = held[-1] if wanted is None else np.intersect1d(held[-1], wanted)
                if wanted is not None and np.isnat(held[-1]).any():
                    times = wanted
                rows = points_of(datasets, selection)
                if rows is not None:
                    points += [rows] if times.size else []
                elif times.size:
                    chosen = None if wanted is None else [str(time) for time in times]
                    parts.append(canonical(*datasets, selection=replace(selection, times=chosen)))
        except AbsentVariableError as error:
            names |= dict.fromkeys(error.names)
        except Exception as error:
            raise _explained(error, folder).told(before=f"{path}:" if len(paths) > 1 else "") from error
    np.save(folder / decoded_files.HELD, np.concatenate(held))
    (folder / decoded_files.NAMES).write_text(json.dumps(list(names)))
    if parts:
        decoded_files.save_field(parts[0] if len(parts) == 1 else joined_times(parts), folder)
    if points:
        decoded_files.save_points(joined_points(points), folder)


def _headway(folder: Path, which: str) -> Callable[[str], None]:
    """Give what writes how far the work is, at once and then once a second at most."""
    written = 0.0
    if which:
        decoded_files.save_headway(which, folder)

    def report(text: str) -> None:
        nonlocal written
        if time.monotonic() - written >= HEADWAY_SECONDS:
            written = time.monotonic()
            decoded_files.save_headway(", ".join(filter(None, (which, text))), folder)

    return report


def _explained(error: Exception, folder: Path) -> CagpError:
    """Say what an error is: decoders raise what they like on damaged bytes, and nothing else is damage."""
    if isinstance(error, CagpError):
        return error
    if isinstance(error, MemoryError):
        return DataError(
            "takes more memory to decode than is free. Select fewer times or split the file; one that says "
            "it has so much may be damaged.",
            key="memory",
        )
    if is_full(error):
        return full_disk(folder)
    first = next(iter(str(error).strip().splitlines()), "no message")
    said = f"{type(error).__name__}: {first}"
    if not isinstance(error, OSError) and any(word in str(error) for word in ("calendar", "cftime")):
        return DataError(
            f"has times that are not dates of the standard calendar ({first}). Put them into it first, in "
            "Python with convert_calendar of xarray, which needs the package cftime.",
            key="calendar",
        )
    another_try = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
    if another_try or isinstance(error, ImportError):  # nothing of the file: a disk, a network, a package
        return DataError(f"cannot be read now ({said}). Fix this, and try again.", key="another-try")
    frames = traceback.walk_tb(error.__traceback__)
    if any(str(frame.f_globals.get("__name__", "")).startswith(DECODERS) for frame, _ in frames):
        return DamagedFileError(
            f"cannot be decoded ({said}). The file is damaged or incomplete; fetch it again.", key="damaged"
        )
    return DataError(
        f"could be decoded, and not be understood ({said}). Open it with xarray, bring it into a plain form, "
        "such as (time, latitude, longitude), and write it again.",
        key="not-understood",
    )


def _datasets_in(path: Path, folder: Path, request: dict[str, Any]) -> list[xr.Dataset]:
    """Open what is in a file, or in the members of a zip, which are unpacked into a folder."""
    with path.open("rb") as stream:
        kind = file_kind(stream.read(HEAD_BYTES), name="it")
    if kind is FileKind.GRIB:
        from cagp_dist.fields.files.grib import open_grib

        report = request.get("report", lambda text: None)
        return open_grib(path, request["selection"], checked="limits" not in request, report=report)
    if kind is FileKind.NETCDF4:
        return [_open_netcdf(path, request["selection"])]
    if kind is FileKind.NETCDF3:
        return [decode(_open_raw(path, engine="scipy", mmap=False))]
    members = [
        dataset for member in _unpacked(path, folder) for dataset in _datasets_in(member, folder, request)
    ]
    if not members:
        raise DataError("the zip holds no GRIB or NetCDF file. Request the data again.", key="no-field-file")
    return members


def _open_netcdf(path: Path, selection: Selection) -> xr.Dataset:
    """Open the group of a file that is chosen, or that holds the variable, with what is above it."""
    check_hdf5(path)
    groups: dict[str, list[str]] = {"": []}
    bare: dict[str, list[str]] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: _note(groups, bare, name, item))
    group = ""
    if len(groups) > 1:
        group = the_group(groups, selection.variable, selection.where.get(GROUP))
    above = []
    for each in paths_to(group):
        store = _SomeVariables.open(path, group=each or None)
        store.without = frozenset(_not_asked_for(bare.get(each, []), selection))
        above.append(_open_raw(store))
    return decode(with_those_above(above))


def _note(groups: dict[str, list[str]], bare: dict[str, list[str]], name: str, item: object) -> None:
    """Note a group, or a variable of one, and which are single numbers without attributes."""
    if isinstance(item, h5py.Group):
        groups[name] = []
        return
    group, _, variable = name.rpartition("/")
    groups[group].append(variable)
    if isinstance(item, h5py.Dataset) and item.shape == () and not len(item.attrs):
        bare.setdefault(group, []).append(variable)


def _not_asked_for(bare: Sequence[str], selection: Selection) -> list[str]:
    """Those of many single numbers without attributes that are neither asked for nor coordinates."""
    if len(bare) <= MANY_SCALARS:
        return []
    asked = json.dumps(selection.as_json(), ensure_ascii=False).lower()
    wanted = find_variable(bare, selection.variable)
    return [
        name for name in bare if name != wanted and name.lower() not in asked and not is_axis_by_name(name)
    ]


class _SomeVariables(H5NetCDFStore):
    """A file without some of its variables: those that xarray drops are opened first."""

    without: frozenset[str] = frozenset()

    def get_variables(self) -> dict[str, xr.Variable]:
        return {
            name: self.open_store_variable(name, held)
            for name, held in self.ds.variables.items()
            if name not in self.without
        }


def _open_raw(path: "Path | H5NetCDFStore", **options: Any) -> xr.Dataset:
    """Open a file or a group of it lazily, as it is."""
    return xr.open_dataset(path, chunks=None, cache=False, decode_cf=False, **options)


def _unpacked(path: Path, folder: Path) -> Iterator[Path]:
    """Members that can be decoded, one after the other, under names of our own: no archive chooses a path."""
    with zipfile.ZipFile(path) as archive:
        wanted = [member for member in archive.infolist() if _is_data(archive, member)]
        for member in wanted:
            if member.file_size > max(MOST_PACKED * member.compress_size, FREELY_UNPACKED_BYTES):
                raise DataError(
                    f"{member.filename!r} in the zip unpacks from {bytes_text(member.compress_size)} to "
                    f"{bytes_text(member.file_size)}, as no data does. If it is right, unpack it first.",
                    key="unpacked-size",
                )
        size, disk = sum(member.file_size for member in wanted), disk_usage(folder)
        if size > disk.free // 2:  # others need the disk too
            kind = FullDiskError if size <= disk.total // 2 else DataError
            raise kind(
                f"the zip unpacks to {bytes_text(size)}, more than half of the {bytes_text(disk.free)} that "
                f"{folder} has free. Free some space, or unpack it elsewhere and name what is in it.",
                key="disk",
            )
        for number, member in enumerate(wanted):
            target = folder / f"member-{number}"
            with archive.open(member) as packed, target.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
            yield target


def _is_data(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    """Whether a member can be decoded; a licence or a log beside the data cannot."""
    with archive.open(member) as packed:
        head = packed.read(HEAD_BYTES)
    try:
        return file_kind(head, name=member.filename) is not FileKind.ZIP
    except DataError:
        return False


if __name__ == "__main__":
    most_bytes = int(sys.argv[1]) + LIBRARY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    sys.exit(decode_command(signal.alarm))
