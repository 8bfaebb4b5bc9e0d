"""What of `_meta` is between two neighbours, and so is neither kept nor passed on."""

from typing import Any

import pytest

from ringback.domain.meta import is_reserved_meta_key, without_reserved_meta


@pytest.mark.parametrize(
    "meta",
    [None, [], "odd", {"io.modelcontextprotocol/serverInfo": {}}, {"progressToken": 7, "io.modelcontextprotocol/x": 1}],
)
def test_meta_in_which_nothing_is_left_or_that_is_no_object_is_left_out(meta: Any) -> None:
    assert without_reserved_meta({"contents": [], "_meta": meta}) == {"contents": []}


def test_everything_else_in_meta_stays() -> None:
    answer: dict[str, Any] = {"contents": [], "_meta": {"ui": None, "io.modelcontextprotocol/serverInfo": {}}}
    assert without_reserved_meta(answer) == {"contents": [], "_meta": {"ui": None}}
    assert without_reserved_meta({"contents": []}) == {"contents": []}
    assert without_reserved_meta({"contents": [], "_meta": {}}) == {"contents": [], "_meta": {}}


def test_a_key_similar_to_a_reserved_one_is_not_reserved() -> None:
    assert not [
        key
        for key in ("io.modelcontextprotocol", "io.modelcontextprotocolish/x", "progress")
        if is_reserved_meta_key(key)
    ]
