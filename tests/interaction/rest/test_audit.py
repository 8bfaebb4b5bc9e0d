"""The audit log: every change has an entry, with the one who made it."""

from typing import Any

import httpx

from ringback.domain.principal import Scope
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest


async def read_entries(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    answer = await client.get("/v1/audit", params=query)
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries


async def test_each_change_of_the_owner_has_one_entry_and_what_changes_nothing_has_none(
    service: ServiceUnderTest,
) -> None:
    alice, bob = await service.create_client("alice"), await service.create_client("bob")
    webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    started = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    await alice.patch(f"/v1/webhooks/{webhook}", json={"description": "secret words", "paused": True})
    await alice.patch(f"/v1/webhooks/{webhook}", json={})
    await alice.patch(f"/v1/webhooks/{webhook}", json={"description": "secret words", "paused": True})
    await alice.post(f"/v1/webhooks/{webhook}/test")
    await alice.post(f"/v1/webhooks/{webhook}/rotate-secret")
    await alice.post(f"/v1/webhooks/{webhook}/replay", json={"dead": True, "dry_run": True})
    await alice.post(f"/v1/calls/{started}/cancel")
    await alice.post(f"/v1/calls/{started}/cancel")
    await alice.post(f"/v1/calls/{started}/resume-token")
    await alice.post(f"/v1/calls/{started}/resume-token", json={"revoke_older": True})
    await alice.patch(f"/v1/webhooks/{webhook}", json={"url": "http://10.0.0.1/"})
    await bob.delete(f"/v1/webhooks/{webhook}")
    await alice.delete(f"/v1/webhooks/{webhook}")
    link = (await alice.post("/v1/portal-links")).json()["id"]
    await alice.delete(f"/v1/calls/{started}")

    entries = await read_entries(alice)
    erasure = entries[0]["target"]

    assert [(each["operation"], each["target"]) for each in reversed(entries)] == [
        ("create_key", entries[-1]["target"]),
        ("register_webhook", webhook),
        ("change_webhook", webhook),
        ("test_webhook", webhook),
        ("rotate_secret", webhook),
        ("cancel_call", started),
        ("issue_resume_token", started),
        ("remove_webhook", webhook),
        ("create_portal_link", link),
        ("erase_call", erasure),
    ]
    assert {(each["principal"], each["surface"], each["owner"]) for each in entries[:-1]} == {
        ("alice", "rest", "alice")
    }
    assert entries[-1]["surface"] == "cli"
    assert all(each["key_id"] for each in entries[:-1])
    assert entries[-3]["detail"] == "description, paused=true"
    assert "secret words" not in str(entries)
    assert await read_entries(bob) == [each for each in await read_entries(bob) if each["operation"] == "create_key"]


async def test_an_owner_sees_what_an_operator_did_and_the_operator_sees_all(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    root = await service.create_client("root", scopes=frozenset({Scope.ADMIN}))
    webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    await root.delete(f"/v1/webhooks/{webhook}", params={"principal": "alice"})
    await root.post("/v1/upstreams/git/pause")
    await root.post("/v1/keys", json={"principal": "alice"})

    own = await read_entries(alice)
    of_all = await read_entries(root, principal="*")
    refused = await alice.get("/v1/audit", params={"principal": "*"})

    assert [(each["operation"], each["principal"]) for each in own] == [
        ("create_key", "root"),
        ("remove_webhook", "root"),
        ("register_webhook", "alice"),
        ("create_key", None),
    ]
    assert [each["owner"] for each in of_all if each["operation"] == "pause_upstream"] == [None]
    assert [each["seq"] for each in of_all] == sorted((each["seq"] for each in of_all), reverse=True)
    assert refused.status_code == 403


async def test_the_log_is_read_in_pages_and_kept_for_a_bounded_time(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    for _ in range(3):
        await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})

    first = (await alice.get("/v1/audit", params={"limit": 2})).json()
    rest = (await alice.get("/v1/audit", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    malformed = await alice.get("/v1/audit", params={"cursor": "MTphdWRpdDp4"})
    service.clock.advance(90 * 86_400 + 1)
    await service.run_janitor()

    assert [len(first["entries"]), len(rest["entries"]), rest["next_cursor"]] == [2, 2, None]
    assert malformed.status_code == 422
    assert await read_entries(alice) == []
