"""Small data that would fill the memory or never end, and a process that measures what reading it takes."""

import json
import os
import subprocess
import sys
from pathlib import Path

GIB = 2**30

READ = """
import json, resource, sys, time
from cagp_dist.errors import CagpError
{imports}
found = []
for source in json.load(sys.stdin):
    begun = time.monotonic()
    try:
        {read}
        said = "read"
    except CagpError as error:
        said = type(error).__name__ + ": " + str(error)
    found.append((said, time.monotonic() - begun))
with open("/proc/self/status") as lines:
    own = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(json.dumps([found, (own + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) * 1024]))
"""


def read_all(read: str, imports: str, sources: list[str]) -> tuple[list[tuple[str, float]], int]:
    """Read sources one after the other in a process: what each said, its seconds, and peak bytes."""
    done = subprocess.run(
        [sys.executable, "-c", READ.format(read=read, imports=imports)],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return tuple(json.loads(done.stdout))


def zstd_of_zeros(count: int) -> bytes:
    """Zeros as zstd has them that does not say how many they are: 4 bytes for 128 KiB."""
    blocks = -(-count // 2**17)
    heads = (((2**17 << 3) | 2 | (number == blocks - 1)).to_bytes(3, "little") for number in range(blocks))
    return b"\x28\xb5\x2f\xfd\x00\x48" + b"".join(head + b"\0" for head in heads)


def sparse(path: Path, size: int) -> None:
    """Make a file of zeros that takes no space."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with path.open("wb") as stream:
        os.truncate(stream.fileno(), size)
