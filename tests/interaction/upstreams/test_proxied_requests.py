"""Requests that a gateway forwards: results and errors are unchanged, and only permitted methods pass."""

import asyncio
from dataclasses import replace
from typing import Any

import mcp_types as types
import pytest

from ringback.domain.errors import InvalidRequest, UnknownUpstream
from ringback.domain.principal import Principal
from ringback.domain.upstreams import Listing, UpstreamErrorResponse
from tests.support.examples import ALICE, BOB
from tests.support.library_upstream import BOOK_URI, UPSTREAM_NAME, LibraryUpstream
from tests.support.proxies import list_when_connected, parametrize_eras, serving_proxy
from tests.support.upstreams import (
    WAIT_SECONDS,
    Context,
    make_http_config,
    make_python_config,
    open_upstreams,
    serving,
    wait_until_true,
)

pytestmark = pytest.mark.usefixtures("in_a_hurry")


@parametrize_eras
async def test_requests_are_passed_on_and_answers_come_back_as_they_are(era: str) -> None:
    async with serving_proxy(LibraryUpstream(), era) as (proxy, _):
        read = await proxy.send_request(UPSTREAM_NAME, "resources/read", {"uri": BOOK_URI}, principal=ALICE)
        prompt = await proxy.send_request(
            UPSTREAM_NAME, "prompts/get", {"name": "review", "arguments": {"of": "me"}}, principal=ALICE
        )
        completed = await proxy.send_request(
            UPSTREAM_NAME,
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "of", "value": ""}},
            principal=ALICE,
        )

    assert read["contents"][0]["text"] == "Once …"
    assert prompt["messages"][0]["content"]["text"] == "review: {'of': 'me'}"
    assert completed["completion"]["values"] == ["1", "2"]


class SlowLibrary(LibraryUpstream):
    """Holds each prompt until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.requested, self.release = asyncio.Event(), asyncio.Event()

    async def _get_prompt(self, _context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        self.requested.set()
        await self.release.wait()
        return await super()._get_prompt(_context, params)


@parametrize_eras
async def test_a_request_that_waits_while_the_configuration_is_replaced_gets_its_response(era: str) -> None:
    library = SlowLibrary()
    async with (
        serving(library.app(era)) as server,
        open_upstreams(config := make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams,
    ):
        await list_when_connected(upstreams.proxy, UPSTREAM_NAME, Listing.PROMPTS)
        params: dict[str, Any] = {"name": "review", "arguments": {}}
        waiting = asyncio.ensure_future(
            upstreams.proxy.send_request(UPSTREAM_NAME, "prompts/get", params, principal=ALICE)
        )
        async with asyncio.timeout(WAIT_SECONDS):
            await library.requested.wait()
        assert upstreams.reconfigure([replace(config, headers={"x-new": "1"})]).changed == [UPSTREAM_NAME]
        await list_when_connected(upstreams.proxy, UPSTREAM_NAME, Listing.PROMPTS)

        library.release.set()
        prompt = await asyncio.wait_for(waiting, WAIT_SECONDS)

    assert prompt["messages"][0]["content"]["text"] == "review: {}"


class CrowdedLibrary(SlowLibrary):
    """Notes for whom each prompt is."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[str] = []

    async def _get_prompt(self, _context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        self.readers.append((params.arguments or {})["of"])
        return await super()._get_prompt(_context, params)


@parametrize_eras
async def test_a_principal_has_half_as_many_requests_at_an_upstream_as_it_takes_calls_and_leaves_room_for_others(
    era: str,
) -> None:
    library = CrowdedLibrary()
    async with (
        serving(library.app(era)) as server,
        open_upstreams(replace(make_http_config(server.url, name=UPSTREAM_NAME), max_concurrent=4)) as upstreams,
        asyncio.timeout(WAIT_SECONDS),
    ):
        await list_when_connected(upstreams.proxy, UPSTREAM_NAME, Listing.PROMPTS)

        def request(principal: Principal) -> asyncio.Future[Any]:
            params = {"name": "review", "arguments": {"of": principal}}
            send = upstreams.proxy.send_request(UPSTREAM_NAME, "prompts/get", params, principal=principal)
            return asyncio.ensure_future(send)

        waiting = [request(ALICE) for _ in range(5)]
        await wait_until_true(lambda: library.readers.count(ALICE) >= 2)
        waiting.append(request(BOB))
        await wait_until_true(lambda: BOB in library.readers)
        before = sorted(library.readers)
        library.release.set()
        await asyncio.gather(*waiting)

    assert before == [ALICE, ALICE, BOB]
    assert sorted(library.readers) == [*[ALICE] * 5, BOB]


@parametrize_eras
async def test_a_refusal_is_passed_on_as_it_is(era: str) -> None:
    async with serving_proxy(LibraryUpstream(), era) as (proxy, _):
        with pytest.raises(UpstreamErrorResponse) as refused:
            await proxy.send_request(UPSTREAM_NAME, "resources/read", {"uri": "book://none"}, principal=ALICE)

    assert refused.value.error == {"code": -32602, "message": "There is no such book.", "data": {"uri": "book://none"}}


@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", {"name": "talk"}), ("logging/setLevel", {"level": "debug"}), ("resources/read", {"uri": 7})],
)
@parametrize_eras
async def test_nothing_else_is_passed_on(era: str, method: str, params: dict[str, Any]) -> None:
    async with serving_proxy(LibraryUpstream(), era) as (proxy, _):
        with pytest.raises(InvalidRequest):
            await proxy.send_request(UPSTREAM_NAME, method, params, principal=ALICE)


@parametrize_eras
async def test_an_upstream_that_is_not_configured_is_unknown(era: str) -> None:
    async with serving_proxy(LibraryUpstream(), era) as (proxy, _):
        with pytest.raises(UnknownUpstream):
            await proxy.get_profile("nobody", principal=ALICE)
        with pytest.raises(UnknownUpstream):
            await proxy.list_entries("nobody", Listing.TOOLS, principal=ALICE)
        with pytest.raises(UnknownUpstream):
            await proxy.send_request("nobody", "prompts/get", {"name": "review"}, principal=ALICE)
        with pytest.raises(UnknownUpstream):
            proxy.subscribe_changes("nobody", principal=ALICE)
        with pytest.raises(UnknownUpstream):
            proxy.subscribe_resource("nobody", BOOK_URI, principal=ALICE)


async def test_a_server_on_a_pipe_is_passed_on_as_it_is() -> None:
    async with open_upstreams(make_python_config("-m", "tests.support.stdio_upstream", name="child")) as upstreams:
        tools = await list_when_connected(upstreams.proxy, "child", Listing.TOOLS)
        profile = await upstreams.proxy.get_profile("child", principal=ALICE)
        prompts = await upstreams.proxy.list_entries("child", Listing.PROMPTS, principal=ALICE)
        with pytest.raises(UpstreamErrorResponse) as refused:
            await upstreams.proxy.send_request("child", "resources/read", {"uri": BOOK_URI}, principal=ALICE)

    assert "whoami" in [tool["name"] for tool in tools]
    assert profile is not None
    assert profile.server_info["name"] == "child"
    assert prompts == []
    assert (refused.value.error["code"], refused.value.error["data"]) == (-32601, {"method": "resources/read"})
