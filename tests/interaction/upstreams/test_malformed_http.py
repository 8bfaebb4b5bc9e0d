"""HTTP upstreams that send unreadable bodies or events, modern and legacy: each call ends truthfully."""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import pytest

from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.malformed_messages import MALFORMED_EVENTS, READABLE_MESSAGES, UNREADABLE_MESSAGES, VALID_RESPONSE
from tests.support.upstreams import (
    ControlledUpstream,
    OverriddenResponses,
    ResponseOverride,
    Send,
    make_app_of_era,
    make_http_config,
    open_upstreams,
    run_upstream_call,
    send_response,
    serving,
)

pytestmark = [pytest.mark.parametrize("era", ["modern", "legacy"]), pytest.mark.parametrize("kind", ["body", "event"])]
LOG_MESSAGE: Final = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"so far"}}'
FOREIGN_RESPONSE: Final = {
    "the answer to another request": VALID_RESPONSE.replace(b"@ID@", b"424242"),
    "an id that is none": VALID_RESPONSE.replace(b"@ID@", b"true"),
    "an id that is nothing": VALID_RESPONSE.replace(b"@ID@", b"null"),
    "a list of answers that is empty": b"[]\n",
}


def respond_with_bytes(raw: bytes, kind: str) -> ResponseOverride:
    async def spoil(message: dict[str, Any], send: Send) -> None:
        said = raw.replace(b"@ID@", json.dumps(message["id"]).encode()).strip()
        if kind == "body":
            await send_response(send, 200, "application/json", said)
        else:
            events = b"".join(b"data: " + line + b"\n\n" for line in said.split(b"\n"))
            await send_response(send, 200, "text/event-stream", b": ping\n\n" + events)

    return spoil


@dataclass(frozen=True, slots=True)
class SpoiledUpstream:
    upstreams: UpstreamRegistry
    overrides: dict[str, ResponseOverride]

    async def call_with_response(self, raw: bytes, kind: str) -> tuple[CallCompletion, CallCompletion, dict[str, int]]:
        """How the call ended, how the next one did, and the faults that they added."""
        before = self._count_faults()
        self.overrides["tool:spoiled"] = respond_with_bytes(raw, kind)
        ending = await run_upstream_call(self.upstreams, "spoiled")
        after = await run_upstream_call(self.upstreams, "echo")
        return ending, after, dict(self._count_faults() - before)

    def _count_faults(self) -> Counter[str]:
        (info,) = self.upstreams.tool_catalog.list_upstreams()
        return Counter(info.faults)


@pytest.fixture(scope="module")
async def upstreams_by_era() -> AsyncGenerator[Mapping[str, SpoiledUpstream]]:
    async with AsyncExitStack() as stack:
        opened: dict[str, SpoiledUpstream] = {}
        for era in ("modern", "legacy"):
            overrides: dict[str, ResponseOverride] = {}
            app = OverriddenResponses(make_app_of_era(ControlledUpstream().app(), era), overrides)
            server = await stack.enter_async_context(serving(app))
            upstreams = await stack.enter_async_context(open_upstreams(make_http_config(server.url)))
            opened[era] = SpoiledUpstream(upstreams, overrides)
        yield opened


@pytest.fixture
def upstream(upstreams_by_era: Mapping[str, SpoiledUpstream], era: str) -> SpoiledUpstream:
    """An upstream of this era, which all tests share."""
    return upstreams_by_era[era]


@pytest.mark.parametrize(
    "raw", [pytest.param(raw, id=name) for name, raw in (UNREADABLE_MESSAGES | FOREIGN_RESPONSE).items()]
)
async def test_an_answer_that_cannot_be_read_ends_its_call_and_no_other(
    raw: bytes, kind: str, upstream: SpoiledUpstream
) -> None:
    ending, after, _ = await upstream.call_with_response(raw, kind)

    assert ending.outcome is CallOutcome.UPSTREAM_ERROR, ending
    assert after.outcome is CallOutcome.RESULT


@pytest.mark.parametrize(
    ("text", "read", "repaired"), [pytest.param(*case, id=name) for name, case in READABLE_MESSAGES.items()]
)
async def test_text_that_unicode_does_not_know_is_repaired_and_said_so(
    text: bytes, read: str, repaired: int, kind: str, upstream: SpoiledUpstream
) -> None:
    ending, _, faults = await upstream.call_with_response(VALID_RESPONSE.replace(b"fine", text), kind)

    assert ending.result is not None, ending.error
    result = json.loads(ending.result)
    assert result["content"][0]["text"] == read
    assert result["_meta"] == {"ringback/repairedCharacters": repaired}
    assert faults == {"repaired": 1}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xef\xbb\xbf" + VALID_RESPONSE, id="a byte order mark"),
        pytest.param(b"[" + VALID_RESPONSE.strip() + b"]", id="a batch of one"),
        pytest.param(b"[" + LOG_MESSAGE + b"," + VALID_RESPONSE.strip() + b"]", id="a batch"),
    ],
)
async def test_readable_messages_are_used_beside_unreadable_ones(
    raw: bytes, kind: str, upstream: SpoiledUpstream
) -> None:
    ending, _, faults = await upstream.call_with_response(raw, kind)

    assert ending.outcome is CallOutcome.RESULT
    assert faults == {}


@pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in MALFORMED_EVENTS.items()])
async def test_an_event_that_is_no_answer_loses_no_answer_behind_it_and_alone_ends_its_call(
    raw: bytes, kind: str, upstream: SpoiledUpstream
) -> None:
    if kind == "event":  # a body has one message, and nothing behind it
        ending, _, faults = await upstream.call_with_response(raw + VALID_RESPONSE, kind)
        assert (ending.outcome, faults) == (CallOutcome.RESULT, {"unreadable": 1}), ending

    alone, after, _ = await upstream.call_with_response(raw, kind)

    assert alone.outcome is CallOutcome.UPSTREAM_ERROR, alone
    assert after.outcome is CallOutcome.RESULT


async def test_of_two_answers_to_one_request_the_first_event_counts_and_a_body_of_two_is_none(
    kind: str, upstream: SpoiledUpstream
) -> None:
    answers = VALID_RESPONSE + VALID_RESPONSE.replace(b"fine", b"other")

    ending, after, _ = await upstream.call_with_response(answers, kind)

    assert (b"fine" in (ending.result or b"")) is (kind == "event")
    assert ending.outcome is (CallOutcome.RESULT if kind == "event" else CallOutcome.UPSTREAM_ERROR)
    assert after.outcome is CallOutcome.RESULT


async def test_a_large_result_is_stored_whole_without_the_sdks_models(kind: str, upstream: SpoiledUpstream) -> None:
    ending, _, _ = await upstream.call_with_response(VALID_RESPONSE.replace(b"fine", b"x" * 600_000), kind)

    assert ending.result is not None
    assert json.loads(ending.result)["content"][0]["text"] == "x" * 600_000
