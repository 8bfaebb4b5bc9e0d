"""Decoding messages: large lists in slices, and ids of unreadable messages."""

from typing import Any

import orjson
import pydantic_core
import pytest

from ringback.upstreams.transports import message_decoder as reading
from ringback.upstreams.transports.line_splitter import TAIL_BYTES, LineSplitter, OversizedLine
from ringback.upstreams.transports.message_decoder import CHUNK_BYTES, decode_json, find_response_id


def page(count: int, separators: bytes) -> bytes:
    schema: dict[str, Any] = {"type": "object", "anyOf": [{"title": "}, {"}, {"title": '"}]'}, {"enum": [[{}], {}]}]}
    tools = [{"name": f"tool_{number}", "inputSchema": schema, "x": "y" * 100} for number in range(count)]
    text = orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools, "nextCursor": "]"}})
    return text.replace(b"},{", separators)


@pytest.mark.parametrize("separators", [b"},{", b"},  {"])
async def test_a_large_list_is_decoded_in_slices_to_what_it_is(
    separators: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    at_once = pydantic_core.from_json

    def watched(text: bytes, **options: Any) -> Any:
        sizes.append(len(text))
        return at_once(text, **options)

    monkeypatch.setattr(reading, "from_json", watched)
    text = page(5000, separators)

    assert await decode_json(text) == (orjson.loads(text), 0)
    assert len(text) > 5 * CHUNK_BYTES
    assert max(sizes) < 2 * CHUNK_BYTES


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"id":7,"result":{', 7),
        (b'{"jsonrpc":"2.0","result":{"id":8},"id":"a-7","x', "a-7"),
        (b'{"result":{"id":8,"x":["id",{"id":9}]},"id":7,"y', 7),
        (b'{"result":{"id":8,"x":"\\","id":9}},"jsonrpc":"2.0","id":"a-7"}', "a-7"),
        (b'{"method":"x","id":7}', None),
        (b"no JSON", None),
    ],
)
def test_an_id_is_found_only_where_an_answer_has_it(text: bytes, found: Any) -> None:
    assert find_response_id(text) == found


def test_lines_are_cut_wherever_the_chunks_end_and_a_long_one_is_skipped() -> None:
    splitter = LineSplitter(5)
    chunks = [b"a\nbc", b"d\n", b"toolong", b"er" * 5000, b"\nend\n"]

    lines = [line for chunk in chunks for line in splitter.feed(chunk)]

    assert lines[:2] == [b"a", b"bcd"]
    assert lines[2] == OversizedLine(head=b"toolong")
    assert isinstance(lines[3], OversizedLine)
    assert lines[3].has_ended
    assert len(lines[3].tail) == TAIL_BYTES
    assert lines[4:] == [b"end"]
