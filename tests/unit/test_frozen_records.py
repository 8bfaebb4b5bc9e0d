"""The fast constructor of frozen records."""

from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from ringback.frozen_records import fast_constructor


@fast_constructor
@dataclass(frozen=True, slots=True)
class Place:
    city: str
    street: str = "High Street"
    tags: list[str] = field(default_factory=list[str])
    number: int = field(kw_only=True, default=1)


def test_a_record_is_built_from_its_arguments_and_the_defaults_of_its_fields() -> None:
    place = Place("Oslo", number=7)

    assert (place.city, place.street, place.tags, place.number) == ("Oslo", "High Street", [], 7)
    assert replace(place, street="Low Street") == Place("Oslo", "Low Street", number=7)
    assert type(place) is Place
    assert place.tags is not Place("Oslo").tags


@fast_constructor
@dataclass(frozen=True, slots=True)
class NamedPlace(Place):
    name: str = ""


def test_a_record_may_have_a_frozen_base_class() -> None:
    place = NamedPlace("Oslo", "Low Street", ["old"], "home", number=7)

    assert place == replace(NamedPlace("Oslo"), street="Low Street", tags=["old"], name="home", number=7)
    with pytest.raises(FrozenInstanceError):
        place.city = "Bergen"  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue] - what is tested


def test_a_built_record_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Place("Oslo").city = "Bergen"  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue] - what is tested


def test_arguments_are_those_of_the_fields() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'city'"):
        Place()  # pyright: ignore[reportCallIssue] - what is tested
    with pytest.raises(TypeError, match="unexpected keyword argument 'planet'"):
        Place("Oslo", planet="Mars")  # pyright: ignore[reportCallIssue] - what is tested
    with pytest.raises(TypeError, match="positional arguments"):
        Place("Oslo", "Low Street", [], 7)  # pyright: ignore[reportCallIssue] - what is tested


def test_records_without_slots_or_with_more_to_construct_are_refused() -> None:
    with pytest.raises(TypeError, match="needs slots"):
        fast_constructor(dataclass(frozen=True)(type("Loose", (), {})))

    @dataclass(frozen=True, slots=True)
    class Checked:
        city: str

        def __post_init__(self) -> None:
            """A check would be here."""

    with pytest.raises(TypeError, match="nothing to do after"):
        fast_constructor(Checked)
