"""An upstream with `credentials: principal` behind the gateway and REST: each principal sees its own world, at one URL."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx
import pytest

from ringback.domain.principal import DEFAULT_SCOPES, Principal, Scope
from ringback.domain.upstream_logins import CredentialsScope
from tests.interaction.gateway.conftest import NO_CAPABILITIES
from tests.support.api_server import serving_api
from tests.support.application import RunningApplication, running_application
from tests.support.library_upstream import LibraryUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.logins import make_tokens
from tests.support.mcp_wire import JsonRpcErrorResponse, ModernClient
from tests.support.owned_upstream import ODD_TOOL, OwnedUpstream, make_token
from tests.support.upstreams import make_http_config, serving

OWNERS: Final = ("alice", "bob")
OWNED: Final = "own"
PAIRS: Final = (OWNERS, OWNERS[::-1])

MakeParams = Callable[[str], Mapping[str, Any]]


@dataclass(slots=True)
class OwnedGate:
    """The upstreams are `own`, to which alice and bob are signed in, and the shared `library`."""

    ringback: RunningApplication
    folder: Any
    url: str
    http: httpx.AsyncClient
    worlds: OwnedUpstream
    keys: dict[str, str] = field(default_factory=dict[str, str])

    async def get_api_key(self, principal: str, *, is_operator: bool = False) -> str:
        name = f"{principal} {is_operator}"
        if name not in self.keys:
            scopes = frozenset({Scope.ADMIN}) if is_operator else DEFAULT_SCOPES
            keys = self.ringback.app.services.api_keys
            _, self.keys[name] = await keys.create_key(principal, name="test", scopes=scopes, upstreams=None)
        return self.keys[name]

    async def make_client(self, principal: str, path: str = "/mcp") -> ModernClient:
        return ModernClient(self.http, self.url + path, await self.get_api_key(principal))

    async def request_rest(
        self, method: str, path: str, principal: str, *, is_operator: bool = False, **options: Any
    ) -> httpx.Response:
        key = await self.get_api_key(principal, is_operator=is_operator)
        return await self.http.request(
            method, f"{self.url}{path}", headers={"authorization": f"Bearer {key}"}, **options
        )


@pytest.fixture(scope="module")
async def gate(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[OwnedGate]:
    folder, worlds = module_path_factory.mktemp("owned"), OwnedUpstream(OWNERS)
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(serving(worlds.app("modern")))
        library = await stack.enter_async_context(serving(LibraryUpstream().app("modern")))
        ringback = await stack.enter_async_context(
            running_application(
                folder,
                replace(make_http_config(own.url, name=OWNED), credentials=CredentialsScope.PRINCIPAL),
                make_http_config(library.url, name="library"),
                allowed_hosts=("127.0.0.1",),
                inline_wait_seconds=50.0,
            )
        )
        for owner in OWNERS:
            tokens = make_tokens(
                upstream=OWNED, owner=Principal(owner), access_token=make_token(owner), resource=own.url
            )
            assert await ringback.app.store.write(
                lambda tx, tokens=tokens: tx.upstream_tokens.save(tokens, expected_version=None)
            )
        url = await stack.enter_async_context(serving_api(ringback.app.api))
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        yield OwnedGate(ringback, folder, url, http, worlds)


LISTS: Final = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")


@pytest.mark.parametrize("path", ["/mcp", f"/mcp/{OWNED}"])
@pytest.mark.parametrize("method", LISTS)
async def test_a_list_shows_a_principal_its_own_entries_only(gate: OwnedGate, path: str, method: str) -> None:
    for principal, other in PAIRS:
        client = await gate.make_client(principal, path)
        listed = json.dumps(await client.request(method, {}, declare=NO_CAPABILITIES))

        assert principal in listed
        assert other not in listed


REQUESTS: Final[list[tuple[str, MakeParams]]] = [
    ("tools/call", lambda owner: {"name": f"{OWNED}__{owner}-tool", "arguments": {}}),
    ("resources/read", lambda owner: {"uri": f"book://{owner}"}),
    ("prompts/get", lambda owner: {"name": f"{OWNED}__{owner}-prompt"}),
    (
        "completion/complete",
        lambda owner: {
            "ref": {"type": "ref/prompt", "name": f"{OWNED}__{owner}-prompt"},
            "argument": {"name": "any", "value": ""},
        },
    ),
    (
        "completion/complete",
        lambda owner: {
            "ref": {"type": "ref/resource", "uri": f"book://{owner}/{{page}}"},
            "argument": {"name": "page", "value": ""},
        },
    ),
]
REQUEST_IDS: Final = ("tool", "resource", "prompt", "completion of a prompt", "completion of a template")


@pytest.mark.parametrize(("method", "make_params"), REQUESTS, ids=REQUEST_IDS)
async def test_a_request_is_answered_by_the_principals_own_world(
    gate: OwnedGate, method: str, make_params: MakeParams
) -> None:
    for principal, other in PAIRS:
        client = await gate.make_client(principal)
        result = json.dumps(await client.request(method, make_params(principal), declare=NO_CAPABILITIES))

        assert principal in result
        assert other not in result


@pytest.mark.parametrize(("method", "make_params"), REQUESTS, ids=REQUEST_IDS)
async def test_what_only_another_principal_sees_is_unknown(
    gate: OwnedGate, method: str, make_params: MakeParams
) -> None:
    client = await gate.make_client("alice")
    bobs = await gate.make_client("bob")
    await bobs.request("tools/list", {}, declare=NO_CAPABILITIES)
    params = make_params("bob")
    before = gate.worlds["bob"].request_count
    try:
        result = json.dumps(await client.request(method, params, declare=NO_CAPABILITIES))
    except JsonRpcErrorResponse as error:
        result = error.message

    for secret in ("a result of bob", "a book of bob", "bob-value", "bob-argument", f"bob has {ODD_TOOL}"):
        assert secret not in result
    assert gate.worlds["bob"].request_count == before


async def list_tool_names(client: ModernClient) -> list[str]:
    listed = await client.request("tools/list", {}, declare=NO_CAPABILITIES)
    return [tool["name"] for tool in listed["tools"]]


async def test_a_shortened_alias_names_a_tool_of_its_principal_and_is_not_stored_for_others(gate: OwnedGate) -> None:
    aliases: dict[str, str] = {}
    for principal in OWNERS:
        client = await gate.make_client(principal)
        (aliases[principal],) = [name for name in await list_tool_names(client) if f"{principal}_has" in name]
        result = await client.request(
            "tools/call", {"name": aliases[principal], "arguments": {}}, declare=NO_CAPABILITIES
        )
        assert f"a result of {principal}" in json.dumps(result)

    alice = await gate.make_client("alice")
    with pytest.raises(JsonRpcErrorResponse) as error_info:
        await alice.request("tools/call", {"name": aliases["bob"], "arguments": {}}, declare=NO_CAPABILITIES)
    assert f"bob has {ODD_TOOL}" not in error_info.value.message
    assert list(await gate.ringback.app.store.read(lambda tx: tx.tool_aliases.list_all())) == []


async def test_rest_lists_and_runs_the_tools_of_its_caller(gate: OwnedGate) -> None:
    for principal, other in PAIRS:
        listed = (await gate.request_rest("GET", f"/v1/upstreams/{OWNED}/tools", principal)).text
        assert principal in listed
        assert other not in listed
        body: dict[str, Any] = {"upstream": OWNED, "tool": f"{principal}-tool", "arguments": {}, "wait_seconds": 45}
        started = (await gate.request_rest("POST", "/v1/calls", principal, json=body)).json()
        result = await gate.request_rest("GET", f"/v1/calls/{started['call']['id']}/result", principal)
        assert f"a result of {principal}" in result.text

        refused = await gate.request_rest("POST", "/v1/calls", principal, json=body | {"tool": f"{other}-too"})
        assert refused.status_code == 422
        assert f"{other}-tool" not in refused.text


async def test_a_principal_sees_its_own_connection_and_an_operator_the_number_of_all(gate: OwnedGate) -> None:
    for principal in OWNERS:
        await gate.request_rest("GET", f"/v1/upstreams/{OWNED}/tools", principal)

    async def read_upstream(principal: str, *, is_operator: bool = False) -> Any:
        answer = await gate.request_rest("GET", "/v1/upstreams", principal, is_operator=is_operator)
        return answer.json()["upstreams"][0]

    own, foreign = await read_upstream("alice"), await read_upstream("carol")
    assert (own["name"], own["state"], own["connections"]) == (OWNED, "ready", 1)
    assert (foreign["state"], foreign["connections"]) == ("idle", 0)
    assert (own["signed_in_owners"], foreign["signed_in_owners"]) == (None, None)
    total = await read_upstream("carol", is_operator=True)
    assert total["connections"] >= 2
    assert total["signed_in_owners"] == 2
