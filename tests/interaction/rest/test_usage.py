"""GET /v1/usage: the quotas of the caller and of its key, and how much of each is used."""

from pathlib import Path
from typing import Any

import httpx

from ringback.domain.principal import Principal, Scope
from ringback.services.limits.quotas import KeyLimits, QuotaOverrides, Quotas
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest, running_service


async def read_limits(client: httpx.AsyncClient, **query: str) -> dict[str, tuple[int, int, str]]:
    answer = await client.get("/v1/usage", params=query)
    assert answer.status_code == 200
    limits: list[dict[str, Any]] = answer.json()["limits"]
    return {each["name"]: (each["limit"], each["used"], each["scope"]) for each in limits}


async def test_quotas_are_shown_with_their_use(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(starts_per_minute=2)) as service:
        alice = await service.create_client("alice")
        await alice.post("/v1/calls", json=CALL_BODY)
        await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})
        await alice.post("/v1/events", json={"name": "order.paid", "data": {"n": 1}})

        assert await read_limits(alice) == {
            "open_calls": (10_000, 1, "service"),
            "stored_calls": (10_000_000, 1, "service"),
            "result_bytes": (1024**3, 0, "service"),
            "argument_bytes": (1024**3, len(b'{"repo_path":"/srv/repo"}') + len(b"{}"), "service"),
            "event_bytes": (1024**3, len(b'{"n":1}'), "service"),
            "delivery_bytes": (16 * 1024**3, 0, "service"),
            "webhooks": (1_000, 1, "service"),
            "subscriptions": (10_000, 0, "service"),
            "streams": (100, 0, "node"),
            "starts_per_minute": (2, 2, "node"),
        }


async def test_only_an_admin_reads_the_usage_of_another_principal(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    admin = await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))
    await alice.post("/v1/calls", json=CALL_BODY)

    refused = await alice.get("/v1/usage", params={"principal": "operator"})

    assert refused.status_code == 403
    assert (await read_limits(admin, principal="alice"))["open_calls"] == (10_000, 1, "service")


async def test_a_principal_and_a_key_may_have_limits_of_their_own(tmp_path: Path) -> None:
    overrides = QuotaOverrides(principals={Principal("alice"): Quotas(open_calls=1)})
    async with running_service(tmp_path, quota_overrides=overrides) as service:
        alice, bob = await service.create_client("alice"), await service.create_client("bob")
        answers = [await client.post("/v1/calls", json=CALL_BODY) for client in (alice, alice, bob, bob)]

        assert [answer.status_code for answer in answers] == [202, 429, 202, 202]
        assert answers[1].json()["limit"] == 1
        assert (await read_limits(alice))["open_calls"] == (1, 1, "service")


async def test_a_key_with_a_rate_of_its_own_leaves_the_other_keys_theirs(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        created = [
            await service.services.api_keys.create_key("alice", name="", scopes=frozenset(Scope), upstreams=None)
        ]
        created += [
            await service.services.api_keys.create_key("alice", name="", scopes=frozenset(Scope), upstreams=None)
        ]
        (limited, limited_text), (_, other_text) = created
        service.quotas.replace_overrides(QuotaOverrides(keys={limited.id: KeyLimits(starts_per_minute=1)}))
        first, other = [
            await service.create_anonymous_client(headers={"Authorization": f"Bearer {text}"})
            for text in (limited_text, other_text)
        ]

        answers = [await client.post("/v1/calls", json=CALL_BODY) for client in (first, first, other)]

        assert [answer.status_code for answer in answers] == [202, 429, 202]
        assert answers[1].json()["quota"] == "key_starts_per_minute"
        assert (await read_limits(first))["key_starts_per_minute"] == (1, 1, "node")
        assert "key_starts_per_minute" not in await read_limits(other)


async def test_a_bulk_redelivery_uses_a_start_of_its_key(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        limited, text = await service.services.api_keys.create_key(
            "alice", name="", scopes=frozenset(Scope), upstreams=None
        )
        service.quotas.replace_overrides(QuotaOverrides(keys={limited.id: KeyLimits(starts_per_minute=1)}))
        client = await service.create_anonymous_client(headers={"Authorization": f"Bearer {text}"})

        answers = [await client.post("/v1/deliveries/redeliver", json={}) for _ in range(2)]

        assert [answer.status_code for answer in answers] == [202, 429]
        assert answers[1].json()["quota"] == "key_starts_per_minute"
