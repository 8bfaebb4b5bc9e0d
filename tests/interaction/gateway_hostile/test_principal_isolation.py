"""Two principals use each other's ids, tokens and sessions in both eras and over REST.

No response contains data of the other principal, and a foreign object gets the same error as one that does not exist.
"""

import json
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway_hostile.conftest import HostileClient
from tests.support.mcp_wire import Json, LegacyClientSession, read_message_texts

STEPS: Final = 150
STEPS_DEEP: Final = 5_000
SEED: Final = 20260728
UNKNOWN_IDS: Final[Mapping[str, str]] = {
    "call": "call_00000000000000000000000000",
    "webhook": "wh_00000000000000000000000000",
    "delivery": "dlv_00000000000000000000000000",
    "session": "0" * 32,
}
"""Well-formed tokens and requestStates that were never issued, see `nobodys`."""

Answer = tuple[int, str]
Probe = Callable[["HostilePrincipal", str], Awaitable[Answer]]


@dataclass(slots=True)
class HostilePrincipal:
    name: str
    key: str
    session: LegacyClientSession
    owned_ids: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    @property
    def canary(self) -> str:
        """Part of all data of one principal, and of no request of the other."""
        return f"canary-of-{self.name}"

    def add_owned(self, kind: str, thing: str) -> None:
        self.owned_ids.setdefault(kind, []).append(thing)


@dataclass(slots=True)
class IsolationHarness:
    gate: GatewayHarness
    chance: random.Random

    # -- what a principal starts -------------------------------------------------------------------------------------------

    async def start_over_rest(self, who: HostilePrincipal) -> Answer:
        body: Json = {
            "upstream": "plain",
            "tool": "echo",
            "arguments": {"text": who.canary},
            "client_session_id": who.canary,
            "correlation_id": who.canary,
            "wait_seconds": 20,
        }
        status, text = await self.request_rest(who, "POST", "/v1/calls", body)
        started = json.loads(text)
        who.add_owned("call", started["call"]["id"])
        who.add_owned("token", started["resume_token"])
        return status, text

    async def start_modern(self, who: HostilePrincipal) -> Answer:
        meta = {"ringback/correlationId": who.canary, "ringback/clientSessionId": who.canary}
        params = {"name": "echo", "arguments": {"text": who.canary}, "_meta": meta}
        client = await self.gate.make_modern_client("plain", principal=who.name)
        result = await client.request("tools/call", params)
        who.add_owned("call", result["_meta"]["ringback/callId"])
        return 200, json.dumps(result)

    async def start_in_session(self, who: HostilePrincipal) -> Answer:
        params: Json = {"name": "echo", "arguments": {"text": who.canary}, "task": {"ttl": 60_000}}
        result = await who.session.request("tools/call", params)
        who.add_owned("call", result["task"]["taskId"])
        return 200, json.dumps(result)

    async def start_input_required(self, who: HostilePrincipal) -> Answer:
        client = await self.gate.make_modern_client("paint", principal=who.name)
        params: Json = {"name": "ask", "arguments": {"for": who.canary}}
        result = await client.request("tools/call", params, declare={"elicitation": {"form": {}}})
        who.add_owned("state", result["requestState"])
        who.add_owned("call", result["_meta"]["ringback/callId"])
        return 200, json.dumps(result)

    async def register_webhook(self, who: HostilePrincipal) -> Answer:
        body: Json = {"url": f"http://127.0.0.1:1/{who.canary}", "description": who.canary}
        if calls := who.owned_ids.get("call"):
            body["call_id"] = self.chance.choice(calls)
        status, text = await self.request_rest(who, "POST", "/v1/webhooks", body)
        if status == 201:
            who.add_owned("webhook", json.loads(text)["id"])
            _, sent = await self.request_rest(who, "GET", "/v1/deliveries")
            for delivery in json.loads(sent)["deliveries"]:
                who.add_owned("delivery", delivery["id"])
        return status, text

    # -- what a principal requests-------------------------------------------------------------------------------------------

    def probes(self) -> Mapping[str, list[Probe]]:
        call = [
            *(
                self.by_rest(line)
                for line in ("GET /v1/calls/{}", "GET /v1/calls/{}/result", "POST /v1/calls/{}/cancel")
            ),
            *(self.by_rest(line) for line in ("POST /v1/calls/{}/resume-token", "GET /v1/events?call_id={}")),
            *(self.by_task(method) for method in ("tasks/get", "tasks/cancel", "tasks/update")),
            *(self.by_legacy_task(method) for method in ("tasks/get", "tasks/cancel", "tasks/result")),
            *(self.by_own_tool(name) for name in ("ringback_get_call", "ringback_cancel_call", "ringback_answer_call")),
            self.by_reading,
            self.by_reading_in_session,
            self.by_subscribing,
            self.by_listening,
            self.by_waiting,
        ]
        webhook = ("GET /v1/webhooks/{}", "POST /v1/webhooks/{}/rotate-secret", "POST /v1/webhooks/{}/test")
        return {
            "call": call,
            "token": [self.by_resuming, self.by_resuming_as_tool],
            "state": [self.by_retrying],
            "session": [self.by_session("tools/list"), self.by_session("tasks/list"), self.by_ending],
            "webhook": [self.by_rest(line) for line in webhook],
            "delivery": [self.by_rest("GET /v1/deliveries/{}"), self.by_rest("POST /v1/deliveries/{}/redeliver")],
        }

    def lists(self) -> list[Callable[[HostilePrincipal, HostilePrincipal], Awaitable[Answer]]]:
        async def rest(who: HostilePrincipal, other: HostilePrincipal) -> Answer:
            path = self.chance.choice(["calls", "events", "webhooks", "deliveries"])
            label = self.chance.choice(["", f"&client_session_id={other.name}", f"&correlation_id={other.name}"])
            return await self.request_rest(
                who, "GET", f"/v1/{path}?limit=50{label if path in {'calls', 'events'} else ''}"
            )

        async def own_tool(who: HostilePrincipal, _other: HostilePrincipal) -> Answer:
            return await self.request_modern(
                who, "tools/call", {"name": "ringback_list_calls", "arguments": {"limit": 50}}
            )

        async def tasks(who: HostilePrincipal, _other: HostilePrincipal) -> Answer:
            return await self.request_in_session(who, "tasks/list", {})

        return [rest, own_tool, tasks]

    def by_rest(self, line: str) -> Probe:
        method, path = line.split(" ")
        return lambda who, thing: self.request_rest(who, method, path.format(thing))

    def by_task(self, method: str) -> Probe:
        more: Json = {"inputResponses": {}} if method == "tasks/update" else {}
        return lambda who, thing: self.request_modern(who, method, {"taskId": thing, **more})

    def by_legacy_task(self, method: str) -> Probe:
        return lambda who, thing: self.request_in_session(who, method, {"taskId": thing})

    def by_own_tool(self, name: str) -> Probe:
        more: Json = {"responses": {"colour": {"action": "cancel"}}} if name == "ringback_answer_call" else {}
        return lambda who, thing: self.request_modern(
            who, "tools/call", {"name": name, "arguments": {"call_id": thing, **more}}
        )

    def by_session(self, method: str) -> Probe:
        return lambda who, thing: self.request_in_session(who, method, {}, session_id=thing)

    async def by_ending(self, who: HostilePrincipal, session_id: str) -> Answer:
        if session_id == who.session.headers["mcp-session-id"]:
            return 200, "kept: it is needed"
        headers = {**who.session.headers, "mcp-session-id": session_id}
        answer = await self.gate.http.delete(who.session.url, headers=headers)
        return answer.status_code, answer.text

    async def by_reading(self, who: HostilePrincipal, call_id: str) -> Answer:
        return await self.request_modern(who, "resources/read", {"uri": f"ringback://calls/{call_id}"})

    async def by_reading_in_session(self, who: HostilePrincipal, call_id: str) -> Answer:
        return await self.request_in_session(who, "resources/read", {"uri": f"ringback://calls/{call_id}"})

    async def by_subscribing(self, who: HostilePrincipal, call_id: str) -> Answer:
        return await self.request_in_session(who, "resources/subscribe", {"uri": f"ringback://calls/{call_id}"})

    async def by_listening(self, who: HostilePrincipal, call_id: str) -> Answer:
        client = await self.gate.make_modern_client("plain", principal=who.name)
        wanted: Json = {"taskIds": [call_id], "resourceSubscriptions": [f"ringback://calls/{call_id}"]}
        async with client.open_subscription(wanted) as stream:
            acknowledged = await stream.read_message()
        return 200, json.dumps(acknowledged["params"]["notifications"])

    async def by_waiting(self, who: HostilePrincipal, call_id: str) -> Answer:
        return await self.request_rest(who, "POST", "/v1/calls/wait", {"call_ids": [call_id], "wait_seconds": 0})

    async def by_resuming(self, who: HostilePrincipal, token: str) -> Answer:
        return await self.request_rest(who, "POST", "/v1/resume", {"resume_token": token})

    async def by_resuming_as_tool(self, who: HostilePrincipal, token: str) -> Answer:
        return await self.request_modern(
            who, "tools/call", {"name": "ringback_resume", "arguments": {"resume_token": token}}
        )

    async def by_retrying(self, who: HostilePrincipal, state: str) -> Answer:
        answers = {"colour": {"action": "accept", "content": {"colour": who.canary}}}
        params: Json = {"name": "ask", "arguments": {}, "requestState": state, "inputResponses": answers}
        return await self.request_modern(who, "tools/call", params, path="/mcp/paint")

    # -- the wire ----------------------------------------------------------------------------------------------------------

    async def request_rest(self, who: HostilePrincipal, method: str, path: str, body: Any = None) -> Answer:
        answer = await self.gate.request_rest(method, path, principal=who.name, json=body)
        return answer.status_code, answer.text

    async def request_modern(
        self, who: HostilePrincipal, method: str, params: Json, *, path: str = "/mcp/plain"
    ) -> Answer:
        answer = await HostileClient(self.gate, who.key).send_request(method, params, path=path)
        return answer.status_code, read_message_texts(answer.text)

    async def request_in_session(
        self, who: HostilePrincipal, method: str, params: Json, *, session_id: str | None = None
    ) -> Answer:
        headers = {**who.session.headers, **({"mcp-session-id": session_id} if session_id else {})}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self.gate.http.post(who.session.url, json=body, headers=headers)
        return answer.status_code, read_message_texts(answer.text)


def get_unknown_id(kind: str, foreign: str) -> str:
    """An id of this kind that does not exist."""
    if kind in UNKNOWN_IDS:
        return UNKNOWN_IDS[kind]
    middle = len(foreign) // 2
    return foreign[:middle] + ("A" if foreign[middle] != "A" else "B") + foreign[middle + 1 :]


@pytest.mark.requirement("R25")
async def test_a_foreign_resource_gets_the_error_of_an_unknown_one(gate: GatewayHarness, *, deep: bool) -> None:
    world = IsolationHarness(gate, random.Random(SEED))
    begin = [
        world.start_over_rest,
        world.start_modern,
        world.start_in_session,
        world.start_input_required,
        world.register_webhook,
    ]
    probes, lists, chance = world.probes(), world.lists(), world.chance
    own = foreign = 0
    async with AsyncExitStack() as stack:
        people: list[HostilePrincipal] = []
        for name in ("ada", "bob"):
            session = await stack.enter_async_context(gate.open_legacy_session("plain", principal=name))
            people.append(HostilePrincipal(name, await gate.get_api_key(name), session))
            people[-1].add_owned("session", session.headers["mcp-session-id"])
        for each in people:
            for start in begin:
                await start(each)
        for step in range(STEPS_DEEP if deep else STEPS):
            who, other = chance.sample(people, 2)
            kind, thing = chance.choice([*probes, "list", "begin"]), ""
            if kind == "begin":
                status, text = await chance.choice(begin)(who)
            elif kind == "list":
                status, text = await chance.choice(lists)(who, other)
            else:
                owner, probe = chance.choice([who, other]), chance.choice(probes[kind])
                thing = chance.choice(owner.owned_ids.get(kind) or [UNKNOWN_IDS["call"]])
                status, text = await probe(who, thing)
                if owner is other:
                    unknown = get_unknown_id(kind, thing)
                    expected = await probe(who, unknown)
                    assert (status, text.replace(thing, "IT")) == (expected[0], expected[1].replace(unknown, "IT")), (
                        step
                    )
                    foreign += 1
            assert status < 500, (step, kind, text)
            assert other.canary not in text, (step, kind, text)
            assert not any(call in text for call in other.owned_ids["call"] if call != thing), (step, kind, text)
            own += who.canary in text
    assert own > STEPS / 10
    assert foreign > STEPS / 10
