"""Where work is done, and with how much memory."""

from dataclasses import dataclass

from cagp_dist.runtime import Executor


@dataclass(frozen=True)
class Resources:
    """An executor, and the bytes that may be allocated on it, if not all that it has."""

    executor: Executor
    memory_limit_bytes: int | None = None

    @property
    def memory_bytes(self) -> int:
        """What may be allocated."""
        limit = self.memory_limit_bytes
        return self.executor.memory_bytes if limit is None else limit
