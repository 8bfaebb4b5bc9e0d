"""A child that writes unreadable output: its call ends truthfully, other calls continue, and faults are counted."""

import base64
import json
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.malformed_messages import READABLE_MESSAGES, UNREADABLE_MESSAGES, VALID_RESPONSE
from tests.support.upstreams import make_raw_config, open_upstreams, run_upstream_call


async def run_raw_call(upstreams: UpstreamRegistry, raw: bytes, tool: str = "say") -> CallCompletion:
    return await run_upstream_call(upstreams, tool, {"raw": base64.b64encode(raw).decode()})


def completion_result(ending: CallCompletion) -> Any:
    assert ending.result is not None, ending.error
    return json.loads(ending.result)


def count_faults(upstreams: UpstreamRegistry) -> Counter[str]:
    (info,) = upstreams.tool_catalog.list_upstreams()
    return Counter(info.faults)


@pytest.fixture(scope="module")
async def upstreams() -> AsyncGenerator[UpstreamRegistry]:
    """One child, which all tests share that do not end it."""
    async with open_upstreams(make_raw_config()) as upstreams:
        yield upstreams


@pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in UNREADABLE_MESSAGES.items()])
async def test_an_answer_that_cannot_be_read_ends_its_call_and_no_other(
    raw: bytes, upstreams: UpstreamRegistry
) -> None:
    ending = await run_raw_call(upstreams, raw)
    after = await run_raw_call(upstreams, VALID_RESPONSE)

    assert ending.outcome is CallOutcome.UPSTREAM_ERROR, ending
    assert after.outcome is CallOutcome.RESULT


@pytest.mark.parametrize(
    ("text", "read", "repaired"), [pytest.param(*case, id=name) for name, case in READABLE_MESSAGES.items()]
)
async def test_text_that_unicode_does_not_know_is_repaired_and_said_so(
    text: bytes, read: str, repaired: int, upstreams: UpstreamRegistry
) -> None:
    before = count_faults(upstreams)
    result = completion_result(await run_raw_call(upstreams, VALID_RESPONSE.replace(b"fine", text)))
    faults = count_faults(upstreams) - before

    assert result["content"][0]["text"] == read
    assert result["_meta"] == {"ringback/repairedCharacters": repaired}
    assert faults == {"repaired": 1}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xef\xbb\xbf" + VALID_RESPONSE, id="a byte order mark"),
        pytest.param(b"  " + VALID_RESPONSE.replace(b"\n", b" \r\n"), id="blanks around it"),
        pytest.param(b"[" + VALID_RESPONSE.strip() + b"]\n", id="a batch"),
        pytest.param(VALID_RESPONSE.replace(b"@ID@", b"@ID@.0"), id="an id with a fraction of nothing"),
        pytest.param(VALID_RESPONSE.replace(b"@ID@", b'"@ID@"'), id="an id as text"),
        pytest.param(VALID_RESPONSE + VALID_RESPONSE, id="twice"),
        pytest.param(b"Server is running\n\n" + VALID_RESPONSE, id="after some words"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":424242,"result":{}}\n' + VALID_RESPONSE, id="after a response without a request"
        ),
        pytest.param(
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}\n' + VALID_RESPONSE, id="after an error"
        ),
        pytest.param(
            b'{"jsonrpc":"2.0","id":true,"result":{}}\n' + VALID_RESPONSE, id="after one with an id that is none"
        ),
        pytest.param(b'{"jsonrpc":"2.0","method":7}\n' + VALID_RESPONSE, id="after a notification that is none"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":7,"method":"x","params":[]}\n' + VALID_RESPONSE, id="after a request that is none"
        ),
    ],
)
async def test_readable_messages_are_used_beside_unreadable_ones(raw: bytes, upstreams: UpstreamRegistry) -> None:
    first = await run_raw_call(upstreams, raw)
    second = await run_raw_call(upstreams, VALID_RESPONSE)

    assert (first.outcome, second.outcome) == (CallOutcome.RESULT, CallOutcome.RESULT)


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        pytest.param(VALID_RESPONSE.rstrip(), CallOutcome.RESULT, id="whole"),
        pytest.param(VALID_RESPONSE.rstrip()[:-1], CallOutcome.UNKNOWN, id="cut"),
        pytest.param(b"", CallOutcome.UNKNOWN, id="nothing"),
    ],
)
async def test_the_last_response_of_a_child_needs_no_newline_but_must_be_whole(
    last: bytes, outcome: CallOutcome
) -> None:
    async with open_upstreams(make_raw_config()) as upstreams:
        ending = await run_raw_call(upstreams, last, "last_words")

    assert ending.outcome is outcome, ending


async def test_messages_without_a_call_are_counted_and_shown(upstreams: UpstreamRegistry) -> None:
    unasked = b'{"jsonrpc":"2.0","id":424242,"result":{}}\n'
    before = count_faults(upstreams)
    await run_raw_call(upstreams, b"words\n\n" + unasked + unasked + b'{"half\n' + VALID_RESPONSE)

    assert count_faults(upstreams) - before == {"unreadable": 2, "unmatched": 2}
