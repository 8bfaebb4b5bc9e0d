"""HTTP upstreams of both eras that answer with what cannot be read, in a body or an event: each call ends truthfully."""

import json
from typing import Any, Final

import pytest

from ringback.domain.call import CallCompletion, CallOutcome
from tests.support.garbled import ANSWER, READABLE, UNREADABLE
from tests.support.upstreams import (
    Send,
    Spoiled,
    Spoiling,
    Stage,
    answer,
    drive,
    http_config,
    legacy_only,
    opened,
    serving,
)

pytestmark = [pytest.mark.parametrize("era", ["modern", "legacy"]), pytest.mark.parametrize("kind", ["body", "event"])]
FOREIGN: Final = {
    "the answer to another request": ANSWER.replace(b"@ID@", b"424242"),
    "an id that is none": ANSWER.replace(b"@ID@", b"true"),
    "an id that is nothing": ANSWER.replace(b"@ID@", b"null"),
    "a list of answers that is empty": b"[]\n",
}


def saying(raw: bytes, kind: str) -> Spoiling:
    async def spoil(message: dict[str, Any], send: Send) -> None:
        said = raw.replace(b"@ID@", json.dumps(message["id"]).encode()).strip()
        if kind == "body":
            await answer(send, 200, "application/json", said)
        else:
            events = b"".join(b"data: " + line + b"\n\n" for line in said.split(b"\n"))
            await answer(send, 200, "text/event-stream", b": ping\n\n" + events)

    return spoil


async def called(raw: bytes, kind: str, era: str) -> tuple[CallCompletion, CallCompletion, dict[str, int]]:
    """How the call ended, how the next one did, and the faults that were counted."""
    app = Stage().app()
    spoiled = Spoiled(app if era == "modern" else legacy_only(app), {"tool:spoiled": saying(raw, kind)})
    async with serving(spoiled) as server, opened(http_config(server.url)) as upstreams:
        ending = await drive(upstreams, "spoiled")
        after = await drive(upstreams, "echo")
        (info,) = upstreams.tool_catalog.list_upstreams()
    return ending, after, dict(info.faults)


@pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in (UNREADABLE | FOREIGN).items()])
async def test_an_answer_that_cannot_be_read_ends_its_call_and_no_other(raw: bytes, kind: str, era: str) -> None:
    ending, after, _ = await called(raw, kind, era)

    assert ending.outcome is CallOutcome.UPSTREAM_ERROR, ending
    assert after.outcome is CallOutcome.RESULT


@pytest.mark.parametrize(
    ("text", "read", "repaired"), [pytest.param(*case, id=name) for name, case in READABLE.items()]
)
async def test_text_that_unicode_does_not_know_is_repaired_and_said_so(
    text: bytes, read: str, repaired: int, kind: str, era: str
) -> None:
    ending, _, faults = await called(ANSWER.replace(b"fine", text), kind, era)

    assert ending.result is not None, ending.error
    result = json.loads(ending.result)
    assert result["content"][0]["text"] == read
    assert result["_meta"] == {"ringback/repairedCharacters": repaired}
    assert faults == {"repaired": 1}


@pytest.mark.parametrize("raw", [pytest.param(b"\xef\xbb\xbf" + ANSWER, id="a byte order mark")])
async def test_what_can_be_read_is_taken_whatever_stands_around_it(raw: bytes, kind: str, era: str) -> None:
    ending, _, faults = await called(raw, kind, era)

    assert ending.outcome is CallOutcome.RESULT
    assert faults == {}


async def test_a_large_result_comes_whole_past_the_models_of_the_sdk(kind: str, era: str) -> None:
    ending, _, _ = await called(ANSWER.replace(b"fine", b"x" * 600_000), kind, era)

    assert ending.result is not None
    assert json.loads(ending.result)["content"][0]["text"] == "x" * 600_000
