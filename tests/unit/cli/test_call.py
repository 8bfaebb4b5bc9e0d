"""`ringback call` with a mocked service: its requests, output and exit codes."""

import json
from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.cli import following
from ringback.schemas import examples
from ringback.schemas.calls import NO_WEBHOOK_HINT
from tests.support.mocked_requests import get_last_request, list_requests, parse_body

Run = Callable[..., Result]

WORKING = examples.WORKING_CALL
FINISHED = examples.FINISHED_CALL
PROBLEM_JSON = {"content-type": "application/problem+json"}


def started(call: dict[str, Any] = WORKING, **more: Any) -> dict[str, Any]:
    return {"call": call, "resume_token": "the.token", "webhooks": [], **more}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Generator[respx.MockRouter]:
    monkeypatch.setattr(following, "POLL_INTERVAL_SECONDS", 0)
    with respx.mock(base_url="http://127.0.0.1:8090", assert_all_called=True) as router:
        yield router


@pytest.mark.parametrize(
    "options", [("--session", "\udcff"), ("--arg", 'name="\\ud83d"')], ids=["a byte that is no UTF-8", "a JSON escape"]
)
def test_an_argument_with_half_a_character_is_named_and_nothing_is_sent(run: Run, options: tuple[str, str]) -> None:
    with respx.mock(base_url="http://127.0.0.1:8090", assert_all_called=False) as router:
        router.get("/v1/upstreams/git/tools").respond(200, json={"tools": []})
        ran = run("call", "git", "git_log", *options)

    assert ran.exit_code == 2
    assert "` contains half a character" in ran.stderr


def test_a_started_call_is_printed_with_its_token_and_its_webhooks(run: Run, service: respx.MockRouter) -> None:
    webhook = {"id": "wh_1", "state": "active", "url": "https://agent.example/callback"}
    webhooks = [webhook, webhook | {"id": "wh_2", "paused_at": "2026-11-20T17:00:00Z"}]
    route = service.post("/v1/calls").respond(202, json=started(webhooks=webhooks))

    ran = run(
        *("call", "git", "git_log", "--json-args", '{"repo_path": "."}', "--session", "s1", "--correlation", "c1"),
        *("--callback", "https://agent.example/callback", "--api-key", "rbk_x"),
    )

    sent = parse_body(get_last_request(route))
    secret = sent["callback"].pop("secret")
    assert ran.exit_code == 0
    assert ran.stdout.splitlines() == [
        f"call_id: {WORKING['id']}",
        "status: working",
        "resume_token: the.token",
        "webhook: https://agent.example/callback (wh_1, active)",
        "webhook: https://agent.example/callback (wh_2, active and paused)",
        f"callback_secret: {secret}",
    ]
    assert get_last_request(route).headers["authorization"] == "Bearer rbk_x"
    assert sent == {
        "upstream": "git",
        "tool": "git_log",
        "arguments": {"repo_path": "."},
        "client_session_id": "s1",
        "correlation_id": "c1",
        "callback": {"url": "https://agent.example/callback"},
    }


def test_a_hint_goes_to_standard_error(run: Run, service: respx.MockRouter) -> None:
    service.post("/v1/calls").respond(202, json=started(hint="No webhook receives this call."))

    ran = run("call", "git", "git_log")

    assert ran.stderr.splitlines()[0] == "No webhook receives this call."


def test_the_hint_that_nothing_calls_back_names_options_and_commands(run: Run, service: respx.MockRouter) -> None:
    service.post("/v1/calls").respond(202, json=started(hint=NO_WEBHOOK_HINT))

    shown = run("call", "git", "git_log").stderr

    assert "Register one (ringback webhooks add URL), give --callback, or poll: ringback join CALL_ID" in shown


def test_arguments_are_parsed_by_the_tools_schema(run: Run, service: respx.MockRouter) -> None:
    schema = {"type": "object", "properties": {"message": {"type": "string"}, "count": {"type": "integer"}}}
    service.get("/v1/upstreams/git/tools").respond(json={"tools": [{"name": "commit", "inputSchema": schema}]})
    route = service.post("/v1/calls").respond(202, json=started())

    run("call", "git", "commit", "--arg", "message=3", "--arg", "count=3")

    assert parse_body(get_last_request(route))["arguments"] == {"message": "3", "count": 3}


def test_arguments_are_json_where_nothing_is_known_of_the_tool(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/upstreams/git/tools").respond(404, json={}, headers=PROBLEM_JSON)
    route = service.post("/v1/calls").respond(202, json=started())

    run("call", "git", "commit", "--arg", "message=3")

    assert parse_body(get_last_request(route))["arguments"] == {"message": 3}


def test_waiting_polls_until_the_end_and_prints_the_result(run: Run, service: respx.MockRouter) -> None:
    progress = {"progress": 1, "total": 2, "message": "half \x1b[2J"}
    service.post("/v1/calls").respond(202, json=started())
    looks = service.get(f"/v1/calls/{WORKING['id']}")
    looks.side_effect = [
        httpx.Response(200, json=WORKING),
        httpx.Response(200, json={**WORKING, "progress": progress}),
        httpx.Response(200, json={**FINISHED, "id": WORKING["id"]}),
    ]
    service.get(f"/v1/calls/{WORKING['id']}/result").respond(json={"content": [{"type": "text", "text": "a\nb"}]})

    ran = run("call", "git", "git_log", "--wait")

    assert (ran.exit_code, ran.stdout) == (0, "a\nb\n")
    assert WORKING["id"] in ran.stderr
    assert "\x1b" not in ran.stderr
    assert len(list_requests(looks)) == 3


def test_a_wait_for_input_is_a_wait(run: Run, service: respx.MockRouter) -> None:
    """Else a script would take the id of a call that has just started for its result."""
    service.post("/v1/calls").respond(202, json=started(FINISHED))
    service.get(f"/v1/calls/{FINISHED['id']}/result").respond(json={"content": [{"type": "text", "text": "done"}]})

    ran = run("call", "git", "git_log", "--wait-for-input")

    assert (ran.exit_code, ran.stdout) == (0, "done\n")


def test_a_wait_ends_after_the_seconds_that_it_may_take(run: Run, service: respx.MockRouter) -> None:
    """As that of `join` and `wait`."""
    route = service.post("/v1/calls").respond(202, json=started())

    ran = run("call", "git", "git_log", "--wait-seconds", "0")

    assert (ran.exit_code, ran.stdout) == (75, "")
    assert parse_body(get_last_request(route))["wait_seconds"] == 0
    assert f"{WORKING['id']} is working, and continues. Join it: ringback join {WORKING['id']}" in ran.stderr


def test_a_result_that_cannot_be_read_within_the_wait_ends_it_as_one_that_may_be_repeated(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The help promises exit code 75 at the time limit, as `join` has it."""
    monkeypatch.setattr("ringback.client.http_transport.RETRY_DELAYS_SECONDS", ())
    service.post("/v1/calls").respond(202, json=started(FINISHED))
    problem = {"type": "unavailable", "title": "Unavailable", "status": 503, "detail": "Stopping."}
    service.get(f"/v1/calls/{FINISHED['id']}/result").respond(503, json=problem, headers=PROBLEM_JSON)

    ran = run("call", "git", "git_log", "--wait-seconds", "0")

    assert (ran.exit_code, ran.stderr) == (75, "Error: Stopping.\n")


@pytest.mark.parametrize(
    ("rest", "advice"),
    [
        (("--wait", "5"), "To stop waiting earlier: --wait-seconds SECONDS"),
        (("--wait", "2.5s"), "To stop waiting earlier: --wait-seconds SECONDS"),
        (("path=.",), "Give the tool's arguments with --arg NAME=VALUE."),
        (("--wait", "path=."), "Give the tool's arguments with --arg NAME=VALUE."),
    ],
)
def test_a_surplus_argument_is_refused_with_the_option_that_takes_it(
    run: Run, rest: tuple[str, ...], advice: str
) -> None:
    ran = run("call", "git", "git_log", *rest)

    assert (ran.exit_code, ran.stdout) == (2, "")
    said = " ".join(ran.stderr.replace("│", "").split())
    assert f"Got unexpected extra arguments ({rest[-1]}). " in said
    assert advice in said


IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
RESULTS: list[tuple[dict[str, Any], str]] = [
    ({"content": [{"type": "text", "text": "\x1b[31mred"}]}, "�[31mred\n"),
    ({"content": [{"type": "text", "text": "one"}, IMAGE]}, f"one\n{json.dumps(IMAGE, indent=2)}\n"),
    (
        {"content": [], "structuredContent": {"é": 1}},
        '{\n  "content": [],\n  "structuredContent": {\n    "é": 1\n  }\n}\n',
    ),
    ({"content": "odd"}, '{\n  "content": "odd"\n}\n'),
    ({"content": ["odd"]}, '"odd"\n'),
]


@pytest.mark.parametrize(("result", "shown"), RESULTS, ids=["control", "mixed", "structured", "no list", "no block"])
def test_text_is_printed_as_text_and_the_rest_as_json(
    run: Run, service: respx.MockRouter, result: dict[str, Any], shown: str
) -> None:
    service.post("/v1/calls").respond(200, json=started(FINISHED, result=result))

    ran = run("call", "git", "git_log", "--wait")

    assert (ran.exit_code, ran.stdout) == (0, shown)


def test_a_tool_s_own_error_is_printed_and_exits_with_1(run: Run, service: respx.MockRouter) -> None:
    call = {**FINISHED, "outcome": "tool_error"}
    result = {"content": [{"type": "text", "text": "no such path"}], "isError": True}
    service.post("/v1/calls").respond(200, json=started(call, result=result))

    ran = run("call", "git", "git_log", "--wait")

    assert (ran.exit_code, ran.stdout) == (1, "no such path\n")


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (
            {"status": "failed", "outcome": "unknown", "error": {"code": "unknown", "message": "lost"}},
            "failed (unknown): lost",
        ),
        ({"status": "cancelled", "outcome": "cancelled"}, "cancelled (cancelled)."),
    ],
)
def test_a_call_without_a_result_says_why_and_exits_with_1(
    run: Run, service: respx.MockRouter, ending: dict[str, Any], words: str
) -> None:
    service.post("/v1/calls").respond(200, json=started({**FINISHED, **ending}))

    ran = run("call", "git", "git_log", "--wait")

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert words in ran.stderr


def test_a_problem_is_one_line_that_says_what_to_do(run: Run, service: respx.MockRouter) -> None:
    detail = "Upstream 'git' has no tool 'git_lgo'. Did you mean 'git_log'?"
    service.post("/v1/calls").respond(422, json={"title": "Unknown tool", "detail": detail}, headers=PROBLEM_JSON)

    ran = run("call", "git", "git_lgo")

    assert (ran.exit_code, ran.stdout, ran.stderr) == (2, "", f"Error: {detail}\n")


def test_a_started_call_says_how_to_join_it(run: Run, service: respx.MockRouter) -> None:
    service.post("/v1/calls").respond(202, json=started())

    assert f"ringback join {WORKING['id']}\n" in run("call", "git", "git_log").stderr


def test_a_start_and_its_result_are_printed_as_json(run: Run, service: respx.MockRouter) -> None:
    route = service.post("/v1/calls")
    result = {"content": [{"type": "text", "text": "one"}]}
    route.side_effect = [
        httpx.Response(202, json=started(callback_secret="whsec_1")),
        httpx.Response(200, json=started(FINISHED, result=result)),
    ]

    detached = json.loads(run("call", "git", "git_log", "--json").stdout)
    waited = json.loads(run("call", "git", "git_log", "--wait", "--json").stdout)

    assert (detached["call"]["id"], detached["resume_token"], detached["callback_secret"]) == (
        WORKING["id"],
        "the.token",
        "whsec_1",
    )
    assert detached["call"]["created_at"] == "2026-11-20T17:00:00.000Z"
    assert (waited["call"]["status"], waited["result"]) == ("completed", result)


@pytest.mark.parametrize("time", ["2030-11-23T09:00:00+01:00", "2030-11-23T09:00", "2030-11-23"])
def test_a_call_may_start_later(run: Run, service: respx.MockRouter, time: str) -> None:
    route = service.post("/v1/calls").respond(202, json=started())

    run("call", "git", "git_log", "--not-before", time)

    sent = parse_body(get_last_request(route))["not_before"]
    assert sent.startswith("2030-11-23T0")
    assert datetime.fromisoformat(sent).tzinfo is not None


def test_a_start_may_have_a_key_a_timeout_and_a_person_who_answers(run: Run, service: respx.MockRouter) -> None:
    route = service.post("/v1/calls").respond(202, json=started())

    run("call", "git", "git_log", "--idempotency-key", "today", "--timeout-seconds", "60", "--accepts-input")

    request = get_last_request(route)
    assert request.headers["idempotency-key"] == "today"
    assert (parse_body(request)["timeout_seconds"], parse_body(request)["accepts_input"]) == (60, True)


@pytest.mark.parametrize(
    ("arguments", "is_terminal", "accepts_input"),
    [
        (["--wait-for-input"], False, True),
        (["--wait"], True, True),
        (["--wait"], False, None),
        ([], True, None),
    ],
)
def test_a_call_accepts_input_if_the_command_waits_for_a_question_of_its_tool(
    run: Run,
    service: respx.MockRouter,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    *,
    is_terminal: bool,
    accepts_input: bool | None,
) -> None:
    """Else the service would refuse the question, and the command would print the tool's error."""
    monkeypatch.setattr("ringback.cli.commands.call.has_terminal", lambda: is_terminal)
    route = service.post("/v1/calls").respond(202, json=started(FINISHED))
    if arguments:
        service.get(f"/v1/calls/{FINISHED['id']}/result").respond(json={"content": []})

    run("call", "git", "git_log", *arguments)

    assert parse_body(get_last_request(route)).get("accepts_input") is accepts_input
