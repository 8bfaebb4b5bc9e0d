"""Logging: one line for each fact, with an event name and ids, and never a payload, a secret or a token.

The message of a record is a stable event name such as `delivery.attempted`; ids and facts are in `extra`, and those of the work
around it come from `log_context`. Expected failures (a receiver that returns an error, an upstream that is down) are info or
warning; an exception in the log is a bug. While the store is unavailable, the store itself says so once in a while; its users
log each of their failures at debug only.
"""

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import orjson

from ringback.domain.call import Call
from ringback.log_context import ContextFilter
from ringback.telemetry.log_pipes import create_log_handler

_STANDARD_ATTRIBUTES: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

_NOISY_LOGGERS: Final = ("mcp", "client")
"""The SDK logs excerpts of upstream messages at ERROR. The outcome of the call says what matters of them."""

AUDIT_LOGGER: Final = "ringback.audit"
"""What operators did (`services.access.operators`). Written at every log level."""
_AMBIGUOUS: Final = re.compile(r'[\s"=]')
"""Characters that would make one value of a text line look like several facts."""

_TIME_OF_DAY: Final = slice(11, 23)
"""Of an instant in ISO format. `strftime` takes half as long again."""

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


class TextFormatter(logging.Formatter):
    """`17:00:00.000 INFO  delivery.attempted delivery_id=dlv_… state=delivered`, for people.

    One fact is one line: the lines of a traceback follow it indented, so that no text in them looks like another fact.
    """

    def format(self, record: logging.LogRecord) -> str:
        instant = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[_TIME_OF_DAY]
        fields = _extra_fields(record).items()
        facts = "".join([f" {name}={_format_value(value)}" for name, value in fields if value is not None])
        line = f"{instant} {record.levelname:<7} {_escape(record.getMessage())}{facts}"
        return f"{line}\n{_indent(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object for each line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_extra_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return _escape(_to_json(entry))


def configure_logging(*, level: str, log_format: LogFormat, levels: Mapping[str, LogLevel] | None = None) -> None:
    """Ringback's loggers at `level`; libraries from WARNING on, because below that they may log what they send.

    `levels` has the level of single areas, by the name of their module: `notifier`, `upstreams`. No record of this process has
    its thread, its process and its line of code: no format shows them, and they take a fifth of the time of a line.
    """
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - its manual says so, under "Optimization"
    handler = create_log_handler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(ContextFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("ringback").setLevel(level.upper())
    for area, area_level in (levels or {}).items():
        logging.getLogger(f"ringback.{area}").setLevel(area_level.upper())
    logging.getLogger(AUDIT_LOGGER).setLevel(logging.INFO)


def call_facts(call: Call) -> dict[str, object]:
    """The ids of a call for its log lines: ours, and those that its client gave it."""
    return {
        "call_id": call.id,
        "principal": call.principal,
        "client_session_id": call.client_session_id,
        "correlation_id": call.correlation_id,
        "upstream": call.upstream,
    }


def _format_value(value: Any) -> str:
    """The value on one line. Clients and upstreams choose some values, so what could be read as another fact is quoted."""
    text = str(value)
    if text.isascii() and text.isidentifier():  # as most are: ids, names of upstreams and tools
        return text
    if not text.isprintable():
        return repr(text)
    return json.dumps(text, ensure_ascii=False) if _AMBIGUOUS.search(text) else text


def _escape(text: str) -> str:
    """The text with line breaks and control characters escaped, as in JSON.

    Some that are valid in JSON are escaped, too: to a terminal, U+009B is the beginning of a command.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _indent(text: str) -> str:
    return "\n".join(f"    {_escape(line)}" for line in text.split("\n"))


def _to_json(entry: Mapping[str, Any]) -> str:
    try:
        return orjson.dumps(entry, default=str).decode()
    except TypeError:  # a lone surrogate or a number beyond 64 bits, which some upstream sent
        return json.dumps(entry, default=str)


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD_ATTRIBUTES}
