"""Logging: one line for each fact, with an event name and ids, and never a payload, a secret or a token.

The message of a record is a stable event name such as `delivery.attempted`; ids and facts are in `extra`. Expected failures
(a receiver that returns an error, an upstream that is down) are info or warning; an exception in the log is a bug. While the
store is unavailable, the store itself says so once in a while; its users log each of their failures at debug only.
"""

import logging
from datetime import UTC, datetime
from typing import Any, Final, Literal

import orjson

_STANDARD_ATTRIBUTES: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

_NOISY_LOGGERS: Final = ("mcp", "client")
"""The SDK logs excerpts of upstream messages at ERROR. The outcome of the call says what matters of them."""

AUDIT_LOGGER: Final = "ringback.audit"
"""What operators did for other principals (`services.operators`). Written at every log level."""

LogFormat = Literal["text", "json"]


class TextFormatter(logging.Formatter):
    """`17:00:00.000 INFO  delivery.attempted delivery_id=dlv_… state=delivered`, for people."""

    def format(self, record: logging.LogRecord) -> str:
        instant = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        facts = "".join(
            f" {name}={_format_value(value)}" for name, value in _extra_fields(record).items() if value is not None
        )
        line = f"{instant} {record.levelname:<7} {record.getMessage()}{facts}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


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
        return orjson.dumps(entry, default=str).decode()


def configure_logging(*, level: str, log_format: LogFormat) -> None:
    """Ringback's loggers at `level`; libraries from WARNING on, because below that they may log what they send."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("ringback").setLevel(level.upper())
    logging.getLogger(AUDIT_LOGGER).setLevel(logging.INFO)


def _format_value(value: Any) -> str:
    """Escapes line breaks and control characters: clients and upstreams choose some values."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD_ATTRIBUTES}
