"""Which tests of which solvers are quick, and where identities are tested."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial

import pytest

from .places import Place, opened, place
from .registered import FURTHER, QUICK


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the other tests of other orders and preconditioners to the exhaustive run."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if (
            callspec is None
            or "cases" in callspec.params
            or item.path.parent.name != "conformance"
            or item.name.startswith(QUICK)
        ):
            continue
        if item.path.name.startswith("test_identities"):
            continue
        if any(name in callspec.id for name in FURTHER):
            item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(scope="module")
def places(request) -> Iterator[Callable[[str, str], Place]]:
    """Each Gram matrix on each executor, made when it is first asked for; it remembers its solves."""
    with ExitStack() as stack:
        client = partial(request.getfixturevalue, "two_dask_workers")
        executors = cache(lambda name: stack.enter_context(opened(name, client)))
        yield cache(lambda gram, executor: place(gram, executors(executor)))


@pytest.fixture
def where(request, places) -> Place:
    """The Gram matrix and the executor of a test."""
    return places(*request.param)
