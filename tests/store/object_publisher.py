"""A process that publishes runs in an object store and dies before one request after the other.

``python object_publisher.py ADDRESS FOLDER LOOKED`` forks a child for each kill, from a process where
everything is imported and no connection is open; it prints one line for each, with what readers see
afterwards. Before the first kill it waits for a reader, who makes the file LOOKED after each look.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from cagp_dist.store.bucket import Bucket
from cagp_dist.store.lock import output_lock
from cagp_dist.store.objects import PublishedObjects
from cagp_dist.store.outputs import FolderOutput, ObjectOutput

if __package__:
    from . import publisher
else:
    sys.path.insert(0, str(Path(__file__).parent))
    import publisher


def publish_index(address: str, folder: Path, index: int) -> Path:
    """Publish a small run whose content is decided by its index, from a folder."""
    output = ObjectOutput(FolderOutput(folder), PublishedObjects(address))
    with output_lock(folder):
        return output.publish(
            publisher.make_groups(index, small=True),
            run_key=publisher.key_of(index),
            attributes={"index": index},
        )


def kill_before_put(number: int) -> None:
    """Die just before this process writes its ``number``-th object."""
    put, seen, lock = Bucket._put, 0, threading.Lock()

    def counted(bucket: Bucket, name: str, data: bytes, **condition: str) -> None:
        nonlocal seen
        with lock:
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
        put(bucket, name, data, **condition)

    Bucket._put = counted


def say_what_readers_see(address: str, folder: Path, number: int) -> None:
    objects = PublishedObjects(address)
    key = objects.current()
    with output_lock(folder):
        assert key is not None
        assert objects.fetch(key, folder) is not None  # raises where an object is not that of the manifest
    _, uploads = objects.bucket.listed("runs", deep=False)
    print(f"put {number} {key} {len(uploads) - len(objects.runs())}", flush=True)


def kill_at_every_put(address: str, folder: Path, looked: Path) -> None:
    publisher.in_child(lambda: publisher.void(publish_index(address, folder / "work", 0)))
    assert os.wait()[1] == 0
    publisher.wait_for_a_look(looked)
    for number in range(1, 100):

        def work(number: int = number) -> None:
            kill_before_put(number)
            publish_index(address, folder / "work", number)

        publisher.in_child(work)
        _, status = os.wait()
        publisher.in_child(lambda number=number: say_what_readers_see(address, folder / "reader", number))
        assert os.wait()[1] == 0
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            return
    raise AssertionError("the publication never got through")


if __name__ == "__main__":
    kill_at_every_put(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
