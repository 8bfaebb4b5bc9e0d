"""A node that does not have a key of the others leaves what it cannot read to them, and its readiness says so."""

import logging
from base64 import b64encode
from datetime import timedelta
from typing import Any

import httpx
import pytest

from ringback.domain.call import MRTR_DRIVER, Handle
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.clock import SystemClock
from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import ALL_SCOPES
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier.unsendable_deliveries import LEFT_TO_OTHERS_SECONDS
from ringback.services.insights import readiness
from ringback.services.sealing_keys import accept_lost_keys
from tests.interaction.nodes.conftest import Site
from tests.support.application import start_upstream_call
from tests.support.builders import make_call, make_delivery, make_verified_webhook
from tests.support.clock import FakeClock
from tests.support.databases import migrated_postgres
from tests.support.engine import Engine, ScriptedUpstreams, wait_until
from tests.support.keyed_nodes import KEYS, node_with
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import legacy_session
from tests.support.nodes import SECRET_KEYS, Node
from tests.support.signed_posts import SECRET

pytestmark = pytest.mark.requirement("R34")


async def dispatch(engine: Engine) -> int:
    """The number of callbacks that the node sends in three rounds."""
    dispatcher = engine.make_dispatcher(lambda _: httpx.Response(204))
    return sum([await dispatcher.run_once() for _ in range(3)])


async def insert_both(nodes: tuple[Engine, Engine]) -> tuple[Webhook, Webhook]:
    """A webhook whose secret has the new key, and one whose callback has it."""
    without, having = nodes
    secret, body = make_verified_webhook(), make_verified_webhook(url="https://body.example/hook")
    await having.insert_webhooks(secret)
    await without.insert_webhooks(body)
    await having.insert_deliveries(make_delivery(webhook_id=body.id, seq=7))
    return secret, body


async def test_what_a_node_cannot_read_is_sent_by_the_node_that_has_the_key(nodes: tuple[Engine, Engine]) -> None:
    without, having = nodes
    secret, body = await insert_both(nodes)
    await without.finish_call(make_call())
    sent = await dispatch(without)

    webhooks = [await having.read_webhook(webhook.id) for webhook in (secret, body)]
    assert [(webhook.state, webhook.last_error) for webhook in webhooks] == [(WebhookState.ACTIVE, None)] * 2
    waiting = [delivery for delivery in await having.read_deliveries() if delivery.state is not DeliveryState.DELIVERED]
    assert {(each.state, each.attempts, each.lease_token) for each in waiting} == {(DeliveryState.PENDING, 0, None)}
    assert secret.id in {each.webhook_id for each in waiting}

    assert sent + await dispatch(having) == 3
    assert {delivery.state for delivery in await having.read_deliveries()} == {DeliveryState.DELIVERED}


@pytest.mark.parametrize("is_answered", [False, True], ids=["new", "answered"])
async def test_a_call_that_a_node_cannot_read_is_run_by_the_node_that_has_the_key(
    caplog: pytest.LogCaptureFixture, *, is_answered: bool
) -> None:
    """Arguments are sealed with RINGBACK_SEAL=all. The next round of an answered call repeats them."""
    asked = Handle(driver=MRTR_DRIVER, data={"request_state": "s", "round": 1})
    now = SystemClock().now()
    sent = {"handle": asked, "dispatched_at": now, "runs": 1} if is_answered else {}
    call = make_call(deadline_at=now + timedelta(days=1), **sent)
    unread, read = ScriptedUpstreams(), ScriptedUpstreams()
    with migrated_postgres() as url:
        async with (
            node_with(url, SystemClock(), "old", seals_content=True) as without,
            node_with(url, SystemClock(), "new", "old", seals_content=True) as having,
        ):
            await having.store.write(lambda tx: tx.calls.insert(call))
            with caplog.at_level(logging.INFO):
                async with without.running_runner(unread):

                    async def is_handed_back() -> bool:
                        return "call.handed_back" in caplog.messages

                    await wait_until(is_handed_back)
                    async with having.running_runner(read):
                        (ended,) = await having.wait_until_final(call)

    assert ended.outcome is CallOutcome.RESULT
    assert ([each.id for each in unread.called], [each.id for each in read.called]) == ([], [call.id])
    assert caplog.messages.count("call.handed_back") == 1


async def test_what_no_node_can_read_any_more_ends_once_the_loss_of_the_key_is_accepted(
    nodes: tuple[Engine, Engine], fake_clock: FakeClock
) -> None:
    without, _ = nodes
    secret, _ = await insert_both(nodes)
    await dispatch(without)

    await accept_lost_keys(without.store, ["old"])
    await without.finish_call(make_call())
    fake_clock.advance(LEFT_TO_OTHERS_SECONDS + 1)
    await dispatch(without)

    assert (await without.read_webhook(secret.id)).state is WebhookState.SUSPENDED
    states = {(each.webhook_id == secret.id, each.state) for each in await without.read_deliveries()}
    assert (True, DeliveryState.HELD) in states
    assert (False, DeliveryState.DEAD) in states


async def test_readiness_names_the_keys_while_another_node_has_more(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "CHECK_TTL_SECONDS", 0.0)
    node = await site.cluster.start_node()
    assert (await node.get("/readyz")).json()["degraded"] == []

    await site.cluster.start_node(secret_keys=f"new:{b64encode(KEYS['new']).decode()},{SECRET_KEYS}")

    response = await node.get("/readyz")
    assert (response.status_code, response.json()["degraded"]) == (200, ["RINGBACK_SECRET_KEYS"])


async def test_a_node_that_starts_without_the_newest_key_of_another_node_knows_that_it_lacks_it(site: Site) -> None:
    """The key has sealed nothing yet, so the start removes its row: what it seals later would count as unreadable for good."""
    await site.cluster.start_node(secret_keys=f"new:{b64encode(KEYS['new']).decode()},{SECRET_KEYS}")
    without = await site.cluster.start_node()

    async def lacks_key() -> bool:
        degraded: list[str] = (await without.get("/readyz")).json()["degraded"]
        return degraded == ["RINGBACK_SECRET_KEYS"]

    await wait_until(lacks_key)


async def test_a_resume_token_of_a_key_that_this_node_lacks_is_not_refused_for_good(site: Site) -> None:
    """A client gives a token up for good after a 404. Behind a balancer, the next node may have the key."""
    without = await site.cluster.start_node()
    key = await site.cluster.create_key("alice")
    having = await site.cluster.start_node(secret_keys=f"new:{b64encode(KEYS['new']).decode()},{SECRET_KEYS}")
    started = await start_upstream_call(await having.client(key), "echo", site.phone)
    token = await (await having.client(key)).fresh_resume_token(started.id)

    refused = await without.post("/v1/resume", {"resume_token": token}, key=key)
    assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
    assert "lacks a key" in refused.json()["detail"]
    assert (await having.post("/v1/resume", {"resume_token": token}, key=key)).status_code == 200
    assert (await having.post("/v1/resume", {"resume_token": f"{token[:-4]}AAAA"}, key=key)).status_code == 404
    assert (await without.post("/v1/resume", {"resume_token": "no token"}, key=key)).status_code == 404


async def test_a_session_that_a_node_cannot_read_is_not_ended_for_its_client(site: Site) -> None:
    """After a 404 a client ends its session, with the requests that wait in it. The next node may have the key."""
    without = await site.cluster.start_node()
    having = await site.cluster.start_node(secret_keys=f"new:{b64encode(KEYS['new']).decode()},{SECRET_KEYS}")
    key = await site.cluster.create_key("alice")
    ping: dict[str, Any] = {"jsonrpc": "2.0", "id": 99, "method": "ping", "params": {}}
    async with (
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
        legacy_session(http, f"{having.url}/mcp/stage", key=key) as session,
    ):
        url = f"{without.url}/mcp/stage"
        unknown = {**session.headers, "mcp-session-id": "0" * 32}

        refused = await http.post(url, headers=session.headers, json=ping)
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
        assert "lacks a key" in refused.text
        assert (await http.delete(url, headers=session.headers)).status_code == 503
        assert (await http.post(url, headers=unknown, json=ping)).status_code == 404
        assert (await http.post(session.url, headers=session.headers, json=ping)).status_code == 200


async def test_a_session_that_belongs_to_another_key_is_unknown_also_while_a_key_of_other_nodes_is_missing(
    site: Site,
) -> None:
    """This node can read it, so no other node knows more about it, and a request that is sent again gets no further."""
    without = await site.cluster.start_node()
    having = await site.cluster.start_node(secret_keys=f"new:{b64encode(KEYS['new']).decode()},{SECRET_KEYS}")
    await having.stop()  # it would seal the session with its key, and then this node could not read it
    assert await without.ringback.app.services.insights.lacks_keys()
    own = await site.cluster.create_key("alice")
    _, limited = await without.ringback.app.services.api_keys.create_key(
        "alice", name="limited", scopes=ALL_SCOPES, upstreams=frozenset({"stage"})
    )
    ping: dict[str, Any] = {"jsonrpc": "2.0", "id": 99, "method": "ping", "params": {}}
    async with (
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
        legacy_session(http, f"{without.url}/mcp/stage", key=own) as session,
    ):
        headers = {**session.headers, "authorization": f"Bearer {limited}"}
        assert (await http.delete(session.url, headers=headers)).status_code == 404
        assert (await http.post(session.url, headers=session.headers, json=ping)).status_code == 200


async def test_headers_that_other_nodes_can_read_are_changed_there_and_no_owner_is_told_to_rotate_the_secret(
    site: Site,
) -> None:
    """A new secret would have removed the headers, which the nodes with the key send."""
    without = await site.cluster.start_node()
    having = await site.cluster.start_node(secret_keys=f"new:{b64encode(KEYS['new']).decode()},{SECRET_KEYS}")
    key = await site.cluster.create_key("alice")
    async with httpx.AsyncClient(timeout=WAIT_SECONDS, headers={"authorization": f"Bearer {key}"}) as http:

        async def put(node: Node, value: str) -> httpx.Response:
            body = {"url": site.phone.url, "headers": {"X-Key": value}}
            return await http.put(f"{node.url}/v1/webhooks/by-name/reports", json=body)

        webhook_id = (await put(having, "old")).json()["id"]
        changes: list[dict[str, Any]] = [{"headers": {"X-Key": "new"}}, {"url": "http://127.0.0.1:9/other"}]
        refused = [await http.patch(f"{without.url}/v1/webhooks/{webhook_id}", json=change) for change in changes]
        refused.append(await put(without, "new"))
        assert [(each.status_code, "Retry-After" in each.headers) for each in refused] == [(503, True)] * 3
        assert "rotate" not in refused[0].text
        assert (await put(having, "new")).status_code == 200


async def test_a_new_secret_does_not_remove_what_only_other_nodes_can_read(site: Site) -> None:
    """The nodes with the key sent no headers after it, and did not sign with the previous secret until its end."""
    without = await site.cluster.start_node()
    having = await site.cluster.start_node(secret_keys=f"new:{b64encode(KEYS['new']).decode()},{SECRET_KEYS}")
    key = await site.cluster.create_key("alice")
    async with httpx.AsyncClient(timeout=WAIT_SECONDS, headers={"authorization": f"Bearer {key}"}) as http:

        async def put(node: Node, **body: Any) -> httpx.Response:
            return await http.put(f"{node.url}/v1/webhooks/by-name/reports", json={"url": site.phone.url} | body)

        async def rotate(node: Node) -> httpx.Response:
            return await http.post(f"{node.url}/v1/webhooks/{webhook_id}/rotate-secret", json={})

        webhook_id = (await put(having, headers={"X-Key": "old"})).json()["id"]
        refused = [await rotate(without), await put(without, secret=SECRET)]
        refused.append(await put(without, secret=SECRET, headers={"X-Key": "new"}))
        assert [(each.status_code, "Retry-After" in each.headers) for each in refused] == [(503, True)] * 3
        assert (await put(without, description="mine")).status_code == 200
        assert (await rotate(having)).status_code == 200
        assert (await put(having)).json()["header_names"] == ["x-key"]
