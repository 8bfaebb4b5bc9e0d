"""Column codecs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import pytest

from ringback.domain import jsontext
from ringback.domain.clock import epoch_milliseconds, from_epoch_milliseconds
from ringback.storage.codec import ColumnType, ColumnTypes, RowCodec, fill_in_columns
from ringback.storage.rows.columns import RECORDS
from tests.support.builders import make_call, make_delivery, make_event, make_webhook
from tests.support.clock import START

TYPES = ColumnTypes(
    instant=ColumnType(encode=epoch_milliseconds, decode=from_epoch_milliseconds),
    boolean=ColumnType(encode=int, decode=bool),
    json=ColumnType(encode=lambda value: jsontext.dumps(value).decode(), decode=jsontext.loads),
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Point:
    x: int = 0
    seen_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Thing:
    id: str
    colour: Colour
    colours: frozenset[Colour]
    maybe: frozenset[str] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    point: Point = Point()
    is_large: bool = False
    made_at: datetime
    secret: bytes = b""


CODEC = RowCodec(
    Thing,
    TYPES,
    columns={"extra": TYPES.json.storing(dict, dict, empty_is_null=True)},
    embedded={"point": RowCodec(Point, TYPES)},
    sealed=("secret",),
)
THING = Thing(
    id="1",
    colour=Colour.RED,
    colours=frozenset(Colour),
    point=Point(x=3, seen_at=START + timedelta(seconds=1)),
    is_large=True,
    made_at=START,
    secret=b"plain",
)


def test_a_record_becomes_a_value_for_each_column() -> None:
    assert CODEC.encode(THING) == {
        "id": "1",
        "colour": "red",
        "colours": '["blue","red"]',
        "maybe": None,
        "extra": None,
        "x": 3,
        "seen_at": epoch_milliseconds(START) + 1000,
        "is_large": 1,
        "made_at": epoch_milliseconds(START),
        "secret": b"plain",
    }


def test_a_row_becomes_the_record_that_it_was_made_of() -> None:
    row = tuple(CODEC.encode(THING).values())

    assert CODEC.decode((*row[:-1], b"sealed", "a further column"), secret=b"plain") == THING


def test_an_encoder_of_some_columns_converts_no_others() -> None:
    assert CODEC.encoder(["made_at", "x"])(THING) == {"made_at": epoch_milliseconds(START), "x": 3}


def test_an_unknown_value_of_an_enum_is_refused() -> None:
    row = tuple((CODEC.encode(THING) | {"colour": "green"}).values())

    with pytest.raises(ValueError, match="'green' is not a valid Colour"):
        CODEC.decode(row, secret=b"")


def test_a_field_without_a_column_type_is_refused() -> None:
    @dataclass
    class Unknown:
        value: Point

    with pytest.raises(TypeError, match="Point"):
        RowCodec(Unknown, TYPES)


def test_statements_get_their_columns_from_the_codecs() -> None:
    codecs = {"point": RowCodec(Point, TYPES)}

    assert fill_in_columns("SELECT {point in points}, a FROM points", codecs) == (
        'SELECT points."x", points."seen_at", a FROM points'
    )
    assert fill_in_columns("INSERT INTO points {new point};", codecs) == (
        'INSERT INTO points ("x", "seen_at") VALUES (:x, :seen_at);'
    )
    with pytest.raises(KeyError):
        fill_in_columns("SELECT {thing in things}", codecs)


@pytest.mark.parametrize(
    ("codec", "record"),
    [
        (RECORDS.call, make_call()),
        (RECORDS.whole_call, make_call(meta={"m": 1})),
        (RECORDS.event, make_event()),
        (RECORDS.delivery, make_delivery()),
        (RECORDS.whole_delivery, make_delivery(body=b"body")),
        (RECORDS.webhook, make_webhook()),
    ],
    ids=["call", "whole-call", "event", "delivery", "whole-delivery", "webhook"],
)
def test_records_of_the_store_keep_their_values(codec: RowCodec[Any], record: Any) -> None:
    row = codec.encode(record)
    sealed = {name: row[name] for name in ("body", "secrets", "arguments", "meta") if name in row}

    decoded = codec.decode(tuple(row.values()), **sealed)

    assert decoded == record
    assert codec.encode(decoded) == row
