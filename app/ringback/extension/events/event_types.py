"""The event types that a server declares: their names, their schemas, and which subscriptions an event matches."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from ringback.domain import jsontext
from ringback.domain.event_types import DATA_LEVELS_MAX, OWN_NAME_LENGTH_MAX, RESERVED_PREFIXES, is_publishable_name
from ringback.schemas.validation_errors import describe_validation_errors

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A")

DATA_BYTES_MAX: Final = 65_536
"""The largest `data` of an event as JSON: a quarter of the largest body of a callback (mcp-events §8)."""
TYPES_MAX: Final = 200
"""Event types of one server. `events/list` answers with one page."""
_EXACT_INTEGER_MAX: Final = 2**53
"""Above it, a number with a fraction is no exact integer."""

Matches = Callable[[Any, Mapping[str, Any]], bool]
"""Whether an event's data matches a subscription's arguments."""
NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, kw_only=True)  # a class with slots has no cached properties
class DeclaredEventType:
    """One declared type. `payload` validates what the author emits; `arguments` validates what a client subscribes with.

    Its schemas are made once: that takes pydantic milliseconds, and each poll needs both, a list those of all types.
    """

    name: str
    description: str
    payload: TypeAdapter[Any]
    arguments: TypeAdapter[Any] | None
    matches: Matches | None

    @cached_property
    def payload_schema(self) -> dict[str, Any]:
        return self.payload.json_schema(mode="serialization")

    @cached_property
    def input_schema(self) -> Mapping[str, Any]:
        if self.arguments is None:
            return NO_ARGUMENTS
        return {"additionalProperties": False, **self.arguments.json_schema(mode="validation")}

    def encode_data(self, data: Any) -> dict[str, Any]:
        """The event's `data` as JSON. Raises pydantic's ValidationError, or ValueError: no object, no JSON, or too large."""
        validated = self.payload.validate_python(data)
        encoded = self.payload.dump_python(validated, mode="json", by_alias=True)
        if not isinstance(encoded, dict):
            raise ValueError(f"The data of '{self.name}' must be a JSON object, not {type(encoded).__name__}.")  # noqa: TRY004 - its content is wrong
        try:
            size = len(jsontext.dumps(encoded))
        except TypeError as problem:
            raise ValueError(f"The data of '{self.name}' cannot be written as JSON: {problem}.") from None
        if size > DATA_BYTES_MAX:
            raise ValueError(
                f"The data of '{self.name}' has {size} bytes of JSON. At most {DATA_BYTES_MAX} are allowed."
            )
        if jsontext.nests_deeper(cast("dict[str, Any]", encoded), DATA_LEVELS_MAX):
            raise ValueError(f"The data of '{self.name}' nests deeper than {DATA_LEVELS_MAX} levels.")
        return cast("dict[str, Any]", encoded)

    def find_argument_error(self, arguments: Mapping[str, Any]) -> str | None:
        """Why a client may not subscribe with these arguments; None if it may. JSON types count: "1" is no integer."""
        known = cast("Mapping[str, Any]", self.input_schema.get("properties") or {})
        if self.input_schema.get("additionalProperties") is False and (unknown := sorted(arguments.keys() - known)):
            return f"arguments.{unknown[0][:OWN_NAME_LENGTH_MAX]}: There is no such argument. See inputSchema in events/list."
        if self.arguments is None:
            return None
        try:
            self._read_arguments(arguments)
        except ValidationError as problem:
            return describe_validation_errors(problem, root="arguments")[0]
        return None

    def matches_arguments(self, arguments: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
        """Whether a subscription with these arguments gets an event with this data. An error in `matches` counts as False."""
        if self.matches is None:
            given = {name: value for name, value in arguments.items() if value is not None}
            return all(name in data and _equals(value, data[name]) for name, value in given.items())
        try:
            return bool(self.matches(self._read_arguments(arguments), data))
        except Exception:
            log.exception("event.matches_failed", extra={"event_name": self.name})
            return False

    def _read_arguments(self, arguments: Mapping[str, Any]) -> Any:
        """The author's class of arguments; raises ValidationError. Without such a class, the arguments as they are."""
        return (
            arguments
            if self.arguments is None
            else self.arguments.validate_json(jsontext.dumps(_with_integers(arguments)), strict=True)
        )


@dataclass(slots=True)
class DeclaredEventTypes:
    """All types of one server, by their names."""

    _types: dict[str, DeclaredEventType] = field(default_factory=dict[str, DeclaredEventType])
    _names: dict[type, str] = field(default_factory=dict[type, str])
    """The name of each payload class, for `emit` with an instance of it."""

    def __iter__(self) -> Iterator[DeclaredEventType]:
        return iter(self._types.values())

    def get(self, name: str) -> DeclaredEventType | None:
        return self._types.get(name)

    def declare(
        self, payload: type[Any], *, name: str, description: str, arguments: type[Any] | None, matches: Matches | None
    ) -> None:
        """Raises ValueError for a wrong name, a type that is declared already, or too many types."""
        _check_name(name)
        if name in self._types or payload in self._names:
            raise ValueError(f"The event type '{name}', or its class {payload.__name__}, is declared already.")
        if len(self._types) >= TYPES_MAX:
            raise ValueError(f"A server can declare {TYPES_MAX} event types. Distinguish more by a member of the data.")
        declared = DeclaredEventType(
            name=name,
            description=description,
            payload=TypeAdapter(payload),
            arguments=None if arguments is None else TypeAdapter(arguments),
            matches=matches,
        )
        _check_schema(declared)
        self._types[name] = declared
        self._names[payload] = name

    def find(self, event: object) -> DeclaredEventType:
        """The type of a payload object, or of a name. Raises LookupError for one that is not declared."""
        name = event if isinstance(event, str) else self._names.get(type(event))
        found = None if name is None else self._types.get(name)
        if found is None:
            what = f"'{event}'" if isinstance(event, str) else type(event).__name__
            raise LookupError(f"No event type is declared for {what}. Declare it: @events.type('…', description='…')")
        return found


def _check_name(name: str) -> None:
    if not is_publishable_name(name):
        raise ValueError(
            f"'{name}' is no name for an event type. Use a-z, 0-9, '_' and '-' with a dot between words, such as "
            f"'order.shipped'; at most {OWN_NAME_LENGTH_MAX} characters; none that begins with {', '.join(RESERVED_PREFIXES)}."
        )


def _check_schema(declared: DeclaredEventType) -> None:
    """Both schemas must describe objects; a class whose schema cannot be made fails here, at the declaration."""
    for what, schema in (("payload", declared.payload_schema), ("arguments", declared.input_schema)):
        if schema.get("type") != "object":
            raise ValueError(
                f"The {what} of '{declared.name}' must be a class with members: a model, TypedDict or dataclass."
            )


def _with_integers(value: Any) -> Any:
    """The value with 1.0 as 1: it is an integer in JSON Schema (§4.2.3), and in pydantic's strict mode only a number."""
    match value:
        case Mapping():
            return {name: _with_integers(member) for name, member in cast("Mapping[str, Any]", value).items()}
        case list():
            return [_with_integers(each) for each in cast("list[Any]", value)]
        case float() if value.is_integer() and abs(value) <= _EXACT_INTEGER_MAX:
            return int(value)
        case _:
            return value


def _equals(expected: Any, actual: Any) -> bool:
    """Equality of JSON values: 1 equals 1.0, and neither equals true."""
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        first, second = cast("Mapping[str, Any]", expected), cast("Mapping[str, Any]", actual)
        return first.keys() == second.keys() and all(_equals(first[name], second[name]) for name in first)
    if isinstance(expected, list) and isinstance(actual, list):
        items, others = cast("list[Any]", expected), cast("list[Any]", actual)
        return len(items) == len(others) and all(map(_equals, items, others))
    return bool(expected == actual)
