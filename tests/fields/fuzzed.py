"""Decode damaged copies of a file, each in a fork of a process in which the decoders are imported already.

Run as ``python -m tests.fields.fuzzed FILE FOLDER COUNT SEED``: flips bits, cuts the file off, takes bytes
out or puts some in, and decodes what is left as the child of `local_files` does. One line per
copy: what was done to it, and ``refused``, ``crashed``, ``hung``, ``same``, or ``other`` and differences.
"""

import io
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np

from cagp_dist.fields.files import _decode, decoded_files

SECONDS = 30.0
ARRAYS = ("values", "time", "latitude", "longitude")


def damaged(good: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """Give a copy that is damaged in one way, and the name of the way."""
    at = int(rng.integers(len(good)))
    way = str(rng.choice(["flip", "flip", "flip", "header", "cut", "gone", "more"]))
    bad = bytearray(good)
    if way in ("flip", "header"):
        at = at if way == "flip" else at % 2_000
        bad[at] ^= 1 << int(rng.integers(8))
    elif way == "cut":
        del bad[at:]
    elif way == "gone":
        del bad[at : at + int(rng.integers(1, 64))]
    else:
        bad[at:at] = rng.bytes(int(rng.integers(1, 64)))
    return bytes(bad), way


def decode_here(path: Path, folder: Path) -> int:
    sys.stdin = io.StringIO(json.dumps({"paths": [str(path)], "folder": str(folder), "selection": {}}))
    return _decode.decode_command()


def decode(path: Path, folder: Path) -> int:
    """Decode in a fork; its exit status as `os.waitpid` gives it, or -1 where it was stopped."""
    child = os.fork()
    if child == 0:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        os._exit(decode_here(path, folder))
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def arrays(folder: Path) -> dict[str, np.ndarray]:
    """What the parent reads of the answer; nothing where that is no field."""
    field = decoded_files.saved_field(folder)
    if field is None:
        return {}
    (values,) = field.data_vars.values()
    return {name: (values if name == "values" else field[name]).to_numpy() for name in ARRAYS}


def verdict(status: int, folder: Path, whole: dict[str, np.ndarray]) -> str:
    """Say what came of a copy."""
    if status == -1:
        return "hung"
    if os.WIFSIGNALED(status):
        return "crashed"
    if os.WEXITSTATUS(status) != 0:
        told = json.loads((folder / "error.json").read_text())
        return f"refused {told['kind']}" if told["text"].strip() else "unnamed"
    found = arrays(folder)
    if not found or any(found[name].shape != whole[name].shape for name in ARRAYS):
        return "other shape"
    far = {
        name: np.abs((found[name] - whole[name]).astype("f8")).max()
        if name != "values"
        else np.nanmax(np.abs(found[name].astype("f8") - whole[name]), initial=0.0)
        for name in ARRAYS
    }
    if np.array_equal(np.isnan(found["values"]), np.isnan(whole["values"])) and not any(far.values()):
        return "same"
    return "other " + " ".join(f"{name}={distance:.6g}" for name, distance in far.items())


def main(source: Path, folder: Path, count: int, seed: int) -> None:
    good = source.read_bytes()
    scratch, copy = folder / "scratch", folder / f"copy{source.suffix}"
    scratch.mkdir()
    assert decode_here(source, scratch) == 0  # what decoders read and set up at first, forks find done
    whole = arrays(scratch)
    rng = np.random.default_rng(seed)
    for _ in range(count):
        shutil.rmtree(scratch)
        scratch.mkdir()
        bad, way = damaged(good, rng)
        copy.write_bytes(bad)
        print(way, verdict(decode(copy, scratch), scratch, whole), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
