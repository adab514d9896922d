"""How far a whole job travels: most functions take what they need of it, and so can be used without one."""

import ast
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "cagp_dist"
JOBS = {"Job": "service.jobfile.job", "PreparedJob": "service.task"}
NAMES = {"job", "task"}


class Pass(NamedTuple):
    """A job that goes from a function of one module into one of another, as an argument or as self."""

    module: str
    into: str
    line: int


def test_few_functions_take_a_whole_job() -> None:
    passes = list(all_passes())
    level = levels(passes, start="service.run")
    back = [one for one in passes if level.get(one.into, 0) < level.get(one.module, 0)]
    reached = {module for one in passes for module in (one.module, one.into)}
    found = len(passes), len(reached), len(back)
    assert all(count <= most for count, most in zip(found, (90, 30, 12), strict=True)), found


def all_passes() -> Iterator[Pass]:
    """Find where a job is an argument of a call into another module, or a method of it is called.

    A cached property is a value of the job like any other: it is worked out once.
    """
    trees = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text())
        for path in PACKAGE.rglob("*.py")
    }
    methods = {
        item.name: home
        for name, home in JOBS.items()
        for node in trees[home].body
        if isinstance(node, ast.ClassDef) and node.name == name
        for item in node.body
        if isinstance(item, ast.FunctionDef)
        and "cached_property" not in map(ast.unparse, item.decorator_list)
    }
    for module, tree in trees.items():
        origin = {
            alias.asname or alias.name: node.module.removeprefix("cagp_dist.")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cagp_dist.")
            for alias in node.names
        }
        jobs = {*NAMES, *_annotated(tree)}
        for node in ast.walk(tree):
            into = module
            if isinstance(node, ast.Call):
                called, given = node.func, [*node.args, *(keyword.value for keyword in node.keywords)]
                if isinstance(called, ast.Name) and called.id == "partial" and node.args:
                    called = node.args[0]
                if any(isinstance(one, ast.Name) and one.id in jobs for one in given):
                    into = origin.get(_root(called), module)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                into = methods.get(node.attr, module) if node.value.id in jobs else module
            if into != module:
                yield Pass(module, into, node.lineno)


def levels(passes: list[Pass], *, start: str) -> dict[str, int]:
    """How many calls each module is from where a job begins, at least."""
    found, pending = {start: 0}, deque([start])
    while pending:
        module = pending.popleft()
        for into in sorted({one.into for one in passes if one.module == module} - found.keys()):
            found[into] = found[module] + 1
            pending.append(into)
    return found


def _annotated(tree: ast.Module) -> set[str]:
    arguments = [node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.annotation]
    return {one.arg for one in arguments if ast.unparse(one.annotation).strip("'\"") in JOBS}


def _root(called: ast.expr) -> str:
    while isinstance(called, ast.Attribute):
        called = called.value
    return called.id if isinstance(called, ast.Name) else ""
