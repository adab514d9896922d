"""Small runs for the tests of publication, and a process that publishes them and dies on purpose.

``python publisher.py random ROOT COUNT SEED LOOKED`` and ``python publisher.py steps ROOT`` fork a child that
publishes runs, kill it, and check what readers see; they print one line per kill. The child is forked
from a process in which everything is imported, so that a kill costs milliseconds.
"""

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.calibration.verification.pit import pit
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.errors import StoreError
from cagp_dist.store.publish import current_run, output_lock, publish, verify_files
from cagp_dist.store.schema import prediction_group, values_group
from cagp_dist.store.scored_groups import calibration_group, trace_group

EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}
INSIDE = 40


def key_of(index: int) -> str:
    return hashlib.sha256(str(index).encode()).hexdigest()[:32]


def make_groups(index: int, *, small: bool = False) -> dict[str, xr.Dataset]:
    """Groups whose content is decided by ``index``; ``small`` is the smallest group alone."""
    rng = np.random.default_rng(index)
    points = {
        "times": np.array(["2017-04-27T12", "2017-04-27T13"], dtype="datetime64[ns]"),
        "north": rng.uniform(-90.0, 90.0, 30),
        "east": rng.uniform(0.0, 360.0, 30),
    }
    mean, std = 280.0 + rng.normal(size=(2, 30)), rng.uniform(0.5, 1.5, 30)
    observed = mean + std * rng.normal(size=(2, 30))
    if small:
        return {"observations": values_group("observations", **points, values=observed)}
    score = scores(mean, std, observed)
    return {
        "posterior": prediction_group(
            "posterior", **points, mean=mean, std=std, noise_variance=0.5, observed=observed
        ),
        "calibration": calibration_group(**points, pit=pit(mean, std, observed), scores=score),
        "trace": trace_group([score, score], seconds=[0.0, 0.5]),
    }


def publish_index(root: Path, index: int, *, small: bool = True) -> Path:
    with output_lock(root):
        return publish(
            root, make_groups(index, small=small), run_key=key_of(index), attributes={"index": index}
        )


def start(*arguments: object) -> subprocess.Popen:
    """Start this file as a program."""
    return subprocess.Popen(
        [sys.executable, __file__, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def in_child(work: Callable[[], None]) -> int:
    """Fork, work, exit; the number of the child."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"child failed: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
    return child


def at_event(root: Path, number: int, action: Callable[[str], None], *, every: int = 1) -> None:
    """Act just before the ``number``-th time this process opens, renames, makes or removes below ``root``.

    Operations inside the Zarr hierarchy that is being staged are alike: one of ``INSIDE`` counts. Of those
    that are no renames, one of ``every`` does.
    """
    seen = inside = others = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen, inside, others
        path = str(arguments[0]) if event in EVENTS else ""
        if not path.startswith(str(root)):
            return
        if ".zarr/" in path:
            inside += 1
            if inside % INSIDE:
                return
        if event != "os.rename":
            others += 1
            if others % every:
                return
        seen += 1
        if seen == number:
            action(path)

    sys.addaudithook(hook)


def kill_at_random(root: Path, count: int, seed: int, looked: Path) -> None:
    """Kill a process that publishes one run after the other, ``count`` times; it goes on where it was.

    Each is killed a random part of a publication after it acknowledged 0, 1 or 2 runs. Between two kills a
    reader looks at least once, who makes the file ``looked`` after each look.
    """
    rng = np.random.default_rng(seed)
    started = time.monotonic()
    publish_in_child(root, 1)
    acknowledged, seconds = 1, time.monotonic() - started
    for _ in range(count):
        reader, writer = os.pipe()

        def work(writer: int = writer, first: int = acknowledged + 1) -> None:
            index = first
            while True:
                publish_index(root, index)
                os.write(writer, index.to_bytes(4, "big"))
                index += 1

        child = in_child(work)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            for _ in range(rng.integers(3)):
                acknowledged = int.from_bytes(stream.read(4), "big")
            time.sleep(rng.uniform(0.0, seconds))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            done = stream.read()
        if done:
            acknowledged = int.from_bytes(done[-4:], "big")
        run = current_run(root)
        assert run is not None
        verify_files(run)
        # The last run that was acknowledged, or the one after it if the kill came before the acknowledgement.
        allowed = [root / "runs" / f"{key_of(index)}.zarr" for index in (acknowledged, acknowledged + 1)]
        assert run in allowed, (run, acknowledged)
        print(f"killed {acknowledged}", flush=True)
        wait_for_a_look(looked)


def wait_for_a_look(looked: Path) -> None:
    looked.unlink(missing_ok=True)
    until = time.monotonic() + 300.0
    while not looked.exists():
        assert time.monotonic() < until, "nobody looks"
        time.sleep(0.002)


def kill_at_every_step(root: Path) -> None:
    """Kill a publication just before each of its file operations in turn, until one gets through."""
    before = publish_in_child(root, 0)
    for number in range(1, 300):

        def work(number: int = number) -> None:
            at_event(root, number, lambda path: os.kill(os.getpid(), signal.SIGKILL))
            publish_index(root, number)

        _, status = os.waitpid(in_child(work), 0)
        run, new = current_run(root), root / "runs" / f"{key_of(number)}.zarr"
        assert run is not None
        verify_files(run)
        assert run in (before, new), run
        print(f"step {number} {'new' if run == new else 'old'}", flush=True)
        before = run
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            assert run == new
            return
    raise AssertionError("the publication never got through")


def kill_replacement(root: Path, every: int) -> None:
    """Kill the replacement of a damaged current run before its file operations, until it gets through.

    All renames count, and of the other operations one in ``every``.
    """
    before = publish_in_child(root, 0)
    damaged = before / "observations" / "t2m" / "zarr.json"
    for number in range(1, 300):
        damaged.write_bytes(damaged.read_bytes() + b" ")

        def work(number: int = number) -> None:
            at_event(root, number, lambda path: os.kill(os.getpid(), signal.SIGKILL), every=every)
            publish_index(root, 0)

        _, status = os.waitpid(in_child(work), 0)
        assert current_run(root) == before  # raises where the run is missing
        try:
            verify_files(before)
        except StoreError:
            state = "damaged"
        else:
            state = "replaced"
        print(f"step {number} {state}", flush=True)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            assert state == "replaced"
            return
    raise AssertionError("the publication never got through")


def fail_at_steps(root: Path) -> None:
    """Let every second file operation of a publication fail in turn, until one gets through."""
    before = publish_in_child(root, 0)
    for number in range(2, 300, 2):

        def work(number: int = number) -> None:
            reached = False

            def fail(path: str) -> None:
                nonlocal reached
                reached = True
                code = errno.EIO if number % 4 else errno.ENOSPC
                raise OSError(code, os.strerror(code), path)

            at_event(root, number, fail)
            try:
                publish_index(root, number)
            except Exception as error:
                print(f"failed {number} {type(error).__name__}: {error}", flush=True)
            else:
                print(f"passed {number} {'reached' if reached else 'complete'}", flush=True)
                os._exit(0 if reached else 7)

        _, status = os.waitpid(in_child(work), 0)
        run, new = current_run(root), root / "runs" / f"{key_of(number)}.zarr"
        assert run is not None
        verify_files(run)
        assert run in (before, new), run
        before = run
        if os.waitstatus_to_exitcode(status) == 7:
            return
    raise AssertionError("the publication never got through")


def publish_in_child(root: Path, index: int) -> Path:
    """Publish without starting any thread in this process, which goes on forking."""
    _, status = os.waitpid(in_child(lambda: void(publish_index(root, index))), 0)
    assert status == 0
    run = current_run(root)
    assert run is not None
    return run


def void(_: object) -> None:
    """Drop a result."""


if __name__ == "__main__":
    mode, folder, *rest = sys.argv[1:]
    if mode == "random":
        kill_at_random(Path(folder), int(rest[0]), int(rest[1]), Path(rest[2]))
    elif mode == "steps":
        kill_at_every_step(Path(folder))
    elif mode == "replace":
        kill_replacement(Path(folder), int(rest[0]))
    elif mode == "fail":
        fail_at_steps(Path(folder))
    elif mode == "once":
        publish_index(Path(folder), int(rest[0]))
    elif mode == "hold":
        with output_lock(Path(folder)):
            (Path(folder) / ".staging" / "litter").mkdir()
            print("held", flush=True)
            time.sleep(60.0)
    else:
        raise SystemExit(f"unknown mode {mode}")
    print("done", flush=True)
