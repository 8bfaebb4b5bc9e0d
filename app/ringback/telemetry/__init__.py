"""What operators see of the service: log lines, traces and metrics.

    logs           one line for each fact
    log_pipes      writes the lines to a pipe, also while no process reads it
    names          the names of all spans, attributes and metrics that OpenTelemetry exports
    spans          the port `Tracer`, the trace context of W3C, and the span of the present work
    opentelemetry_tracer  the tracer over OpenTelemetry's API

Spans and metrics exist only if the process was started with OpenTelemetry's SDK (`bootstrap.tracing`). Otherwise no tracer
exists, and code that would start a span does nothing. Metrics of Prometheus are in `measurements`.
"""

from ringback.telemetry.logs import (
    AUDIT_LOGGER,
    JsonFormatter,
    LogFormat,
    LogLevel,
    TextFormatter,
    call_facts,
    configure_logging,
)

__all__ = ["AUDIT_LOGGER", "JsonFormatter", "LogFormat", "LogLevel", "TextFormatter", "call_facts", "configure_logging"]
