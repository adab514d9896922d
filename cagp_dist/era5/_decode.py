"""Child process that decodes untrusted files: ``python -m cagp_dist.era5._decode MEMORY_BYTES < job.json``.

A damaged file can crash a GRIB or HDF5 decoder, keep it busy for ever, or have it take all memory: here that
costs one clear error. The answer is plain arrays, or ``error.json``, in a folder that the parent chose.
"""

import errno
import json
import os
import resource
import shutil
import sys
import threading
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.era5.axis_layout import AbsentVariableError
from cagp_dist.era5.calendars import decode, is_other
from cagp_dist.era5.canonical import canonical, joined_times, time_axis
from cagp_dist.era5.selection import parse_times
from cagp_dist.era5.sniff import HEAD_BYTES, FileKind, file_kind
from cagp_dist.errors import CagpError, DamagedFileError, DataError
from cagp_dist.memory import MOST_AXIS_BYTES, MOST_CHUNK_BYTES
from cagp_dist.text import bytes_text

LIBRARY_BYTES = 2**29  # of memory that libraries take before anything is decoded
MOST_PACKED, FREELY_UNPACKED_BYTES = 300, 2**28  # times the size of a member; fields pack to a tenth or so


def decode_command() -> int:
    """Decode the files of a job."""
    job = json.load(sys.stdin)
    if "parent" in job:
        threading.Thread(target=_end_with, args=(job["parent"],), daemon=True).start()
    folder = Path(job["folder"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # decoders warn about their own future
            if job.get("times_only"):
                _list(job, folder)
            else:
                _decode(job, folder)
    except Exception as error:
        kind, said = _told(error)
        (folder / "error.json").write_text(json.dumps({"kind": kind.__name__, "message": said}))
        return 1
    return 0


def _end_with(parent: int) -> None:
    """End this process when its parent does: a job that was killed leaves nobody behind who decodes."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _list(job: dict[str, Any], folder: Path) -> None:
    """Write what each file has into ``listed.json``: its times, or the names of other fields, or an error."""
    selection, found = job["selection"], []
    for number, path in enumerate(map(Path, job["paths"])):
        times: list[int] = []
        names: list[str] = []
        failed: tuple[str, str] | None = None
        try:
            with _opened(path, folder / f"file-{number}", job) as datasets:
                times = _times(datasets, selection).astype("datetime64[ns]").astype(np.int64).tolist()
        except AbsentVariableError as error:
            names = list(error.names)
        except Exception as error:
            kind, said = _told(error)
            failed = (kind.__name__, said)
        found.append({"times": times, "names": names, "error": failed})
    (folder / "listed.json").write_text(json.dumps(found))


@contextmanager
def _opened(path: Path, members: Path, job: dict[str, Any]) -> Iterator[list[xr.Dataset]]:
    """Open a file, with a folder for what is packed in it."""
    members.mkdir()
    try:
        with ExitStack() as opened:
            yield [opened.enter_context(dataset) for dataset in _open(path, members, job)]
    finally:
        shutil.rmtree(members, ignore_errors=True)


def _times(datasets: list[xr.Dataset], selection: dict[str, Any]) -> NDArray[np.datetime64]:
    return time_axis(*datasets, variable=selection.get("variable", "t2m"), select=selection.get("select"))


def _decode(job: dict[str, Any], folder: Path) -> None:
    """Decode files one after the other, of each the wanted times it has; those without the variable are left.

    Writes ``held.npy``, the times that they have, and ``names.json``, the fields of those left out.
    """
    selection = job["selection"]
    wanted = selection.get("times") and parse_times(selection["times"])
    held: list[NDArray[np.datetime64]] = [np.empty(0, dtype="datetime64[ns]")]
    parts: list[xr.Dataset] = []
    names: dict[str, None] = {}
    paths = [Path(path) for path in job["paths"]]
    for number, path in enumerate(paths):
        try:
            with _opened(path, folder / f"file-{number}", job) as datasets:
                held.append(_times(datasets, selection))
                times = held[-1] if wanted is None else np.intersect1d(held[-1], wanted)
                if times.size:
                    chosen = None if wanted is None else [str(time) for time in times]
                    parts.append(canonical(*datasets, **{**selection, "times": chosen}))
        except AbsentVariableError as error:
            names |= dict.fromkeys(error.names)
        except Exception as error:
            kind, said = _told(error)
            raise kind(f"{path}: {said}" if len(paths) > 1 else said) from error
    np.save(folder / "held.npy", np.concatenate(held))
    (folder / "names.json").write_text(json.dumps(list(names)))
    if parts:
        _save(parts[0] if len(parts) == 1 else joined_times(parts), folder)


def _save(field: xr.Dataset, folder: Path) -> None:
    for axis in ("time", "latitude", "longitude"):
        np.save(folder / f"{axis}.npy", field[axis].values)
    ((name, values),) = field.data_vars.items()
    np.save(folder / "values.npy", values.values)
    said = {"name": str(name), "attributes": values.attrs, "field": field.attrs}
    (folder / "variable.json").write_text(json.dumps(said))


def _told(error: Exception) -> tuple[type[CagpError], str]:
    """Kind of an error, and what is said of it: decoders raise whatever they like on damaged bytes."""
    if isinstance(error, CagpError):
        return type(error), str(error)
    if isinstance(error, MemoryError):
        return DataError, (
            "takes more memory to decode than is free. Select fewer times or split the file; one that says "
            "it has so much may be damaged."
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError, f"cannot be unpacked ({error.strerror}). Free some space in the cache folder."
    first = next(iter(str(error).strip().splitlines()), "no message")
    if not isinstance(error, OSError) and any(word in str(error) for word in ("calendar", "cftime")):
        return DataError, (
            f"has times that are not dates of the standard calendar ({first}). Put them into it first, in "
            "Python with convert_calendar of xarray, which needs the package cftime."
        )
    another_try = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
    if another_try or isinstance(error, ImportError):  # nothing of the file: a disk, a network, a package
        return DataError, f"cannot be read now ({type(error).__name__}: {first}). Fix this, and try again."
    return DamagedFileError, (
        f"cannot be decoded ({type(error).__name__}: {first}). The file is damaged or incomplete; fetch it "
        "again."
    )


def _open(path: Path, folder: Path, job: dict[str, Any]) -> list[xr.Dataset]:
    with path.open("rb") as stream:
        kind = file_kind(stream.read(HEAD_BYTES), name="it")
    if kind is FileKind.GRIB:
        from cagp_dist.era5.grib import open_grib

        chosen = {key: job["selection"].get(key) for key in ("level", "select", "times")}
        variable = job["selection"].get("variable", "t2m")
        return open_grib(path, variable, **chosen, checked=not job.get("times_only"))
    if kind is FileKind.NETCDF4:
        return [_open_netcdf(path, engine="h5netcdf")]
    if kind is FileKind.NETCDF3:
        return [_open_netcdf(path, engine="scipy", mmap=False)]
    members = [dataset for member in _unpacked(path, folder) for dataset in _open(member, folder, job)]
    if not members:
        raise DataError("the zip holds no GRIB or NetCDF file. Request the data again.")
    return members


def check_hdf5(path: Path) -> None:
    """Raise `DataError` if an HDF5 file has values in other files that it names, or endless chunks."""
    import h5py

    def refuse(name: str, what: str) -> None:
        raise DataError(
            f"{name!r} is {what}: its values lie in other files, which a file of data must not choose. Copy "
            "them into one file first, for example with: h5repack, or to_netcdf of xarray."
        )

    def look(group: h5py.Group, seen: set[Any]) -> None:
        for key in group:
            name, link = f"{group.name.rstrip('/')}/{key}", group.get(key, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                refuse(name, "an external link")
            if isinstance(link, h5py.SoftLink):
                continue  # what it leads to is met under its own name, or behind an external link
            item = group[key]
            if isinstance(item, h5py.Dataset):
                if item.external:
                    refuse(name, "stored externally")
                if item.is_virtual:
                    refuse(name, "a virtual data set")
                axis, chunk = item.shape if item.ndim == 1 else (), item.chunks or ()
                for what, shape, most in (
                    ("", axis, MOST_AXIS_BYTES),
                    ("a chunk of ", chunk, MOST_CHUNK_BYTES),
                ):
                    size = prod(shape) * item.dtype.itemsize
                    if size > most:
                        raise DataError(
                            f"{what}{name!r} has {bytes_text(size)}, which are decoded at once; expected "
                            f"{bytes_text(most)} at most. The file is damaged, or made to fill the memory."
                        )
            elif isinstance(item, h5py.Group) and item.id not in seen:
                look(item, seen | {item.id})

    with h5py.File(path, "r") as file:
        look(file, {file.id})


def _open_netcdf(path: Path, **options: Any) -> xr.Dataset:
    if options["engine"] == "h5netcdf":
        check_hdf5(path)
    raw = xr.open_dataset(path, chunks=None, cache=False, decode_cf=False, **options)
    if any(is_other(variable.attrs) for variable in raw.variables.values()):
        return decode(raw)
    raw.close()
    return xr.open_dataset(path, chunks=None, decode_timedelta=False, **options)


def _unpacked(path: Path, folder: Path) -> Iterator[Path]:
    """Members that can be decoded, one after the other, under names of our own: no archive chooses a path."""
    with zipfile.ZipFile(path) as archive:
        wanted = [member for member in archive.infolist() if _is_data(archive, member)]
        size, free = sum(member.file_size for member in wanted), shutil.disk_usage(folder).free
        if size > free // 2:  # others need the disk too
            raise DataError(
                f"the zip unpacks to {size} bytes, more than half of the {free} that {folder} has free. Free "
                "some space, or unpack it elsewhere and name what is in it."
            )
        for number, member in enumerate(wanted):
            if member.file_size > max(MOST_PACKED * member.compress_size, FREELY_UNPACKED_BYTES):
                raise DataError(
                    f"{member.filename!r} in the zip unpacks from {bytes_text(member.compress_size)} to "
                    f"{bytes_text(member.file_size)}, as no data does. If it is right, unpack it first."
                )
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
    sys.exit(decode_command())
