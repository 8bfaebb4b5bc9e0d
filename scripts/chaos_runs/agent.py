"""The agent: starts, reads, answers and cancels calls, and repeats requests without a response."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any, Final

import httpx

from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY
from scripts.chaos_runs.observations import ObservedCall, ObservedStatus
from scripts.chaos_runs.plan import Kind, PlannedCall
from tests.support.task_upstream import ACCEPTED_ANSWER

RETRY_SECONDS: Final = 0.05
WAIT_SECONDS: Final = 1.0
"""A long poll, a little longer than a freeze of the service."""
REQUEST_SECONDS: Final = 20.0
SERVICE_UNAVAILABLE: Final = 503
CALL_ENDED: Final = 409


class Agent:
    """Sends each request to any node, and repeats it after a transport error or 503. Records other errors as surprises."""

    def __init__(self, nodes: Sequence[httpx.AsyncClient], *, chance: random.Random, callback_url: str) -> None:
        self._nodes = nodes
        self._chance = chance
        self._callback_url = callback_url
        self.surprises: list[str] = []
        self._webhooks: set[str] = set()

    async def register(self) -> None:
        """Register a webhook for the ends of all calls."""
        registered = await self._request("POST", "/v1/webhooks", json={"url": self._callback_url})
        self._webhooks.add(registered["id"])

    async def run_call(self, planned: PlannedCall, call: ObservedCall) -> None:
        """Run one planned call from its start to its end."""
        await asyncio.sleep(planned.at_seconds)
        await self._start(planned, call)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll_call(planned, call))
            for _ in range(planned.repeats):
                group.create_task(self._start(planned, call))
            if planned.cancel_seconds is not None:
                group.create_task(self._cancel(call, planned.cancel_seconds))
        await self._start(planned, call)  # after the call's end, too, its key returns the same call

    async def read_call(self, call: ObservedCall, *, wait_seconds: float = 0) -> dict[str, Any]:
        state = await self._request("GET", f"/v1/calls/{call.ids[0]}", params={"wait_seconds": wait_seconds})
        call.statuses.append(ObservedStatus(state["status"], state["outcome"], state["runs"]))
        return state

    async def count_logged_ends(self) -> list[str]:
        """The call id of every `call.finished`, in the order of the log."""
        ends: list[str] = []
        page: dict[str, Any] = {"cursor": None, "has_more": True}
        while page["has_more"]:
            query = {"name": "call.finished", "limit": 100, "cursor": page["cursor"]}
            page = await self._request("GET", "/v1/events", params={k: v for k, v in query.items() if v is not None})
            ends += (event["data"]["call_id"] for event in page["events"])
        return ends

    async def _start(self, planned: PlannedCall, call: ObservedCall) -> None:
        body: dict[str, Any] = {
            "upstream": planned.kind.upstream,
            "tool": planned.kind.tool,
            "arguments": {"key": planned.key, "seconds": planned.work_seconds},
            "rerun_policy": "never" if planned.unsafe else "always",
            "accepts_input": planned.kind is Kind.ROUNDS,
        }
        if planned.callback:
            body["callback"] = {"url": self._callback_url}
        started = await self._request("POST", "/v1/calls", json=body, headers={"Idempotency-Key": planned.key})
        call.ids.append(started["call"]["id"])
        call.webhooks |= {webhook["id"] for webhook in started["webhooks"]} | self._webhooks

    async def _poll_call(self, planned: PlannedCall, call: ObservedCall) -> None:
        while True:
            state = await self.read_call(call, wait_seconds=WAIT_SECONDS)
            if call.statuses[-1].final:
                return
            if LOGIN_REQUEST_KEY in state["input_requests"]:
                self.surprises.append(
                    f"{planned.key} waits for a login, which its upstream {planned.kind.upstream} never asks for"
                )
            if state["status"] == "input_required":
                await asyncio.sleep(planned.answer_seconds)
                await self._answer(call, state["input_requests"])

    async def _answer(self, call: ObservedCall, asked: Iterable[str]) -> None:
        body = {"responses": dict.fromkeys(asked, ACCEPTED_ANSWER)}
        await self._request("POST", f"/v1/calls/{call.ids[0]}/input", json=body, accept=CALL_ENDED)

    async def _cancel(self, call: ObservedCall, after_seconds: float) -> None:
        await asyncio.sleep(after_seconds)
        await self._request("POST", f"/v1/calls/{call.ids[0]}/cancel")

    async def _request(self, method: str, path: str, *, accept: int | None = None, **options: Any) -> Any:
        while True:
            try:
                answer = await self._chance.choice(self._nodes).request(
                    method, path, timeout=REQUEST_SECONDS, **options
                )
            except httpx.TransportError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if answer.is_success or answer.status_code == accept:
                return answer.json()
            if answer.status_code != SERVICE_UNAVAILABLE:
                self.surprises.append(f"{method} {path} got {answer.status_code}: {answer.text[:300]}")
            await asyncio.sleep(RETRY_SECONDS)
