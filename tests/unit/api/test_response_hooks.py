"""The response hook runs only if the client is connected when the server has accepted the whole response."""

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
    """One request with a server whose client can disconnect after a number of messages, and with a hook."""

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
async def test_the_hook_does_not_run_if_the_client_disconnects_before_the_end(gone_after: int) -> None:
    exchange = FakeExchange(disconnect_after=gone_after)
    await exchange.run(PIECES)
    assert exchange.done == []


async def test_the_hook_does_not_run_after_an_incomplete_response() -> None:
    exchange = FakeExchange()
    await exchange.run(PIECES[:1])
    assert exchange.done == []


async def test_a_response_without_a_hook_is_unchanged() -> None:
    exchange = FakeExchange()
    await exchange.run(PIECES, noted=False)
    assert (exchange.body, len(exchange.sent)) == (b"all", 3)


async def test_a_hook_that_fails_does_not_change_the_response() -> None:
    exchange = FakeExchange(failing=True)
    await exchange.run(PIECES)
    assert exchange.body == b"all"
