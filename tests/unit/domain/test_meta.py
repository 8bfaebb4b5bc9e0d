"""What of `_meta` belongs to one connection, and so is neither kept nor passed on."""

from typing import Any

import pytest

from ringback.domain.errors import InvalidRequest
from ringback.domain.meta import is_reserved_meta_key, require_known_keys, without_reserved_meta


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


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("ringback/clientSessionID", "Did you mean 'ringback/clientSessionId'"),
        ("ringback/calback", "Did you mean 'ringback/callback'"),
        ("ringback/x", "Known keys: ringback/callId, "),
        ("ringback/" + "y" * 10**6, "Known keys: "),
    ],
)
def test_a_key_of_ringback_that_does_not_exist_is_refused_with_the_right_one(key: str, advice: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        require_known_keys({"traceparent": "00", key: "value"})
    assert advice in refused.value.detail
    assert len(refused.value.detail) < 400


def test_known_keys_and_those_of_others_are_accepted() -> None:
    require_known_keys({"ringback/callId": "call_1", "ringback/callback": {}, "acme/ringback": 1, "Ringback": 2})
