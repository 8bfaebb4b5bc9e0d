"""The size of a JSON text is counted without decoding it, and punctuation in strings does not count."""

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain import json_size

TEXTS = st.text(st.sampled_from('a,:[]{}"\\ü\n'), max_size=12)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


def count_parts(value: Any) -> tuple[int, int]:
    """The values after a bracket or a comma, of which an empty list or object counts as one, and the members."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        inner, own = [*members.values()], len(members)
    elif isinstance(value, list):
        inner, own = cast("list[Any]", value), 0
    else:
        return 0, 0
    counts = [count_parts(each) for each in inner]
    return max(1, len(inner)) + sum(values for values, _ in counts), own + sum(names for _, names in counts)


@given(VALUES, st.sampled_from(["ascii", "unicode"]))
def test_a_text_is_excessive_exactly_above_one_of_the_limits(value: Any, form: str) -> None:
    text = json.dumps(value, ensure_ascii=form == "ascii").encode()
    values, members = count_parts(value)

    with pytest.MonkeyPatch.context() as patch:
        for values_max, members_max, expected in (
            (values, members, False),
            (values - 1, members, True),
            (values, members - 1, True),
        ):
            patch.setattr(json_size, "VALUES_MAX", values_max)
            patch.setattr(json_size, "MEMBERS_MAX", members_max)
            assert json_size.is_excessive(text) is expected


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b"{}", 1),
        (b"[" + b",".join([b"{}"] * 100) + b"]", 200),
        (rb'["a,[{","b\"{\\"]', 2),
        (b'{"a":[1,2],"b,":null}', 4),
    ],
    ids=["empty", "objects", "strings", "members"],
)
def test_the_memory_of_a_text_counts_its_values_and_no_punctuation_in_strings(text: bytes, values: int) -> None:
    assert json_size.estimate_decoded_bytes(text) == len(text) + 32 * values
