"""API keys over REST: shown once, with expiry and rotation, for callers with the scope `admin`."""

import logging

import httpx
import pytest

from ringback.domain.principal import Scope
from ringback.signing.secrets import is_well_formed_api_key
from tests.support.service import ServiceUnderTest

pytestmark = pytest.mark.requirement("R25")


@pytest.fixture
async def admin(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))


async def use_key(service: ServiceUnderTest, key: str) -> httpx.Response:
    client = await service.create_anonymous_client(headers={"Authorization": f"Bearer {key}"})
    return await client.get("/v1/calls")


async def test_a_key_is_shown_once_and_works_at_once(
    service: ServiceUnderTest, admin: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    created = await admin.post("/v1/keys", json={"principal": "alice", "name": "laptop", "upstreams": ["git"]})
    key = created.json()

    read = await admin.get(created.headers["location"])
    listed = await admin.get("/v1/keys", params={"principal": "alice"})

    assert created.status_code == 201
    assert created.headers["cache-control"] == "no-store"
    assert is_well_formed_api_key(key["key"])
    assert read.json() == {name: value for name, value in key.items() if name != "key"}
    assert listed.json() == {"keys": [read.json()], "next_cursor": None}
    assert (key["principal"], key["scopes"], key["upstreams"]) == ("alice", ["calls", "read", "webhooks"], ["git"])
    assert (await use_key(service, key["key"])).status_code == 200
    (record,) = [each for each in caplog.records if each.__dict__.get("key_id") == key["id"]]
    assert record.message == "api_key.created"
    assert record.__dict__["by"] == "operator"
    assert key["key"] not in caplog.text


async def test_an_expired_key_gets_401_that_says_since_when(
    service: ServiceUnderTest, admin: httpx.AsyncClient
) -> None:
    key = (await admin.post("/v1/keys", json={"principal": "alice", "expires_in_seconds": 3600})).json()
    assert (await use_key(service, key["key"])).status_code == 200

    service.clock.advance(3601)
    refused = await use_key(service, key["key"])

    assert (refused.status_code, refused.json()["type"]) == (401, "/problems/unauthenticated")
    assert f"expired at {key['expires_at']}" in refused.json()["detail"]
    assert "ringback keys create" in refused.json()["detail"]


async def test_during_the_overlap_of_a_rotation_both_keys_work_and_then_only_the_new_one(
    service: ServiceUnderTest, admin: httpx.AsyncClient
) -> None:
    old = (await admin.post("/v1/keys", json={"principal": "alice", "scopes": ["read"], "name": "ci"})).json()

    rotated = await admin.post(f"/v1/keys/{old['id']}/rotate", json={"overlap_seconds": 600})
    new = rotated.json()

    assert rotated.status_code == 201
    assert (new["replaces"], new["name"], new["scopes"], new["expires_at"]) == (old["id"], "ci", ["read"], None)
    assert [(await use_key(service, key["key"])).status_code for key in (old, new)] == [200, 200]
    service.clock.advance(601)
    assert [(await use_key(service, key["key"])).status_code for key in (old, new)] == [401, 200]
    stored = (await admin.get(f"/v1/keys/{old['id']}")).json()
    assert (stored["replaced_by"], stored["expires_at"]) == (new["id"], new["overlap_ends_at"])


@pytest.mark.usefixtures("shared_service")
async def test_a_rotation_without_overlap_ends_the_old_key_now(
    service: ServiceUnderTest, admin: httpx.AsyncClient
) -> None:
    old = (await admin.post("/v1/keys", json={"principal": "alice"})).json()

    new = (await admin.post(f"/v1/keys/{old['id']}/rotate", json={"overlap_seconds": 0})).json()

    assert [(await use_key(service, key["key"])).status_code for key in (old, new)] == [401, 200]


async def test_a_rotated_key_lives_as_long_as_the_old_one_was_created_for(
    service: ServiceUnderTest, admin: httpx.AsyncClient
) -> None:
    old = (await admin.post("/v1/keys", json={"principal": "alice", "expires_in_seconds": 3600})).json()
    service.clock.advance(3000)

    new = (await admin.post(f"/v1/keys/{old['id']}/rotate")).json()
    service.clock.advance(3000)

    assert [(await use_key(service, key["key"])).status_code for key in (old, new)] == [401, 200]


@pytest.mark.usefixtures("shared_service")
async def test_a_key_is_rotated_once(admin: httpx.AsyncClient) -> None:
    old = (await admin.post("/v1/keys", json={"principal": "alice"})).json()
    new = (await admin.post(f"/v1/keys/{old['id']}/rotate")).json()

    again = await admin.post(f"/v1/keys/{old['id']}/rotate")

    assert (again.status_code, again.json()["type"]) == (409, "/problems/conflict")
    assert new["id"] in again.json()["detail"]


@pytest.mark.usefixtures("shared_service")
async def test_a_revoked_key_is_refused_from_its_next_request_on_and_stays_in_the_list(
    service: ServiceUnderTest, admin: httpx.AsyncClient
) -> None:
    key = (await admin.post("/v1/keys", json={"principal": "alice"})).json()

    revoked = [(await admin.delete(f"/v1/keys/{key['id']}")).status_code for _ in range(2)]
    rotated = await admin.post(f"/v1/keys/{key['id']}/rotate")

    assert revoked == [204, 404]
    assert rotated.status_code == 404
    assert (await use_key(service, key["key"])).status_code == 401
    assert (await admin.get(f"/v1/keys/{key['id']}")).json()["revoked_at"] is not None


@pytest.mark.usefixtures("shared_service")
async def test_a_key_for_some_upstreams_grants_no_others(service: ServiceUnderTest) -> None:
    limited = await service.create_client("operator", scopes=frozenset({Scope.ADMIN}), upstreams=frozenset({"git"}))
    everything = await service.create_client("root", scopes=frozenset({Scope.ADMIN}))
    powerful = (await everything.post("/v1/keys", json={"principal": "alice"})).json()

    refused = [
        await limited.post("/v1/keys", json={"principal": "alice"}),
        await limited.post("/v1/keys", json={"principal": "alice", "upstreams": ["git", "time"]}),
        await limited.post(f"/v1/keys/{powerful['id']}/rotate"),
        await limited.delete(f"/v1/keys/{powerful['id']}"),
    ]
    allowed = await limited.post("/v1/keys", json={"principal": "alice", "upstreams": ["git"]})

    assert [answer.status_code for answer in refused] == [403] * 4
    assert allowed.status_code == 201
    assert (await use_key(service, powerful["key"])).status_code == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"principal": "a\nb"}, "principal"),
        ({"principal": "oidc:alice"}, "access tokens use this prefix"),
        ({"principal": "alice", "scopes": ["root"]}, "scopes"),
        ({"principal": "alice", "scopes": []}, "scopes"),
        ({"principal": "alice", "expires_at": "2020-01-01T00:00:00Z"}, "must be in the future"),
        (
            {"principal": "alice", "expires_at": "2030-01-01T00:00:00Z", "expires_in_seconds": 60},
            "either expires_at or",
        ),
        ({"principal": "alice", "hash": "x"}, "hash"),
    ],
)
async def test_an_invalid_key_is_refused_and_nothing_is_stored(
    service: ServiceUnderTest, admin: httpx.AsyncClient, body: dict[str, object], words: str
) -> None:
    refused = await admin.post("/v1/keys", json=body)

    assert refused.status_code == 422
    assert words in refused.text
    assert len(await service.services.api_keys.list_keys()) == 1


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    "expires_at",
    ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z", "2199-01-01T00:00:00Z"],
)
async def test_an_expiry_beyond_a_hundred_years_is_refused_and_makes_no_key(
    admin: httpx.AsyncClient, expires_at: str
) -> None:
    before = (await admin.get("/v1/keys")).json()

    refused = await admin.post("/v1/keys", json={"principal": "alice", "expires_at": expires_at})

    assert refused.status_code in {400, 422}
    assert (await admin.get("/v1/keys")).json() == before


@pytest.mark.usefixtures("shared_service")
async def test_a_lifetime_may_be_as_long_as_an_expiry(admin: httpx.AsyncClient) -> None:
    two_years, too_long = 2 * 365 * 86_400, 101 * 365 * 86_400

    created = await admin.post("/v1/keys", json={"principal": "alice", "expires_in_seconds": two_years})
    rotated = await admin.post(f"{created.headers['location']}/rotate", json={"expires_in_seconds": two_years})
    refused = [
        await admin.post("/v1/keys", json={"principal": "alice", "expires_in_seconds": too_long}),
        await admin.post(f"{rotated.headers['location']}/rotate", json={"expires_in_seconds": too_long}),
    ]

    assert (created.status_code, rotated.status_code) == (201, 201)
    assert [answer.status_code for answer in refused] == [422, 422]


@pytest.mark.usefixtures("shared_service")
async def test_an_upstream_that_does_not_exist_is_named_in_a_warning_and_the_key_is_made(
    admin: httpx.AsyncClient,
) -> None:
    created = await admin.post("/v1/keys", json={"principal": "alice", "upstreams": ["git", "gti", "new"]})
    known = await admin.post("/v1/keys", json={"principal": "alice", "upstreams": ["git"]})

    assert (created.status_code, created.json()["upstreams"]) == (201, ["git", "gti", "new"])
    assert "no upstream named 'gti' or 'new'. Did you mean 'git'?" in created.json()["warning"]
    assert "warning" not in known.json()


@pytest.mark.usefixtures("shared_service")
async def test_a_name_with_control_characters_is_refused(admin: httpx.AsyncClient) -> None:
    refused = await admin.post("/v1/keys", json={"principal": "alice", "name": "a\x1b[31m"})

    assert refused.status_code == 422
