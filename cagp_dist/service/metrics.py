"""What monitoring is told of a run and of an output folder: text in the exposition format of Prometheus."""

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cagp_dist.runtime.counting import Work
from cagp_dist.service.events import Event
from cagp_dist.store.atomic_files import whole_file

if TYPE_CHECKING:
    import xarray as xr

    from cagp_dist.service.run import Outcome
    from cagp_dist.service.series_status import SeriesStatus

SCORES = ("rmse", "crps", "nll", "ks_statistic")

WORK = {
    "tasks": "Tasks that each stage handed to its workers.",
    "products": "Columns that each stage multiplied by the Gram matrix, a sweep of a column being one.",
    "moved_bytes": "Bytes of arrays that each stage moved from one process to another.",
}

Sample = tuple[Mapping[str, str], float]
Family = tuple[str, str, list[Sample]]  # name, meaning and samples


def exposition(families: Iterable[Family]) -> str:
    """Write all samples, each family with its help and type; one without samples is left out."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    for name, meaning, samples in families:
        if samples:
            gauge = Gauge(name, meaning, tuple(samples[0][0]), registry=registry)
            for labels, value in samples:
                gauge.labels(*labels.values()).set(value)
    return generate_latest(registry).decode()


def state_families(state: "SeriesStatus") -> Iterator[Family]:
    """Give the figures of an output folder."""
    of: dict[str, str] = {"output": str(state.root.absolute())}
    if state.newest is not None:
        newest = float(state.newest.astype("datetime64[s]").astype(int))
        yield "cagp_newest_time_seconds", "The newest time of the series, Unix time.", [(of, newest)]
    days = {
        "done": state.done.size,
        "preliminary": state.preliminary.size,
        "missing": state.missing.size,
        "gaps": state.gaps.size,
        "outdated": state.outdated.size,
        "failed": len(state.failed_days),
        "of another grid": len(state.of_other_grids),
        "failed for long": sum(day.lasting for day in state.failed_days),
    }
    counts: list[Sample] = [({**of, "state": name}, float(count)) for name, count in days.items()]
    yield "cagp_days", "Days of the series, and those that are not in it.", counts
    files = float(len(state.unreadable))
    yield "cagp_unreadable_files", "Files of the source whose times cannot be read.", [(of, files)]
    lacking = float(state.without_variable)
    yield "cagp_files_without_variable", "Files of the source that lack the variable.", [(of, lacking)]
    drifts = [({**of, "variable": name} if name else of, found) for name, found in state.drift_found.items()]
    if drifts:
        alarms: list[Sample] = [(about, float(found.alarm)) for about, found in drifts]
        yield "cagp_drift_alarm", "1 if errors differ from the error bars beyond chance.", alarms
        ratios: list[Sample] = [(about, found.ratio) for about, found in drifts]
        yield "cagp_drift_ratio", "How large errors are beside what the error bars say.", ratios
    yield "cagp_runs", "Runs that are kept.", [(of, float(state.runs))]
    yield "cagp_disk_free_bytes", "Free on the disk of the output folder.", [(of, float(state.free_bytes))]
    stages: list[Sample] = [({**of, "stage": name}, each) for name, each in state.seconds.items()]
    yield "cagp_current_run_stage_seconds", "How long each stage of the current run took.", stages


class Metrics:
    """Figures of one run, gathered while it runs: it observes events, and is told the outcome."""

    def __init__(self, job: str) -> None:
        self._job = job  # its name, a label of each sample
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}
        self._work: dict[str, Work] = {}
        self.outcome: Outcome | None = None
        self.state: SeriesStatus | None = None  # of the output folder, after a pass

    def __call__(self, event: Event) -> None:
        """Take note of an event; a stage that fails has no seconds."""
        if event.seconds is not None:
            self._seconds[event.stage] = self._seconds.get(event.stage, 0.0) + event.seconds
        if event.work is not None:
            self._work[event.stage] = self._work.get(event.stage, Work()) + event.work

    def text(self, exit_code: int) -> str:
        """Write all samples, each family with its help and type."""
        families: list[Family] = [
            (name, meaning, [({"job": self._job, **labels}, value) for labels, value in samples])
            for name, meaning, samples in self._families(exit_code)
        ]
        return exposition([*families, *([] if self.state is None else state_families(self.state))])

    def write(self, path: Path, exit_code: int) -> None:
        """Write `text` to a file, which readers see whole or not at all."""
        with whole_file(path) as temporary:
            temporary.write_text(self.text(exit_code), encoding="utf-8")

    def _families(self, exit_code: int) -> Iterator[Family]:
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
        of_each: list[tuple[dict[str, str], xr.Dataset]] = [
            ({"variable": name} if name else {}, own) for name, own in self.outcome.by_variable.items()
        ]
        yield (
            "cagp_score",
            "Scores at held-out points, in the units of the variable.",
            [
                (
                    {**about, "score": name, "units": str(own[name].attrs.get("units", "1"))},
                    float(own[name]),
                )
                for about, own in of_each
                for name in SCORES
            ],
        )
        yield (
            "cagp_coverage_ratio",
            "Share of held-out observations inside the error bars of a level.",
            [
                ({**about, "level": f"{float(level):g}"}, float(covered))
                for about, own in of_each
                for level, covered in zip(own["level"].values, own["coverage"].values, strict=True)
            ],
        )
