"""A child that writes what cannot be read: the call that it belongs to ends truthfully, the others go on, and it is shown."""

import base64
import json
from typing import Any

import pytest

from ringback.domain.call import CallCompletion, CallOutcome
from ringback.runner.upstreams import UpstreamRegistry
from tests.support.garbled import ANSWER, READABLE, UNREADABLE
from tests.support.upstreams import drive, opened, raw_config


async def say(upstreams: UpstreamRegistry, raw: bytes) -> CallCompletion:
    return await drive(upstreams, "say", {"raw": base64.b64encode(raw).decode()})


def result_of(ending: CallCompletion) -> Any:
    assert ending.result is not None, ending.error
    return json.loads(ending.result)


def faults_of(upstreams: UpstreamRegistry) -> dict[str, int]:
    (info,) = upstreams.tool_catalog.list_upstreams()
    return dict(info.faults)


@pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in UNREADABLE.items()])
async def test_an_answer_that_cannot_be_read_ends_its_call_and_no_other(raw: bytes) -> None:
    async with opened(raw_config()) as upstreams:
        ending = await say(upstreams, raw)
        after = await say(upstreams, ANSWER)

    assert ending.outcome is CallOutcome.UPSTREAM_ERROR, ending
    assert after.outcome is CallOutcome.RESULT


@pytest.mark.parametrize(
    ("text", "read", "repaired"), [pytest.param(*case, id=name) for name, case in READABLE.items()]
)
async def test_text_that_unicode_does_not_know_is_repaired_and_said_so(text: bytes, read: str, repaired: int) -> None:
    async with opened(raw_config()) as upstreams:
        result = result_of(await say(upstreams, ANSWER.replace(b"fine", text)))
        faults = faults_of(upstreams)

    assert result["content"][0]["text"] == read
    assert result["_meta"] == {"ringback/repairedCharacters": repaired}
    assert faults == {"repaired": 1}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xef\xbb\xbf" + ANSWER, id="a byte order mark"),
        pytest.param(b"  " + ANSWER.replace(b"\n", b" \r\n"), id="blanks around it"),
        pytest.param(b"[" + ANSWER.strip() + b"]\n", id="a batch"),
        pytest.param(ANSWER.replace(b"@ID@", b"@ID@.0"), id="an id with a fraction of nothing"),
        pytest.param(ANSWER.replace(b"@ID@", b'"@ID@"'), id="an id as text"),
        pytest.param(ANSWER + ANSWER, id="twice"),
        pytest.param(b"Server is running\n\n" + ANSWER, id="after some words"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":424242,"result":{}}\n' + ANSWER, id="after an answer that nobody asked for"
        ),
        pytest.param(
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}\n' + ANSWER, id="after an error"
        ),
        pytest.param(b'{"jsonrpc":"2.0","id":true,"result":{}}\n' + ANSWER, id="after one with an id that is none"),
        pytest.param(b'{"jsonrpc":"2.0","method":7}\n' + ANSWER, id="after a notification that is none"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":7,"method":"x","params":[]}\n' + ANSWER, id="after a request that is none"
        ),
    ],
)
async def test_what_can_be_read_is_taken_whatever_stands_around_it(raw: bytes) -> None:
    async with opened(raw_config()) as upstreams:
        first = await say(upstreams, raw)
        second = await say(upstreams, ANSWER)

    assert (first.outcome, second.outcome) == (CallOutcome.RESULT, CallOutcome.RESULT)


async def test_what_belongs_to_no_call_is_counted_and_shown() -> None:
    unasked = b'{"jsonrpc":"2.0","id":424242,"result":{}}\n'
    async with opened(raw_config()) as upstreams:
        await say(upstreams, b"words\n\n" + unasked + unasked + b'{"half\n' + ANSWER)
        faults = faults_of(upstreams)

    assert faults == {"unreadable": 2, "unmatched": 2}
