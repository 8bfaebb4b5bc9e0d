import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.jsontext import dumps, dumps_canonical, format_pointer, loads, sha256

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
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


@pytest.mark.parametrize("value", [2**64, "\ud800"], ids=["65 bits", "lone surrogate"])
def test_json_that_some_readers_cannot_parse_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError):
        dumps(value)


def test_the_digest_is_sha256_in_hexadecimal() -> None:
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    ("path", "pointer"),
    [((), "#"), (("a", 0, "b"), "#/a/0/b"), (("a/b", "~"), "#/a~1b/~0"), (("x" * 300,), "#/" + "x" * 254)],
)
def test_an_error_position_is_a_json_pointer_of_bounded_length(path: tuple[object, ...], pointer: str) -> None:
    assert format_pointer(path) == pointer
