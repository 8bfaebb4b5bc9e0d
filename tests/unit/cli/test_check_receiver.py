"""`ringback check-receiver`: each check finds its own wrong receiver, and none of ours is one."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from ringback.cli.check_report import CheckLevel, CheckResult, CheckVerdict
from ringback.cli.receiver_checks import ALL_CHECKS, run_receiver_checks
from ringback.cli.receiver_checks.checks import ReceiverCheck
from ringback.cli.receiver_checks.probe import ReceiverProbe
from ringback.receiver import Callback, Gap, ReceiverApp, Terminated
from tests.support.clock import FakeClock
from tests.support.faulty_receivers import SECRET, FaultyReceiver


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
    app = receiver
    if in_fastapi:
        app = FastAPI()
        receiver.add_to(app, "/hook")

    async with receiver:
        results = await run_receiver_checks(make_probe(httpx.ASGITransport(app), clock))

    assert violations(results) == []
    assert [type(notice) for notice in handlers.notices] == [Gap, Terminated]
    ids = [callback.event_id for callback in handlers.callbacks]
    assert len(ids) == len(set(ids)), "copies were dropped"


def test_the_results_can_be_printed_as_json() -> None:
    assert json.dumps([str(each.case.level) for each in ALL_CHECKS])
