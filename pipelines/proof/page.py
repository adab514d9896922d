"""The page of the documentation with the figures; every number of it was written by a run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.proof.problems import Table
from pipelines.proof.tables import TABLES

HEAD = """# Proof on public tables

```text
make proof PROOF_ARGS="--data FOLDER"
```

Classics of geostatistics, each mapped by one call of `cagp.krige` and by other programs that `pip`
installs, with the settings that their documentation begins with: PyKrige and GSTools with an exponential
variogram that they fit themselves, scikit-learn and GPBoost with Matérn 3/2 and maximum
likelihood. MAE is that of the median, RMSE that of the mean; CRPS and intervals are those of the
distribution that a program states for an observation, and 90 of 100 values should lie inside the 90 %
intervals. Seconds are those of processors on a machine that did other work, fits included: orders of
magnitude. Rows in italics were published by others and not run here.

Two rows of SIC97 go further than that: PyKrige with the direction, of twelve, and the ratio, of five, that
predict held-out observations of ten folds best, or with neither; GSTools with directional variograms, whose
ratio it fits, along the direction that does so, or along none.

This page is built from the files in `docs/proof/`, which `make proof` writes; no number is typed by hand.
The data are not part of the package. Irish wind (Haslett & Raftery 1989) is missing, as its data are not at
hand. Pressure and temperature of forecasts in North America, a comparison of likelihoods, are in [the
experiments](experiments.md#shared-labels). Regression sets of the papers, and those of them whose data are
not at hand, are on [a page of their own](regression-sets.md#row-by-row).
"""

COLUMNS = {"MAE": "{:.3g}", "RMSE": "{:.3g}", "CRPS": "{:.3g}", "coverage": "{:.1%}", "seconds": "{:.2g}"}
TITLES = {"coverage": "inside 90 %", "seconds": "processor seconds"}


def cell(figures: dict[str, Any], column: str) -> str:
    """One figure as the page shows it; nothing where there is none."""
    value = figures.get(column)
    if value is None:
        return ""
    return f"{value:.0f}" if column == "seconds" and value >= 10 else COLUMNS[column].format(value)


def lines(table: Table, rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Lines of a table: ours and others in their order, then what was published."""
    heads = [TITLES.get(column, f"{column} [{table.unit}]") for column in COLUMNS]
    yield f"| method | version | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 2) + "|"
    for name in (*table.ours, *table.peers):
        if name not in rows:
            continue
        figures = rows[name]
        cells = [cell(figures, column) for column in COLUMNS]
        if "reason" in figures:
            cells[0] = figures["reason"]
        yield f"| {name} | {figures['program']} | {' | '.join(cells)} |"
    for name, published in table.published.items():
        cells = [cell(dict(published.figures), column) for column in COLUMNS]
        yield f"| *{name}* | {published.source} | {' | '.join(cells)} |"


def page(folder: Path) -> str:
    """Text of the page, from the figures in a folder."""
    parts = [HEAD]
    for table in TABLES.values():
        path = folder / f"{table.name}.json"
        if not path.exists():
            continue
        head = f"(proof-{table.name})=\n## {table.title}\n\n{table.conditions}\nSource: {table.source}."
        text = "\n".join(lines(table, json.loads(path.read_text())))
        parts.append(f"{head}\n\n{text}\n")
    return "\n".join(parts)
