import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.jsontext import dumps, dumps_canonical, format_pointer, loads, sha256

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(1 - 10**300, 10**300 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=values)
def test_written_json_is_read_back_unchanged_by_us_and_by_others(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert json.loads(dumps(value)) == value


@given(value=st.dictionaries(st.text(st.characters(codec="utf-8")), values, max_size=6), random=st.randoms())
def test_the_canonical_form_forgets_the_order_of_keys_and_nothing_else(value: dict[str, Any], random: Any) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert dumps_canonical(dict(shuffled)) == dumps_canonical(value)
    assert loads(dumps_canonical(value)) == value


@pytest.mark.parametrize(
    ("one", "other"), [([1, 2], [2, 1]), (1, True), (1, 1.0), ("1", 1), ({}, []), (None, False)], ids=str
)
def test_different_values_have_different_canonical_forms(one: Any, other: Any) -> None:
    assert dumps_canonical(one) != dumps_canonical(other)


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_the_deepest_value_that_is_written_has_254_levels() -> None:
    assert dumps(nested(254))
    with pytest.raises(TypeError):
        dumps(nested(255))


@pytest.mark.parametrize("value", [10**300, -(10**300), "\ud800"], ids=["301 digits", "-301 digits", "lone surrogate"])
def test_json_that_some_readers_cannot_parse_is_not_written(value: Any) -> None:
    for each in (value, [2**64, value], {"a": {"b": value}}):
        with pytest.raises(TypeError):
            dumps(each)


def test_an_integer_beyond_64_bits_changes_no_other_limit() -> None:
    assert dumps([2**64, nested(253)])
    with pytest.raises(TypeError):
        dumps([2**64, nested(254)])
    with pytest.raises(TypeError):
        dumps({1: 2**64})


@pytest.mark.parametrize(
    "text", [b"[%d, NaN]", b"[%d, 1e400]", b'[%d, "\\ud800"]', b"[%d", b"[" * 1100 + b"%d" + b"]" * 1100], ids=repr
)
def test_a_long_integer_makes_no_text_readable_that_is_not(text: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        loads(text % 2**64)


@pytest.mark.parametrize("integer", [2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**300 - 1], ids=hex)
def test_an_integer_is_read_exactly_from_bytes_and_from_text(integer: int) -> None:
    assert loads(b"%d" % integer) == loads(str(integer)) == integer
    assert dumps_canonical({"b": 1.5, "a": integer}) == b'{"a":%d,"b":1.5}' % integer


def test_the_digest_is_sha256_in_hexadecimal() -> None:
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    ("path", "pointer"),
    [((), "#"), (("a", 0, "b"), "#/a/0/b"), (("a/b", "~"), "#/a~1b/~0"), (("x" * 300,), "#/" + "x" * 254)],
)
def test_an_error_position_is_a_json_pointer_of_bounded_length(path: tuple[object, ...], pointer: str) -> None:
    assert format_pointer(path) == pointer
