"""Both ends together: our service asks for proof and signs with its own key, our receiver proves and verifies."""

from base64 import urlsafe_b64decode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ringback.bootstrap import Environment
from ringback.client import Problem
from ringback.domain.verification import CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX
from ringback.settings import SettingsError
from ringback.signing import ed25519
from ringback.signing.secrets import generate_secret
from tests.support.application import SECRET, running_application, running_with_upstream, serving_callbacks
from tests.support.clock import OffsetClock
from tests.support.receivers import NO_CONTENT, respond_with, response, serving_receiver
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

SIGNING_KEY = ed25519.generate_signing_key(b"s" * 32)
PUBLIC_KEY = ed25519.parse_signing_key(SIGNING_KEY).public_key
NOT_FOUND = response("404 Not Found")


@pytest.mark.requirement("R26")
async def test_a_receiver_that_uses_our_library_is_verified_at_once(tmp_path: Path) -> None:
    async with serving_callbacks() as phone, running_application(tmp_path, verify_callbacks="always") as ringback:
        alice = await ringback.create_agent_client("alice")

        webhook = await alice.register_webhook(phone.url, secret=SECRET)

        assert (webhook.state, webhook.last_error) == ("active", None)
        assert phone.callbacks == []  # a challenge is nothing to handle


@pytest.mark.requirement("R26")
async def test_a_receiver_that_learns_to_answer_is_verified_by_hand_and_gets_what_was_held(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    stage.release.set()
    async with (
        serving(stage.app()) as server,
        serving_callbacks() as phone,
        serving_callbacks(generate_secret(b"o" * 32)) as deaf,
        running_application(tmp_path, make_http_config(server.url), verify_callbacks="always") as ringback,
    ):
        alice = await ringback.create_agent_client("alice")
        pending = await alice.register_webhook(deaf.url, secret=SECRET)
        assert (pending.state, pending.last_error) == ("pending_verification", "http_4xx")
        assert "challenge" in pending.hears
        started = await alice.start_call("stage", "hold", {"text": "hello"}, correlation_id="c1")
        await alice.wait(started.call.id)
        assert [each.state async for each in alice.deliveries()] == ["held"]

        moved = await alice.change_webhook(pending.id, url=phone.url)

        assert moved.state == "active"
        assert (await phone.wait_for_callback("c1")).status == "completed"
        assert deaf.callbacks == []
        assert (await alice.verify_webhook(pending.id)).state == "active"


async def test_the_callback_of_a_call_is_proven_beside_it(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    stage.release.set()
    async with running_with_upstream(tmp_path, stage, verify_callbacks="always") as (ringback, phone):
        alice = await ringback.create_agent_client("alice")

        started = await alice.start_call(
            "stage", "hold", {"text": "hello"}, correlation_id="c1", callback={"url": phone.url, "secret": SECRET}
        )

        assert [each.state for each in started.webhooks] == ["pending_verification"]
        assert (await phone.wait_for_callback("c1")).call_id == started.call.id


async def test_more_challenges_than_one_origin_bears_are_refused_and_nothing_is_half_made(tmp_path: Path) -> None:
    clock = OffsetClock()
    clock.stop()  # challenges are counted by the minute, and one without an answer is sent again after some seconds
    async with (
        serving_receiver(respond_with(NOT_FOUND)) as receiver,
        running_application(tmp_path, environment=Environment(clock=clock), verify_callbacks="always") as ringback,
    ):
        alice = await ringback.create_agent_client("alice")
        for number in range(CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX):
            await alice.register_webhook(receiver.url(f"/{number}"))

        with pytest.raises(Problem) as refused:
            await alice.register_webhook(receiver.url("/one-more"))

        assert refused.value.status == 429
        assert len([webhook async for webhook in alice.webhooks()]) == CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX
        assert {request.method for request in receiver.requests} == {"POST", "GET"}


async def test_a_webhook_that_is_switched_off_is_not_challenged(tmp_path: Path) -> None:
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver, running_application(tmp_path) as ringback:
        alice = await ringback.create_agent_client("alice")
        webhook = await alice.register_webhook(receiver.url())
        assert webhook.state == "active"
        await alice.change_webhook(webhook.id, state="disabled")

        with pytest.raises(Problem) as refused:
            await alice.verify_webhook(webhook.id)

        assert refused.value.status == 409
        assert receiver.requests == []


@pytest.mark.requirement("R23")
async def test_a_receiver_with_the_published_key_needs_no_secret(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    stage.release.set()
    async with (
        serving(stage.app()) as server,
        serving_callbacks(PUBLIC_KEY) as phone,
        running_application(tmp_path, make_http_config(server.url), signing_keys=SIGNING_KEY) as ringback,
    ):
        alice = await ringback.create_agent_client("alice")
        await alice.register_webhook(phone.url)
        await alice.start_call("stage", "hold", {"text": "hello"}, correlation_id="c1")

        assert (await phone.wait_for_callback("c1")).status == "completed"
        published = await ringback.get("/.well-known/mcp-webhook-jwks.json")
        (key,) = published.json()["keys"]
        assert Ed25519PublicKey.from_public_bytes(urlsafe_b64decode(key["x"] + "=")) == ed25519.parse_public_key(
            PUBLIC_KEY
        )
        assert published.headers["cache-control"] == "public, max-age=3600"


async def test_without_a_signing_key_nothing_is_published(tmp_path: Path) -> None:
    async with running_application(tmp_path) as ringback:
        assert (await ringback.get("/.well-known/mcp-webhook-jwks.json")).json() == {"keys": []}


async def test_an_invalid_allowlist_refuses_the_start_and_names_its_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="RINGBACK_CALLBACK_ALLOWLIST: "):
        async with running_application(tmp_path, callback_allowlist=("hooks.example/in",)):
            raise NotImplementedError
