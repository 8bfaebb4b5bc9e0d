"""`ringback doctor` reads the status of a running service, and distinguishes faults of its proxy from its own."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Generator
from typing import Final

import httpx
import pytest
import respx

from ringback.cli import http_clients
from ringback.cli.installation_checks import network
from ringback.cli.installation_checks.service import check_running_service
from tests.support.clock import FakeClock
from tests.support.doctor import (
    SERVICE_URL,
    Run,
    find,
    find_in_service,
    make_status,
    mocked_service,
    refuse_status,
    respond_ready,
)
from tests.support.limits import WAIT_SECONDS

PUBLIC_URL: Final = "https://ringback.example/callbacks"
HEALTHY: Final = httpx.Response(200, json={"status": "ok"})
BAD_GATEWAY: Final = httpx.Response(502, html="<h1>Bad Gateway</h1>")


@pytest.fixture
def service() -> Generator[respx.MockRouter]:
    with mocked_service() as router:
        yield router


def make_tls_error() -> httpx.ConnectError:
    error = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]")
    error.__cause__ = ssl.SSLCertVerificationError(1, "self-signed certificate")
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ConnectError("refused"), "No server responds at"),
        (make_tls_error(), "TLS fails at"),
        (httpx.ReadTimeout("late"), "accepts connections at"),
        (httpx.RemoteProtocolError("closed"), "ends the connection without a response"),
    ],
)
async def test_a_service_that_does_not_respond_is_to_be_started_only_if_no_process_listens(
    monkeypatch: pytest.MonkeyPatch, error: httpx.HTTPError, words: str
) -> None:
    async def fail(_url: str) -> httpx.Response:
        raise error

    monkeypatch.setattr(network, "_get_url", fail)

    (found,) = (await network.check_service(SERVICE_URL, clock=FakeClock())).findings

    assert not found.ok
    assert words in found.detail
    assert ("Start it: ringback serve" in found.detail) is (words == "No server responds at")


class EndlessBody(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncGenerator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0)


async def test_a_response_that_does_not_end_is_one_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch, service: respx.MockRouter
) -> None:
    """The limit of httpx is one for each read: a server that sent a byte now and then kept the doctor for ever."""
    monkeypatch.setattr(http_clients, "RESPONSE_SECONDS", 0.01)
    service.get(f"{SERVICE_URL}/readyz").mock(return_value=httpx.Response(200, stream=EndlessBody()))

    async with asyncio.timeout(WAIT_SECONDS):
        checked = await network.check_service(SERVICE_URL, clock=FakeClock())

    assert checked.state is network.ServiceState.SILENT
    assert "does not respond in time" in checked.findings[0].detail


def test_a_healthy_service_is_asked_and_reported(run: Run, service: respx.MockRouter) -> None:
    found = find_in_service(run, service)

    asked = {about: ok for about, (ok, _) in found.items() if about.startswith(("service", "webhooks"))}
    assert all(asked.values()), found
    assert {"service version", "service database", "service workers", "service upstreams", "webhooks"} <= asked.keys()


def test_a_service_without_authentication_is_asked_without_a_key(run: Run, service: respx.MockRouter) -> None:
    found = find(run, "--url", SERVICE_URL)

    assert {"service version", "service workers", "webhooks"} <= found.keys()
    assert "service status" not in found


def test_a_service_without_authentication_that_cannot_say_how_it_is_has_a_fault(
    run: Run, service: respx.MockRouter
) -> None:
    refuse_status(service, 500, "An unexpected error.")

    assert find(run, "--url", SERVICE_URL)["service status"] == (False, "An unexpected error.")


def test_without_a_key_of_an_operator_it_says_what_was_not_checked(run: Run, service: respx.MockRouter) -> None:
    refuse_status(service, 401, "Send your API key.")

    ok, detail = find(run, "--url", SERVICE_URL)["service status"]

    assert ok
    assert "overdue deliveries and failing webhooks" in detail


def test_a_role_that_no_node_runs_is_named(run: Run, service: respx.MockRouter) -> None:
    service.get(f"{SERVICE_URL}/readyz").respond(200, json={"status": "ready", "degraded": ["role janitor"]})

    ok, detail = find(run, "--url", SERVICE_URL)["service"]

    assert not ok
    assert "no node runs what it waits for: role janitor" in detail


async def test_the_clocks_are_compared_when_the_status_arrives_and_not_after_slower_requests(
    service: respx.MockRouter,
) -> None:
    clock = FakeClock()

    def respond_slowly(_: httpx.Request) -> httpx.Response:
        clock.advance(3600)
        return httpx.Response(200, json={"webhooks": [], "next_cursor": None})

    status = make_status(time=clock.wall_time().isoformat())
    service.get(f"{SERVICE_URL}/v1/status").mock(return_value=httpx.Response(200, json=status))
    service.get(f"{SERVICE_URL}/v1/webhooks").mock(side_effect=respond_slowly)

    found = await check_running_service(SERVICE_URL, "rbk_admin", lists_tools=False, clock=clock)

    (skew,) = [finding for finding in found if finding.about == "service clock"]
    assert (skew.ok, skew.detail) == (True, "it is +0.0 s from this machine's")


def test_a_key_without_the_scope_is_no_fault(run: Run, service: respx.MockRouter) -> None:
    refuse_status(service, 403, "Needs admin.")
    service.get(f"{SERVICE_URL}/v1/upstreams").respond(200, json={"upstreams": []})

    ok, detail = find(run, "--url", SERVICE_URL, "--api-key", "rbk_small")["service status"]

    assert ok
    assert "lacks the scope admin" in detail


def test_a_service_elsewhere_is_not_judged_by_the_settings_here(run: Run, service: respx.MockRouter) -> None:
    elsewhere = "https://ringback.elsewhere.example"
    service.get(f"{elsewhere}/readyz").mock(side_effect=respond_ready)
    service.get(f"{elsewhere}/v1/status").respond(200, json=make_status())
    service.get(f"{elsewhere}/v1/webhooks").respond(200, json={"webhooks": [], "next_cursor": None})

    ran = run("doctor", "--json", "--url", elsewhere, "--api-key", "rbk_admin")

    assert ran.exit_code == 0, ran.stdout
    assert not {"settings", "database", "upstreams", "public URL"} & {each["about"] for each in json.loads(ran.stdout)}


@pytest.mark.parametrize(
    ("process", "words"), [(HEALTHY, "but the process responds at"), (BAD_GATEWAY, "and the process")]
)
def test_a_failure_says_whether_the_proxy_or_the_process_fails(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch, process: httpx.Response, words: str
) -> None:
    monkeypatch.setenv("RINGBACK_PUBLIC_URL", PUBLIC_URL)
    service.get(f"{PUBLIC_URL}/healthz").mock(return_value=BAD_GATEWAY)
    service.get(f"{SERVICE_URL}/healthz").mock(return_value=process)
    service.route(host="ringback.example").mock(side_effect=httpx.ConnectError("refused"))

    ok, detail = find(run, "--url", SERVICE_URL)["public URL"]

    assert not ok
    assert "responds with 502" in detail
    assert words in detail


def test_without_a_public_url_the_service_says_what_callbacks_contain(run: Run, service: respx.MockRouter) -> None:
    service.get(f"{SERVICE_URL}/openapi.json").mock(
        side_effect=[
            httpx.Response(200, json={"servers": [{"url": "http://127.0.0.1:7000"}]}),
            httpx.ConnectError("refused"),
            BAD_GATEWAY,
        ]
    )

    said, *unknown = [find(run, "--url", SERVICE_URL)["public URL"] for _ in range(3)]

    assert said == (True, "none is set; callbacks contain http://127.0.0.1:7000")
    assert all(ok and "not known" in detail for ok, detail in unknown)


@pytest.mark.parametrize(("status", "ok"), [(200, True), (401, False)])
def test_a_database_without_a_key_is_no_fault_of_a_service_without_authentication(
    run: Run, service: respx.MockRouter, status: int, *, ok: bool
) -> None:
    listed = json.loads(run("keys", "create", "alice", "--create", "--json").stdout)
    run("keys", "revoke", listed["id"])
    service.get(f"{SERVICE_URL}/v1/status").respond(status, json={})

    assert find(run, "--url", SERVICE_URL)["API keys"][0] is ok


def test_a_database_without_a_key_is_no_fault_while_its_service_does_not_respond(
    run: Run, service: respx.MockRouter
) -> None:
    created = json.loads(run("keys", "create", "alice", "--create", "--json").stdout)
    run("keys", "revoke", created["id"])
    service.get(f"{SERVICE_URL}/readyz").mock(side_effect=httpx.ReadTimeout("late"))

    assert find(run, "--url", SERVICE_URL)["API keys"] == (
        True,
        "there is none; the service does not say whether it asks for one",
    )
