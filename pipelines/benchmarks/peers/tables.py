"""Tables of the comparison in Markdown, as the documentation holds them."""

from collections.abc import Sequence

from pipelines.benchmarks.peers.catalogue import OURS
from pipelines.benchmarks.peers.comparing import Line

PREDICTION_HEAD = (
    "| program | method | seconds | ratio | of processors | peak MiB "
    "| RMSE [K] | NLL | CRPS [K] | 95 % coverage |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)
FIT_HEAD = (
    "| program | method | seconds | ratio | of processors | peak MiB "
    "| evaluations | lengthscale | variance [K²] | noise [K²] | log-likelihood below the best |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def prediction_table(lines: Sequence[Line]) -> str:
    """Tell times and scores of one case; ratios are to the first of our own lines that was run."""
    base = _base(lines)
    return "\n".join([PREDICTION_HEAD, *(_row(line, _prediction_cells(line, base), 8) for line in lines)])


def fit_table(lines: Sequence[Line]) -> str:
    """Tell times and optima of one case."""
    base = _base(lines)
    likelihoods = [line.figures["log_likelihood"] for line in lines if line.figures]
    best = max(likelihoods, default=0.0)
    return "\n".join([FIT_HEAD, *(_row(line, _fit_cells(line, base, best), 9) for line in lines)])


def aligned(table: str) -> str:
    """Turn a Markdown table into columns for a terminal."""
    rows = [row[1:-1].split("|") for row in table.splitlines() if not row.startswith("|---")]
    # what is said in place of figures runs over the columns behind it
    widths = [
        max(len(cell) for cell in column if not cell.startswith(" *")) for column in zip(*rows, strict=True)
    ]
    lines = ("".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _base(lines: Sequence[Line]) -> float | None:
    ours = [line.figures["seconds"] for line in lines if line.peer == OURS and line.figures]
    return ours[0] if ours else None


def _row(line: Line, cells: Sequence[str], width: int) -> str:
    shown = cells or [f"*{line.outcome}*"] + [""] * (width - 1)
    return "| " + " | ".join([line.peer, line.label, *shown]) + " |"


def _common(line: Line, base: float | None) -> list[str]:
    seconds = line.figures["seconds"]
    ratio = "" if base is None else f"{seconds / base:.3g}"
    worked = line.figures["processor_seconds"]
    return [f"{seconds:.3g}", ratio, f"{worked:.3g}", f"{line.figures['peak_mebibytes']:,.0f}"]


def _prediction_cells(line: Line, base: float | None) -> list[str]:
    if not line.figures:
        return []
    scored = [f"{line.figures[name]:.3f}" for name in ("rmse", "nll", "crps", "coverage")]
    return _common(line, base) + scored


def _fit_cells(line: Line, base: float | None, best: float) -> list[str]:
    if not line.figures:
        return []
    figures = line.figures
    evaluations = f"{figures['evaluations']:.0f}" if figures["evaluations"] else ""
    return [
        *_common(line, base),
        evaluations,
        f"{figures['lengthscale']:.4f}",
        f"{figures['variance']:.2f}",
        f"{figures['noise_variance']:.3f}",
        f"{best - figures['log_likelihood']:.2f}",
    ]
