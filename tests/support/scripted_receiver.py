"""A transport for callbacks that records POSTs and responds as the test says."""

from datetime import timedelta
from typing import Any

import httpx

from ringback.domain.delivery import Delivery
from tests.support.builders import make_call, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine


class ScriptedReceiver:
    """Records every POST, and responds with the given responses in turn; the last one repeats."""

    def __init__(self, *answers: int | httpx.Response) -> None:
        self.posts: list[httpx.Request] = []
        self._answers = [httpx.Response(each) if isinstance(each, int) else each for each in answers]

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.posts.append(request)
        response = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return httpx.Response(response.status_code, headers=response.headers, content=response.content)


async def make_due_delivery(engine: Engine, **webhook: Any) -> Delivery:
    """The delivery of a call that has just ended, for a webhook of its own."""
    await engine.insert_webhooks(make_webhook(**webhook))
    await engine.finish_call(make_call())
    return (await engine.read_deliveries())[-1]


async def wait_until_due(engine: Engine, clock: FakeClock, delivery: Delivery) -> timedelta:
    """Let the time pass until the delivery is due again; how long that was."""
    due_in = (await engine.read_delivery(delivery)).due_at - clock.now()
    clock.advance(due_in.total_seconds())
    return due_in
