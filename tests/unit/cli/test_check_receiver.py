"""`ringback check-receiver`: each check finds its own wrong receiver, and none of ours is one."""

import asyncio
import itertools
import json
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from unittest.mock import Mock

import httpx
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from ringback.cli.app import app
from ringback.cli.callback_server import serve_receiver
from ringback.cli.check_report import CheckLevel, CheckResult, CheckVerdict, print_report, violated
from ringback.cli.receiver_checks import ALL_CHECKS, run_receiver_checks
from ringback.cli.receiver_checks.checks import OTHER_SECRET, ReceiverCheck
from ringback.cli.receiver_checks.probe import ReceiverProbe, create_http_client
from ringback.cli.receiver_checks.requests import no_secret_in_answers
from ringback.receiver import Callback, Gap, ReceiverApp, Terminated
from ringback.signing.secrets import SECRET_BYTES, generate_secret
from tests.support.clock import FakeClock
from tests.support.faulty_receivers import SECRET, FaultyReceiver
from tests.support.limits import WAIT_SECONDS
from tests.support.raw_http_server import RawServer, serving_raw
from tests.support.slow_bodies import send_slowly


def make_probe(
    transport: httpx.AsyncBaseTransport, clock: FakeClock, url: str = "http://receiver/hook"
) -> ReceiverProbe:
    numbers = itertools.count(1)
    return ReceiverProbe(
        http=httpx.AsyncClient(transport=transport, base_url=url),
        url=url,
        secret=SECRET,
        subscription_id="sub_known",
        event_name="call.finished",
        now=clock.now,
        monotonic=clock.monotonic,
        new_id=lambda: f"check{next(numbers)}",
    )


def violations(results: Sequence[CheckResult]) -> list[tuple[str, str]]:
    return [(result.case.id, result.observed) for result in results if result.verdict is not CheckVerdict.PASSED]


def test_there_are_checks_of_must_and_should_and_each_has_an_id_of_its_own() -> None:
    assert len({each.case.id for each in ALL_CHECKS}) == len(ALL_CHECKS) >= 20
    assert {each.case.level for each in ALL_CHECKS} == set(CheckLevel)
    assert all(each.case.source.endswith(".") and not each.case.expectation.endswith(".") for each in ALL_CHECKS)


@pytest.mark.parametrize("case_id", ["no-json", "no-object", "empty-body"])
def test_the_source_of_a_check_for_4xx_says_what_is_wrong_about_2xx(case_id: str) -> None:
    (source,) = [each.case.source for each in ALL_CHECKS if each.case.id == case_id]

    assert "2xx acknowledges the delivery" in source


async def test_a_receiver_that_was_written_from_the_specification_passes_every_check() -> None:
    clock = FakeClock()

    results = await run_receiver_checks(make_probe(httpx.MockTransport(FaultyReceiver(clock)), clock))

    assert violations(results) == []


@pytest.mark.parametrize("check", [pytest.param(each, id=each.case.id) for each in ALL_CHECKS])
async def test_each_check_finds_a_receiver_that_is_wrong_in_this_one_point(check: ReceiverCheck) -> None:
    clock = FakeClock()
    probe = make_probe(httpx.MockTransport(FaultyReceiver(clock, check.case.id)), clock)
    for _ in range(5 if check.case.id == "challenge-repeated" else 0):
        await probe.post_envelope({"type": "verification", "challenge": "earlier"})

    result = await check.check(probe)

    expected = CheckVerdict.FAILED if check.case.level is CheckLevel.MUST else CheckVerdict.WARNED
    assert (result.verdict, check.case.id) == (expected, check.case.id), result.observed


async def test_a_receiver_that_accepts_no_signed_event_passes_no_check_and_gets_one_request() -> None:
    respond = Mock(return_value=httpx.Response(404))

    results = await run_receiver_checks(make_probe(httpx.MockTransport(respond), FakeClock()))

    assert (results[0].case.id, results[0].verdict) == ("valid-event", CheckVerdict.FAILED)
    assert {each.verdict for each in results[1:]} == {CheckVerdict.UNTESTABLE}
    assert len(results) == len(ALL_CHECKS)
    assert respond.call_count == 1


async def test_an_answer_of_a_byte_now_and_then_ends_with_the_limit_of_the_whole_answer() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=send_slowly(b"x")))
    probe = replace(make_probe(transport, FakeClock()), answer_seconds=0.1)

    async with asyncio.timeout(WAIT_SECONDS):
        answer = await probe.post_event()

    assert (answer.status, str(answer)) == (None, "no answer (TimeoutError)")


async def test_a_receiver_on_this_machine_is_not_looked_for_on_that_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    receiver = ReceiverApp(SECRET)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        async with serve_receiver(receiver, listener, on_refused=Mock()), create_http_client("check", url) as http:
            answer = await http.get(url)

    assert answer.status_code == 405


UNREADABLE: Final = (
    "location: mailto:nobody",
    f"location: /{'a' * 65_530}",
    "location: http://xn--/",
    "set-cookie: session=\xff",
)
"""Headers for which httpx raises errors of its own, when it reads them or at the next request."""


@pytest.mark.parametrize("header", UNREADABLE, ids=lambda header: header[:20])
async def test_an_answer_with_a_header_that_no_sender_reads_has_its_status(header: str) -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 302 Found\r\n{header}\r\ncontent-length: 0\r\n\r\n".encode("latin-1"))
        await writer.drain()

    server = RawServer()
    async with serving_raw(redirect, server), create_http_client("check", server.url) as http:
        probe = replace(make_probe(httpx.MockTransport(Mock()), FakeClock(), server.url), http=http)
        answers = [await probe.send("GET", None, {}) for _ in range(2)]

    assert [str(answer) for answer in answers] == ["HTTP 302", "HTTP 302"]


async def test_a_receiver_that_sends_no_answer_passes_no_check() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("closed", request=request)

    results = await run_receiver_checks(make_probe(httpx.MockTransport(fail), FakeClock()))

    assert [each.case.id for each in results if each.verdict is CheckVerdict.PASSED] == []


async def test_a_secret_is_found_in_json_whose_slashes_are_escaped() -> None:
    secret = generate_secret(b"\xff" * SECRET_BYTES)
    shown = json.dumps({"expected": secret}).replace("/", "\\/")  # as PHP writes it
    probe = make_probe(httpx.MockTransport(lambda _: httpx.Response(401, text=shown)), FakeClock())

    result = await no_secret_in_answers.check(replace(probe, secret=secret))

    assert (result.verdict, result.observed) == (CheckVerdict.FAILED, "HTTP 401, with a secret or a signature")


class Handlers:
    def __init__(self) -> None:
        self.callbacks: list[Callback] = []
        self.notices: list[Gap | Terminated] = []

    async def handle_callback(self, callback: Callback) -> None:
        self.callbacks.append(callback)

    async def handle_notice(self, notice: Gap | Terminated) -> None:
        self.notices.append(notice)


@pytest.mark.parametrize("in_fastapi", [False, True])
async def test_our_receiver_passes_every_check_and_handles_each_message_once(*, in_fastapi: bool) -> None:
    clock, handlers = FakeClock(), Handlers()
    receiver: Any = ReceiverApp(
        SECRET, on_callback=handlers.handle_callback, on_notice=handlers.handle_notice, clock=clock.now
    )
    served = receiver
    if in_fastapi:
        served = FastAPI()
        receiver.add_to(served, "/hook")

    async with receiver:
        results = await run_receiver_checks(make_probe(httpx.ASGITransport(served), clock))

    assert violations(results) == []
    assert [type(notice) for notice in handlers.notices] == [Gap, Terminated]
    ids = [callback.event_id for callback in handlers.callbacks]
    assert len(ids) == len(set(ids)), "copies were dropped"


@pytest.mark.parametrize(("secret", "exit_code"), [(SECRET, 0), (OTHER_SECRET, 1)])
async def test_the_command_judges_the_receiver_of_listen_and_exits_with_1_if_a_must_is_violated(
    secret: str, exit_code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        async with serve_receiver(ReceiverApp(SECRET), listener, on_refused=lambda _: None):
            command = ["check-receiver", url, "--secret", secret, "--json"]
            ended = await asyncio.to_thread(CliRunner().invoke, app, command)

    report = json.loads(ended.stdout)
    assert ended.exit_code == exit_code, ended.output
    assert len(report["checks"]) == len(ALL_CHECKS)
    assert (report["counts"]["failed"] > 0) == bool(exit_code)
    assert ("check the URL, --secret and --subscription" in ended.stderr) == bool(exit_code)
    if not exit_code:
        assert [each["id"] for each in report["checks"] if each["verdict"] != "passed"] == []


def test_the_command_prints_a_table_with_the_source_of_what_was_violated(capsys: pytest.CaptureFixture[str]) -> None:
    check = ALL_CHECKS[0].case

    print_report([violated(check, "HTTP 500")], about="http://receiver", as_json=False)

    printed = capsys.readouterr().out
    assert check.id in printed
    assert f"{check.level} {check.id}: {check.source}" in printed
    assert "http://receiver: 1 checks: 0 passed, 1 failed, 0 warned, 0 untestable" in printed


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["agent.example", "--secret", SECRET], "give the whole URL"),
        (["http://[::1", "--secret", SECRET], "give the whole URL"),
        (["https://", "--secret", SECRET], "give the whole URL"),
        (["http://127.0.0.1:9/", "--secret", "whsec_short"], "secret"),
        (["http://127.0.0.1:9/", "--secret", SECRET], "No receiver accepts connections"),
    ],
)
def test_the_command_says_what_is_wrong_with_its_arguments(arguments: list[str], problem: str) -> None:
    ended = CliRunner().invoke(app, ["check-receiver", *arguments])

    assert ended.exit_code == 2
    assert problem in ended.output
