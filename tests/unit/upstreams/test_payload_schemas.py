"""The `data` of events is checked against schemas of clients."""

import pytest

from ringback.services.events.event_types import DeclaredPayload
from ringback.upstreams.catalog.payload_schemas import JsonPayloadSchemas
from ringback.upstreams.json_schema.schema import BoundedSchema


def fail(*_: object, **__: object) -> None:
    raise KeyError(7)


@pytest.mark.parametrize("method", ["__init__", "find_errors"])
def test_an_unforeseen_error_of_a_check_accepts_the_data_and_is_logged(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(BoundedSchema, method, fail)
    schemas, schema = JsonPayloadSchemas(), {"type": "string"}

    assert schemas.find_schema_error(schema) is None
    assert schemas.find_errors([DeclaredPayload(schema, {"a": 1})]) == []
    assert {record.getMessage() for record in caplog.records} == {"event.schema_not_checked"}


def test_data_at_which_a_schema_is_unusable_leaves_the_check_of_other_data() -> None:
    schema = {"properties": {"a": {"$ref": "#/absent"}, "n": {"type": "integer"}}}
    payloads = [DeclaredPayload(schema, {"a": 1}, ("events", 0)), DeclaredPayload(schema, {"n": "x"}, ("events", 1))]

    assert [error["pointer"] for error in JsonPayloadSchemas().find_errors(payloads)] == ["#/events/1/n"]
