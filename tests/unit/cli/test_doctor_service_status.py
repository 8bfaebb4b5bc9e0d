"""What the status of a running service says is a finding of `ringback doctor`: its workers, upstreams, webhooks and tools."""

from collections.abc import Generator
from typing import Any

import pytest
import respx

from tests.support.doctor import SERVICE_URL, Run, find_in_service, mocked_service


@pytest.fixture
def service() -> Generator[respx.MockRouter]:
    with mocked_service() as router:
        yield router


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
