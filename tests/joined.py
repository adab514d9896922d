"""Cases of one test that are done one after the other: a test by itself costs more than a small problem."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def joined(
    names: Sequence[str], groups: Mapping[str, Iterable], *, fixtures: Mapping[str, Sequence] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Parametrise a test by groups of cases; what a case raises says which one it is.

    Parameters
    ----------
    names : sequence of str
        Arguments of the test that the values of a case are.
    groups : mapping of str to iterable of ParameterSet
        Cases made by ``pytest.param``, with their names as ids; those of a group have the same marks.
    fixtures : mapping of str to sequence, optional
        Fixtures that the test takes beside them, with a parameter for each group.
    """
    fixtures = fixtures or {}
    parameters = [
        pytest.param(*given, tuple(cases), id=name, marks=cases[0].marks)
        for (name, cases), *given in zip(groups.items(), *fixtures.values(), strict=True)
    ]

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def one_by_one(cases: tuple, **others: Any) -> None:
            for case in cases:
                try:
                    test(**others, **dict(zip(names, case.values, strict=True)))
                except BaseException as error:
                    error.add_note(f"This is the case {name_of(case)}.")
                    raise

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        others = [name for name in inspect.signature(test).parameters if name not in names]
        one_by_one.__signature__ = inspect.Signature(
            [inspect.Parameter(name, kind) for name in ("cases", *others)]
        )
        return pytest.mark.parametrize((*fixtures, "cases"), parameters, indirect=[*fixtures])(one_by_one)

    return decorated


def in_turn(cases: Iterable, size: int = 9) -> dict[str, list]:
    """Groups of at most so many cases in their order, those of every run and the exhaustive ones apart."""
    groups: dict[str, list] = {}
    known = [case if isinstance(case, ParameterSet) else pytest.param(*case) for case in cases]
    for exhaustive in (False, True):
        alike = [case for case in known if any(m.name == "exhaustive" for m in case.marks) == exhaustive]
        for start in range(0, len(alike), size):
            group = alike[start : start + size]
            name = f"{name_of(group[0])} to {name_of(group[-1])}"
            groups[name if name not in groups else f"{name}, {len(groups)}"] = group
    return groups


def name_of(case: ParameterSet) -> str:
    """The id of a case, or its values."""
    return str(case.id or "-".join(map(str, case.values)))


def one_after_another(test: Callable[..., None]) -> Callable[..., None]:
    """Join the cases of a test that `pytest.mark.parametrize` makes: one test does up to thirty of them.

    Fixtures of the test are made once for all of these.
    """
    marks = [mark for mark in vars(test).get("pytestmark", []) if mark.name == "parametrize"]
    test.__dict__["pytestmark"] = [mark for mark in test.__dict__["pytestmark"] if mark not in marks]
    names: list[str] = []
    cases = [pytest.param(id="")]
    for mark in reversed(marks):
        argument, values = mark.args
        new = [name.strip() for name in argument.split(",")] if isinstance(argument, str) else list(argument)
        spelled = mark.kwargs.get("ids") or [None] * len(values)
        ids = list(map(spelled, values)) if callable(spelled) and len(new) == 1 else spelled
        added = []
        for value, name in zip(values, [None] * len(values) if callable(ids) else ids, strict=True):
            known = value if isinstance(value, ParameterSet) else None
            alone = known.values if known else (value,) if len(new) == 1 else tuple(value)
            values_of = "-".join(re.sub(" at 0x[0-9a-f]+", "", str(each)) for each in alone)
            said = str((known and known.id) or name or values_of)
            added.append(pytest.param(*alone, id=said, marks=known.marks if known else ()))
        cases = [
            pytest.param(
                *one.values, *more.values, id=f"{one.id} {more.id}".strip(), marks=(*one.marks, *more.marks)
            )
            for one in cases
            for more in added
        ]
        names += new
    return joined(names, in_turn(cases, 30))(test)


def _both(one: ParameterSet, more: ParameterSet) -> ParameterSet:
    """A case of the values of both."""
    name = f"{one.id} {more.id}".strip()
    return pytest.param(*one.values, *more.values, id=name, marks=(*one.marks, *more.marks))
