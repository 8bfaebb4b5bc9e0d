"""Checks the URL of a request before pydantic converts it: UTF-8, known names, values as JSON writes them, no parameter twice.

Starlette replaces bytes that are not UTF-8 with U+FFFD, so the request would be about another id or session. Pydantic reads
`1_0`, `+2` and `2.0` as integers, `yes` and `0` as booleans, and of a repeated parameter it takes the last value. A proxy in
front of Ringback could read another number, or the first value. Pydantic refuses unknown names for operations
with a model of their query only.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin
from urllib.parse import unquote_to_bytes

from fastapi.dependencies.models import Dependant
from pydantic.fields import FieldInfo
from starlette.types import Scope

from ringback.api.http_errors import MalformedRequest
from ringback.domain.errors import InvalidRequest
from ringback.domain.jsontext import POINTER_LENGTH_MAX
from ringback.schemas.validation_errors import describe_unknown_name

_INTEGER: Final = re.compile(r"-?[0-9]+")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BOOLEAN: Final = re.compile("true|false")
_NUMBER_ADVICE: Final = "Write the number in decimal digits, such as 10."
_BOOLEAN_ADVICE: Final = "Write true or false."
_NO_PARAMETERS: Final = "This operation has no query parameters. Members of a request go into its JSON body."


@dataclass(frozen=True, slots=True)
class QueryRule:
    """What one parameter may be."""

    text: re.Pattern[str] | None
    """The whole value; None for a parameter that is neither a number nor a boolean."""
    advice: str
    """What to write instead of another value."""
    is_repeatable: bool


def find_query_rules(dependant: Dependant) -> dict[str, QueryRule]:
    """The rules of the parameters of an operation and of its dependencies, by name."""
    rules: dict[str, QueryRule] = {}
    for each in dependant.dependencies:
        rules |= find_query_rules(each)
    for parameter in dependant.query_params:
        members: Mapping[str, FieldInfo] = getattr(parameter.field_info.annotation, "model_fields", {})
        rules |= {info.alias or name: _make_rule(info.annotation) for name, info in members.items()}
        if not members:
            rules[parameter.alias] = _make_rule(parameter.field_info.annotation)
    return rules


def require_utf8_url(scope: Scope) -> None:
    """Raise `MalformedRequest` if the path or the query has bytes that are not UTF-8."""
    for place, encoded in (("path", scope.get("raw_path") or b""), ("query", scope["query_string"])):
        if not _is_utf8(encoded):
            raise MalformedRequest(
                f"The {place} of the URL has bytes that are not UTF-8. Encode its text as UTF-8, then percent-encode it."
            )


def _is_utf8(encoded: bytes) -> bool:
    if b"%" not in encoded and encoded.isascii():
        return True
    try:
        unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        return False
    return True


def require_strict_query(rules: Mapping[str, QueryRule], parameters: Iterable[tuple[str, str]]) -> None:
    """Raise `InvalidRequest` for an unknown name, a value in another form, and a single parameter that is sent twice."""
    values = list(parameters)
    if not values:
        return
    counts = Counter(name for name, _ in values)
    for name, value in values:
        rule = rules.get(name)
        if rule is None:
            raise _refuse(name[:POINTER_LENGTH_MAX], describe_unknown_name(name, rules) if rules else _NO_PARAMETERS)
        if counts[name] > 1 and not rule.is_repeatable:
            raise _refuse(name, "Send this parameter once.")
        if rule.text is not None and rule.text.fullmatch(value) is None:
            raise _refuse(name, rule.advice)


def _refuse(name: str, detail: str) -> InvalidRequest:
    return InvalidRequest(f"{name}: {detail}", errors=[{"parameter": name, "detail": detail}])


def _make_rule(annotation: Any) -> QueryRule:
    types = set(_list_types(annotation))
    text = _BOOLEAN if bool in types else _INTEGER if int in types else _NUMBER if float in types else None
    advice = _BOOLEAN_ADVICE if bool in types else _NUMBER_ADVICE
    return QueryRule(text, advice, is_repeatable=not types.isdisjoint({list, set, frozenset, tuple}))


def _list_types(annotation: Any) -> Iterable[Any]:
    """The types of a union, of which a list counts as `list`, whatever it contains."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _list_types(get_args(annotation)[0])
    elif origin in {Union, UnionType}:
        for each in get_args(annotation):
            yield from _list_types(each)
    else:
        yield origin or annotation
