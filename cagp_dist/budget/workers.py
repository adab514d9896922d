"""What a plan comes to on workers that need not be there: memory and tasks of each, and what waits."""

from dataclasses import dataclass

from cagp_dist.budget.plan import Plan
from cagp_dist.memory import PROCESS_BYTES, WORKER_JOB_BYTES
from cagp_dist.text import bytes_text, counted


@dataclass(frozen=True)
class Crew:
    """Workers that need not be there: processes with some threads each, one task to a thread."""

    processes: int
    threads: int = 1
    worker_bytes: int = WORKER_JOB_BYTES  # Memory of a process, which its threads share
    shares_memory: bool = False

    @property
    def workers(self) -> int:
        """Tasks that run at once."""
        return self.processes * self.threads

    @property
    def memory_bytes(self) -> int:
        """Memory of all processes."""
        return self.worker_bytes * self.processes

    def __str__(self) -> str:
        threads = f" with {self.threads} threads each" if self.threads > 1 else ""
        return counted(self.processes, "worker") + threads


def worker_bytes(plan: Plan, crew: Crew) -> int:
    """Bytes of a worker process that has the most: its share, a task of each thread, and the program."""
    parts = max((len(batch) for batch in plan.batches), default=1) * max(plan.panels, 1)
    holders = min(crew.processes, parts)
    shared = max(0, plan.peak_bytes - plan.caller_bytes - plan.task_bytes * crew.workers)
    return PROCESS_BYTES + shared * -(-parts // holders) // parts + plan.task_bytes * crew.threads


def most_useful(plan: Plan) -> int:
    """Threads beyond which tasks that wait for each other decide; 0 where they are not counted."""
    return min(-(-plan.work.flops // plan.chain_flops), plan.tasks) if plan.chain_flops and plan.tasks else 0


def worker_lines(plan: Plan, crew: Crew) -> list[str]:
    """Say memory, tasks and flops of a worker, and how many can be busy, as sentences."""
    each = -(-plan.tasks // crew.workers)
    text = [
        f"memory about {bytes_text(worker_bytes(plan, crew))} of a worker, program included, and "
        f"{bytes_text(plan.caller_bytes)} of the calling process",
        f"on {crew}: {counted(each, 'task')} and {plan.work.flops / crew.workers:.3g} flops for each thread; "
        "a scheduler hands out about a thousand tasks a second",
    ]
    if most := most_useful(plan):
        text.append(
            f"{plan.chain_flops:.3g} flops are tasks that wait for each other: no more than "
            f"{counted(most, 'thread')} can be busy"
        )
    return text
