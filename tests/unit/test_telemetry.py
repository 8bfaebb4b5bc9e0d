"""The log has one line for each fact, as text or JSON, and no payloads of libraries."""

import json
import logging
from collections.abc import Generator

import pytest

from ringback.telemetry import AUDIT_LOGGER, JsonFormatter, TextFormatter, configure_logging

INSTANT = 1795000000.25


@pytest.fixture(autouse=True)
def loggers() -> Generator[None]:
    """The loggers as they were: they belong to the whole process."""
    root, ours, audit = logging.getLogger(), logging.getLogger("ringback"), logging.getLogger(AUDIT_LOGGER)
    before = root.handlers[:], root.level, ours.level, audit.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    audit.setLevel(before[3])
    ours.setLevel(before[2])


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
    text, told = TextFormatter().format(a_failure()), json.loads(JsonFormatter().format(a_failure()))

    assert text.splitlines()[0] == "11:06:40.250 INFO    worker.failed"
    assert text.endswith("ZeroDivisionError: by accident")
    assert told["exception"].endswith("ZeroDivisionError: by accident")


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


def test_the_audit_log_is_written_at_every_level(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(level="error", log_format="text")

    logging.getLogger("ringback.runner").warning("runner.slow")
    logging.getLogger(AUDIT_LOGGER).info("audit.operator_request", extra={"operator": "ops", "principal": "*"})

    (line,) = capsys.readouterr().err.splitlines()
    assert "audit.operator_request operator=ops principal=*" in line
