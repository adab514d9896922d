"""Every key of a job file as Markdown, made from the tables that check job files: type, default and meaning.

The meaning of a key is the text below it in the source; of a setting of a solver, what the docstring of its
class says of it.
"""

import ast
import inspect
import json
import re
import textwrap
import typing
from collections.abc import Iterator

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cagp_dist.pipeline import SOLVERS
from cagp_dist.service.jobfile.fields import JobTable
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.jobfile.solver_table import SolverTable

NAMES = {str: "text", bool: "true or false", int: "integer", float: "number", tuple: "list", list: "list"}
# Words of what is expected that say what else a key may hold
SAID = {"list": r"a list|arguments", "table": r"a table|\{ ", "text": r"^the name of|a command"}


def tables_in(annotation: object) -> list[type[JobTable]]:
    """Tables inside a type, in order."""
    if isinstance(annotation, type) and issubclass(annotation, JobTable):
        return [annotation]
    return [table for part in typing.get_args(annotation) for table in tables_in(part)]


def sections() -> dict[str, list[type[JobTable]]]:
    """Tables of each section: several where it may be one of some kinds."""
    return {name: tables_in(field.annotation) for name, field in Job.model_fields.items()}


def type_of(field: FieldInfo) -> str:
    """What a key holds in TOML: "integer", "number or text"."""
    kinds = [*_kinds(field.annotation), *(type(each) for each in field.examples or ())]
    names = [NAMES.get(kind, "table") for kind in kinds]
    said = field.description or ""
    names += [name for name, word in SAID.items() if re.search(word, said)]
    if "number" in names:  # which an integer is, too
        names = [name for name in names if name != "integer"]
    return " or ".join(dict.fromkeys(names))


def _kinds(annotation: object) -> Iterator[type]:
    """Types of a key as Python has them."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from _kinds(parts[0])
    elif origin is typing.Literal:
        yield from {type(part): None for part in parts}
    elif origin in (tuple, list, dict):
        yield origin
    elif parts:
        for part in parts:
            yield from _kinds(part)
    elif isinstance(annotation, type) and annotation is not type(None):
        yield annotation


def default_of(field: FieldInfo) -> str:
    """The default as TOML has it."""
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None:
        return "may be left out"
    value = field.default
    return f"`{toml(value.model_dump(exclude_defaults=True) if isinstance(value, JobTable) else value)}`"


def toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(item) for item in value)}]"
    return json.dumps(value, default=str)


def meaning_of(table: type[JobTable], key: str) -> str:
    """What a key is for; empty where what is expected says it."""
    if issubclass(table, SolverTable):
        return "" if key == "name" else _of_parameters(SOLVERS[_name_of(table)], key)
    for owner in table.__mro__:
        if owner is not JobTable and issubclass(owner, JobTable) and key in owner.__annotations__:
            return _below_keys(owner).get(key, "")
    return ""


def _name_of(table: type[JobTable]) -> str:
    """Name of the solver of a table."""
    return str(typing.get_args(table.model_fields["name"].annotation)[0])


def _below_keys(table: type[JobTable]) -> dict[str, str]:
    """Texts that stand below the keys of a table in its source."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(table))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        key.target.id: " ".join(str(text.value.value).split())
        for key, text in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(key, ast.AnnAssign)
        and isinstance(key.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def _of_parameters(solver: type, key: str) -> str:
    """First sentence of what a class, or one that it is made from or names, says of a setting."""
    for owner in solver.__mro__:
        text = inspect.cleandoc(owner.__doc__ or "")
        found = re.search(rf"^(?:\w+, )*{key}(?:, \w+)*(?: : .*)?\n((?: {{4}}.*\n?)+)", text, re.MULTILINE)
        if found is not None:
            said = " ".join(found[1].split())
            if other := re.match(r"As (?:of|for) `(\w+)`", said):
                named = next((each for each in SOLVERS.values() if each.__name__ == other[1]), object)
                if further := _of_parameters(named, key):
                    return further
            return plain(re.split(r"(?<=[a-z`)\]])\. (?=[A-Z\"])", said)[0].rstrip(".") + ".")
    return ""


def plain(text: str) -> str:
    """A docstring in Markdown."""
    return text.replace("``", "`")


def rows(table: type[JobTable]) -> Iterator[str]:
    """Markdown of the keys of a table."""
    yield "| key | type | default | meaning | example |"
    yield "|---|---|---|---|---|"
    for key, field in table.model_fields.items():
        example = f"`{toml(field.examples[0])}`" if field.examples else ""
        cells = f"`{key}`", type_of(field), default_of(field), text_of(table, key, field), example
        yield f"| {' | '.join(cells)} |"


def text_of(table: type[JobTable], key: str, field: FieldInfo) -> str:
    """What a key is for and what is expected, in one or two sentences."""
    expected = field.description or ""
    if typing.get_origin(field.annotation) is typing.Literal and not expected:
        expected = " or ".join(f'"{word}"' for word in typing.get_args(field.annotation))
    meaning = meaning_of(table, key)
    if expected in ("", type_of(field), "the name of a column") and meaning:
        return meaning
    said = f"{meaning} Expected: {expected}" if meaning else f"{expected[:1].upper()}{expected[1:]}"
    return said.rstrip(".") + "."


def markdown() -> str:
    """The list of all sections and their keys."""
    lines: list[str] = []
    for name, tables in sections().items():
        lines += [f"## [{name}]", ""]
        for table in tables:
            if len(tables) > 1:
                chosen = " The default." if isinstance(Job.model_fields[name].default, table) else ""
                lines += [f'**`name = "{_name_of(table)}"`**. {plain(_summary(table))}{chosen}', ""]
            lines += [*rows(table), ""]
            inside = [inner for field in table.model_fields.values() for inner in tables_in(field.annotation)]
            for inner in dict.fromkeys(inside):
                lines += [plain(_summary(inner)), "", *rows(inner), ""]
    return "\n".join(lines)


def _summary(table: type[JobTable]) -> str:
    return (table.__doc__ or "").split("\n")[0]
