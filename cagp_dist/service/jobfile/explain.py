"""Validation errors of the job file as sentences: where, what came, what is expected, an example."""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.values import resembling
from cagp_dist.text import without_secrets

_MOST_ERRORS = 8

_OTHER_WORDS = {"region": "area"}  # Words for keys that are spelled otherwise here

# Keys of earlier versions, and what to write instead
_GONE = {"[output] keep.pack": values.NO_PACK, "[prior] persistence": values.NO_PERSISTENCE}


def explain_mistakes(
    model: type[BaseModel], tables: Mapping[str, object], error: ValidationError, *, name: str
) -> str:
    """One block of text that names every mistake in a job file."""
    sentences = list(
        dict.fromkeys(without_secrets(_sentence(model, tables, item)) for item in error.errors())
    )
    if len(sentences) == 1:
        return f"{name}: {sentences[0]}"
    shown = [f"  - {sentence}" for sentence in sentences[:_MOST_ERRORS]]
    if len(sentences) > _MOST_ERRORS:
        shown.append(f"  - and {len(sentences) - _MOST_ERRORS} more")
    return "\n".join([f"{name} has {len(sentences)} mistakes:", *shown])


def first_place(model: type[BaseModel], error: ValidationError) -> str:
    """Key or table of the first mistake, such as ``design.map``."""
    return ".".join(_locate(model, error.errors()[0]["loc"])[2]) or "job"


def _sentence(model: type[BaseModel], tables: Mapping[str, object], error: ErrorDetails) -> str:
    owner, field, keys = _locate(model, error["loc"])
    inside_array = isinstance(error["loc"][-1], int)
    came = _value(tables, keys) if inside_array else error["input"]
    place, kind = _place(keys), "array" if inside_array else error["type"]
    if kind == "extra_forbidden" and place in _GONE:
        return f"{place}: {_GONE[place]}."
    if kind == "extra_forbidden":
        valid = list(owner.model_fields)
        noun = "table" if len(keys) == 1 and isinstance(came, Mapping) else "key"
        close = resembling(_OTHER_WORDS.get(keys[-1], keys[-1]), valid)
        return f"unknown {noun} {place}{close}; valid here: {', '.join(valid)}."
    if kind == "missing":
        return f"{place} is missing: expected {_expected(field)}."
    if kind == "value_error":
        said = error["ctx"]["error"]
        return f"{place}: {said}." if isinstance(came, Mapping) else f"{place} = {_toml(came)}: {said}."
    if kind in ("union_tag_invalid", "union_tag_not_found") and field is not None:
        return _wrong_tag(field, keys, came)
    close = resembling(came, _words(field)) if isinstance(came, str) else ""
    return f"{place} = {_toml(came)} is not allowed; expected {_expected(field)}{close}."


def _wrong_tag(field: FieldInfo, keys: Sequence[str], came: object) -> str:
    """Say which kinds a table may be of, when its kind is missing or unknown."""
    tag = str(field.discriminator)
    tags = [_words(member.model_fields[tag])[0] for member in _models(field)]
    place = _place([*keys, tag])
    expected = f"expected {_one_of(tags)}"
    word = came.get(tag) if isinstance(came, Mapping) else None
    if word is None:
        return f"{place} is missing; {expected}."
    close = resembling(word, tags) if isinstance(word, str) else ""
    return f"{place} = {_toml(word)} is not allowed; {expected}{close}."


def _locate(
    model: type[BaseModel], location: Sequence[int | str]
) -> tuple[type[BaseModel], FieldInfo | None, list[str]]:
    """Find the model and field an error refers to, and the keys that lead there."""
    owner: type[BaseModel] = model
    field: FieldInfo | None = None
    keys: list[str] = []
    members: tuple[type[BaseModel], ...] = (model,)
    for step in location:
        if isinstance(step, int) or not members:
            break  # an item of an array, or a kind of value: the key says enough
        chosen = [
            member for member in members if any(step in _words(of) for of in member.model_fields.values())
        ]
        if len(members) > 1 and chosen:  # pydantic names the chosen member of a union by its tag
            members = tuple(chosen)
            continue
        owner = members[0]
        field = owner.model_fields.get(step)
        keys.append(step)
        members = _models(field) if field is not None else ()
    return owner, field, keys


def _models(field: FieldInfo) -> tuple[type[BaseModel], ...]:
    options = get_args(field.annotation) or (field.annotation,)
    return tuple(item for item in options if isinstance(item, type) and issubclass(item, BaseModel))


def _words(field: FieldInfo | None) -> list[str]:
    """List the words a field may hold, if it holds one of a few."""
    if field is None or get_origin(field.annotation) is not Literal:
        return []
    return [str(word) for word in get_args(field.annotation)]


def _value(tables: Mapping[str, object], keys: Sequence[str]) -> object:
    value: object = tables
    for key in keys:
        value = value[key] if isinstance(value, Mapping) else value
    return value


def _place(keys: Sequence[str]) -> str:
    """``[solver] iterations``, ``[design] train.count`` or ``[solver]``."""
    return f"[{keys[0]}]" + (f" {'.'.join(keys[1:])}" if len(keys) > 1 else "")


def _expected(field: FieldInfo | None) -> str:
    """Describe what a field holds, with the words it may hold or an example."""
    if field is None:
        return "a table"
    if words := _words(field):
        return _one_of(words)
    example = f", for example {_toml(field.examples[0])}" if field.examples else ""
    return f"{field.description}{example}"


def _one_of(words: Sequence[str]) -> str:
    quoted = [_toml(word) for word in words]
    return quoted[0] if len(quoted) == 1 else f"one of {', '.join(quoted)}"


def _toml(value: object) -> str:
    """Write a value as TOML would, shortened, and addresses without what might be a password."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = f'"{without_secrets(value, value)}"'
    elif isinstance(value, Mapping):
        text = "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(_toml(item) for item in value) + "]"
    else:
        text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
