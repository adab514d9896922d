"""The step of every day, or every hour: another name of ``cagp daily``.

    python -m pipelines.daily JOB.toml [--times A..B] [--retry] [--dry-run] [--metrics FILE] [--log json]

Exit codes and options as of ``cagp daily --help``.
"""

import sys
from collections.abc import Sequence

from cagp_dist.cli import app


def main(arguments: Sequence[str]) -> int:
    """Do the job of the file that is named; print a line for each time."""
    try:
        app(["daily", *arguments], prog_name="cagp", standalone_mode=True)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
