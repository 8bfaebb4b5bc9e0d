"""Rules that every operation of the OpenAPI document follows, also the next one."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from ringback.api.openapi_rules import HEADERS_BY_SCHEMA, HEADERS_BY_STATUS, apply_rules, iterate_operations

DOCUMENT: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "openapi" / "ringback.json").read_text(encoding="utf-8")
)
OPERATIONS: Final = list(iterate_operations(DOCUMENT))
INSTANT: Final = re.compile(r"(?:.*_at|.*_since|timestamp|not_before|since|until)")


def iterate_properties(value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        yield from members.get("properties", {}).items()
        for member in members.values():
            yield from iterate_properties(member)
    elif isinstance(value, list):
        for member in cast("list[object]", value):
            yield from iterate_properties(member)


def test_every_operation_says_whether_it_needs_a_key() -> None:
    assert [operation["operationId"] for operation in OPERATIONS if "security" not in operation] == []
    open_operations = {
        each["operationId"] for each in iterate_operations({**DOCUMENT, "webhooks": {}}) if not each["security"]
    }
    assert open_operations == {"check_health", "check_readiness", "read_signing_keys", "read_problem_type"}


def test_every_tag_is_described() -> None:
    used = {tag for operation in OPERATIONS for tag in operation["tags"]}
    described = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}

    assert described.keys() == used
    assert [name for name, description in described.items() if not description] == []


def test_every_refusal_and_every_created_resource_declares_its_headers() -> None:
    for operation in OPERATIONS:
        for status, response in operation["responses"].items():
            schema = response.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
            expected = HEADERS_BY_SCHEMA.get(schema.rpartition("/")[2], {})
            if "application/problem+json" in response.get("content", {}):
                expected = HEADERS_BY_STATUS.get(status, {})
            assert expected.keys() <= response.get("headers", {}).keys(), (operation["operationId"], status)


def test_every_declared_header_has_a_schema_and_a_description() -> None:
    headers = [
        header
        for operation in OPERATIONS
        for response in operation["responses"].values()
        for header in response.get("headers", {}).values()
    ]
    assert headers
    assert all(header["schema"] and header["description"] for header in headers)


def test_every_point_in_time_has_the_format_date_time() -> None:
    texts = [
        (name, option)
        for name, schema in iterate_properties(DOCUMENT["components"]["schemas"])
        for option in (schema, *schema.get("anyOf", ()))
        if INSTANT.fullmatch(name) and option.get("type") == "string"
    ]
    assert len(texts) > 1
    assert [name for name, schema in texts if schema.get("format") != "date-time"] == []


def test_the_rules_change_nothing_when_applied_again() -> None:
    document = json.loads(json.dumps(DOCUMENT))
    apply_rules(document)
    assert document == DOCUMENT
