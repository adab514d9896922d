"""Warnings that name the line of the user's program which led to them, however deep they arise."""

import sys
import warnings

PACKAGE = __name__.partition(".")[0]


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn as `warnings.warn` does, at the call by which the package was entered.

    Python hides a `DeprecationWarning` of a library, and shows one of a user's own program.
    """
    level, entered, frame = 1, 1, sys._getframe()
    while (outer := frame.f_back) is not None:
        level, frame = level + 1, outer
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == PACKAGE:
            entered = level
    warnings.warn(message, category, stacklevel=entered + 1)
