"""Mutants are one small mistake each, in source that is otherwise the same."""

import ast

from .mutants import ROOT, TESTS, mutants

SOURCE = """
def f(a, b, n):
    if not a and b <= n:
        return [a + 1, b * 2.0]
    return -a is not None
"""


def test_each_mistake_is_made_once_and_alone():
    made = list(mutants(SOURCE))
    assert {(line, change) for line, change, _ in made} == {
        (3, "not a  ->  +a"),
        (3, "b <= n  ->  b > n"),
        (4, "a + 1  ->  a - 1"),
        (4, "b * 2.0  ->  b / 2.0"),
        (4, "1  ->  2"),
        (5, "-a is not None  ->  -a is None"),
    }
    original = ast.unparse(ast.parse(SOURCE)).splitlines()
    for line, _, source in made:
        differing = [
            number
            for number, (before, after) in enumerate(zip(original, source.splitlines(), strict=True), start=2)
            if before != after
        ]
        assert differing == [line]


def test_the_same_source_gives_the_same_mutants():
    assert list(mutants(SOURCE)) == list(mutants(SOURCE))


def test_modules_and_the_tests_that_answer_for_them_are_there():
    for module, tests in TESTS.items():
        assert (ROOT / module).is_file()
        assert all((ROOT / "tests" / name).is_file() for name in tests)
