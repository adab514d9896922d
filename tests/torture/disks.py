"""Disks that fail at an operation, or are full, below a job that is run through the command line.

Both scenarios fork children that do what ``cagp`` does, from a process in which everything is imported, so
that each costs about a second. An operation is one that takes space or can find the disk broken: where a file
or folder is made, written to, put on the disk, linked or renamed.
"""

import errno
import itertools
import json
import math
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import matplotlib.backends.backend_agg  # noqa: F401 - imported here for all children, as are the next three
import numpy as np

import cagp_dist.report.maps
import cagp_dist.service.run
import cagp_dist.service.verification
import cagp_dist.solvers.registry
from cagp_dist.cli import app
from cagp_dist.digest import file_sha256

from ..jobs import job_text, random_points
from ..mounts import small_file_system
from ..operations import operations
from .processes import lines
from .rows import Row

ALIKE = ("/batch/", "/.checkpoints/", ".zarr/", ".png")
"""In the paths of what is made of many files that are written alike."""

SECONDS = 300.0
"""No job, with its second start, may take longer."""

ERRORS = (
    (75, r"cannot write {root}.*: No space left on device\. "),
    (1, r"cannot write (group '.*' of )?{root}.*: Input/output error\. "),
    (2, r"cannot write the report into {root}/report/.* \(Input/output error\)"),
    (75, r"the job takes about [\d.]+ MiB of disk .* are free in {root}\. Free space"),
)
"""Exit codes, and what errors then say."""


class Disk:
    """The operations of this process below a folder, counted; the one with a number fails, once.

    Those inside one Zarr hierarchy, or one figure, are alike; of each kind the first counts, and then one in
    ``alike``.
    """

    def __init__(self, root: Path, *, alike: int, number: int = 0, code: int = 0) -> None:
        self._root, self._number, self._code, self._alike = root, number, code, alike
        self._seen: Counter[tuple[str, str]] = Counter()
        self.count = 0
        self.failed = ""

    def install(self) -> None:
        """Look at what this process does from now on."""
        self._watch = operations(self._root, self.happens)
        self._watch.__enter__()

    def happens(self, number: int, what: str, path: str) -> None:
        """Count an operation, or fail at it."""
        for place in ALIKE:
            if place in path:
                self._seen[what, place] += 1
                if (self._seen[what, place] - 1) % self._alike:
                    return
                break
        self.count += 1
        if self.count == self._number:
            self.failed = f"{what} {path}"
            raise OSError(self._code, os.strerror(self._code), path)


def cagp(*arguments: object, log: Path, disk: Disk | None = None, report: bool = True) -> tuple[int, str]:
    """Exit code of a command in a child, and what it says; the disk has the last line."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 1), os.dup2(descriptor, 2)
            sys.argv = ["cagp", *map(str, arguments)]
            if not report:
                cagp_dist.report.write_report = lambda run, *_: cagp_dist.report.report_page(run)
            if disk is not None:
                disk.install()
            app()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            if disk is not None:
                os.write(2, f"\n{disk.count} {disk.failed}".encode())
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), log.read_text()


def posterior_of(root: Path) -> dict[str, str]:
    """Key of the current run, and the digests of its posterior."""
    key = (root / "CURRENT").read_text().strip()
    group = root / "runs" / f"{key}.zarr" / "posterior"
    chunks = (path for path in sorted(group.rglob("c.*")) if path.is_file())
    return {"key": key, **{str(path.relative_to(group)): file_sha256(path) for path in chunks}}


def write_job(path: Path, root: Path, *, day: int) -> Path:
    """Write a small job for a day, which keeps every iteration."""
    text = job_text(
        observations={"source": "synthetic", "grid_degrees": 15.0, "times": [f"2020-01-0{day}"]},
        design={"train": random_points(220), "test": random_points(20, seed=1)},
        runtime={"checkpoint_seconds": 0.0},
        output={"root": root},
    )
    path.write_text(text)
    return path


class Jobs:
    """A job of yesterday that is done, and one of today that is to be done on a disk that fails.

    Parameters
    ----------
    folder : Path
        Theirs alone.
    alike : int
        Of operations that are alike, one in so many counts.
    """

    def __init__(self, folder: Path, *, alike: int) -> None:
        self._log, self.root, self.template = folder / "log", folder / "out", folder / "template"
        yesterday, self._today = (write_job(folder / f"{day}.toml", self.root, day=day) for day in (1, 2))
        code, said = cagp("run", yesterday, log=self._log)
        assert code == 0, said
        self._old = posterior_of(self.root)
        shutil.copytree(self.root, self.template)
        code, said = cagp("run", self._today, log=self._log, disk=Disk(self.root, alike=alike))
        assert code == 0, said
        self._new, self.operations = posterior_of(self.root), int(said.splitlines()[-1])
        shutil.rmtree(self.root)

    def fail_and_go_on(self, disk: Disk | None, mend: Callable[[], object]) -> dict[str, object]:
        """Let the job of today fail, verify what is there, mend the disk, and run the same command again."""
        code, said = cagp("run", self._today, log=self._log, disk=disk)
        current = [self._old, self._new].index(posterior_of(self.root))
        verified, fault = cagp("verify", self.root, log=self._log)
        mend()
        again, trouble = cagp("run", self._today, log=self._log, report=False)
        return {
            # of operations that may differ from run to run, such as those of threads, the last may not come
            **{"hit": disk is None or len(said.splitlines()[-1].split()) > 1},
            **{"code": code, "said": said, "current": ["old", "new"][current]},
            **{"verified": verified, "fault": fault, "again": again, "trouble": trouble},
            "same": posterior_of(self.root) == self._new,
        }


def fail(jobs: Jobs, *, alike: int, count: int, rng: np.random.Generator) -> None:
    """Let the job fail at so many of its operations, with either error in turn."""
    drawn = np.sort(rng.permutation(jobs.operations)[:count]) + 1
    for number, code in zip(drawn.tolist(), itertools.cycle((errno.ENOSPC, errno.EIO)), strict=False):
        shutil.copytree(jobs.template, jobs.root)
        disk = Disk(jobs.root, alike=alike, number=number, code=code)
        print(json.dumps(jobs.fail_and_go_on(disk, lambda: None)), flush=True)
        shutil.rmtree(jobs.root)


def fill(jobs: Jobs, *, count: int, rng: np.random.Generator) -> None:
    """Run the job where so much is free, or so many more files can be made; in its folder, or below."""
    chosen: list[tuple[str, dict[str, int]]] = [
        ("", {"size": 0}),
        ("", {"size": 2**20}),
        ("", {"nr_inodes": 40}),
        ("", {"nr_inodes": 250}),
        (".checkpoints", {"size": 2**13}),
    ]
    chosen += [("", {"nr_inodes": int(rng.integers(400))}) for _ in range(count - len(chosen))]
    for below, free in chosen[:count]:
        jobs.root.mkdir()
        with small_file_system(jobs.root / below) as change:
            shutil.copytree(jobs.template, jobs.root, dirs_exist_ok=True)
            change(**free)
            found = jobs.fail_and_go_on(None, lambda: change(size=2**27, nr_inodes=10_000))
        print(json.dumps(found), flush=True)
        shutil.rmtree(jobs.root)


def failing_disks(count: int, rng: np.random.Generator, folder: Path, *, alike: int = 1) -> Row:
    """Let the disk fail at ``count`` of the operations of a job, drawn at random; run it again."""
    return _row("EIO or ENOSPC at an operation of a whole job", "fail", count, rng, folder, alike)


def full_disks(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Run a job on ``count`` small file systems, which output or checkpoints fill; make room and go on."""
    return _row("file system of output or checkpoints full", "fill", count, rng, folder, 1)


def _row(name: str, what: str, count: int, rng: np.random.Generator, folder: Path, alike: int) -> Row:
    row, root, hits, fine = Row(name), folder.resolve() / "out", 0, 0
    given = (what, folder.resolve(), count, rng.integers(2**31), alike)
    for text in lines(row, "-m", "tests.torture.disks", *given, seconds=SECONDS):
        found = json.loads(text)
        row.begin(count)
        row.count(same=found["same"])
        hits += found["hit"]
        row.expect(found["verified"] == 0, f"the run before does not verify: {found['fault']}")
        row.expect(found["again"] == 0, found["trouble"][-500:])
        if found["code"] == 0:
            fine += 1
            row.expect(found["current"] == "new", f"nothing was published: {found['said'][-500:]}")
            continue
        named = any(
            code == found["code"]
            and re.search(rf"^(\S+ )?Error: {error.format(root=re.escape(str(root)))}", found["said"], re.M)
            for code, error in ERRORS
        )
        row.named_errors += named
        row.expect(named, found["said"][-500:])
    row.must_have("disks that failed or were full", hits, at_least=math.ceil(0.8 * count))
    row.must_have("jobs ended with an error that names the path", row.named_errors, at_least=count // 2)
    if fine:
        row.notes.append(f"{fine} went well: there was enough, or all was done before the error")
    return row


def main(what: str, folder: Path, count: int, seed: int, alike: int) -> None:
    """Print a line of JSON for each failure."""
    jobs, rng = Jobs(folder, alike=alike), np.random.default_rng(seed)
    if what == "fail":
        fail(jobs, alike=alike, count=count, rng=rng)
    else:
        fill(jobs, count=count, rng=rng)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve(), *map(int, sys.argv[3:]))
