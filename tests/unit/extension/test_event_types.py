"""What an author declares: names, schemas, valid data, and which arguments match."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_type

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ringback.domain.event_types import DATA_LEVELS_MAX, RESERVED_PREFIXES
from ringback.extension import Events
from ringback.extension.events.event_types import TYPES_MAX, DeclaredEventType, DeclaredEventTypes


class Paid(BaseModel):
    amount: float
    items: list[dict[str, Any]] = []
    is_gift: bool = False


class PaidArguments(BaseModel):
    amount: int | None = None
    is_gift: bool | None = None
    items: list[dict[str, Any]] | None = None


def declare(payload: type[Any] = Paid, **options: Any) -> DeclaredEventType:
    types = DeclaredEventTypes()
    declared: dict[str, Any] = {
        "name": "order.paid",
        "description": "x",
        "arguments": PaidArguments,
        "matches": None,
        **options,
    }
    types.declare(payload, **declared)
    found = types.get(declared["name"])
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["paid", "Order.Paid", "order.", ".paid", "order paid.x", "o" * 200 + ".x"])
def test_a_name_without_words_and_dots_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"order\.shipped"):
        declare(name=name)


def test_the_schemas_of_a_type_are_made_once_however_often_clients_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = declare()

    def make_schema(*_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError("It takes milliseconds of all clients.")

    monkeypatch.setattr(TypeAdapter, "json_schema", make_schema)

    assert declared.payload_schema["type"] == declared.input_schema["type"] == "object"
    assert declared.find_argument_error({"unknown": 1}) is not None


@pytest.mark.parametrize("prefix", RESERVED_PREFIXES)
def test_a_reserved_name_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="begins with"):
        declare(name=f"{prefix}mine")


def test_a_class_without_members_is_refused() -> None:
    with pytest.raises(ValueError, match="a class with members"):
        declare(list[int])


def test_a_name_and_a_class_are_declared_once_and_their_number_is_bounded() -> None:
    types = DeclaredEventTypes()
    for number in range(TYPES_MAX):
        types.declare(
            type(f"P{number}", (BaseModel,), {}), name=f"a.n{number}", description="", arguments=None, matches=None
        )
    for name, message in (("a.n0", "declared already"), ("a.more", str(TYPES_MAX))):
        with pytest.raises(ValueError, match=message):
            types.declare(Paid, name=name, description="", arguments=None, matches=None)


def test_data_that_nests_too_deep_for_its_readers_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(DATA_LEVELS_MAX):
        deep = {"inner": deep}

    with pytest.raises(ValueError, match=str(DATA_LEVELS_MAX)):
        declare().encode_data({"amount": 1, "items": [deep]})


def test_a_dataclass_and_a_typed_dict_are_data_too() -> None:
    @dataclass
    class Record:
        amount: int

    class Mapped(TypedDict):
        amount: int

    assert declare(Record).encode_data(Record(amount=1)) == {"amount": 1}
    assert declare(Mapped).encode_data({"amount": 1}) == {"amount": 1}
    with pytest.raises(ValidationError, match="amount"):
        declare(Mapped).encode_data({"amount": "many"})


@pytest.mark.parametrize("value", ["\ud800", 10**400], ids=["half a character", "too many digits"])
def test_what_cannot_be_written_as_json_is_wrong_data(value: Any) -> None:
    with pytest.raises(ValueError, match=r"'order\.paid' cannot be written as JSON"):
        declare().encode_data(Paid(amount=1, items=[{"value": value}]))


@pytest.mark.parametrize(
    ("arguments", "matches"),
    [
        ({}, True),
        ({"amount": 1}, True),
        ({"amount": 1.0}, True),
        ({"amount": 2}, False),
        ({"amount": None}, True),
        ({"amount": True}, False),
        ({"is_gift": 1}, False),
        ({"is_gift": True}, True),
        ({"items": [{"b": 2, "a": 1}]}, True),
        ({"items": [{"a": 1}]}, False),
        ({"colour": "red"}, False),
    ],
)
def test_each_argument_equals_the_member_of_its_name_as_json(arguments: Mapping[str, Any], *, matches: bool) -> None:
    data = {"amount": 1, "is_gift": True, "items": [{"a": 1, "b": 2.0}]}
    assert declare().matches_arguments(arguments, data) is matches


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, None),
        ({"amount": 1}, None),
        ({"amount": "1"}, "arguments.amount"),
        ({"amount": True}, "arguments.amount"),
        ({"colour": "red"}, "arguments.colour"),
        ({"x" * 5000: 1}, "arguments.xxx"),
    ],
)
def test_arguments_of_another_type_or_name_are_refused_with_their_place(
    arguments: Mapping[str, Any], problem: str | None
) -> None:
    found = declare().find_argument_error(arguments)
    assert (
        (found is None) if problem is None else (found is not None and found.startswith(problem) and len(found) < 400)
    )


@pytest.mark.parametrize(("amount", "is_integer"), [(3.0, True), (-0.0, True), (3.5, False), (1e300, False)])
def test_an_integer_argument_may_be_written_with_a_fraction_of_zero(amount: float, *, is_integer: bool) -> None:
    """1.0 is an integer in JSON Schema (§4.2.3), and the inputSchema that clients get says `integer`."""
    declared = declare()

    assert (declared.find_argument_error({"amount": amount}) is None) is is_integer
    assert (declared.find_argument_error({"items": [{"n": amount}]}) is None) is True


def test_without_arguments_a_type_accepts_none() -> None:
    declared = declare(arguments=None)
    assert declared.find_argument_error({}) is None
    assert declared.find_argument_error({"amount": 1}) is not None


def test_a_decorated_class_keeps_its_type_and_a_rule_gets_typed_arguments() -> None:
    events = Events.in_memory()

    def is_large(arguments: PaidArguments, data: Mapping[str, Any]) -> bool:
        return bool(data["amount"] >= (arguments.amount or 0))

    @events.type("order.paid", description="An order was paid.", arguments=PaidArguments, matches=is_large)
    class Declared(BaseModel):
        amount: float

    assert_type(Declared, type[Declared])
    assert_type(Declared(amount=1).amount, float)
