"""``[solver]`` of a job file: a table for each registered solver, made from the settings of its class."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

import pydantic
from pydantic import SerializerFunctionWrapHandler, create_model, model_serializer, model_validator

from cagp_dist.errors import ArgumentError
from cagp_dist.pipeline import SOLVERS, Solver
from cagp_dist.service.jobfile.fields import JobTable

_PLAIN = (int, float, bool, str)
_NOUNS = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}
# The words of `cagp_dist.solvers.setting_metadata` and those of pydantic
_LIMITS = {"least": "ge", "above": "gt", "most": "le", "below": "lt"}


class SolverTable(JobTable):
    """``[solver]``: the name of a solver and its settings."""

    name: str

    def build(self) -> Solver:
        """Build the solver."""
        solver: Callable[..., Solver] = SOLVERS[self.name]
        return solver(**self.model_dump(exclude={"name"}))

    @model_serializer(mode="wrap")
    def _without_what_is_not_asked_for(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave later settings out at their defaults, so that runs keep the names they had before them."""
        settings: dict[str, Any] = dump(self)
        for field in fields(SOLVERS[self.name]):  # type: ignore[arg-type]  # as in `solver_table`
            if field.metadata.get("later") and settings.get(field.name) == field.default:
                settings.pop(field.name, None)
        return settings

    @model_validator(mode="after")
    def _settings_suit_the_class(self) -> Self:
        try:
            self.build()
        except ArgumentError as error:
            raise ValueError(str(error).removesuffix(".")) from error
        return self


def solver_table(name: str, solver: type[Solver]) -> type[SolverTable]:
    """Make the table of a solver from the fields of its class."""
    hints = get_type_hints(solver)
    keys: dict[str, Any] = {"name": (Literal[name], ...)}
    for field in fields(solver):  # type: ignore[arg-type]  # Solver is a protocol, of dataclasses
        if field.metadata.get("job", True) and _plain(hints[field.name]) is not None:
            keys[field.name] = _key(field, hints[field.name])
    return create_model(
        f"{solver.__name__}Table",
        __base__=SolverTable,
        __module__=__name__,
        __doc__=(solver.__doc__ or name).partition("\n")[0],
        **keys,
    )


def _key(field: "Field[Any]", hint: Any) -> tuple[Any, Any]:
    """Type and default of a key of the table, as pydantic takes them."""
    metadata: Mapping[str, Any] = field.metadata
    limits: dict[str, Any] = {_LIMITS[word]: metadata[word] for word in _LIMITS if word in metadata}
    described = pydantic.Field(
        description=metadata.get("description") or _words(hint) or _expected(_plain(hint), metadata),
        examples=[metadata["example"]] if "example" in metadata else None,
        **limits,
    )
    default = metadata.get("job_default", field.default)
    return Annotated[_of_job(hint), described], (... if default is MISSING else default)


def _plain(hint: Any) -> type | None:
    """Give the plain type that a setting is of, or may be of beside others; None if there is no such type."""
    if get_origin(hint) is Literal:
        return str
    plain = [option for option in get_args(hint) or (hint,) if option in _PLAIN]
    return plain[0] if len(plain) == 1 else None


def _of_job(hint: Any) -> Any:
    """Leave out of the type of a setting what a job file cannot hold."""
    kind = _plain(hint)
    odd = [option for option in get_args(hint) if option not in (kind, type(None))]
    return (
        hint if get_origin(hint) is Literal or all(get_origin(option) is Literal for option in odd) else kind
    )


def _words(hint: Any) -> str:
    """Say which words a setting may be, if it is one of a few."""
    return ", ".join(f'"{word}"' for word in get_args(hint)) if get_origin(hint) is Literal else ""


def _expected(kind: type | None, metadata: Mapping[str, Any]) -> str:
    """Say what is expected, from the type and the limits: "a number above 0 and below 2"."""
    words = {"least": "of at least", "above": "above", "most": "of at most", "below": "below"}
    limits = [f"{words[word]} {metadata[word]:g}" for word in words if word in metadata]
    if kind is int:  # the largest count is no more than a guard
        limits = limits[:1]
    return f"{_NOUNS[kind or str]} {' and '.join(limits)}".rstrip()


class AutoTable(JobTable):
    """``[solver]`` of a job that leaves the choice: made once its points are known."""

    name: Literal["auto"] = "auto"

    def build(self) -> Solver | None:
        """Give no solver: it follows from the points."""
        return None


SOLVER_TABLES: Mapping[str, type[SolverTable]] = MappingProxyType(
    {name: solver_table(name, solver) for name, solver in SOLVERS.items()}
)

if TYPE_CHECKING:
    AnySolverTable = AutoTable | SolverTable
else:
    AnySolverTable = Union[(AutoTable, *SOLVER_TABLES.values())]
