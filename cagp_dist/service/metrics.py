"""What monitoring is told at the end of a run: a text file in the exposition format of Prometheus."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from cagp_dist.runtime.counting import Work
from cagp_dist.service.events import Event
from cagp_dist.store.atomic_files import whole_file

if TYPE_CHECKING:
    from cagp_dist.service.run import Outcome

SCORES = ("rmse", "crps", "nll", "ks_statistic")

WORK = {
    "tasks": "Tasks that each stage handed to its workers.",
    "products": "Columns that each stage multiplied by the Gram matrix, a sweep of a column being one.",
    "moved_bytes": "Bytes of arrays that each stage moved from one process to another.",
}

Sample = tuple[Mapping[str, str], float]


class Metrics:
    """Figures of one run, gathered while it runs: it observes events, and is told the outcome."""

    def __init__(self, job: str) -> None:
        self._job = job  # its name, a label of each sample
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}
        self._work: dict[str, Work] = {}
        self.outcome: Outcome | None = None

    def __call__(self, event: Event) -> None:
        """Take note of an event; a stage that fails has no seconds."""
        if event.seconds is not None:
            self._seconds[event.stage] = event.seconds
        if event.work is not None:
            self._work[event.stage] = event.work

    def text(self, exit_code: int) -> str:
        """Write all samples, each family with its help and type."""
        registry = CollectorRegistry()
        for name, meaning, samples in self._families(exit_code):
            if samples:
                gauge = Gauge(name, meaning, ("job", *samples[0][0]), registry=registry)
                for labels, value in samples:
                    gauge.labels(self._job, *labels.values()).set(value)
        return generate_latest(registry).decode()

    def write(self, path: Path, exit_code: int) -> None:
        """Write `text` to a file, which readers see whole or not at all."""
        with whole_file(path) as temporary:
            temporary.write_text(self.text(exit_code), encoding="utf-8")

    def _families(self, exit_code: int) -> Iterator[tuple[str, str, list[Sample]]]:
        yield "cagp_run_exit_code", "Exit code of the last run; 0 is done.", [({}, exit_code)]
        yield "cagp_run_end_time_seconds", "When the last run ended, Unix time.", [({}, time.time())]
        yield "cagp_run_seconds", "How long the last run took.", [({}, time.monotonic() - self._began)]
        stages: list[Sample] = [({"stage": name}, seconds) for name, seconds in self._seconds.items()]
        yield "cagp_stage_seconds", "How long each stage took that was done.", stages
        for name, meaning in WORK.items():
            found = {stage: work.counts()[name] for stage, work in self._work.items()}
            yield (
                f"cagp_stage_{name}",
                meaning,
                [({"stage": stage}, number) for stage, number in found.items()],
            )
        if self.outcome is None:
            return
        scores, path = self.outcome.calibration, self.outcome.path
        run = {"run": "" if path is None else path.stem, "status": self.outcome.status.value}
        verdict = {"error_bars": str(scores.attrs["calibration_status"])}
        yield "cagp_run_info", "Key, status and verdict of the last run.", [({**run, **verdict}, 1.0)]
        computed = not self.outcome.already_done
        yield "cagp_run_computed", "0 if the same run had been published before.", [({}, float(computed))]
        yield (
            "cagp_score",
            "Scores at held-out points, in the units of the variable.",
            [
                ({"score": name, "units": str(scores[name].attrs.get("units", "1"))}, float(scores[name]))
                for name in SCORES
            ],
        )
        yield (
            "cagp_coverage_ratio",
            "Share of held-out observations inside the error bars of a level.",
            [
                ({"level": f"{float(level):g}"}, float(covered))
                for level, covered in zip(scores["level"].values, scores["coverage"].values, strict=True)
            ],
        )
