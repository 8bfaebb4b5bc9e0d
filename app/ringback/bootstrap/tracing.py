"""Makes the tracer of a process that was started with OpenTelemetry's SDK.

The variables of OpenTelemetry switch it on and configure it: an exporter (`OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`) or
the address of a collector (`OTEL_EXPORTER_OTLP_ENDPOINT` and its two variants for one signal). The SDK is the extra `otel`.
Without it, or without such a variable, there is no tracer, and the service makes no span and no metric of OpenTelemetry.
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
_EXPORTER_MODULE: Final = "opentelemetry.exporter.otlp.proto.http"


def wants_traces(variables: Mapping[str, str]) -> bool:
    """Whether the variables of OpenTelemetry ask for an export, of traces or of metrics."""
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = {variables.get(name, "").strip().lower() for name in EXPORTER_VARIABLES}
    return "otlp" in exporters or any(variables.get(name, "").strip() for name in ENDPOINT_VARIABLES)


@contextmanager
def open_tracer(variables: Mapping[str, str], *, node: str) -> Generator[Tracer | None]:
    """The tracer that the variables ask for; None if they ask for none. The end of the context exports what is left.

    `node` names this process in what it exports.
    """
    if not wants_traces(variables):
        yield None
    elif not _has_sdk():
        log.warning("traces.sdk_missing", extra={"advice": 'Install it: pip install "ringback[server,otel]"'})
        yield None
    else:
        # Imported only here: the SDK takes 0.2 s and 15 MB, and is an extra.
        from ringback.bootstrap.trace_export import open_exporting_tracer  # noqa: PLC0415

        with open_exporting_tracer(variables, node=node) as tracer:
            yield tracer


def _has_sdk() -> bool:
    try:
        return find_spec("opentelemetry.sdk") is not None and find_spec(_EXPORTER_MODULE) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
