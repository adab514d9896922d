"""The examples in docstrings are true."""

import doctest
import importlib
from pathlib import Path

import pytest

import cagp_dist

PACKAGE = Path(cagp_dist.__file__).parent
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if any(">>>" in line and "+SKIP" not in line for line in path.read_text().splitlines())
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0
    assert results.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = {
        test.name for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples
    }
    for public in ("gp.condition", "gp.posterior_mean", "kernels.Kernel", "gram.tiled.TiledGram"):
        assert f"cagp_dist.{public}" in examples
