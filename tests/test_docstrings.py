"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import cagp_dist

MODULES = ["cagp_dist"] + [
    module.name for module in pkgutil.walk_packages(cagp_dist.__path__, prefix="cagp_dist.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = {
        test.name for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples
    }
    for public in ("gp.condition", "gp.posterior_mean", "kernels.Kernel", "gram.tiled.TiledGram"):
        assert f"cagp_dist.{public}" in examples
