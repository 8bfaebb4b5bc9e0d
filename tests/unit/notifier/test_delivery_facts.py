"""The log lines of a delivery have the ids that the client gave its call, and nothing that a source of events wrote."""

import orjson
import pytest

from ringback.notifier.delivery_facts import delivery_facts
from tests.support.builders import make_delivery

IDS = {"client_session_id": "session-7", "correlation_id": "report-1", "upstream": "git"}


def test_a_line_has_the_ids_of_the_call() -> None:
    delivery = make_delivery(body=orjson.dumps({"name": "call.finished", "data": {**IDS, "resume_token": "secret"}}))

    facts = delivery_facts(delivery)

    assert facts.items() >= IDS.items()
    assert (facts["delivery_id"], facts["call_id"]) == (delivery.id, delivery.call_id)
    assert "secret" not in repr(facts)


def test_an_inlined_result_is_not_decoded() -> None:
    body = orjson.dumps({"data": {**IDS, "note": ',"result":', "result": "x"}})

    assert delivery_facts(make_delivery(body=body[:-4] + b"not JSON")).items() >= IDS.items()


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"data":1}', b"not JSON"])
def test_a_body_that_cannot_be_read_adds_no_ids(body: bytes) -> None:
    assert not delivery_facts(make_delivery(body=body)).keys() & IDS.keys()


def test_the_data_of_an_external_event_is_in_no_line() -> None:
    delivery = make_delivery(call_id=None, body=orjson.dumps({"data": IDS}))

    assert not delivery_facts(delivery).keys() & IDS.keys()
