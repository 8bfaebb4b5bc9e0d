"""`ringback doctor` reads the status of a running service, and distinguishes faults of its proxy from its own."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Generator
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final

import httpx
import pytest
import respx
from typer.testing import Result

from ringback import __version__
from ringback.cli import http_clients
from ringback.cli.installation_checks import network
from ringback.cli.installation_checks.service import check_running_service
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS

Run = Callable[..., Result]
Found = dict[str, tuple[bool, str]]

SERVICE_URL: Final = "http://127.0.0.1:8090"
PUBLIC_URL: Final = "https://ringback.example/callbacks"
HEALTHY: Final = httpx.Response(200, json={"status": "ok"})
BAD_GATEWAY: Final = httpx.Response(502, html="<h1>Bad Gateway</h1>")


@pytest.fixture
def service() -> Generator[respx.MockRouter]:
    """A mocked process that works on every route."""
    with respx.mock(assert_all_called=False) as router:
        router.get(f"{SERVICE_URL}/readyz").mock(side_effect=respond_ready)
        router.get(f"{SERVICE_URL}/healthz").respond(404)
        router.get(f"{SERVICE_URL}/openapi.json").respond(json={"servers": [{"url": SERVICE_URL}]})
        router.get(f"{SERVICE_URL}/v1/status").mock(side_effect=respond_status)
        router.get(f"{SERVICE_URL}/v1/webhooks").respond(200, json={"webhooks": [], "next_cursor": None})
        router.get(f"{SERVICE_URL}/v1/upstreams/git/tools").respond(503)
        yield router


def respond_ready(_: httpx.Request) -> httpx.Response:
    date = format_datetime(_now(), usegmt=True)
    return httpx.Response(200, json={"status": "ready", "degraded": []}, headers={"date": date})


def respond_status(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=make_status())


def make_status(**changed: Any) -> dict[str, Any]:
    healthy: dict[str, Any] = {
        "version": __version__,
        "time": _now().isoformat(),
        "public_url": SERVICE_URL,
        "problem": None,
        "roles": {"api": True},
        "failing_workers": [],
        "failing_endpoints": [],
        "lacks_keys": False,
        "failing_webhooks": 0,
        "oldest_due_delivery_age_seconds": 0.0,
        "upstreams": [],
    }
    return healthy | changed


def find(run: Run, *arguments: str) -> Found:
    ran = run("doctor", "--json", *arguments)
    return {found["about"]: (found["ok"], found["detail"]) for found in json.loads(ran.stdout)}


def find_in_service(run: Run, service: respx.MockRouter, **changed: Any) -> Found:
    service.get(f"{SERVICE_URL}/v1/status").mock(side_effect=[httpx.Response(200, json=make_status(**changed))])
    return find(run, "--url", SERVICE_URL, "--api-key", "rbk_admin")


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
    service.get(f"{SERVICE_URL}/v1/status").respond(
        500, json={"detail": "An unexpected error."}, headers={"content-type": "application/problem+json"}
    )

    assert find(run, "--url", SERVICE_URL)["service status"] == (False, "An unexpected error.")


def test_without_a_key_of_an_operator_it_says_what_was_not_checked(run: Run, service: respx.MockRouter) -> None:
    service.get(f"{SERVICE_URL}/v1/status").respond(
        401, json={"detail": "Send your API key."}, headers={"content-type": "application/problem+json"}
    )

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


@pytest.mark.parametrize(
    ("changed", "about", "words"),
    [
        ({"version": "0.0.9"}, "service version", "it runs 0.0.9"),
        ({"time": "2020-01-01T00:00:00Z"}, "service clock", "NTP"),
        ({"problem": "The database is full."}, "service database", "The database is full."),
        ({"failing_workers": ["dispatcher"]}, "service workers", "dispatcher"),
        ({"failing_endpoints": ["/mcp/git"]}, "service endpoints", "/mcp/git"),
        ({"lacks_keys": True}, "service keys", "RINGBACK_SECRET_KEYS"),
        ({"oldest_due_delivery_age_seconds": 4000.0}, "service deliveries", "dispatcher"),
        (
            {
                "upstreams": [
                    {
                        "name": "git",
                        "transport": "stdio",
                        "state": "failing",
                        "last_error": "not_found",
                        "advice": "Check 'command'.",
                    }
                ]
            },
            "service upstream git",
            "not_found. Check 'command'.",
        ),
        (
            {"upstreams": [{"name": "git", "transport": "stdio", "state": "ready", "intake": "paused"}]},
            "service upstream git",
            "it is paused. Resume it: ringback upstreams resume git",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_the_service_says_is_a_finding(
    run: Run, service: respx.MockRouter, changed: dict[str, Any], about: str, words: str
) -> None:
    ok, detail = find_in_service(run, service, **changed)[about]

    assert not ok
    assert words in detail


def test_an_upstream_that_a_tool_keeps_busy_is_named_and_is_no_fault(run: Run, service: respx.MockRouter) -> None:
    """A server on the SDK 1.x that runs a synchronous tool responds to nothing meanwhile."""
    busy = {
        "name": "git",
        "transport": "stdio",
        "state": "unresponsive",
        "state_since": "2026-11-20T16:05:00Z",
        "last_error": "unresponsive",
        "advice": "Cancel those that keep it busy.",
    }
    found = find_in_service(run, service, upstreams=[busy])

    assert found["service upstream git"] == (
        True,
        "unresponsive since 2026-11-20 16:05 UTC. Cancel those that keep it busy.",
    )
    assert found["service upstreams"] == (True, "1 of 1 have no error")


def test_failing_webhooks_are_named_with_their_reason_and_advice(run: Run, service: respx.MockRouter) -> None:
    failing = {
        "id": "wh_1",
        "principal": "team-7",
        "url": "https://agent.example/",
        "events": ["call.finished"],
        "state": "active",
        "last_error": "certificate_expired",
        "last_error_detail": "certificate has expired",
        "last_error_advice": "Renew the receiver's certificate.",
        "failing_since": "2026-11-22T17:00:00Z",
    }
    listed = service.get(f"{SERVICE_URL}/v1/webhooks")
    listed.respond(200, json={"webhooks": [failing], "next_cursor": None})

    found = find_in_service(run, service, failing_webhooks=12)

    assert dict(listed.calls.last.request.url.params) == {"health": "failing", "principal": "*"}
    assert found["webhooks"][1].startswith("12 are failing; 1 of them is shown. See all: ")
    ok, detail = found["webhook wh_1 of team-7"]
    assert not ok
    assert detail == (
        "certificate_expired (certificate has expired) since 2026-11-22 17:00 UTC. Renew the receiver's certificate."
    )


@pytest.mark.parametrize(("count", "said"), [(1, "1 is failing"), (2, "2 are failing")])
def test_failing_webhooks_that_are_all_shown_are_only_counted(
    run: Run, service: respx.MockRouter, count: int, said: str
) -> None:
    webhooks: list[dict[str, Any]] = [
        {"id": f"wh_{number}", "principal": "team-7", "url": "https://agent.example/", "events": [], "state": "active"}
        for number in range(count)
    ]
    service.get(f"{SERVICE_URL}/v1/webhooks").respond(200, json={"webhooks": webhooks, "next_cursor": None})

    assert find_in_service(run, service, failing_webhooks=count)["webhooks"] == (False, said)


def test_tools_whose_arguments_a_service_does_not_check_are_counted_where_its_configuration_is_unknown(
    run: Run, service: respx.MockRouter
) -> None:
    unusable = {"type": "object", "properties": {"a": {"$ref": "https://a.example/s.json"}}}
    tools = [{"name": "good", "inputSchema": {"type": "object"}}, {"name": "odd", "inputSchema": unusable}]
    service.get(f"{SERVICE_URL}/v1/upstreams/git/tools").respond(200, json={"tools": tools})
    service.get(f"{SERVICE_URL}/v1/upstreams/down/tools").respond(503)
    service.get(f"{SERVICE_URL}/v1/upstreams/lax/tools").respond(200, json={"tools": tools})
    service.get(f"{SERVICE_URL}/v1/upstreams/down/tools").respond(503)
    upstreams = [
        {"name": name, "transport": "stdio", "state": "ready", "checks_arguments": name != "lax"}
        for name in ("git", "lax", "down")
    ]

    found = find_in_service(run, service, upstreams=upstreams)

    ok, detail = found["service tools of git"]
    assert ok
    assert detail == (
        "2 tools. Arguments of 1 tool are not checked, because the inputSchema is unusable: "
        "'odd' (the reference 'https://a.example/s.json' has no target in the schema)"
    )
    assert found["service tools of lax"] == (True, "2 tools")
    assert "service tools of down" not in found


def test_a_key_without_the_scope_is_no_fault(run: Run, service: respx.MockRouter) -> None:
    service.get(f"{SERVICE_URL}/v1/status").respond(
        403, json={"detail": "Needs admin."}, headers={"content-type": "application/problem+json"}
    )
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


# -- the public URL and the process ----------------------------------------------------------------------------------------


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


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the doctor compares with the machine's clock
