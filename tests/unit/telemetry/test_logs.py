"""The log has one line for each fact, as text or JSON, and no payloads of libraries."""

import asyncio
import json
import logging
import math
import os
import select
import sys
import threading
from collections.abc import Generator
from contextlib import suppress
from typing import Final

import pytest

from ringback.log_context import ContextFilter, leave_log_context, log_facts
from ringback.telemetry import log_pipes
from ringback.telemetry.log_pipes import WAIT_MILLISECONDS_MAX, PipeHandler
from ringback.telemetry.logs import AUDIT_LOGGER, JsonFormatter, TextFormatter, configure_logging
from tests.support.limits import WAIT_SECONDS

INSTANT = 1795000000.25


@pytest.fixture(autouse=True)
def loggers() -> Generator[None]:
    """The loggers as they were: they belong to the whole process."""
    names = ("", "ringback", "ringback.notifier", "ringback.upstreams", log_pipes.__name__, AUDIT_LOGGER)
    before = {name: logging.getLogger(name).level for name in names}
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def a_record(message: str = "delivery.attempted", **facts: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "ringback.notifier", "levelname": "INFO", "msg": message, "created": INSTANT, **facts}
    )


def a_failure() -> logging.LogRecord:
    try:
        raise ZeroDivisionError("by accident")  # noqa: TRY301 - there is no other way to get a traceback
    except ZeroDivisionError as error:
        return a_record("worker.failed", exc_info=(type(error), error, error.__traceback__))


def test_the_text_format_writes_one_line_with_ids() -> None:
    line = TextFormatter().format(a_record(delivery_id="dlv_1", status_code=None, duration_ms=12))

    assert line == "11:06:40.250 INFO    delivery.attempted delivery_id=dlv_1 duration_ms=12"


def test_the_json_format_writes_one_object_in_each_line() -> None:
    line = JsonFormatter().format(a_record(delivery_id="dlv_1", status_code=None))

    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-11-18T11:06:40.250+00:00",
        "level": "info",
        "logger": "ringback.notifier",
        "event": "delivery.attempted",
        "delivery_id": "dlv_1",
        "status_code": None,
    }


def test_a_value_that_json_cannot_express_is_written_as_text() -> None:
    assert json.loads(JsonFormatter().format(a_record(folder=frozenset({"a"}))))["folder"] == "frozenset({'a'})"


def test_an_exception_is_logged_with_its_traceback() -> None:
    text, document = TextFormatter().format(a_failure()), json.loads(JsonFormatter().format(a_failure()))

    assert text.splitlines()[0] == "11:06:40.250 INFO    worker.failed"
    assert text.endswith("ZeroDivisionError: by accident")
    assert document["exception"].endswith("ZeroDivisionError: by accident")


def test_control_characters_in_a_value_do_not_break_the_line() -> None:
    forged = a_record(tool="x\n11:06:40.250 ERROR   keys.leaked")

    assert "\n" not in TextFormatter().format(forged)
    assert "\n" not in JsonFormatter().format(forged)


@pytest.mark.parametrize(("style", "begins"), [("text", ""), ("json", "{")])
def test_ringback_logs_at_its_level_and_libraries_from_warning_on(
    style: str, begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(level="info", log_format="json" if style == "json" else "text")

    logging.getLogger("ringback.runner").info("call.finished")
    logging.getLogger("ringback.runner").debug("call.detail")
    logging.getLogger("httpx").info("POST https://agent.example/?token=secret")
    logging.getLogger("httpx").warning("library.warning")

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(begins) for line in lines)
    assert "call.finished" in lines[0]
    assert "library.warning" in lines[1]


LINES: Final = 2_000
"""Of 100 characters: three times what a pipe holds."""


def read_rest(pipe: int) -> str:
    os.set_blocking(pipe, False)
    parts = list[bytes]()
    with suppress(BlockingIOError):
        while part := os.read(pipe, 65_536):
            parts.append(part)
    return b"".join(parts).decode()


@pytest.mark.parametrize("length", [100, 3 * select.PIPE_BUF])
def test_a_log_pipe_that_no_process_reads_loses_lines_and_does_not_stop_the_process(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stderr", stream)
        configure_logging(level="info", log_format="text")
        log = logging.getLogger("ringback.runner")
        logging_ = threading.Thread(target=lambda: [log.info("x" * length) for _ in range(LINES)], daemon=True)
        logging_.start()
        logging_.join(WAIT_SECONDS)
        has_ended = not logging_.is_alive()
        before = read_rest(reader).splitlines()
        log.info("call.finished")
        after = read_rest(reader).splitlines()
    os.close(reader)

    assert has_ended
    complete = [line for line in before if line.endswith("x" * length)]
    assert 0 < len(complete) < LINES
    *_, lost, last = after
    assert lost.endswith(f"WARNING log.lines_lost lines={LINES - len(complete)}")
    assert last.endswith("INFO    call.finished")


def test_lost_lines_are_counted_at_every_level_because_the_audit_log_is_among_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stderr", stream)
        configure_logging(level="error", log_format="text")
        audit = logging.getLogger(AUDIT_LOGGER)
        for _ in range(LINES):
            audit.info("x" * 100)
        read_rest(reader)
        audit.info("audit.operator_request")
        lost, last = read_rest(reader).splitlines()
    os.close(reader)

    assert "WARNING log.lines_lost lines=" in lost
    assert last.endswith("audit.operator_request")


def test_a_log_pipe_waits_for_its_reader_again_after_a_while_although_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        handler = PipeHandler(stream)
        pipe = FullPipe()
        monkeypatch.setattr(handler, "_poll", pipe)
        monkeypatch.setattr(log_pipes, "monotonic", pipe.read_clock)
        for elapsed, hours_back in ((0.0, 0), (1.0, 1), (20.0, 1)):
            pipe.elapsed_seconds = elapsed
            handler.handle(a_record(created=INSTANT - 3600 * hours_back))
    os.close(reader)

    assert pipe.waited_milliseconds == 2 * WAIT_MILLISECONDS_MAX


def test_a_reader_that_makes_room_for_a_line_shortly_before_each_wait_ends_stops_the_process_for_one_wait_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each line waited for 90 ms and found room, so the event loop had a tenth of the time."""
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        handler = PipeHandler(stream)
        pipe = FullPipe(has_room_after=WAIT_MILLISECONDS_MAX * 9 // 10)
        monkeypatch.setattr(handler, "_poll", pipe)
        monkeypatch.setattr(log_pipes, "monotonic", pipe.read_clock)
        for _ in range(20):
            handler.handle(a_record())
        written = read_rest(reader).splitlines()
    os.close(reader)

    assert (pipe.waited_milliseconds, len(written)) == (WAIT_MILLISECONDS_MAX, 1)


class FullPipe:
    """Its `poll` notes how long it waits, and finds room if it may wait for so many milliseconds."""

    def __init__(self, *, has_room_after: float = math.inf) -> None:
        self._has_room_after = has_room_after
        self.waited_milliseconds = 0.0
        self.elapsed_seconds = 0.0
        """Besides the waits."""

    def read_clock(self) -> float:
        return self.elapsed_seconds + self.waited_milliseconds / 1000

    def poll(self, milliseconds: int) -> list[tuple[int, int]]:
        self.waited_milliseconds += min(milliseconds, self._has_room_after)
        return [(0, select.POLLOUT)] if milliseconds >= self._has_room_after else []


def test_the_audit_log_is_written_at_every_level(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(level="error", log_format="text")

    logging.getLogger("ringback.runner").warning("runner.slow")
    logging.getLogger(AUDIT_LOGGER).info("audit.operator_request", extra={"operator": "ops", "principal": "*"})

    (line,) = capsys.readouterr().err.splitlines()
    assert "audit.operator_request operator=ops principal=*" in line


def test_each_area_logs_at_its_own_level(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(level="info", log_format="text", levels={"notifier": "debug", "upstreams": "warning"})

    logging.getLogger("ringback.notifier.http.sender").debug("connection.opened")
    logging.getLogger("ringback.upstreams.connection").info("upstream.ready")
    logging.getLogger("ringback.runner").debug("call.detail")

    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == ["connection.opened"]


def test_the_lines_of_a_piece_of_work_have_its_ids_also_in_the_tasks_that_it_starts() -> None:
    records = [a_record(), a_record(call_id="call_2"), a_record()]

    async def work() -> None:
        with log_facts({"call_id": "call_1", "correlation_id": None}, request_id="r1"):
            await asyncio.create_task(filter_record(records[0]))
            await filter_record(records[1])
            await asyncio.create_task(filter_for_others(records[2]))

    async def filter_record(record: logging.LogRecord) -> None:
        ContextFilter().filter(record)

    async def filter_for_others(record: logging.LogRecord) -> None:
        leave_log_context()
        await asyncio.create_task(filter_record(record))

    asyncio.run(work())

    assert [facts_of(record) for record in records] == [
        {"call_id": "call_1", "request_id": "r1"},
        {"call_id": "call_2", "request_id": "r1"},
        {},
    ]


def test_a_value_that_looks_like_several_facts_is_quoted() -> None:
    forged = a_record(tool="x state=delivered", upstream="git", correlation_id='a"b')

    assert TextFormatter().format(forged).partition("attempted ")[2] == (
        'tool="x state=delivered" upstream=git correlation_id="a\\"b"'
    )


def test_the_lines_of_a_traceback_and_of_a_library_cannot_be_taken_for_facts() -> None:
    try:
        raise ValueError("one\n11:06:40.250 ERROR   keys.leaked\x1b[31m")  # noqa: TRY301 - there is no other way to get a traceback
    except ValueError as error:
        failed = a_record("worker.failed", exc_info=(type(error), error, error.__traceback__))
    library = a_record("broken\n11:06:40.250 ERROR   keys.leaked")

    first, *others = TextFormatter().format(failed).splitlines()

    assert first.endswith("worker.failed")
    assert all(line.startswith("    ") for line in others)
    assert "\x1b" not in TextFormatter().format(failed)
    assert len(TextFormatter().format(library).splitlines()) == 1


@pytest.mark.parametrize("text", ["\x9b31m", "\u2028", "\x7f", "\udcff", "a\x00b"])
def test_a_json_line_has_no_character_that_a_terminal_or_a_reader_of_lines_acts_on(text: str) -> None:
    line = JsonFormatter().format(a_record(tool=text))

    assert line.isprintable()
    assert json.loads(line)["tool"] == text


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name.endswith("_id")}
