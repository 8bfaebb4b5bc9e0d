"""`ringback doctor` finds every fault, says how to repair it, and passes a healthy service."""

import io
import json
import logging
import sys
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import respx

from ringback.schemas.examples import UPSTREAM as UPSTREAM_EXAMPLE
from ringback.signing.secrets import API_KEY_RANDOM_BYTES, generate_api_key
from tests.support.doctor import Run, findings, list_checks, list_failed_checks
from tests.support.upstreams import STDIO_SERVER

PROBLEM: Final = "application/problem+json"
UPSTREAM: Final = ("--upstream", f"odd={sys.executable} {STDIO_SERVER}")


@pytest.fixture
def service() -> Generator[respx.MockRouter]:
    """A mocked healthy service, which asks for a key."""
    with respx.mock(base_url="http://127.0.0.1:8090", assert_all_called=False) as router:
        router.get("/readyz").mock(side_effect=healthy)
        router.get("/healthz").respond(404)
        router.get("/openapi.json").respond(json={"servers": [{"url": "http://127.0.0.1:8090"}]})
        problem = {"content-type": "application/problem+json"}
        router.get("/v1/status").respond(401, json={"detail": "Send your API key."}, headers=problem)
        yield router


def healthy(_request: httpx.Request) -> httpx.Response:
    return make_ready_response()


def make_ready_response(*, seconds_off: float = 0, degraded: Sequence[str] = ()) -> httpx.Response:
    now = datetime.now(UTC) + timedelta(seconds=seconds_off)  # noqa: TID251 - the doctor compares with the machine's clock
    body = {"status": "ready", "degraded": list(degraded)}
    return httpx.Response(200, json=body, headers={"date": format_datetime(now, usegmt=True)})


def test_a_healthy_service_is_reported_as_such(run: Run, service: respx.MockRouter, key: str) -> None:
    ran = run("doctor", *UPSTREAM)

    assert ran.exit_code == 0, ran.stdout
    marks = {line.split()[0] for line in ran.stdout.splitlines() if " service status " not in line}
    assert marks == {"ok"}
    assert "skip   service status " in ran.stdout
    for about in (
        "settings",
        "database",
        "key ring",
        "sealed data",
        "queue",
        "API keys",
        "upstream odd",
        "service",
        "clock",
    ):
        assert f" {about} " in ran.stdout


def test_a_misspelt_variable_is_a_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_WAIT_SECONDS", "20")

    ok, detail = list_failed_checks(list_checks(run))["settings"]

    assert not ok
    assert detail == "RINGBACK_WAIT_SECONDS is no setting and is ignored. Did you mean RINGBACK_WAIT_SECONDS_MAX?"


def test_before_the_first_start_the_doctor_accepts_a_missing_database(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RINGBACK_PORT", "1")  # a service of somebody else may be at the default port

    ran = list_checks(run)

    assert set(list_failed_checks(ran)) == {"upstreams", "service"}
    assert "ringback serve" in findings(ran)["database"][1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", [httpx.ConnectError("refused"), httpx.Response(404, html="<h1>Not Found</h1>")])
def test_the_upstreams_of_a_service_at_a_wrong_url_are_no_fault_of_this_environment(
    run: Run, service: respx.MockRouter, answer: httpx.Response | Exception
) -> None:
    service.clear()
    service.route().mock(side_effect=[answer] * 32)

    found = findings(list_checks(run, "--url", "http://127.0.0.1:8090"))

    ok, detail = found["upstreams"]
    assert ok
    assert detail.startswith("not checked: no Ringback responds at http://127.0.0.1:8090")
    assert not found["service"][0]


def test_a_service_that_does_not_respond_is_requested_once(run: Run, service: respx.MockRouter, key: str) -> None:
    requested: list[str] = []

    def time_out(request: httpx.Request) -> httpx.Response:
        requested.append(request.url.path)
        raise httpx.ReadTimeout("late", request=request)

    service.clear()
    service.route().mock(side_effect=time_out)

    ran = list_checks(run, "--api-key", key, "--callbacks")

    assert requested == ["/readyz"]
    assert set(list_failed_checks(ran)) == {"service", "callbacks"}
    assert findings(ran)["service status"] == (True, "not asked: the service does not respond")
    assert findings(ran)["upstreams"][1].startswith("not checked: ")


def test_each_finding_is_printed_before_the_next_check(run: Run, service: respx.MockRouter, key: str) -> None:
    printed: list[str] = []

    def refuse(_: httpx.Request) -> httpx.Response:
        output: Any = sys.stdout
        printed.append(output.buffer.getvalue().decode())
        return httpx.Response(401, json={"detail": "Send your API key."}, headers={"content-type": PROBLEM})

    service.get("/v1/status").mock(side_effect=refuse)

    ran = run("doctor", *UPSTREAM)

    assert " service  " in printed[-1]
    assert " upstream odd " in printed[-1]
    assert ran.stdout.startswith(printed[-1])


def test_a_log_line_about_an_upstream_does_not_stand_beside_the_findings(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [])  # as in a process of its own
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(logged))

    ran = list_checks(run, "--upstream", "gone=/nowhere/at/all")

    assert "upstream gone" in list_failed_checks(ran)
    assert logged.getvalue() == ""


def test_a_running_service_may_have_a_configuration_that_this_environment_does_not_name(
    run: Run, service: respx.MockRouter, key: str
) -> None:
    service.get("/healthz").respond(json={"status": "ok"})

    ok, detail = findings(list_checks(run))["upstreams"]

    assert ok
    assert detail.startswith("not known")
    assert "--config" in detail


def test_a_key_that_was_given_is_not_asked_for(run: Run, service: respx.MockRouter, key: str) -> None:
    service.get("/healthz").respond(json={"status": "ok"})
    service.get("/v1/status").respond(
        403, json={"detail": "admin"}, headers={"content-type": "application/problem+json"}
    )

    service.get("/v1/upstreams").respond(
        403, json={"detail": "read"}, headers={"content-type": "application/problem+json"}
    )

    checks = findings(list_checks(run, "--api-key", key))

    ok, detail = checks["upstreams"]
    assert ok
    assert detail.endswith("runs with its own: the service is asked about them with the API key")
    assert "--api-key" not in detail
    assert checks["service status"][1].startswith("not asked: the key lacks the scope admin. ")


def test_a_key_without_the_scope_admin_still_shows_the_upstreams_that_fail(
    run: Run, service: respx.MockRouter, key: str
) -> None:
    service.get("/v1/status").respond(403, json={"detail": "admin"}, headers={"content-type": PROBLEM})
    failing = UPSTREAM_EXAMPLE | {"name": "acme", "state": "failing", "last_error": "connection_lost"}
    service.get("/v1/upstreams").respond(json={"upstreams": [failing | {"advice": "See its log."}]})

    ran = list_checks(run, "--api-key", key, *UPSTREAM)

    assert set(list_failed_checks(ran)) == {"service upstream acme"}
    (skipped,) = (each for each in json.loads(ran.stdout) if each["skipped"])
    assert skipped["about"] == "service status"


def test_settings_that_do_not_hold_together_are_all_there_is_to_say(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_PORT", "many")

    assert "RINGBACK_PORT" in list_failed_checks(list_checks(run))["settings"][1]


def test_postgresql_without_a_key_is_reported_with_the_command_that_makes_one(run: Run) -> None:
    failed = list_failed_checks(list_checks(run, "--database", "postgresql://ann:hidden@db.example/ringback"))

    assert "ringback keys ring" in failed["key ring"][1]
    assert "hidden" not in str(failed)


def test_roles_that_leave_work_undone_are_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_ROLES", "api,janitor")

    assert "runner, dispatcher" in list_failed_checks(list_checks(run))["roles"][1]


def test_a_node_without_the_api_needs_the_url_of_the_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_ROLES", "runner,dispatcher")
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", "broken")  # the database is not asked
    checks = list_checks(run, "--database", "postgresql://db.invalid/ringback")

    assert "RINGBACK_PUBLIC_URL is required on a node without the role api" in list_failed_checks(checks)["roles"][1]
    assert "With several nodes, set RINGBACK_PUBLIC_URL" in findings(checks)["public URL"][1]


def test_an_unreachable_upstream_is_reported(run: Run, service: respx.MockRouter) -> None:
    ran = list_checks(run, *UPSTREAM, "--upstream", "gone=/nowhere/at/all")

    assert set(list_failed_checks(ran)) == {"upstream gone"}
    assert "Check 'command' and 'cwd'" in list_failed_checks(ran)["upstream gone"][1]
    assert findings(ran)["upstream odd"][0]


def test_skipped_entries_are_named_with_their_advice_and_without_secrets(
    run: Run, service: respx.MockRouter, tmp_path: Path
) -> None:
    servers = {
        "My Server": {"url": "https://user:pa55word@a.example/mcp", "headers": {"X-Token": "${ABSENT_TOKEN}"}},
        "old": {"url": "https://a.example/sse"},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    ran = list_checks(run, *UPSTREAM, "--config", "mcp.json")

    failed = list_failed_checks(ran)
    assert set(failed) == {"upstream My Server", "upstream old"}
    assert failed["upstream My Server"][1].startswith("It is skipped: 'headers.X-Token' needs the environment variable")
    assert "ABSENT_TOKEN" in failed["upstream My Server"][1]
    assert "streamable HTTP" in failed["upstream old"][1]
    assert findings(ran)["upstream odd"][0], "the others are checked"
    assert "pa55word" not in ran.output


def test_a_missing_configuration_is_reported(run: Run) -> None:
    assert "missing.json" in list_failed_checks(list_checks(run, "--config", "missing.json"))["upstreams"][1]


def test_a_service_that_accepts_no_work_says_why(run: Run, service: respx.MockRouter) -> None:
    headers = {"content-type": PROBLEM, "date": "now"}
    service.get("/readyz").respond(503, json={"detail": "Not ready: the runner failed."}, headers=headers)

    found = list_failed_checks(list_checks(run))

    assert "the runner failed" in found["service"][1]
    assert "no Date header" in found["clock"][1]


def test_failed_mcp_endpoints_of_a_ready_service_are_named(run: Run, service: respx.MockRouter) -> None:
    service.get("/readyz").mock(side_effect=[make_ready_response(degraded=["/mcp/paint"])])

    assert "/mcp/paint" in list_failed_checks(list_checks(run))["service"][1]


def test_a_clock_that_is_not_confirmed_yet_is_explained_and_no_fault(run: Run, service: respx.MockRouter) -> None:
    service.get("/readyz").mock(side_effect=[make_ready_response(degraded=["clock"])])

    found = list_checks(run)

    assert "service" not in list_failed_checks(found)
    assert "more than a day ahead" in found.stdout


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(404, html="<h1>Not Found</h1>"),
        httpx.Response(404, json={"detail": "Not Found"}),
        httpx.Response(200, html="<h1>Welcome</h1>"),
        httpx.Response(200, json={"status": "UP"}),
        httpx.Response(502, html="<h1>Bad Gateway</h1>"),
    ],
    ids=["a page that is missing", "another API", "a page", "another service's health", "a proxy"],
)
def test_another_server_at_the_url_is_reported_and_its_clock_is_not_compared(
    run: Run, service: respx.MockRouter, response: httpx.Response
) -> None:
    response.headers["date"] = "Sun, 01 Nov 2020 00:00:00 GMT"
    service.get("/readyz").mock(return_value=response)

    found = findings(list_checks(run))

    ok, detail = found["service"]
    assert not ok
    assert f"responds with {response.status_code}, and not as Ringback" in detail
    assert "clock" not in found


@pytest.mark.parametrize("seconds", [90, -90])
def test_clocks_that_differ_are_reported(run: Run, service: respx.MockRouter, seconds: float) -> None:
    service.get("/readyz").mock(side_effect=[make_ready_response(seconds_off=seconds)])

    assert "NTP" in list_failed_checks(list_checks(run))["clock"][1]


def test_a_date_without_a_zone_is_in_utc(run: Run, service: respx.MockRouter) -> None:
    response = make_ready_response(seconds_off=90)
    response.headers["date"] = response.headers["date"].replace("GMT", "-0000")
    service.get("/readyz").mock(side_effect=[response])

    assert "NTP" in list_failed_checks(list_checks(run))["clock"][1]


def test_a_url_that_is_none_is_a_usage_error(run: Run) -> None:
    result = run("doctor", "--url", "http://[::1")

    assert (result.exit_code, "is not a URL" in result.output) == (2, True)


OWN_KEY = httpx.Response(200, json={"status": "ok"})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (OWN_KEY, ""),
        (httpx.Response(502, html="<h1>Bad Gateway</h1>"), "502"),
        (httpx.Response(200, html="<h1>Welcome</h1>"), "not as Ringback"),
        (httpx.ConnectError("refused"), "ConnectError"),
    ],
    ids=["ours", "a proxy's", "a page", "no response"],
)
def test_a_public_url_has_to_lead_here(
    run: Run,
    service: respx.MockRouter,
    monkeypatch: pytest.MonkeyPatch,
    answer: httpx.Response | Exception,
    words: str,
) -> None:
    monkeypatch.setenv("RINGBACK_PUBLIC_URL", "https://ringback.example")
    service.get("/healthz").mock(return_value=OWN_KEY)
    with respx.mock(base_url="https://ringback.example", assert_all_called=False) as public:
        if isinstance(answer, Exception):
            public.get("/healthz").mock(side_effect=answer)
        else:
            public.get("/healthz").mock(return_value=answer)
        public.route().mock(side_effect=httpx.ConnectError("refused"))
        ok, detail = findings(list_checks(run, "--url", "http://127.0.0.1:8090"))["public URL"]

    assert ok is (answer is OWN_KEY)
    assert words in detail


def test_callbacks_cannot_be_checked_without_a_key(run: Run, service: respx.MockRouter) -> None:
    problem = {"content-type": "application/problem+json"}
    service.get("/v1/webhooks").respond(401, json={"detail": "Send your API key."}, headers=problem)

    assert "Send your API key" in list_failed_checks(list_checks(run, "--callbacks"))["callbacks"][1]


def test_a_service_that_knows_a_key_which_the_database_does_not_have_is_another_one(
    run: Run, service: respx.MockRouter, key: str
) -> None:
    """The settings name the staging database, say, and RINGBACK_URL the production service: all checks were ok."""
    known = generate_api_key(b"k" * API_KEY_RANDOM_BYTES)
    respond_to_key(service, known, httpx.Response(403, json={"detail": "admin"}, headers={"content-type": PROBLEM}))

    ok, detail = list_failed_checks(list_checks(run, "--api-key", known))["one service"]

    assert not ok
    assert detail.startswith(
        "http://127.0.0.1:8090 accepts an API key that the database of this environment does not have"
    )


def test_a_service_and_its_own_database_are_no_fault(run: Run, service: respx.MockRouter, key: str) -> None:
    respond_to_key(service, key, httpx.Response(403, json={"detail": "admin"}, headers={"content-type": PROBLEM}))

    assert "one service" not in findings(list_checks(run, "--api-key", key))


def respond_to_key(service: respx.MockRouter, key: str, response: httpx.Response) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        if request.headers.get("authorization") == f"Bearer {key}":
            return response
        return httpx.Response(401, json={"detail": "Send your API key."}, headers={"content-type": PROBLEM})

    if response.status_code == 403:
        service.get("/v1/upstreams").mock(side_effect=respond)
    service.get("/v1/status").mock(side_effect=respond)
