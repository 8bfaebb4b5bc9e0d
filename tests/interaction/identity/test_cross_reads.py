"""Two principals at every door at once, with each other's ids: whatever one asks for, nothing of the other's is in it."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from ringback.domain.clock import SystemClock
from tests.support.application import PUBLIC_URL
from tests.support.guarded import ALL, Guarded

OPERATIONS = 250
OPERATIONS_DEEP = 5_000
TOKEN_SECONDS = 12 * 3600
"""Longer than the deepest run takes, and less than the longest that is accepted."""


@dataclass(slots=True)
class Somebody:
    name: str
    bearer: str
    calls: list[str] = field(default_factory=list[str])
    webhooks: list[str] = field(default_factory=list[str])
    deliveries: list[str] = field(default_factory=list[str])
    tokens: list[str] = field(default_factory=list[str])

    @property
    def secret(self) -> str:
        """In everything that is theirs."""
        return f"only-{self.name}-knows"

    @property
    def session(self) -> str:
        """Theirs too, but what the other one asks with is told back."""
        return f"session-of-{self.name}"


Asked = Callable[[Somebody, Somebody], Awaitable[httpx.Response]]


@dataclass(slots=True)
class Doors:
    """What can be asked: who asks, and whose things it is about."""

    guarded: Guarded
    chance: random.Random

    def everything(self) -> list[Asked]:
        by_call = (
            "GET /v1/calls/{}",
            "GET /v1/calls/{}/result",
            "POST /v1/calls/{}/cancel",
            "POST /v1/calls/{}/resume-token",
        )
        by_webhook = ("GET /v1/webhooks/{}", "PATCH /v1/webhooks/{}", "POST /v1/webhooks/{}/rotate-secret")
        lists = (
            "calls",
            "events?limit=200",
            "webhooks",
            "deliveries",
            "calls?client_session_id={}",
            "events?client_session_id={}",
        )
        own_tools = ("ringback_get_call", "ringback_cancel_call")
        return [
            self.start_by_rest,
            self.start_by_mcp,
            self.register,
            self.resume,
            self.wait,
            self.redeliver,
            self.own_resume,
            self.own_list,
            *(self.rest(line, lambda owner: owner.calls) for line in by_call),
            *(self.rest(line, lambda owner: owner.webhooks) for line in by_webhook),
            self.rest("GET /v1/deliveries/{}", lambda owner: owner.deliveries),
            *(self.rest(f"GET /v1/{path}", lambda owner: [owner.session]) for path in lists),
            *(self.task(method) for method in ("tasks/get", "tasks/cancel", "tasks/update")),
            *(self.own_tool(name) for name in own_tools),
            self.read,
        ]

    def rest(self, line: str, ids: Callable[[Somebody], list[str]]) -> Asked:
        method, path = line.split(" ")

        async def ask(who: Somebody, owner: Somebody) -> httpx.Response:
            body = {"description": who.secret} if method == "PATCH" else None
            return await self._rest(who, method, path.format(self.one(ids(owner))), body)

        return ask

    def task(self, method: str) -> Asked:
        async def ask(who: Somebody, owner: Somebody) -> httpx.Response:
            answers: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
            return await self._mcp(who, method, {"taskId": self.one(owner.calls), **answers})

        return ask

    def own_tool(self, name: str) -> Asked:
        async def ask(who: Somebody, owner: Somebody) -> httpx.Response:
            return await self._mcp(who, "tools/call", {"name": name, "arguments": {"call_id": self.one(owner.calls)}})

        return ask

    async def start_by_rest(self, who: Somebody, _owner: Somebody) -> httpx.Response:
        body = {
            "upstream": "git",
            "tool": "echo",
            "arguments": {"text": who.secret},
            "client_session_id": who.session,
            "correlation_id": who.secret,
            "wait_seconds": 5,
        }
        answer = await self._rest(who, "POST", "/v1/calls", body)
        started = answer.json()
        who.calls.append(started["call"]["id"])
        who.tokens.append(started["resume_token"])
        return answer

    async def start_by_mcp(self, who: Somebody, _owner: Somebody) -> httpx.Response:
        answer = await self._mcp(who, "tools/call", {"name": "echo", "arguments": {"text": who.secret}})
        who.calls.append(answer.json()["result"]["_meta"]["ringback/callId"])
        return answer

    async def register(self, who: Somebody, _owner: Somebody) -> httpx.Response:
        body = {"url": f"http://127.0.0.1:1/{who.secret}", "call_id": self.one(who.calls), "description": who.secret}
        answer = await self._rest(who, "POST", "/v1/webhooks", body)
        if answer.status_code == 201:
            who.webhooks.append(answer.json()["id"])
            sent = await self._rest(who, "GET", "/v1/deliveries", None)
            who.deliveries += [delivery["id"] for delivery in sent.json()["deliveries"]]
        return answer

    async def resume(self, who: Somebody, owner: Somebody) -> httpx.Response:
        return await self._rest(who, "POST", "/v1/resume", {"resume_token": self.one(owner.tokens)})

    async def wait(self, who: Somebody, owner: Somebody) -> httpx.Response:
        body = {"call_ids": [self.one(owner.calls)], "wait_seconds": 0}
        return await self._rest(who, "POST", "/v1/calls/wait", body)

    async def redeliver(self, who: Somebody, owner: Somebody) -> httpx.Response:
        return await self._rest(who, "POST", f"/v1/deliveries/{self.one(owner.deliveries)}/redeliver", None)

    async def own_resume(self, who: Somebody, owner: Somebody) -> httpx.Response:
        arguments = {"resume_token": self.one(owner.tokens)}
        return await self._mcp(who, "tools/call", {"name": "ringback_resume", "arguments": arguments})

    async def own_list(self, who: Somebody, owner: Somebody) -> httpx.Response:
        arguments = {"client_session_id": owner.session}
        return await self._mcp(who, "tools/call", {"name": "ringback_list_calls", "arguments": arguments})

    async def read(self, who: Somebody, owner: Somebody) -> httpx.Response:
        return await self._mcp(who, "resources/read", {"uri": f"ringback://calls/{self.one(owner.calls)}"})

    def one(self, ids: list[str]) -> str:
        return self.chance.choice(ids) if ids else "call_00000000000000000000000000"

    async def _rest(self, who: Somebody, method: str, path: str, body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {who.bearer}"}
        return await self.guarded.http.request(method, path, json=body, headers=headers)

    async def _mcp(self, who: Somebody, method: str, params: dict[str, Any]) -> httpx.Response:
        return await self.guarded.ask("/mcp/git", method, params, bearer=who.bearer)


@pytest.mark.requirement("R25")
async def test_nobody_is_ever_told_what_is_somebody_elses(guarded: Guarded, *, deep: bool) -> None:
    chance = random.Random(20261120)
    expires = int(SystemClock().now().timestamp()) + TOKEN_SECONDS
    ada = Somebody("ada", guarded.issuer.token(aud=PUBLIC_URL, scope=ALL, exp=expires))
    bob = Somebody("bob", await guarded.key("bob"))
    doors = Doors(guarded, chance)
    every = doors.everything()
    told = {ada.name: 0, bob.name: 0}

    for _ in range(OPERATIONS_DEEP if deep else OPERATIONS):
        who, other = chance.sample([ada, bob], 2)
        answer = await chance.choice(every)(who, chance.choice([who, other]))

        assert other.secret not in answer.text, (answer.request.url, answer.request.content)
        assert answer.status_code < 500, (answer.request.url, answer.text)
        told[who.name] += who.secret in answer.text

    assert min(told.values()) > OPERATIONS / 10
    assert ada.webhooks
    assert bob.webhooks
