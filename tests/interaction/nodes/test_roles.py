"""Each node does what its roles say, and the nodes together do everything."""

import json
import logging
from datetime import timedelta

import pytest

from ringback.domain.call import CallPhase
from ringback.domain.ports import Transaction
from ringback.domain.roles import CHANGES_DUTY, COUNT_DUTY, DISPATCH_DUTY, Role
from ringback.services.insights import readiness
from ringback.services.insights.missing_roles import REPEAT_SECONDS, RoleWatch, has_node
from ringback.settings import SettingsError
from tests.interaction.nodes.conftest import Site
from tests.interaction.nodes.test_operations import run_command
from tests.support.application import running_application, start_upstream_call, wait_until_ended
from tests.support.builders import make_call, make_delivery
from tests.support.clock import FakeClock
from tests.support.nodes import Node, wait_for_node

pytestmark = pytest.mark.requirement("R34")

ROLE_WATCH = RoleWatch.__module__
LACKS_JANITOR = (
    "No node runs the role janitor: what a dead node leaves is not recovered, and nothing expires. Start one."
)


async def test_a_call_passes_through_four_nodes_with_one_role_each(site: Site) -> None:
    api = await site.cluster.start_node(roles="api")
    for role in ("runner", "dispatcher", "janitor"):
        await site.cluster.start_node(roles=role)
    alice = await api.client(await site.cluster.create_key("alice"))

    call = await start_upstream_call(alice, "echo", site.phone)
    callback = await site.phone.wait_for_callback("echo")

    assert (await wait_until_ended(alice, call)).outcome == "result"
    assert callback.call_id == call.id
    assert len(site.stage.calls) == 1


async def test_a_node_without_the_api_serves_health_readiness_and_metrics_only(site: Site) -> None:
    worker = await site.cluster.start_node(roles="runner,dispatcher")
    key = await site.cluster.create_key("alice")

    assert (await worker.get("/healthz")).json() == {"status": "ok"}
    assert (await worker.get("/readyz")).json()["roles"] == {"runner": True, "dispatcher": True}
    assert "ringback_calls" in (await worker.get("/metrics", key=key)).text
    for path in ("/v1/calls", "/mcp", "/openapi.json", "/llms.txt"):
        refusal = await worker.get(path, key=key)
        assert refusal.status_code == 404
        assert "RINGBACK_ROLES" in refusal.text


async def test_only_a_node_that_speaks_to_upstreams_connects_to_them(site: Site) -> None:
    dispatcher = await site.cluster.start_node(roles="dispatcher,janitor")
    api = await site.cluster.start_node(roles="api")
    alice = await api.client(await site.cluster.create_key("alice"))

    assert [tool.name for tool in await alice.tools("stage")][:2] == ["echo", "hold"]
    assert dispatcher.ringback.app.services.insights._catalog.list_upstreams() == []  # pyright: ignore[reportPrivateUsage]


async def test_a_node_without_a_runner_leaves_its_calls_to_the_others(site: Site) -> None:
    api = await site.cluster.start_node(roles="api,dispatcher,janitor")
    alice = await api.client(await site.cluster.create_key("alice"))
    call = await start_upstream_call(alice, "echo", site.phone)
    assert (await alice.call(call.id)).status == "working"

    await site.cluster.start_node(roles="runner")

    assert (await wait_until_ended(alice, call)).outcome == "result"


async def test_a_node_without_a_dispatcher_holds_no_delivery(site: Site) -> None:
    node = await site.cluster.start_node(roles="api,runner")
    alice = await node.client(await site.cluster.create_key("alice"))
    await wait_until_ended(alice, await start_upstream_call(alice, "echo", site.phone))
    assert [each.state async for each in alice.deliveries()] == ["pending"]

    await site.cluster.start_node(roles="dispatcher")

    assert (await site.phone.wait_for_callback("echo")).correlation_id == "echo"


async def test_sqlite_refuses_roles_that_leave_work_undone(site: Site) -> None:
    database = f"sqlite:///{site.cluster.folder / 'ringback.db'}"
    with pytest.raises(SettingsError, match=r"RINGBACK_ROLES: .*dispatcher, janitor is missing"):
        async with running_application(site.cluster.folder, database_url=database, roles="api,runner"):
            raise NotImplementedError


async def insert_waiting_work(node: Node) -> None:
    """A queued call, one whose runner died, and a due delivery, which have waited for two minutes."""

    async def insert(tx: Transaction) -> None:
        before = tx.now() - timedelta(minutes=2)
        times = {"created_at": before, "deadline_at": tx.now() + timedelta(days=1)}
        await tx.calls.insert(make_call(**times))
        leased = {"lease_owner": "dead", "lease_token": "dead", "lease_until": before}
        await tx.calls.insert(make_call(phase=CallPhase.RUNNING, **leased, **times))
        await tx.deliveries.insert([make_delivery(due_at=before, give_up_at=tx.now() + timedelta(days=1))])

    await node.ringback.app.store.write(insert)


async def lease_duty(node: Node, duty: str) -> None:
    """As a node with its role does."""

    async def lease(tx: Transaction) -> None:
        await tx.leaders.acquire(duty, owner="other", until=tx.now() + timedelta(minutes=5), now=tx.now())

    await node.ringback.app.store.write(lease)


async def test_readiness_names_the_roles_that_work_waits_for_and_no_node_runs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "CHECK_TTL_SECONDS", 0.0)
    node = await site.cluster.start_node(roles="api")
    assert (await node.get("/readyz")).json()["degraded"] == []

    await insert_waiting_work(node)
    missing = await node.get("/readyz")
    assert (missing.status_code, missing.json()["degraded"]) == (
        200,
        ["role dispatcher", "role janitor", "role runner"],
    )

    await lease_duty(node, CHANGES_DUTY)
    await lease_duty(node, DISPATCH_DUTY)
    assert (await node.get("/readyz")).json()["degraded"] == ["role janitor"]


async def test_a_node_with_the_role_dispatcher_shows_the_others_that_it_runs(site: Site) -> None:
    dispatcher = await site.cluster.start_node(roles="dispatcher")
    with dispatcher.ringback.app.store.signals.listen(f"duty:{DISPATCH_DUTY}") as stopped:
        await wait_for_node(dispatcher, Role.DISPATCHER)
        api = await site.cluster.start_node(roles="api")

        await dispatcher.stop()

        assert await stopped.wait(0)
    assert not await api.ringback.app.store.read(lambda tx: has_node(tx, Role.DISPATCHER))


async def test_each_node_logs_the_roles_that_no_node_runs_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    node = await site.cluster.start_node(roles="api")
    watch = RoleWatch(store=node.ringback.app.store, clock=(clock := FakeClock()))

    async def read_lines() -> list[tuple[str, str]]:
        caplog.clear()
        await watch.run_once()
        return [(line.message, str(getattr(line, "roles", []))) for line in caplog.records if line.name == ROLE_WATCH]

    with caplog.at_level(logging.INFO, logger=ROLE_WATCH):
        assert await read_lines() == []
        await insert_waiting_work(node)
        assert await read_lines() == [("roles.missing", "['runner', 'janitor', 'dispatcher']")]
        assert await read_lines() == []
        clock.advance(REPEAT_SECONDS)
        assert await read_lines() == [("roles.missing", "['runner', 'janitor', 'dispatcher']")]
        for duty in (CHANGES_DUTY, COUNT_DUTY):
            await lease_duty(node, duty)
        assert await read_lines() == [("roles.missing", "['dispatcher']")]
        await lease_duty(node, DISPATCH_DUTY)
        assert await read_lines() == [("roles.complete", "[]")]
    assert "role-watch" in node.ringback.app.supervisor.running_workers()


async def test_the_doctor_names_a_role_that_no_node_runs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> tuple[bool, str]:
        listed = json.loads(await run_command(site, monkeypatch, "doctor", "--json"))
        (found,) = [each for each in listed if each["about"] == "roles of nodes"]
        return found["ok"], found["detail"]

    node = await site.cluster.start_node(roles="api")
    assert (await check())[0]

    await lease_duty(node, CHANGES_DUTY)
    assert await check() == (False, LACKS_JANITOR)

    await insert_waiting_work(node)
    waiting, detail = await check()
    assert not waiting
    assert detail.startswith("Work has waited for a minute for a role that no node runs: janitor, dispatcher.")

    await lease_duty(node, COUNT_DUTY)
    await lease_duty(node, DISPATCH_DUTY)
    assert (await check())[0]
