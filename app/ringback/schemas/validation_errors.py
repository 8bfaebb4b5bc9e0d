"""Describes validation errors without the rejected values, which may be secrets."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ringback.schemas.fields import WORDS_BY_PATTERN
from ringback.suggestions import suggest_name

LOCATION_LENGTH_MAX: Final = 100
"""Characters of a location: a client's own key is part of it."""
SUGGESTIONS_MAX: Final = 3
"""Unknown members of one request that are compared with the known ones, which takes up to a millisecond each."""

_TYPE_WORDS: Final = (
    (re.compile(r"^Value error, "), ""),
    (re.compile(r"^(Frozenset|Set|List|Tuple) should have "), "A list should have "),
    (re.compile(r"^Dictionary should have "), "An object should have "),
    (re.compile(r"^Value should have "), "It should have "),
    (re.compile(r" after validation(?=, )"), ""),
    (re.compile(r"^Input should be a valid (frozenset|set|list|tuple|sequence)$"), "Input should be a list"),
    (re.compile(r"^Input should be (a valid dictionary|an instance of|an object).*"), "Input should be an object"),
    (re.compile(r"^Input should be None$"), "Input should be null"),
    (re.compile(r"^Input should be True$"), "Input should be true"),
)
"""Pydantic names types of Python, and clients read JSON."""
_PATTERN_MISMATCH: Final = re.compile(r"String should match pattern '(.*)'")


def describe_reason(message: str) -> str:
    """A message of pydantic in the words of JSON."""
    if (mismatch := _PATTERN_MISMATCH.fullmatch(message)) is not None:
        return WORDS_BY_PATTERN.get(mismatch[1], message)
    for pattern, words in _TYPE_WORDS:
        message = pattern.sub(words, message)
    return message


def describe_validation_errors(
    problem: ValidationError, *, root: str = "", errors_max: int = 1, model: type[BaseModel] | None = None
) -> list[str]:
    """The first errors, each as `location: reason`; `root` is the location of the validated value.

    With its `model`, a known member is suggested in the place of an unknown one.
    """
    errors = problem.errors(include_input=False, include_url=False, include_context=False)[:errors_max]
    reasons = describe_reasons(errors, [] if model is None else [model])
    return [
        ": ".join(filter(None, (_join_location(root, error["loc"]), reason)))
        for error, reason in zip(errors, reasons, strict=True)
    ]


def describe_reasons(errors: Iterable[Mapping[str, Any]], types: Sequence[Any], *, prefix_length: int = 0) -> list[str]:
    """The reasons of pydantic's errors in the words of JSON; for an unknown member with the known one that is meant.

    `types` are those of the validated value. `prefix_length` is the number of the first steps of each location that name no
    member: FastAPI begins with the part of the request.
    """
    reasons: list[str] = []
    compared = 0
    for error in errors:
        reason = describe_reason(error["msg"])
        if error["type"] == "extra_forbidden":
            compared += 1
            *path, name = error["loc"][prefix_length:]
            known = _list_members(types, path) if compared <= SUGGESTIONS_MAX else []
            reason = describe_unknown_name(str(name), known)
        reasons.append(reason)
    return reasons


def describe_unknown_name(name: str, known: Iterable[str]) -> str:
    """The reason for an unknown name, with the known name that is meant, or with all of them."""
    names = list(dict.fromkeys(known))
    advice = suggest_name(name, names) or (f" The names are: {', '.join(names)}." if names else "")
    return f"There is no such name.{advice}"


def _list_members(types: Sequence[Any], path: Iterable[int | str]) -> list[str]:
    """The names of the members at this place. A step that is no member is an index, or a tag of a union."""
    models = [each for one in types for each in _find_models(one)]
    for step in path:
        fields = [field for model in models for name, field in _list_fields(model) if name == step]
        models = [each for field in fields for each in _find_models(field.annotation)] if fields else models
    return [name for model in models for name, _ in _list_fields(model)]


def _find_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a type: in a list of them, or a union."""
    if get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _find_models(each)


def _list_fields(model: type[BaseModel]) -> list[tuple[str, Any]]:
    return [(field.alias or name, field) for name, field in model.model_fields.items()]


def _join_location(root: str, steps: tuple[int | str, ...]) -> str:
    return ".".join(str(step) for step in (root, *steps) if step != "")[:LOCATION_LENGTH_MAX]
