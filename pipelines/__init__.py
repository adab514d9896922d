"""Programs that people schedule or run by hand; the work is done in `cagp_dist`."""

from collections.abc import Sequence


def asks_for_help(arguments: Sequence[str], help_text: str | None) -> bool:
    """Print what a program does, and how it is called, where that is asked for."""
    asked = bool({"-h", "--help"} & set(arguments))
    if asked:
        print((help_text or "").strip())
    return asked
