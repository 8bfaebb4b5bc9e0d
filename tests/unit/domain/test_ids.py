import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.ids import IdGenerator, is_well_formed_id, ulid
from tests.support.clock import START, FakeClock

DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

instants = st.integers(0, 2**48 - 1)
randomness = st.binary(min_size=16, max_size=16)


def five_bits_of_each(chance: bytes) -> int:
    value = 0
    for byte in chance:
        value = value * 32 + byte % 32
    return value


def decoded(text: str) -> int:
    value = 0
    for digit in text:
        value = value * 32 + DIGITS.index(digit)
    return value


@given(instant=instants, chance=randomness)
def test_a_ulid_holds_its_instant_and_its_randomness(instant: int, chance: bytes) -> None:
    text = ulid(instant, chance)
    assert len(text) == 26
    assert divmod(decoded(text), 2**80) == (instant, five_bits_of_each(chance))


@given(earlier=instants, later=instants, one=randomness, other=randomness)
def test_ids_sort_by_the_millisecond_they_were_made_in(earlier: int, later: int, one: bytes, other: bytes) -> None:
    if earlier < later:
        assert ulid(earlier, one) < ulid(later, other)


def test_a_ulid_is_the_one_that_others_would_make() -> None:
    """The example instant of the ULID specification, whose text begins 01ARZ3NDEK."""
    assert ulid(1469922850259, bytes(16)) == "01ARZ3NDEK0000000000000000"


@pytest.mark.parametrize(
    ("prefix", "make"),
    [
        ("call", IdGenerator.new_call_id),
        ("wh", IdGenerator.new_webhook_id),
        ("evt", IdGenerator.new_event_id),
        ("dlv", IdGenerator.new_delivery_id),
        ("att", IdGenerator.new_attempt_id),
        ("key", IdGenerator.new_key_id),
        ("lease", IdGenerator.new_lease_token),
    ],
)
def test_an_id_says_what_it_names(prefix: str, make: Callable[[IdGenerator], str]) -> None:
    made = make(IdGenerator(FakeClock()))
    assert made.startswith(f"{prefix}_")
    assert is_well_formed_id(prefix, made)
    assert not is_well_formed_id("other", made)


@pytest.mark.requirement("R25")
def test_ids_of_one_millisecond_are_drawn_and_never_counted() -> None:
    drawn = iter([bytes([9] * 16), bytes([1] * 16), bytes([5] * 16)])
    ids = IdGenerator(FakeClock(START), random_bytes=lambda _: next(drawn))
    tails = [decoded(ids.new_call_id().removeprefix("call_")) % 2**80 for _ in range(3)]
    assert tails == [five_bits_of_each(bytes([n] * 16)) for n in (9, 1, 5)]


def test_randomness_is_drawn_for_several_ids_at_once() -> None:
    """Each request to the kernel takes longer than all else of an id."""
    drawn: list[int] = []

    def draw(size: int) -> bytes:
        drawn.append(size)
        return os.urandom(size)

    ids = IdGenerator(FakeClock(START), random_bytes=draw)
    made = {ids.new_delivery_id() for _ in range(65)}
    assert len(made) == 65
    assert drawn == [16 * 64] * 2


def test_a_forked_process_makes_ids_of_its_own() -> None:
    ids = IdGenerator(FakeClock(START))
    ids.new_call_id()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, ids.new_call_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100).decode() != ids.new_call_id()
    os.close(reading)
    os.close(writing)


def test_secrets_have_the_requested_length() -> None:
    assert len(IdGenerator(FakeClock()).random_bytes(24)) == 24


@pytest.mark.parametrize(
    "text",
    [
        "",
        "call",
        "call_",
        "call_01ARZ3NDEK000000000000000",
        "call_01ARZ3NDEK00000000000000000",
        "call_01arz3ndek0000000000000000",
        "call_01ARZ3NDEK000000000000000U",
        "Call_01ARZ3NDEK0000000000000000",
        " call_01ARZ3NDEK0000000000000000",
        "call_01ARZ3NDEK0000000000000000\n",
    ],
)
def test_an_invalid_id_is_not_parsed(text: str) -> None:
    assert not is_well_formed_id("call", text)


@given(text=st.text())
def test_any_text_may_be_parsed(text: str) -> None:
    assert is_well_formed_id("call", text) in {True, False}
