"""What is kept of a file is what another try would find, and what this version of the package has read."""

import errno
import json
import time

import numpy as np
import pytest

from cagp_dist.errors import DamagedFileError, DataError
from cagp_dist.fields.files import _decode, decoded_files, file_catalogue
from cagp_dist.fields.files.file_catalogue import (
    FOLDER,
    REMEMBERED,
    digests_of_files,
    file_version,
    forget_unreadable,
    times_listed,
)
from cagp_dist.fields.selection import EVERYTHING

LISTING = {"times": [1], "names": [], "error": None, "looked": time.time()}


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "data.nc"
    found.write_bytes(b"data")
    return found


def reads(path, listing):
    """How many files are read to list the times of one."""
    asked = []

    def read(paths):
        asked.extend(paths)
        return [listing for _ in paths]

    (found,) = times_listed({path: file_version(path)}, scratch=path.parent, selection=EVERYTHING, read=read)
    assert found.listing == listing
    return len(asked)


def raised_by_a_decoder(error):
    """Raise and catch it where decoders are."""
    namespace = {"__name__": "h5netcdf.core", "error": error}
    try:
        exec("raise error", namespace)
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (ValueError("bad bytes"), True),
        (OSError("file signature not found"), True),
        (OSError(errno.EINVAL, "seek"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (OSError(errno.ESTALE, "Stale file handle"), False),
        (ImportError("eccodes"), False),
    ],
)
def test_only_what_is_wrong_with_the_file_is_kept(path, error, kept):
    said = _decode._explained(raised_by_a_decoder(error), path.parent)
    assert type(said) is (DamagedFileError if kept else DataError)
    listing = LISTING | {"times": [], "error": decoded_files.told_of(said)}
    assert [reads(path, listing) for _ in range(2)] == [1, 0 if kept else 1]


@pytest.mark.parametrize("key", REMEMBERED)
def test_what_costs_much_to_find_out_is_kept_for_a_day_or_until_it_is_forgotten(path, key):
    """A machine that was busy, or short of memory, reads a file another time; a clock may have been set."""
    listing = LISTING | {"times": [], "error": decoded_files.told_of(DataError("no", key=key))}
    assert [reads(path, listing) for _ in range(2)] == [1, 0]
    forget_unreadable(path.parent)
    assert [reads(path, listing) for _ in range(2)] == [1, 0]
    for days in (-1.5, 1.5):
        other = listing | {"looked": time.time() + days * 86_400}
        path.write_bytes(b"data" * int(days + 3))
        assert [reads(path, other) for _ in range(2)] == [1, 1]


def test_what_no_decoder_raised_is_no_damage(tmp_path):
    try:
        np.zeros(3).reshape(2, 2)
    except ValueError as error:
        said = _decode._explained(error, tmp_path)
    assert (type(said), said.key) == (DataError, "not-understood")


def test_another_version_of_the_package_reads_again(path, monkeypatch):
    listing = LISTING
    assert [reads(path, listing) for _ in range(2)] == [1, 0]
    monkeypatch.setattr(file_catalogue, "version", lambda package: "99")
    assert [reads(path, listing) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("broken", [None, 5, [1], [None, None], {"times": [1]}, "listing", "times", "error"])
def test_a_broken_entry_is_read_again(path, broken):
    listing = LISTING
    reads(path, listing)
    (kept,) = (path.parent / FOLDER).glob("times-*.json")
    entry = [list(file_version(path)), None]
    if broken == "times":
        entry[1] = listing | {"times": [None]}
    if broken == "error":
        entry[1] = listing | {"error": "no"}
    kept.write_text(json.dumps({str(path): entry if isinstance(broken, str) else broken}))
    assert [reads(path, listing) for _ in range(2)] == [1, 0]


def test_a_broken_digest_is_read_again(path):
    good = digests_of_files([path], scratch=path.parent)
    kept = path.parent / FOLDER / "sha256.json"
    kept.write_text(json.dumps({str(path): [list(file_version(path)), None]}))
    assert digests_of_files([path], scratch=path.parent) == good
