"""The log has one line for each sign-in, refusal, sign-out, opened link and return of a client. No line has a secret."""

import logging
from urllib.parse import urlsplit

import pytest

from ringback.domain.principal import Caller, Principal, Scope
from tests.support.service import CALL_BODY, ServiceUnderTest
from tests.support.viewer_browser import FORM_HEADERS, sign_in


async def test_who_looks_and_who_came_back_is_in_the_log(
    service: ServiceUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ringback")
    browser = await sign_in(service, "alice")
    await browser.http.post("/ui/sign-in", data={"key": "rbk_wrong"}, headers=FORM_HEADERS)
    await browser.http.post("/ui/sign-in", data={"key": "rbk_wrong"}, headers={"Origin": "https://evil.example"})
    alice = Caller(principal=Principal("alice"), scopes=frozenset({Scope.READ}))
    created = await service.services.portal_links.create_link(alice, client_session_id="s1", lifetime_seconds=60)
    guest = await service.create_anonymous_client()
    await guest.get(f"/ui/portal?{urlsplit(created.url).query}")
    await browser.send("/sign-out")

    client = await service.create_client("alice")
    started = (await client.post("/v1/calls", json=CALL_BODY)).json()
    await service.finish_call(started["call"]["id"])
    for _ in range(2):
        await client.post("/v1/resume", json={"resume_token": started["resume_token"]})
        await client.get(f"/v1/calls/{started['call']['id']}/result")

    lines = [each.__dict__ for each in caplog.records]
    viewing = [(each["msg"], each.get("principal")) for each in lines if each["msg"].startswith(("viewer.", "portal_"))]
    assert viewing == [
        ("viewer.signed_in", "alice"),
        ("viewer.refused", None),
        ("portal_link.opened", "alice"),
        ("viewer.signed_out", "alice"),
    ]
    of_call = [(each["msg"], each.get("surface")) for each in lines if each.get("call_id") == started["call"]["id"]]
    assert of_call == [("call.started", None), ("call.finished", None), ("call.resumed", "rest_resume")]
    secrets = (started["resume_token"], urlsplit(created.url).query.partition("=")[2])
    assert not any(secret in str(each) for secret in secrets for each in lines)
