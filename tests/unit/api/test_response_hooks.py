"""Who counts as answered: a client that was still there when the last of its answer had been taken by the server."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from starlette.types import Message, Receive, Scope, Send

from ringback.api.middleware import ResponseHookMiddleware
from ringback.domain.errors import StoreUnavailable
from ringback.services.response_hooks import on_response_written

PIECES = [(b"al", True), (b"l", False)]


@dataclass(slots=True)
class FakeExchange:
    """One request: its server, whose client can go away after so many messages, and what is done once it is answered."""

    disconnect_after: int = 100
    sent: list[Message] = field(default_factory=list[Message])
    done: list[int] = field(default_factory=list[int])
    failing: bool = False

    async def receive(self) -> Message:
        if len(self.sent) < self.disconnect_after:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def action(self) -> None:
        self.done.append(len(self.sent))
        if self.failing:
            raise StoreUnavailable("down")

    async def run(self, pieces: Sequence[tuple[bytes, bool]], *, noted: bool = True) -> None:
        async def app(scope: Scope, _receive: Receive, send: Send) -> None:
            if noted:
                on_response_written(scope["state"], self.action)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for body, more in pieces:
                await send({"type": "http.response.body", "body": body, "more_body": more})

        await ResponseHookMiddleware(app)({"type": "http"}, self.receive, self.send)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def test_the_hook_runs_once_the_whole_response_was_sent() -> None:
    exchange = FakeExchange()
    await exchange.run(PIECES)
    assert exchange.body == b"all"
    assert [message.get("more_body", False) for message in exchange.sent[1:]] == [True, True, True, False]
    assert exchange.done == [len(exchange.sent)]


@pytest.mark.parametrize("gone_after", [0, 2, 3, 4])
async def test_a_client_that_went_before_the_answer_was_complete_was_not_answered(gone_after: int) -> None:
    exchange = FakeExchange(disconnect_after=gone_after)
    await exchange.run(PIECES)
    assert exchange.done == []


async def test_an_answer_that_breaks_off_is_none() -> None:
    exchange = FakeExchange()
    await exchange.run(PIECES[:1])
    assert exchange.done == []


async def test_any_other_answer_goes_out_as_it_is() -> None:
    exchange = FakeExchange()
    await exchange.run(PIECES, noted=False)
    assert (exchange.body, len(exchange.sent)) == (b"all", 3)


async def test_a_store_that_is_down_spoils_no_answer() -> None:
    exchange = FakeExchange(failing=True)
    await exchange.run(PIECES)
    assert exchange.body == b"all"
