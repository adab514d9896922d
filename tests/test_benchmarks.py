"""The measured cases of `make bench` are there."""

import ast
from pathlib import Path

import pytest

from pipelines import benchmarks
from pipelines.benchmarks.cases import CASES, LARGE


def test_each_case_is_a_function_of_its_module():
    """Read, not imported: some of them need other programs."""
    folder = Path(benchmarks.__file__).parent
    for name, module in CASES.items():
        body = ast.parse((folder / f"{module}.py").read_text()).body
        assert name in {each.name for each in body if isinstance(each, ast.FunctionDef)}, name


@pytest.mark.parametrize("name", LARGE)
def test_those_that_are_run_on_request_are_cases(name):
    assert name in CASES
