"""Quicker constructors of frozen records."""

import inspect
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from ringback.domain.call import Call
from ringback.domain.delivery import Delivery
from ringback.domain.record_inits import quick_init


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plain:
    name: str
    count: int = 7
    notes: dict[str, int] = field(default_factory=dict[str, int])


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class _Quick:
    name: str
    count: int = 7
    notes: dict[str, int] = field(default_factory=dict[str, int])


@pytest.mark.parametrize("values", [{"name": "a"}, {"name": "a", "count": 0}, {"name": "a", "notes": {"b": 1}}])
def test_a_record_has_the_values_that_dataclasses_would_give_it(values: Mapping[str, Any]) -> None:
    plain, quick = _Plain(**values), _Quick(**values)
    assert [getattr(quick, each.name) for each in fields(_Quick)] == [
        getattr(plain, each.name) for each in fields(_Plain)
    ]
    assert quick == _Quick(**values)
    assert hash(replace(quick, notes=())) == hash(replace(quick, notes=()))  # pyright: ignore[reportArgumentType]


def test_each_record_has_a_default_of_its_own() -> None:
    assert _Quick(name="a").notes is not _Quick(name="b").notes


def test_the_signature_is_that_of_dataclasses() -> None:
    plain, quick = inspect.signature(_Plain), inspect.signature(_Quick)
    assert list(quick.parameters) == list(plain.parameters)
    assert [each.kind for each in quick.parameters.values()] == [each.kind for each in plain.parameters.values()]
    with pytest.raises(TypeError, match="name"):
        _Quick()  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="unknown"):
        _Quick(name="a", unknown=1)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("record", [_Quick, Call, Delivery])
def test_the_constructor_sets_slots_and_looks_up_no_field(record: type[Any]) -> None:
    assert "__setattr__" not in record.__init__.__code__.co_names


def test_a_record_stays_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        _Quick(name="a").name = "b"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_record_that_does_more_when_it_is_made_is_refused() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Checked:
        name: str

        def __post_init__(self) -> None:
            raise ValueError

    with pytest.raises(TypeError, match="Checked"):
        quick_init(Checked)


def test_a_record_with_positional_fields_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Positional:
        name: str

    with pytest.raises(TypeError, match="Positional"):
        quick_init(Positional)
