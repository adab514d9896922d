"""Map public tables by this package and by other programs, and write the page of figures.

    python -m pipelines.proof [TABLE ...] [--data FOLDER] [--environments FOLDER] [--row TEXT] [--again]
    python -m pipelines.proof --page

Tables are jura, meuse, sic97, sic2004, joker, colorado, argo and satellite. Every row is written to
``docs/proof/TABLE.json`` as soon as it is there, and rows that are there are not run again without
``--again``, so that an interrupted run goes on. ``--page`` builds ``docs/proof.md`` from these files alone.

Other programs are installed by pip into environments of their own, once (``make peers`` has the same).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipelines.benchmarks.peers.catalogue import PEERS
from pipelines.proof.page import page
from pipelines.proof.peers import UnavailableError, answer_of
from pipelines.proof.problems import DATA, Problem, Table, scores
from pipelines.proof.tables import TABLES

RESULTS = Path("docs/proof")


def run(table: Table, chosen: argparse.Namespace) -> None:
    """Run the rows of a table that are not there yet, and write each."""
    path = chosen.results / f"{table.name}.json"
    rows: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    problem = table.problem(chosen.data)
    for name in (*table.ours, *table.peers):
        if (name in rows and not chosen.again) or (chosen.row and chosen.row not in name):
            continue
        print(f"{table.name}: {name} ...", file=sys.stderr, flush=True)
        rows[name] = figures(table, name, problem, chosen)
        print(f"    {rows[name]}", file=sys.stderr, flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        order = [known for known in (*table.ours, *table.peers) if known in rows]
        path.write_text(json.dumps({known: rows[known] for known in order}, indent=1) + "\n")


def figures(table: Table, name: str, problem: Problem, chosen: argparse.Namespace) -> dict[str, Any]:
    """Figures of one row, or the reason why there are none."""
    if name in table.ours:
        made_by = {"program": f"cagp_dist {version('cagp_dist')}"}
    else:
        made_by = {"program": PEERS[table.peers[name].program].requirements[0].replace("==", " ")}
    try:
        if name in table.ours:
            answer = table.ours[name](problem)
        else:
            answer = answer_of(
                table.peers[name], problem, chosen.environments, limit_seconds=chosen.time_limit
            )
    except UnavailableError as error:
        return {"reason": str(error), **made_by}
    return {**scores(answer, problem.truth), **made_by}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run tables, or build the page."""
    command = argparse.ArgumentParser(
        prog="python -m pipelines.proof",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("table", nargs="*", metavar="TABLE", help="tables to run (all)")
    command.add_argument("--data", type=Path, default=DATA, help="folder of the data (%(default)s)")
    command.add_argument("--environments", type=Path, default=Path(".peers"), help="of the other programs")
    command.add_argument("--results", type=Path, default=RESULTS, help="folder of the figures (%(default)s)")
    command.add_argument("--row", help="run rows alone whose name has this text")
    command.add_argument("--again", action="store_true", help="run rows again that are there")
    command.add_argument(
        "--time-limit", type=float, default=1800.0, help="seconds of a program (%(default)s)"
    )
    command.add_argument("--page", action="store_true", help="build the page, run nothing")
    chosen = command.parse_args(arguments)
    unknown = [name for name in chosen.table if name not in TABLES]
    if unknown:
        command.error(f"there is no table {', '.join(unknown)}; expected {', '.join(TABLES)}.")
    if not chosen.page:
        if not chosen.data.exists():
            command.error(f"{chosen.data} is not there; give the folder of the public data with --data.")
        for name in chosen.table or TABLES:
            run(TABLES[name], chosen)
    built = chosen.results.with_suffix(".md")  # of other figures beside these
    built.write_text(page(chosen.results))
    print(f"written to {built}", file=sys.stderr)


if __name__ == "__main__":
    main()
