"""Receivers that get challenges, and the service's side of verification, over the store of an `Engine`.

stage = Proving(engine, answers_challenges)
webhook = await stage.register("https://agent.example/hook")
await stage.challenge()
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import orjson

from ringback.domain.delivery import DeliveryState
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook
from ringback.notifier.http.httpx_sender import HttpxSender
from ringback.notifier.http.sender import HttpRequester
from ringback.notifier.verification import RECEIVER_LIST_PATH
from ringback.notifier.verifier import Verifier
from ringback.services.lifecycle import Lifecycle
from ringback.services.webhooks.verification import VerificationMode, VerificationPolicy, WebhookVerification
from tests.support.builders import make_webhook
from tests.support.engine import Engine
from tests.support.resolvers import PUBLIC_POLICY

Responder = Callable[[httpx.Request], httpx.Response] | Callable[[httpx.Request], Awaitable[httpx.Response]]


def answer_challenge(request: httpx.Request) -> httpx.Response:
    """What a receiver says that wants callbacks."""
    envelope = orjson.loads(request.content)
    if envelope.get("type") == "verification":
        return httpx.Response(200, json={"challenge": envelope["challenge"]})
    return httpx.Response(204)


def respond_with(status: int, **answer: object) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(status, **answer)  # pyright: ignore[reportArgumentType] - httpx's own options


def raise_error(error: type[Exception]) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error("no")

    return answer


def publish_receiver_list(*receivers: object) -> Callable[[httpx.Request], httpx.Response]:
    """A receiver that knows no challenges, at an origin that publishes a list."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == RECEIVER_LIST_PATH:
            return httpx.Response(200, json={"receivers": receivers})
        return httpx.Response(404)

    return answer


class VerificationHarness:
    """Notes every request that leaves; `answer` may be exchanged at any time."""

    def __init__(
        self, engine: Engine, answer: Responder = answer_challenge, *, mode: VerificationMode = "always", **policy: Any
    ) -> None:
        self.engine = engine
        self.answer = answer
        self.requests: list[httpx.Request] = []
        self.verifier = self.make_verifier()
        self.verification = WebhookVerification(
            store=engine.store,
            clock=engine.clock,
            lifecycle=Lifecycle(),
            targets=PUBLIC_POLICY,
            policy=VerificationPolicy(mode=mode, **policy),
        )

    def make_verifier(self, asker: HttpRequester | None = None) -> Verifier:
        """A verifier as of another process."""
        return Verifier(
            store=self.engine.store,
            clock=self.engine.clock,
            ids=self.engine.ids,
            requester=asker or HttpxSender(httpx.MockTransport(self._answer), clock=self.engine.clock),
            policy=PUBLIC_POLICY,
            random_fraction=lambda: 0.5,
        )

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answer(request)
        return answer if isinstance(answer, httpx.Response) else await answer

    def sent_requests(self, method: str = "POST") -> list[httpx.Request]:
        return [request for request in self.requests if request.method == method]

    async def register_webhook(self, url: str | None = None, **over: Any) -> Webhook:
        webhook = make_webhook(**({"url": url} if url else {}), **over)
        return await self.engine.store.write(lambda tx: self.verification.insert_webhook(tx, webhook))

    async def change_webhook(self, webhook: Webhook, **over: Any) -> Webhook:
        async def change(tx: Transaction) -> Webhook:
            before = await tx.webhooks.get(webhook.id)
            assert before is not None
            return await self.verification.update_webhook(tx, before, replace(before, **over))

        return await self.engine.store.write(change)

    async def send_due_challenges(self) -> int:
        """Send the due challenges once, and return their number."""
        return await self.verifier.run_once()

    async def request_challenge(self, webhook: Webhook) -> None:
        await self.engine.store.write(lambda tx: self.verification.restart_challenge(tx, webhook))


async def delivery_states(engine: Engine) -> set[DeliveryState]:
    return {delivery.state for delivery in await engine.read_deliveries()}


async def dispatch_all_due(engine: Engine) -> list[httpx.Request]:
    """What goes out to receivers that take everything, until nothing more does."""
    sent: list[httpx.Request] = []

    def accept(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(204)

    dispatcher = engine.make_dispatcher(accept)
    while await dispatcher.run_once():
        pass
    return sent
