"""Run us and our peers on the same problems and print what it took and how good it was.

Usage: ``python -m pipelines.benchmarks.peers [--peer NAME ...] [--method NAME ...] [--case NAME ...]``
"""

import argparse
import json
import platform
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pipelines.benchmarks.peers.adapters.harness import Problem
from pipelines.benchmarks.peers.catalogue import PEERS, Method, Peer
from pipelines.benchmarks.peers.comparing import Line, Settings, fit, predict
from pipelines.benchmarks.peers.problems import CASES, FIT_CASES, make_problem
from pipelines.benchmarks.peers.tables import aligned, fit_table, prediction_table

MOST_PREDICTING, MOST_FITTING = 30_000, 8_000
"""Points up to which all methods are tried; beyond, those whose cost is linear."""


def compare(case: str, peers: Sequence[Peer], *, threads: int, settings: Settings) -> list[Line]:
    """Every method of every peer on one case, one after the other."""
    lines: list[Line] = []
    if case in FIT_CASES:
        problem, _ = make_problem(FIT_CASES[case], threads=threads)
        for peer in peers:
            for method in _able(peer.fits, problem, MOST_FITTING):
                lines.append(_told(fit(case, problem, peer=peer, method=method, settings=settings)))
        return lines
    problem, held_out = make_problem(CASES[case], threads=threads)
    for peer in peers:
        for method in _able(peer.methods, problem, MOST_PREDICTING):
            line = predict(case, problem, held_out, peer=peer, method=method, settings=settings)
            lines.append(_told(line))
    return lines


def _able(methods: Sequence[Method], problem: Problem, most: int) -> list[Method]:
    """Those that are tried: all with up to so many points, and without a grid those that need none."""
    return [
        method
        for method in methods
        if (method.linear or len(problem.X) <= most) and (problem.observed.size or not method.needs_grid)
    ]


def _named(methods: Sequence[Method], names: Sequence[str] | None) -> tuple[Method, ...]:
    """Those of these names, or all of them."""
    return tuple(method for method in methods if not names or method.name in names)


def _told(line: Line) -> Line:
    figures = line.figures
    what = f"{figures['seconds']:.3g} s, {figures['peak_mebibytes']:.0f} MiB" if figures else line.outcome
    _tell(f"    {line.peer}, {line.label}: {what}")
    return line


def _tell(text: str) -> None:
    """Tell what goes on; the standard output is for the tables alone."""
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    every = (*CASES, *FIT_CASES)
    parser.add_argument("--peer", action="append", choices=tuple(PEERS), help="who (repeat; default: all)")
    parser.add_argument("--method", action="append", help="how, by the name its adapter has (repeat)")
    parser.add_argument("--case", action="append", choices=every, help="what (repeat; default: all)")
    parser.add_argument("--threads", type=int, default=2, help="threads of every program (default: 2)")
    parser.add_argument(
        "--time-limit", type=float, default=600.0, metavar="SECONDS", help="of one run (default: 600)"
    )
    parser.add_argument(
        "--environments", type=Path, default=Path(".peers"), help="folder of the environments"
    )
    parser.add_argument("--output", type=Path, default=Path("out/peers.json"), help="where the JSON goes")
    parser.add_argument(
        "--markdown", action="store_true", help="print the tables as the documentation holds them"
    )
    return parser.parse_args()


def main() -> None:
    """Compare, print, write."""
    arguments = _arguments()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # an exit stops the peer that runs; a signal would not
    peers = [
        replace(
            peer, methods=_named(peer.methods, arguments.method), fits=_named(peer.fits, arguments.method)
        )
        for name, peer in PEERS.items()
        if not arguments.peer or name in arguments.peer
    ]
    settings = Settings(arguments.environments, arguments.time_limit)
    results: dict[str, list[Line]] = {}
    cases = {
        name: case
        for name, case in (CASES | FIT_CASES).items()
        if not arguments.case or name in arguments.case
    }
    for case, what in cases.items():
        _tell(f"{case}: {what.text}")
        results[case] = compare(case, peers, threads=arguments.threads, settings=settings)
        _write(arguments.output, results, threads=arguments.threads)
    for case, lines in results.items():
        table = fit_table(lines) if case in FIT_CASES else prediction_table(lines)
        heading = f"`{case}`: {cases[case].text}"
        print(f"\n### {heading}\n\n{table}" if arguments.markdown else f"\n{heading}\n{aligned(table)}")
    _tell(f"written to {arguments.output}")


def _write(output: Path, results: Mapping[str, Sequence[Line]], *, threads: int) -> None:
    """Write all lines so far as JSON, so that a later case that is interrupted costs none of them."""
    document = {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "threads": threads,
        },
        "requirements": {peer.name: peer.requirements for peer in PEERS.values()},
        "lines": [asdict(line) for lines in results.values() for line in lines],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
