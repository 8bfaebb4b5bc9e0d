"""Any node serves any request, and each node has its own limits towards upstreams."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from ringback.bootstrap import workers
from ringback.client import CallOptions, RingbackClient
from ringback.runner.leasing import RunnerConfig
from ringback.upstreams.config import Isolation
from tests.interaction.interop.test_npm_client import parse_sessions, run_npm_client
from tests.interaction.interop.test_python_sdk import MODES, get_pending, observe, open_client
from tests.interaction.nodes.conftest import NEVER, Site
from tests.support.alternating_proxy import AlternatingProxy
from tests.support.application import start_upstream_call, wait_until_ended
from tests.support.asking_upstream import AskingUpstream
from tests.support.interop_upstream import InteropUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.nodes import running_cluster
from tests.support.upstreams import make_http_config, make_raw_config, serving

pytestmark = pytest.mark.requirement("R34")

HELD: Final[CallOptions] = {"upstream": "stage", "tool": "hold", "arguments": {}}


@dataclass(frozen=True, slots=True)
class Street:
    upstream: InteropUpstream
    direct_url: str
    url: str
    """Through a proxy that sends each request to the other one of two nodes."""
    proxy: AlternatingProxy


@asynccontextmanager
async def open_street(folder: Path) -> AsyncGenerator[Street]:
    upstream = InteropUpstream()
    async with (
        serving(upstream.app()) as server,
        running_cluster(
            folder,
            replace(make_http_config(server.url), tool_inline_wait_seconds={"hold": 0.2}),
            inline_wait_seconds=50.0,
        ) as cluster,
    ):
        nodes = [await cluster.start_node() for _ in range(2)]
        key = await cluster.create_key("alice")
        proxy = AlternatingProxy([node.url for node in nodes], headers={"Authorization": f"Bearer {key}"})
        async with serving(proxy) as balancer:
            yield Street(upstream, server.url, f"{balancer.url}/stage", proxy)


@pytest.mark.requirement("R28")
async def test_the_python_sdk_gets_the_same_through_alternating_nodes_in_both_eras(tmp_path: Path) -> None:
    async with open_street(tmp_path) as street:
        for mode in MODES:
            street.upstream.reset()
            assert await observe(street.url, mode) == await observe(street.direct_url, mode)
            async with open_client(street.url, mode) as client:
                pending = await client.call_tool("hold", {})
                street.upstream.release.set()
                ended = await client.call_tool("ringback_wait_for_call", {"call_id": get_pending(pending)["call_id"]})
            assert ended.structured_content is not None
            assert ended.structured_content["status"] == "completed"
    used = Counter(server for server, _ in street.proxy.requests)
    assert len(used) == 2


@pytest.mark.requirement("R28")
async def test_the_javascript_sdk_gets_the_same_through_alternating_nodes_in_both_eras(tmp_path: Path) -> None:
    async with open_street(tmp_path) as street:
        client = await run_npm_client(f"{street.direct_url},{street.url}", "legacy,2026-07-28")
        sessions = await parse_sessions(client)
    assert len(sessions) == 4
    for direct, through in (sessions[:2], sessions[2:]):
        assert through == direct
        assert direct["ask"]["content"][0]["text"] == "painted blue"
    used = Counter(server for server, _ in street.proxy.requests)
    assert len(used) == 2


async def test_each_node_runs_as_many_calls_of_an_upstream_as_max_concurrent_says(site: Site) -> None:
    one_at_a_time = [replace(config, max_concurrent=1) for config in site.cluster.upstreams]
    first, _ = [await site.cluster.start_node(upstreams=one_at_a_time) for _ in range(2)]
    alice = await first.client(await site.cluster.create_key("alice"))

    calls = [await start_upstream_call(alice, "hold", site.phone) for _ in range(3)]
    await site.stage.wait_until_held(2)

    assert len(site.stage.calls) == 2
    site.stage.release.set()
    assert {(await wait_until_ended(alice, call)).status for call in calls} == {"completed"}
    assert len(site.stage.calls) == 3


@pytest.mark.requirement("R11")
async def test_nodes_that_look_at_once_each_lease_all_that_one_principal_may_have_there(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that skipped the calls of the other one looks again when they are committed, and not at the next poll."""
    monkeypatch.setattr(workers, "RunnerConfig", partial(RunnerConfig, poll_seconds=NEVER))
    eight_at_a_time = [replace(config, max_concurrent=8) for config in site.cluster.upstreams]
    api = await site.cluster.start_node(roles="api", upstreams=eight_at_a_time)
    alice = await api.client(await site.cluster.create_key("alice"))
    await site.cluster.create_key("bob")
    for _ in range(2):
        await site.cluster.start_node(roles="runner", upstreams=eight_at_a_time)

    await alice.start_calls([HELD] * 40)

    await asyncio.wait_for(site.stage.wait_until_held(12), WAIT_SECONDS)
    assert site.stage.held_count == 12

    keys = api.ringback.app.services.api_keys
    (bobs,) = (key for key in await keys.list_keys() if key.principal == "bob")
    await keys.revoke_key(bobs.id)
    await asyncio.wait_for(site.stage.wait_until_held(16), WAIT_SECONDS)


async def test_each_node_starts_a_stdio_server_of_its_own(tmp_path: Path) -> None:
    async def read_pid(client: RingbackClient) -> int:
        started = await client.start_call("stage", "whoami", {})
        await wait_until_ended(client, started.call)
        result = await client.result(started.call.id)
        return json.loads(result["content"][0]["text"])["pid"]

    async with running_cluster(tmp_path, make_raw_config()) as cluster:
        near, far = [await (await cluster.start_node()).client(await cluster.create_key("alice")) for _ in range(2)]
        pids = [await read_pid(each) for each in (near, far) * 5]  # a start beside a lease leaves its call to any node

    assert len(set(pids)) == 2


async def test_each_node_has_a_session_of_its_own_for_each_principal(tmp_path: Path) -> None:
    upstream = AskingUpstream()

    async def count_visits(client: RingbackClient) -> str:
        started = await client.start_call("stage", "visits", {})
        await wait_until_ended(client, started.call)
        result = await client.result(started.call.id)
        return str(result["content"][0]["text"])

    async with serving(upstream.app()) as server:
        config = replace(make_http_config(server.url), isolation=Isolation.PRINCIPAL)
        async with running_cluster(tmp_path, config) as cluster:
            first, second = [await cluster.start_node() for _ in range(2)]
            alices, bobs = await cluster.create_key("alice"), await cluster.create_key("bob")
            near, far = await first.client(alices), await second.client(alices)
            visits = [await count_visits(each) for each in (near, near, far, await first.client(bobs), far)]

    bobs_visit = visits.pop(3)
    assert bobs_visit == "1"
    # A busy node leaves a call to the other one, so each of Alice's two sessions gets some of her calls.
    assert sorted(visits) in (["1", "1", "2", "2"], ["1", "1", "2", "3"], ["1", "2", "3", "4"])
