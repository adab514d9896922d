"""Child process that says what a Parquet file unpacks to: ``_parquet.py PATH MEMORY_BYTES MOST_BYTES``.

A few bytes of such a file stand for as many values as they say, and its decoder takes memory as it is told,
or may crash: here that costs one clear error. It is unpacked in pieces, and not beyond ``MOST_BYTES``.
"""

import resource
import sys


def say_unpacked_bytes(path: str, memory_bytes: int, most_bytes: int) -> None:
    """Write how many bytes there are, or ``error`` and what went wrong."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        pa.set_memory_pool(pa.system_memory_pool())  # others take memory in advance
        found = 0
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=2**13, use_threads=False):
            found += batch.nbytes
            if found > most_bytes:
                break
        print(found)  # noqa: T201
    except Exception as error:
        said = next(iter(str(error).splitlines()), "")
        print("memory" if isinstance(error, MemoryError) else f"error {said}")  # noqa: T201


if __name__ == "__main__":
    say_unpacked_bytes(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
