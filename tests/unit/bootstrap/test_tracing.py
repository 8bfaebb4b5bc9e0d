"""When the service makes traces, and what a collector gets."""

import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ringback.bootstrap import trace_export
from ringback.bootstrap.tracing import open_tracer, wants_traces
from ringback.settings import SettingsError
from ringback.telemetry.names import HTTP_SERVER_DURATION, Attribute, SpanKind
from tests.support.limits import WAIT_SECONDS


@dataclass(slots=True)
class Collector:
    url: str
    bodies: dict[str, bytes] = field(default_factory=dict[str, bytes])


@contextmanager
def collecting() -> Generator[Collector]:
    """A collector of OpenTelemetry on a real socket, which keeps the last body of each path."""
    bodies: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies[self.path] = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Collector(f"http://127.0.0.1:{server.server_port}", bodies)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "console, OTLP"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "TRUE"}, False),
    ],
)
def test_traces_are_made_only_if_a_variable_says_where_to_send_them(
    variables: Mapping[str, str], *, wanted: bool
) -> None:
    assert wants_traces(variables) is wanted


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_BSP_MAX_QUEUE_SIZE", "0"), ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many")]
)
def test_a_value_that_the_sdk_refuses_is_an_error_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with (
        pytest.raises(SettingsError, match=r"OpenTelemetry \(OTEL_…\) has an invalid value: .*must be a"),
        open_tracer({"OTEL_TRACES_EXPORTER": "otlp"}, node="n"),
    ):
        pass


def test_without_the_sdk_the_service_starts_and_its_log_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def find_nothing(_name: str) -> None:
        return None

    monkeypatch.setattr("ringback.bootstrap.tracing.find_spec", find_nothing)
    with open_tracer({"OTEL_TRACES_EXPORTER": "otlp"}, node="n") as tracer:
        assert tracer is None
    assert [record.getMessage() for record in caplog.records] == ["traces.sdk_missing"]


def test_an_exporter_that_is_not_supported_is_one_warning_that_names_what_is(caplog: pytest.LogCaptureFixture) -> None:
    variables = {
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    with open_tracer(variables, node="n") as tracer:
        assert tracer is None
    with open_tracer(variables | {"OTEL_SDK_DISABLED": "true"}, node="n"):
        pass

    (record,) = caplog.records
    assert record.getMessage() == "traces.exporter_not_supported"
    assert vars(record)["variables"] == ["OTEL_TRACES_EXPORTER=console", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"]
    assert "OTLP over HTTP" in vars(record)["advice"]


def test_a_collector_gets_spans_and_metrics_with_the_name_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "callbacks"}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with open_tracer(variables, node="host:17") as tracer:
            assert tracer is not None
            span = tracer.start_span("GET /v1/calls", SpanKind.SERVER, {Attribute.HTTP_REQUEST_METHOD: "GET"})
            span.end(HTTP_SERVER_DURATION)

    assert collector.bodies.keys() == {"/v1/traces", "/v1/metrics"}
    assert b"GET /v1/calls" in collector.bodies["/v1/traces"]
    assert b"http.server.request.duration" in collector.bodies["/v1/metrics"]
    assert all(b"callbacks" in body and b"host:17" in body for body in collector.bodies.values())


def test_a_collector_that_is_away_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trace_export, "LAST_EXPORT_SECONDS", 0.05)
    # It accepts connections and never answers. One that refuses them would not do: the exporter then gives up at once
    # whenever the random pause before its next attempt is longer than its timeout.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        with open_tracer({"OTEL_EXPORTER_OTLP_ENDPOINT": url}, node="n") as tracer:
            assert tracer is not None
            tracer.start_span("work", SpanKind.INTERNAL, {}).end()

        assert "traces.not_exported" in [record.getMessage() for record in caplog.records]
        for thread in threading.enumerate():
            if thread.name == "last-export":
                thread.join(WAIT_SECONDS)  # its pauses between attempts draw random numbers, which Hypothesis forbids
