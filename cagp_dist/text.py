"""Numbers and names as people write them: bytes, durations, lists of names."""

import difflib
from collections.abc import Iterable


def bytes_text(count: float) -> str:
    """Write an amount of memory with three digits.

    Examples
    --------
    >>> [bytes_text(count) for count in (88, 5000, 340 * 2**20, 2**45)]
    ['88 B', '4.88 KiB', '340 MiB', '32 TiB']
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def duration(seconds: float) -> str:
    """Write a duration with three digits at most.

    Examples
    --------
    >>> [duration(seconds) for seconds in (0.412, 13.7, 125.0, 3790.0)]
    ['0.41 s', '13.7 s', '2 min 5 s', '1 h 3 min']
    """
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def alternatives(names: Iterable[str], *others: str) -> str:
    """Write names in quotes, and other things as they are, with "or" before the last.

    Examples
    --------
    >>> alternatives(["local", "serial"], "the path of a file")
    '"local", "serial" or the path of a file'
    """
    words = [*(f'"{name}"' for name in names), *others]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """Find the valid word that resembles ``word`` most, if one does.

    Examples
    --------
    >>> nearest("gaus-seidel", ["gauss-seidel", "cholesky"])
    'gauss-seidel'
    """
    close = difflib.get_close_matches(word, list(valid), n=1, cutoff=0.5)
    return close[0] if close else None
