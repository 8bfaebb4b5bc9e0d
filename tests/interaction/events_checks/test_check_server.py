"""`ringback check-server` passes a server that follows the specification, and finds each broken rule by its own check."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ringback.cli.check_report import CheckResult, CheckVerdict
from ringback.cli.server_checks import run
from ringback.cli.server_checks.chapters import CASES
from ringback.cli.server_checks.chapters.ssrf import NON_ROUTABLE_HOSTS
from ringback.cli.server_checks.connection import Era
from ringback.cli.server_checks.run import RunOptions, run_checks, select_cases
from ringback.cli.server_checks.subject import CheckTimeouts
from tests.support import events_deliveries
from tests.support.events_log import describe_type
from tests.support.events_server import SLOW_HEARTBEAT_SECONDS, EventsServer, serving_events
from tests.support.limits import WAIT_SECONDS

LONG_TIMEOUTS: Final = CheckTimeouts(
    event_seconds=WAIT_SECONDS,
    active_seconds=WAIT_SECONDS,
    heartbeat_seconds=WAIT_SECONDS,
    silence_seconds=WAIT_SECONDS,
    retry_seconds=WAIT_SECONDS,
    quiet_seconds=0.2,
)
"""Each wait ends with what it waits for: of a correct server, and of a broken one that sends something wrong."""
SHORT_TIMEOUTS: Final = CheckTimeouts(
    event_seconds=2.0,
    active_seconds=2.0,
    heartbeat_seconds=1.0,
    silence_seconds=0.3,
    retry_seconds=2.0,
    quiet_seconds=0.2,
)
"""For a broken server that sends nothing, which is waited for in vain."""
SILENT: Final = frozenset(
    {
        *("cursor-opaque", "delivery-implemented", "envelope-type-discriminator", "stream-error-before-open"),
        *("stream-heartbeat-required", "stream-mode-unsupported", "stream-resumes", "stream-same-id-as-poll"),
    }
)
"""Faults of servers that send nothing, or nothing of the kind that the check waits for."""
WINDOWS: Final[Mapping[str, CheckTimeouts]] = {
    **dict.fromkeys(SILENT, SHORT_TIMEOUTS),
    "stream-heartbeat-interval": replace(LONG_TIMEOUTS, silence_seconds=SHORT_TIMEOUTS.silence_seconds),
    "delivery-retries-bounded": replace(LONG_TIMEOUTS, quiet_seconds=WAIT_SECONDS),
    # What arrives although it must not comes while nothing else is waited for.
    **dict.fromkeys(
        ("delivery-410-non-retryable", "delivery-413-non-retryable"), replace(LONG_TIMEOUTS, quiet_seconds=2.0)
    ),
    **dict.fromkeys(("ssrf-no-redirects", "unsubscribe-stops-delivery"), replace(LONG_TIMEOUTS, quiet_seconds=2.0)),
}

NEEDS_ANOTHER_SERVER: Final = frozenset(
    {
        "capability-empty-settings",  # this server declares listChanged
        "fallback-method-not-found",  # it has Events
        "truncated-false-when-no-replay",  # its event types replay
        "ssrf-validate-callback-url",  # it may call this machine
    }
)
NEEDS_FIXTURE: Final = frozenset(
    {
        *("list-changed-notification", "schema-evolution-additive", "removal-terminates-subscriptions"),
        *("replay-ceiling-sets-truncated", "stream-error-is-recoverable", "stream-terminated-ends-subscription"),
        *("stream-gap-resends-active", "stream-final-result-shape", "subscribe-refresh-reactivates"),
        *("ttl-long-grant-retained", "ttl-no-expiry-persisted", "ttl-no-expiry-gc-terminated"),
        *("verification-persisted-for-no-expiry", "verification-uses-ssrf-hardened-path"),
        *("server-identity-key-discovery", "envelope-gap", "envelope-terminated", "payload-minimality"),
        *("ssrf-validate-at-delivery-time", "error-forbidden", "error-resource-exhausted"),
        *("authz-subscribe-time", "authz-delivery-time-reverify"),
    }
)
"""Cases that no request of the protocol brings about; `ringback check-server` lists them as untestable."""
WITHOUT_FAULT: Final = NEEDS_FIXTURE | {"truncated-false-when-no-replay", "ssrf-validate-callback-url"}
FAULTS: Final = sorted({case.case.id for case in CASES} - WITHOUT_FAULT)


async def check_server(server: EventsServer, *only: str, **options: Any) -> list[CheckResult]:
    given: dict[str, Any] = {"credentials": {"authorization": "Bearer alice"}, "timeouts": LONG_TIMEOUTS, **options}
    async with serving_events(server) as url:
        return await run_checks(RunOptions(url=url, **given), select_cases(only))


async def run_against(fault: str, *only: str, **options: Any) -> list[CheckResult]:
    """Check a server with this fault, as two principals."""
    others = {"authorization": "Bearer bob"}
    return await check_server(EventsServer(fault), *only, other_credentials=others, emit_tool="emit", **options)


@pytest.mark.parametrize("era", list(Era))
async def test_a_server_that_follows_the_specification_passes_every_check_that_its_situation_allows(era: Era) -> None:
    results = await run_against("", era=era)

    others = {
        each.case.id: (each.verdict, each.observed) for each in results if each.verdict is not CheckVerdict.PASSED
    }
    assert {name: seen for name, seen in others.items() if seen[0] is not CheckVerdict.UNTESTABLE} == {}
    assert set(others) == NEEDS_FIXTURE | NEEDS_ANOTHER_SERVER


async def test_a_server_that_challenges_no_callback_breaks_no_must_if_its_operator_allows_them() -> None:
    results = await run_against("callbacks-allowed", "verification", "envelopes", "delivery", "ssrf")

    assert {each.case.id: each.observed for each in results if each.verdict is CheckVerdict.FAILED} == {}
    warned = {each.case.id: each.observed for each in results if each.verdict is CheckVerdict.WARNED}
    assert set(warned) == {"verification-challenge-echo"}
    assert "is it allowed beforehand?" in warned["verification-challenge-echo"]


class ScriptedServer(EventsServer):
    """A server with other results of some methods."""

    def __init__(self, responses: Mapping[str, Mapping[str, Any]], fault: str = "") -> None:
        super().__init__(fault)
        self._responses = responses

    async def respond(self, request: Request) -> Response:
        message = json.loads(await request.body() or b"{}")
        scripted = self._responses.get(message.get("method"))
        if scripted is None:
            return await super().respond(request)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], **scripted})


class BusyServer(EventsServer):
    """One more event happens at each request of this method."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    async def respond(self, request: Request) -> Response:
        if json.loads(await request.body() or b"{}").get("method") == self._method:
            self.log.append_event()
            self.webhooks.notify()
        return await super().respond(request)


@pytest.mark.parametrize("method", ["tools/call", "events/poll"])
async def test_events_that_happen_beside_the_one_of_the_run_make_no_delivery_wrong(method: str) -> None:
    results = await check_server(BusyServer(method), "delivery", emit_tool="emit")

    verdicts = {each.case.id: (each.verdict, each.observed) for each in results}
    assert verdicts["delivery-retry-same-message"] == (CheckVerdict.PASSED, "the same message")
    assert [name for name, (verdict, _) in verdicts.items() if verdict is CheckVerdict.FAILED] == []


async def test_a_stream_may_be_silent_for_longer_than_a_response_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "REPLY_SECONDS", SLOW_HEARTBEAT_SECONDS * 0.8)

    (result,) = await run_against("stream-heartbeat-interval", "stream-heartbeat-required")

    assert (result.verdict, result.observed) == (CheckVerdict.PASSED, "a heartbeat")


class PartlyGuardedServer(EventsServer):
    """It calls the first of the addresses, in vain, and accepts the others without a call."""

    async def respond(self, request: Request) -> Response:
        message = json.loads(await request.body() or b"{}")
        if message.get("params", {}).get("delivery", {}).get("url") == f"https://{NON_ROUTABLE_HOSTS[0]}/callback":
            error = {"code": -32015, "message": "CallbackEndpointError", "data": {"reason": "timeout"}}
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return await super().respond(request)


@pytest.mark.parametrize(
    ("fault", "verdict"), [("", CheckVerdict.WARNED), ("ssrf-reject-non-routable", CheckVerdict.FAILED)]
)
async def test_a_callback_that_timed_out_hides_no_callback_that_was_accepted(fault: str, verdict: CheckVerdict) -> None:
    (result,) = await check_server(PartlyGuardedServer(fault), "ssrf-reject-non-routable")

    assert result.verdict is verdict, result.observed


class ServerWithCookies(EventsServer):
    """It knows a principal by the cookie that it sets, too."""

    async def respond(self, request: Request) -> Response:
        if "session" in request.cookies and "authorization" not in request.headers:
            request.scope["headers"].append((b"authorization", request.cookies["session"].encode()))
        response = await super().respond(request)
        response.set_cookie("session", request.headers.get("authorization", ""))
        return response


async def test_a_client_without_credentials_is_not_known_by_the_cookie_of_another() -> None:
    (result,) = await check_server(ServerWithCookies(), "subscribe-auth-required")

    assert result.verdict is CheckVerdict.PASSED, result.observed


@pytest.mark.parametrize("case", ["delivery-implemented", "stream-event-notification"])
async def test_an_event_that_did_not_happen_is_not_missed_by_a_callback_or_a_stream(case: str) -> None:
    server = ScriptedServer({"tools/call": {"result": {"content": []}}})

    (result,) = await check_server(server, case, emit_tool="emit", timeouts=replace(LONG_TIMEOUTS, event_seconds=0.2))

    assert result.verdict is CheckVerdict.UNTESTABLE, result.observed
    assert "a poll shows that no note.added happened" in result.observed


@pytest.mark.parametrize("status", [410, 413])
async def test_a_server_that_has_not_retried_anything_yet_does_not_pass_for_one_that_gives_up(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(events_deliveries, "ATTEMPTS_MAX", 1)

    (result,) = await run_against(
        "", f"delivery-{status}-non-retryable", timeouts=replace(LONG_TIMEOUTS, retry_seconds=0.2)
    )

    assert (result.verdict, result.observed) == (
        CheckVerdict.UNTESTABLE,
        "no second attempt at a failing callback within 0 s",
    )


ARGUMENTS_FIRST: Final = {"error": {"code": -32602, "message": "InvalidParams: topic is required"}}
WEBHOOK_TYPE_FIRST: Final = {"result": {"events": [describe_type("note.archived"), describe_type("note.counted")]}}


@pytest.mark.parametrize(
    ("responses", "case", "verdict"),
    [
        ({"events/poll": ARGUMENTS_FIRST}, "error-unsupported", CheckVerdict.UNTESTABLE),
        ({"events/stream": ARGUMENTS_FIRST}, "stream-mode-unsupported", CheckVerdict.UNTESTABLE),
        ({"events/list": WEBHOOK_TYPE_FIRST}, "error-invalid-params", CheckVerdict.PASSED),
    ],
)
async def test_a_server_that_checks_the_parts_of_a_request_in_another_order_is_not_called_wrong(
    responses: Mapping[str, Mapping[str, Any]], case: str, verdict: CheckVerdict
) -> None:
    (result,) = await check_server(ScriptedServer(responses), case)

    assert result.verdict is verdict, result.observed


def test_more_than_sixty_checks_can_fail_and_each_has_an_id_of_its_own() -> None:
    ids = [case.case.id for case in CASES]

    assert len(FAULTS) > 60
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_broken_rule_is_found_by_its_check(fault: str) -> None:
    result, *_ = await run_against(fault, fault, timeouts=WINDOWS.get(fault, LONG_TIMEOUTS))

    assert result.verdict in {CheckVerdict.FAILED, CheckVerdict.WARNED}, (result.verdict, result.observed)


async def test_without_anything_that_makes_an_event_happen_the_checks_about_events_are_untestable() -> None:
    results = await check_server(EventsServer(), "occurrences", "poll-implemented", timeouts=CheckTimeouts())

    verdicts = {each.case.id: each.verdict for each in results}
    assert verdicts.pop("poll-implemented") is CheckVerdict.PASSED
    assert set(verdicts.values()) == {CheckVerdict.UNTESTABLE}


async def test_a_server_that_answers_nonsense_is_reported_and_ends_no_run() -> None:
    results = await run_against("garbage", timeouts=SHORT_TIMEOUTS)

    assert len(results) == len(CASES)
    assert sum(each.verdict is CheckVerdict.FAILED for each in results) >= 5
