"""Two principals use each other's ids at every entry point; no response contains data of the other principal."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from ringback.domain.clock import SystemClock
from tests.support.application import PUBLIC_URL
from tests.support.mcp_wire import JsonRpcMessages
from tests.support.oauth_service import ALL_SCOPES, OAuthService

OPERATIONS = 250
OPERATIONS_DEEP = 5_000
TOKEN_SECONDS = 12 * 3600
"""Longer than the deepest run, and shorter than the longest accepted lifetime."""


@dataclass(slots=True)
class PrincipalClient:
    name: str
    bearer: str
    calls: list[str] = field(default_factory=list[str])
    webhooks: list[str] = field(default_factory=list[str])
    deliveries: list[str] = field(default_factory=list[str])
    tokens: list[str] = field(default_factory=list[str])

    @property
    def secret_text(self) -> str:
        """A marker in all data of the principal."""
        return f"only-{self.name}-knows"

    @property
    def session(self) -> str:
        """Ids of the principal, which responses may echo to the other one."""
        return f"session-of-{self.name}"


ProbeResult = Callable[[PrincipalClient, PrincipalClient], Awaitable[httpx.Response]]


@dataclass(slots=True)
class EndpointProbe:
    """The requests: the requesting principal, and the owner of the ids."""

    guarded: OAuthService
    chance: random.Random

    def list_probes(self) -> list[ProbeResult]:
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
            *(self.builtin_tool(name) for name in own_tools),
            self.read,
        ]

    def rest(self, line: str, ids: Callable[[PrincipalClient], list[str]]) -> ProbeResult:
        method, path = line.split(" ")

        async def ask(who: PrincipalClient, owner: PrincipalClient) -> httpx.Response:
            body = {"description": who.secret_text} if method == "PATCH" else None
            return await self._rest(who, method, path.format(self.pick_id(ids(owner))), body)

        return ask

    def task(self, method: str) -> ProbeResult:
        async def ask(who: PrincipalClient, owner: PrincipalClient) -> httpx.Response:
            answers: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
            return await self._mcp(who, method, {"taskId": self.pick_id(owner.calls), **answers})

        return ask

    def builtin_tool(self, name: str) -> ProbeResult:
        async def ask(who: PrincipalClient, owner: PrincipalClient) -> httpx.Response:
            return await self._mcp(
                who, "tools/call", {"name": name, "arguments": {"call_id": self.pick_id(owner.calls)}}
            )

        return ask

    async def start_by_rest(self, who: PrincipalClient, _owner: PrincipalClient) -> httpx.Response:
        body = {
            "upstream": "git",
            "tool": "echo",
            "arguments": {"text": who.secret_text},
            "client_session_id": who.session,
            "correlation_id": who.secret_text,
            "wait_seconds": 5,
        }
        answer = await self._rest(who, "POST", "/v1/calls", body)
        started = answer.json()
        who.calls.append(started["call"]["id"])
        who.tokens.append(started["resume_token"])
        return answer

    async def start_by_mcp(self, who: PrincipalClient, _owner: PrincipalClient) -> httpx.Response:
        answer = await self._mcp(who, "tools/call", {"name": "echo", "arguments": {"text": who.secret_text}})
        result = await JsonRpcMessages(answer).read_response()
        who.calls.append(result["_meta"]["ringback/callId"])
        return answer

    async def register(self, who: PrincipalClient, _owner: PrincipalClient) -> httpx.Response:
        body = {
            "url": f"http://127.0.0.1:1/{who.secret_text}",
            "call_id": self.pick_id(who.calls),
            "description": who.secret_text,
        }
        answer = await self._rest(who, "POST", "/v1/webhooks", body)
        if answer.status_code == 201:
            who.webhooks.append(answer.json()["id"])
            sent = await self._rest(who, "GET", "/v1/deliveries", None)
            who.deliveries += [delivery["id"] for delivery in sent.json()["deliveries"]]
        return answer

    async def resume(self, who: PrincipalClient, owner: PrincipalClient) -> httpx.Response:
        return await self._rest(who, "POST", "/v1/resume", {"resume_token": self.pick_id(owner.tokens)})

    async def wait(self, who: PrincipalClient, owner: PrincipalClient) -> httpx.Response:
        body = {"call_ids": [self.pick_id(owner.calls)], "wait_seconds": 0}
        return await self._rest(who, "POST", "/v1/calls/wait", body)

    async def redeliver(self, who: PrincipalClient, owner: PrincipalClient) -> httpx.Response:
        return await self._rest(who, "POST", f"/v1/deliveries/{self.pick_id(owner.deliveries)}/redeliver", None)

    async def own_resume(self, who: PrincipalClient, owner: PrincipalClient) -> httpx.Response:
        arguments = {"resume_token": self.pick_id(owner.tokens)}
        return await self._mcp(who, "tools/call", {"name": "ringback_resume", "arguments": arguments})

    async def own_list(self, who: PrincipalClient, owner: PrincipalClient) -> httpx.Response:
        arguments = {"client_session_id": owner.session}
        return await self._mcp(who, "tools/call", {"name": "ringback_list_calls", "arguments": arguments})

    async def read(self, who: PrincipalClient, owner: PrincipalClient) -> httpx.Response:
        return await self._mcp(who, "resources/read", {"uri": f"ringback://calls/{self.pick_id(owner.calls)}"})

    def pick_id(self, ids: list[str]) -> str:
        return self.chance.choice(ids) if ids else "call_00000000000000000000000000"

    async def _rest(self, who: PrincipalClient, method: str, path: str, body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {who.bearer}"}
        return await self.guarded.http.request(method, path, json=body, headers=headers)

    async def _mcp(self, who: PrincipalClient, method: str, params: dict[str, Any]) -> httpx.Response:
        return await self.guarded.post_modern("/mcp/git", method, params, bearer=who.bearer)


@pytest.mark.requirement("R25")
async def test_a_principal_never_reads_another_principals_data(guarded: OAuthService, *, deep: bool) -> None:
    chance = random.Random(20261120)
    expires = int(SystemClock().now().timestamp()) + TOKEN_SECONDS
    ada = PrincipalClient("ada", guarded.issuer.sign_token(aud=PUBLIC_URL, scope=ALL_SCOPES, exp=expires))
    bob = PrincipalClient("bob", await guarded.create_api_key("bob"))
    endpoints = EndpointProbe(guarded, chance)
    every = endpoints.list_probes()
    responses_with_secret = {ada.name: 0, bob.name: 0}

    for _ in range(OPERATIONS_DEEP if deep else OPERATIONS):
        who, other = chance.sample([ada, bob], 2)
        answer = await chance.choice(every)(who, chance.choice([who, other]))

        assert other.secret_text not in answer.text, (answer.request.url, answer.request.content)
        assert answer.status_code < 500, (answer.request.url, answer.text)
        responses_with_secret[who.name] += who.secret_text in answer.text

    assert min(responses_with_secret.values()) > OPERATIONS / 10
    assert ada.webhooks
    assert bob.webhooks
