"""`ringback join` with a mocked service: its requests, output and exit codes."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.cli.call_words import describe_input_request
from ringback.client import Call
from ringback.schemas import examples
from tests.support.mocked_requests import get_last_request, parse_body

Run = Callable[..., Result]

WORKING = examples.WORKING_CALL
CALL_ID = str(WORKING["id"])
LOGIN_URL = "https://ringback.example/login/git"
FINISHED = {**examples.FINISHED_CALL, "id": CALL_ID}
PATH = f"/v1/calls/{CALL_ID}"
RESULT = {"content": [{"type": "text", "text": "done"}]}
PROBLEM_JSON = {"content-type": "application/problem+json"}

AWAY = httpx.Response(503, json={"detail": "Stopping."}, headers=PROBLEM_JSON)


def call(document: dict[str, Any], **changes: Any) -> httpx.Response:
    return httpx.Response(200, json={**document, **changes})


def test_a_joined_call_shows_its_stored_progress_then_the_live_one_then_its_result(
    run: Run, service: respx.MockRouter
) -> None:
    service.get(PATH).side_effect = [
        call(WORKING, progress={"progress": 3, "total": 10, "message": "reading"}),
        call(WORKING, progress={"progress": 3, "total": 10, "message": "reading"}),
        call(WORKING, progress={"progress": 7.5, "total": None, "message": "\x1b[2J"}),
        call(WORKING, progress={"progress": 1_234_567, "total": 10 * 2**30, "message": None}),
        call(FINISHED),
    ]
    service.get(f"{PATH}/result").respond(json=RESULT)

    ran = run("join", CALL_ID)

    assert (ran.exit_code, ran.stdout) == (0, "done\n")
    assert ran.stderr.splitlines()[1:] == ["3/10 reading", "7.5 �[2J", "1234567/10737418240"]


def test_a_resume_token_joins_its_call(run: Run, service: respx.MockRouter) -> None:
    resumed: dict[str, Any] = {"call": FINISHED, "result": RESULT, "events": [], "resume_token": "new"}
    route = service.post("/v1/resume").respond(json=resumed)

    ran = run("join", "the.token")

    assert (ran.exit_code, ran.stdout) == (0, "done\n")
    assert parse_body(get_last_request(route)) == {"resume_token": "the.token"}


def test_a_join_that_ends_too_early_leaves_the_call_and_says_how_to_join_again(
    run: Run, service: respx.MockRouter
) -> None:
    service.get(PATH).respond(json=WORKING)

    ran = run("join", CALL_ID, "--wait-seconds", "0")

    assert (ran.exit_code, ran.stdout) == (75, "")
    assert f"{CALL_ID} is working, and continues. Join it: ringback join {CALL_ID}\n" in ran.stderr


def test_a_join_prints_the_call_and_its_result_as_json(run: Run, service: respx.MockRouter) -> None:
    lost = {"status": "failed", "outcome": "unknown", "error": {"code": "unknown", "message": "lost"}}
    service.get(PATH).side_effect = [call(FINISHED), call(FINISHED, **lost)]
    service.get(f"{PATH}/result").respond(json=RESULT)

    done, failed = run("join", CALL_ID, "--json"), run("join", CALL_ID, "--json")

    assert (done.exit_code, json.loads(done.stdout)["result"]) == (0, RESULT)
    assert (failed.exit_code, json.loads(failed.stdout)["result"]) == (1, None)
    assert json.loads(failed.stdout)["call"]["error"]["message"] == "lost"
    assert "failed (unknown): lost" in failed.stderr


def test_a_join_outlives_a_restart_of_the_service(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.client.http_transport.RETRY_DELAYS_SECONDS", ())
    service.get(PATH).side_effect = [
        call(WORKING),
        httpx.ConnectError("refused"),
        httpx.Response(503, json={"detail": "Stopping."}, headers=PROBLEM_JSON),
        call(FINISHED),
    ]
    service.get(f"{PATH}/result").respond(json=RESULT)

    ran = run("join", CALL_ID)

    assert (ran.exit_code, ran.stdout) == (0, "done\n")
    assert "The next attempt follows." in ran.stderr


def test_a_join_outlives_an_outage_from_its_first_request_to_the_result(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.client.http_transport.RETRY_DELAYS_SECONDS", ())
    service.get(PATH).side_effect = [AWAY, call(FINISHED)]
    service.get(f"{PATH}/result").side_effect = [
        AWAY,
        httpx.ConnectError("refused"),
        httpx.Response(200, json=RESULT),
    ]

    ran = run("join", CALL_ID)

    assert (ran.exit_code, ran.stdout) == (0, "done\n")
    assert ran.stderr.count("The next attempt follows.") == 3


@pytest.mark.parametrize("command", ["join", "wait"])
def test_a_service_that_was_never_there_ends_the_command_at_once(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("ringback.client.http_transport.RETRY_DELAYS_SECONDS", ())
    service.route().mock(side_effect=httpx.ConnectError("refused"))

    assert run(command, CALL_ID).exit_code == 2


@pytest.mark.parametrize("command", ["join", "wait"])
def test_a_service_that_stays_away_ends_the_command_at_its_time_limit(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("ringback.client.http_transport.RETRY_DELAYS_SECONDS", ())
    service.route().mock(return_value=AWAY)

    ran = run(command, CALL_ID, "--wait-seconds", "0")

    assert (ran.exit_code, ran.stderr) == (75, "Error: Stopping.\n")


def test_the_time_limit_of_a_join_includes_an_outage_at_its_beginning(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_seconds, read_time = 0.0, asyncio.BaseEventLoop.time

    def read_later_time(loop: asyncio.BaseEventLoop) -> float:
        return read_time(loop) + passed_seconds

    monkeypatch.setattr(asyncio.BaseEventLoop, "time", read_later_time)

    def end_outage(_: httpx.Request) -> httpx.Response:
        nonlocal passed_seconds
        passed_seconds = 3600.0
        return call(WORKING)

    service.get(PATH).mock(side_effect=end_outage)

    ran = run("join", CALL_ID, "--wait-seconds", "3600")

    assert ran.exit_code == 75
    assert f"{CALL_ID} is working, and continues." in ran.stderr


def test_an_unknown_call_is_one_line(run: Run, service: respx.MockRouter) -> None:
    service.get(PATH).respond(404, json={"detail": "There is no such call."}, headers=PROBLEM_JSON)

    ran = run("join", CALL_ID)

    assert (ran.exit_code, ran.stderr) == (2, "Error: There is no such call.\n")


def test_a_question_of_the_tool_is_shown_once_with_the_command_that_answers_it(
    run: Run, service: respx.MockRouter
) -> None:
    asking = {**examples.INPUT_REQUIRED_CALL, "id": CALL_ID}
    service.get(PATH).side_effect = [call(asking), call(asking), call(FINISHED)]
    service.get(f"{PATH}/result").respond(json=RESULT)

    ran = run("join", CALL_ID, "--wait-for-input")

    assert (ran.exit_code, ran.stdout) == (0, "done\n")
    assert ran.stderr.count("The tool asks: Which branch?") == 1
    assert f"ringback calls answer {CALL_ID} --key r1.1 --arg 'branch=…'" in ran.stderr


@pytest.mark.parametrize("options", [(), ("--wait-seconds", "60")])
def test_without_a_terminal_a_question_ends_the_wait_with_an_exit_code_of_its_own(
    run: Run, service: respx.MockRouter, options: tuple[str, ...]
) -> None:
    """A script waited for ever for a person whom nobody had told."""
    asking = {**examples.INPUT_REQUIRED_CALL, "id": CALL_ID}
    service.get(PATH).side_effect = [call(WORKING), call(asking)]

    ran = run("join", CALL_ID, "--json", *options)

    assert (ran.exit_code, json.loads(ran.stdout)["call"]["status"]) == (3, "input_required")
    assert "The tool asks: Which branch?" in ran.stderr
    assert ran.stderr.endswith(
        f"{CALL_ID} waits for input, and continues with it. Join it again after that: ringback join {CALL_ID}\n"
    )


def test_at_a_terminal_a_join_waits_for_the_answer(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user may answer in another one."""
    monkeypatch.setattr("ringback.cli.following.has_terminal", lambda: True)
    service.get(PATH).side_effect = [call({**examples.INPUT_REQUIRED_CALL, "id": CALL_ID}), call(FINISHED)]
    service.get(f"{PATH}/result").respond(json=RESULT)

    assert run("join", CALL_ID).exit_code == 0


def test_a_wait_for_an_answer_ends_at_its_time(run: Run, service: respx.MockRouter) -> None:
    service.get(PATH).respond(json={**examples.INPUT_REQUIRED_CALL, "id": CALL_ID})

    assert run("join", CALL_ID, "--wait-for-input", "--wait-seconds", "0").exit_code == 75


@pytest.mark.parametrize(
    ("properties", "required", "draft"),
    [
        (["value", "times"], ["value"], "--arg 'value=…'"),
        (["value", "times"], [], "--arg 'value=…' --arg 'times=…'"),
        (["it's"], [], """--arg 'it'"'"'s=…'"""),
        (["a=b"], [], """--accept '{"a=b": "…"}'"""),
        ([str(number) for number in range(11)], [], "--accept '{…}'"),
        ([], [], "--accept '{…}'"),
    ],
    ids=["required", "several", "quoted", "not a name", "many", "empty"],
)
def test_the_command_that_answers_a_question_names_the_values_that_its_form_requires(
    properties: list[str], required: list[str], draft: str
) -> None:
    schema = {"properties": {name: {"type": "string"} for name in properties}, "required": required}
    request = {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": schema}}
    asking = Call.model_validate({**examples.INPUT_REQUIRED_CALL, "input_requests": {"r1.1": request}})

    assert describe_input_request(asking, "r1.1").endswith(f"--key r1.1 {draft}")


def test_a_question_for_which_its_user_opens_a_page_is_shown_with_its_url() -> None:
    params = {"mode": "url", "message": "Confirm the payment", "url": "https://pay.example/7", "elicitationId": "p7"}
    request = {"method": "elicitation/create", "params": params}
    asking = Call.model_validate({**examples.INPUT_REQUIRED_CALL, "id": "call_7", "input_requests": {"r1.1": request}})

    assert describe_input_request(asking, "r1.1").splitlines() == [
        "The tool asks: Confirm the payment",
        "Open in a browser: https://pay.example/7",
        "Then: ringback calls answer call_7 --key r1.1 --accept '{}'",
    ]


def test_a_login_is_shown_with_the_page_where_the_user_signs_in(run: Run, service: respx.MockRouter) -> None:
    request = {
        "method": "elicitation/create",
        "params": {"mode": "url", "url": LOGIN_URL, "message": "Sign in to 'git'."},
    }
    asking = {**examples.INPUT_REQUIRED_CALL, "id": CALL_ID, "input_requests": {"ringback/login": request}}
    service.get(PATH).side_effect = [call(asking), call(FINISHED)]
    service.get(f"{PATH}/result").respond(json=RESULT)

    ran = run("join", CALL_ID, "--wait-for-input")

    assert f"Sign in to 'git'.\nOpen in a browser: {LOGIN_URL}\nOr run here: ringback upstreams login git" in ran.stderr
    assert "answer" not in ran.stderr


@pytest.mark.parametrize(
    ("intake", "waits_for", "sentence"),
    [
        ("paused", "queue", f"{CALL_ID}: The call waits because an operator has paused its upstream, git."),
        ("open", "queue", f"{CALL_ID} has not started: it waits in the queue for its turn."),
        ("open", "upstream", f"{CALL_ID} has not started: it waits for its upstream."),
    ],
)
def test_a_join_says_what_its_call_waits_for(
    run: Run, service: respx.MockRouter, intake: str, waits_for: str, sentence: str
) -> None:
    service.get(PATH).side_effect = [call(WORKING, dispatched_at=None, waits_for=waits_for), call(FINISHED)]
    service.get("/v1/upstreams").respond(json={"upstreams": [{**examples.UPSTREAM, "intake": intake}]})
    service.get(f"{PATH}/result").respond(json=RESULT)

    ran = run("join", CALL_ID)

    assert (ran.exit_code, ran.stdout) == (0, "done\n")
    assert ran.stderr.splitlines()[0] == f"{sentence} It continues if you interrupt this command."


@pytest.mark.parametrize(
    ("waits_for", "not_before", "says"),
    [
        ("not_before", "2026-11-21T06:00:00.000Z", "is scheduled: it starts at 2026-11-21T06:00:00.000Z."),
        ("not_before", None, "is scheduled."),
        (None, "2026-11-21T06:00:00.000Z", "is running."),
    ],
)
def test_a_join_says_whether_the_call_runs_or_when_it_starts(
    run: Run, service: respx.MockRouter, waits_for: str | None, not_before: str | None, says: str
) -> None:
    service.get(PATH).side_effect = [call(WORKING, waits_for=waits_for, not_before=not_before), call(FINISHED)]
    service.get(f"{PATH}/result").respond(json=RESULT)

    joined = run("join", CALL_ID)

    assert joined.stderr.splitlines()[0] == f"{CALL_ID} {says} It continues if you interrupt this command."
