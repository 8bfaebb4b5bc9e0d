"""Makes the tracer of a process that was started with OpenTelemetry's SDK.

The variables of OpenTelemetry switch it on and configure it: an exporter (`OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`) or
the address of a collector (`OTEL_EXPORTER_OTLP_ENDPOINT` and its two variants for one signal). The SDK is the extra `otel`.
Without it, or without such a variable, there is no tracer, and the service makes no span and no metric of OpenTelemetry.

OTLP over HTTP is the only export. Other exporters and protocols (`console`, `zipkin`, `grpc`) are a warning in the log.
"""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from ringback.telemetry.spans import Tracer

log = logging.getLogger(__name__)

ENDPOINT_VARIABLES: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
EXPORTER_VARIABLES: Final = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER")
PROTOCOL_VARIABLES: Final = (
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
)
SUPPORTED_EXPORTERS: Final = frozenset({"otlp", "none"})
SUPPORTED_PROTOCOL: Final = "http/protobuf"
_EXPORTER_MODULE: Final = "opentelemetry.exporter.otlp.proto.http"


def wants_traces(variables: Mapping[str, str]) -> bool:
    """Whether the variables of OpenTelemetry ask for an export that is supported, of traces or of metrics."""
    if _is_disabled(variables):
        return False
    listed = [_read_exporters(variables, name) for name in EXPORTER_VARIABLES]
    has_endpoint = any(variables.get(name, "").strip() for name in ENDPOINT_VARIABLES)
    # An endpoint alone means both signals; it means none if each signal has another exporter.
    return any("otlp" in exporters or (has_endpoint and not exporters) for exporters in listed)


@contextmanager
def open_tracer(variables: Mapping[str, str], *, node: str) -> Generator[Tracer | None]:
    """The tracer that the variables ask for; None if they ask for none. The end of the context exports what is left.

    `node` names this process in what it exports.
    """
    _warn_of_unsupported(variables)
    if not wants_traces(variables):
        yield None
    elif not _has_sdk():
        log.warning("traces.sdk_missing", extra={"advice": 'Install it: pip install "ringback[server,otel]"'})
        yield None
    else:
        # Imported only here: the SDK takes 0.2 s and 15 MB, and is an extra.
        from ringback.bootstrap.trace_export import open_exporting_tracer  # noqa: PLC0415 - see above

        traces, metrics = (_is_exported(variables, name) for name in EXPORTER_VARIABLES)
        with open_exporting_tracer(node=node, traces=traces, metrics=metrics) as tracer:
            yield tracer


def _read_exporters(variables: Mapping[str, str], name: str) -> frozenset[str]:
    """The exporters that a variable lists, separated by commas; empty if it is not set."""
    return frozenset(part for text in variables.get(name, "").split(",") if (part := text.strip().lower()))


def _is_exported(variables: Mapping[str, str], name: str) -> bool:
    exporters = _read_exporters(variables, name)
    return not exporters or "otlp" in exporters


def _is_disabled(variables: Mapping[str, str]) -> bool:
    return variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def _warn_of_unsupported(variables: Mapping[str, str]) -> None:
    """One log line for all variables that ask for something other than OTLP over HTTP."""
    if _is_disabled(variables):
        return
    names = [name for name in EXPORTER_VARIABLES if _read_exporters(variables, name) - SUPPORTED_EXPORTERS]
    names += [name for name in PROTOCOL_VARIABLES if variables.get(name, "").strip() not in {"", SUPPORTED_PROTOCOL}]
    if names:
        advice = "Only OTLP over HTTP is supported: OTEL_TRACES_EXPORTER=otlp, OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318"
        log.warning(
            "traces.exporter_not_supported",
            extra={"variables": [f"{name}={variables[name].strip()[:100]}" for name in names], "advice": advice},
        )


def _has_sdk() -> bool:
    try:
        return find_spec("opentelemetry.sdk") is not None and find_spec(_EXPORTER_MODULE) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
