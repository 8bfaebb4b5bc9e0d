"""The simulated receivers, and the sender of a node, which is the seam `notifier.http.sender`."""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from random import Random
from typing import Any, Final

import orjson

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.delivery import AttemptResult, category_for_status_code
from ringback.domain.principal import Principal
from ringback.notifier.http.caching_resolver import NO_PRINCIPAL
from ringback.notifier.http.sender import ATTEMPT_SECONDS, RequestMethod
from ringback.notifier.http.target import Target
from ringback.signing import standard_webhooks
from scripts.simulate_runs.clock import STARTED_AT
from scripts.simulate_runs.history import History, ReceivedCallback, Subject
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.plan import PlannedReceiver, ReceiverTrouble

RETRY_AFTER_SECONDS: Final = 20.0
FIRST_ADDRESS: Final = "1.1.1"
"""Receivers have public addresses of this network, so no name is looked up. Nothing is ever sent there."""
SECRET: Final = "whsec_" + "c2ltdWxhdGlvbi1zZWNyZXQtMzItYnl0ZXMtbG9uZyE="
ROTATED_SECRET: Final = "whsec_" + "YW5vdGhlciBzaW11bGF0aW9uIHNlY3JldCAzMiBieXQ="

_STATUS_CODES: Final = {ReceiverTrouble.FAILS: 500, ReceiverTrouble.BUSY: 503, ReceiverTrouble.GONE: 410}


def receiver_url(number: int, path: str) -> str:
    return f"https://{FIRST_ADDRESS}.{number + 1}/{path}"


class SimulatedReceivers:
    """All receivers. They record callbacks in the history, and answer as their troubles say."""

    def __init__(
        self, planned: tuple[PlannedReceiver, ...], *, history: History, loop: SimulationLoop, chance: Random
    ) -> None:
        self._by_host = {f"{FIRST_ADDRESS}.{number + 1}": each for number, each in enumerate(planned)}
        self._history = history
        self._loop = loop
        self._draw = chance.random

    def latency_to(self, host: str) -> float:
        return self._draw() * self._by_host[host].latency_seconds

    def receive(self, host: str, headers: Mapping[str, str], body: bytes) -> tuple[AttemptResult, bytes] | None:
        """The response; None if there is none until the deadline of the sender."""
        receiver = self._by_host[host]
        trouble = self._find_trouble(receiver)
        if trouble is ReceiverTrouble.REFUSES:
            return AttemptResult(category=AttemptCategory.CONNECTION_REFUSED), b""
        if trouble is ReceiverTrouble.HANGS:
            return None
        parsed: dict[str, Any] = orjson.loads(body)
        status_code = 204 if trouble is None else _STATUS_CODES.get(trouble, 204)
        if parsed.get("type") == "verification":
            return _make_result(status_code), orjson.dumps({"challenge": parsed["challenge"]})
        self._record(receiver, headers, parsed, body, was_accepted=status_code == 204)  # noqa: PLR2004 - No Content
        return None if trouble is ReceiverTrouble.FORGETS_TO_ANSWER else (_make_result(status_code), b"")

    def _find_trouble(self, receiver: PlannedReceiver) -> ReceiverTrouble | None:
        now = self._loop.time()
        found = (each.trouble for each in receiver.troubles if each.from_seconds <= now < each.until_seconds)
        return next(found, None)

    def _record(
        self,
        receiver: PlannedReceiver,
        headers: Mapping[str, str],
        parsed: dict[str, Any],
        body: bytes,
        *,
        was_accepted: bool,
    ) -> None:
        callback = ReceivedCallback(
            at_seconds=self._loop.time(),
            receiver=receiver.name,
            webhook_id=headers["x-mcp-subscription-id"],
            message_id=headers["webhook-id"],
            body=parsed,
            was_accepted=was_accepted,
            is_verified=self._is_signed(headers, body, SECRET),
            is_verified_anew=self._is_signed(headers, body, ROTATED_SECRET),
        )
        self._history.callbacks.append(callback)
        name = parsed.get("name", parsed.get("type"))
        about = parsed.get("data", {}).get("call_id", "")
        verb = "accepts" if was_accepted else "refuses"
        self._history.note(Subject.RECEIVER, f"{receiver.name} {verb} {name} {about} {callback.message_id}")

    def _is_signed(self, headers: Mapping[str, str], body: bytes, secret: str) -> bool:
        now = from_epoch_milliseconds(STARTED_AT + int(self._loop.time() * 1000))
        try:
            standard_webhooks.verify(headers, body, [secret], now=now)
        except standard_webhooks.VerificationError:
            return False
        return True


class NodeSender:
    """Implements `notifier.http.sender.Sender` and `HttpRequester` for one node."""

    def __init__(
        self,
        receivers: SimulatedReceivers,
        *,
        loop: SimulationLoop,
        world: Context,
        on_send: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._receivers = receivers
        self._on_send = on_send
        self._loop = loop
        self._world = world

    async def post(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal = NO_PRINCIPAL,
        deadline_seconds: float = ATTEMPT_SECONDS,
    ) -> AttemptResult:
        result, _ = await self.send_request(
            "POST", target, headers, body, principal=principal, deadline_seconds=deadline_seconds
        )
        return result

    async def send_request(
        self,
        method: RequestMethod,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal = NO_PRINCIPAL,  # noqa: ARG002 - the names of HttpRequester
        deadline_seconds: float,
    ) -> tuple[AttemptResult, bytes]:
        if method == "GET":
            return _make_result(404), b""
        self._on_send(headers)
        response: asyncio.Future[tuple[AttemptResult, bytes]] = self._loop.create_future()
        latency = self._receivers.latency_to(target.host)
        self._loop.call_later(latency, self._deliver, target, headers, body, response, context=self._world)
        try:
            async with asyncio.timeout(deadline_seconds):
                return await response
        except TimeoutError:
            return AttemptResult(category=AttemptCategory.TIMEOUT), b""

    async def aclose(self) -> None:
        """Nothing is open."""

    def _deliver(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        response: "asyncio.Future[tuple[AttemptResult, bytes]]",
    ) -> None:
        """In the process of the world."""
        answer = self._receivers.receive(target.host, headers, body)
        if answer is not None:
            self._loop.call_later(
                self._receivers.latency_to(target.host), _set_answer, response, answer, context=self._world
            )


def _make_result(status_code: int) -> AttemptResult:
    retry_after = RETRY_AFTER_SECONDS if status_code == 503 else None  # noqa: PLR2004 - Service Unavailable
    return AttemptResult(
        category=category_for_status_code(status_code), status_code=status_code, retry_after_seconds=retry_after
    )


def _set_answer(response: "asyncio.Future[tuple[AttemptResult, bytes]]", answer: tuple[AttemptResult, bytes]) -> None:
    if not response.done():
        response.set_result(answer)
