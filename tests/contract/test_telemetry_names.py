"""The names that OpenTelemetry exports are those of its semantic conventions, or begin with `ringback.`."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

import pytest
from opentelemetry import semconv

from ringback.telemetry import names
from ringback.telemetry.names import METRICS, Attribute, Metric

OWN_PREFIX: Final = "ringback."


def conventions(kind: str) -> Iterator[ModuleType]:
    """The modules of the stable and of the developing conventions: `kind` is `attributes` or `metrics`."""
    for package in (f"{semconv.__name__}.{kind}", f"{semconv.__name__}._incubating.{kind}"):
        paths = [f"{path}/{package.removeprefix(semconv.__name__)[1:].replace('.', '/')}" for path in semconv.__path__]
        for module in pkgutil.iter_modules(paths):
            yield importlib.import_module(f"{package}.{module.name}")


def declared(kind: str) -> set[str]:
    return {
        value
        for module in conventions(kind)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }


class UnitReader:
    """A meter that only returns the unit of an instrument."""

    def create_histogram(self, *, name: str, description: str, unit: str) -> str:  # noqa: ARG002 - as a meter
        return unit

    create_counter = create_histogram


def test_each_attribute_is_one_of_the_conventions_or_named_as_ours() -> None:
    known = declared("attributes")

    assert {each for each in Attribute if not each.startswith(OWN_PREFIX)} - known == set()
    assert {each for each in known if each.startswith(OWN_PREFIX)} == set()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: str(metric.name))
def test_each_metric_is_one_of_the_conventions_with_its_unit_or_named_as_ours(metric: Metric) -> None:
    if metric.name.startswith(OWN_PREFIX):
        return
    function = f"create_{metric.name.replace('.', '_')}"
    units = {getattr(module, function)(UnitReader()) for module in conventions("metrics") if hasattr(module, function)}

    assert metric.name in declared("metrics")
    assert units == {metric.unit}


def test_values_with_a_meaning_in_the_conventions_are_spelled_as_there() -> None:
    gen_ai: Any = importlib.import_module("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    messaging: Any = importlib.import_module("opentelemetry.semconv._incubating.attributes.messaging_attributes")
    error: Any = importlib.import_module("opentelemetry.semconv.attributes.error_attributes")

    assert gen_ai.GenAiOperationNameValues.EXECUTE_TOOL.value == names.EXECUTE_TOOL
    assert messaging.MessagingOperationTypeValues.SEND.value == names.SEND_OPERATION
    assert error.ErrorTypeValues.OTHER.value == names.OTHER


def test_no_metric_has_an_attribute_that_clients_choose_or_that_grows_with_use() -> None:
    growing = {
        *(Attribute.CALL_ID, Attribute.DELIVERY_ID, Attribute.GEN_AI_TOOL_CALL_ID, Attribute.MCP_SESSION_ID),
        *(Attribute.MESSAGING_DESTINATION_NAME, Attribute.MESSAGING_MESSAGE_ID, Attribute.SERVER_ADDRESS),
        *(Attribute.JSONRPC_REQUEST_ID, Attribute.GEN_AI_PROMPT_NAME),
    }

    assert {metric.name: growing & set(metric.attributes) for metric in METRICS} == {
        metric.name: set[Attribute]() for metric in METRICS
    }
