"""Rules that complete the OpenAPI document for all operations at once: security, tags, headers of responses.

A new operation follows them without a line of its own. tests/contract/test_openapi_rules.py checks the document, and every REST
test checks that the headers of its responses are declared.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_TEXT: Final = {"type": "string"}
LOCATION: Final = {
    "Location": {
        "description": "The path of the resource, if the response names one.",
        "schema": {"type": "string", "format": "uri-reference"},
        "example": "/v1/calls/call_01K8ZQ4M0X5V7T9B2N6C3D8F1G",
    }
}
REPLAYED: Final = {
    "Idempotent-Replayed": {
        "description": "`true` if the idempotency key was used before: nothing new was started.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}
RETRY_AFTER: Final = {
    "Retry-After": {"description": "Seconds until the next attempt.", "schema": {"type": "integer", "minimum": 0}}
}
HEADERS_BY_STATUS: Final[Mapping[str, Mapping[str, Any]]] = {
    "201": LOCATION,
    "202": LOCATION,
    "401": {"WWW-Authenticate": {"description": "How to authenticate (RFC 6750, RFC 9728).", "schema": _TEXT}},
    "416": {"Content-Range": {"description": "The size of the result: `bytes */SIZE`.", "schema": _TEXT}},
    "429": RETRY_AFTER,
    "503": RETRY_AFTER,
}
HEADERS_BY_SCHEMA: Final[Mapping[str, Mapping[str, Any]]] = {
    "StartedCallView": {**LOCATION, **REPLAYED},
    "RegisteredWebhookView": {**LOCATION, **REPLAYED},
    "CreatedKeyView": LOCATION,
    "ErasureView": LOCATION,
}
"""By the schema of a successful response: these responses name a resource that exists now."""

TAG_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "webhooks": "Registrations of callback URLs.",
    "calls": "Tool calls: start, read, wait, cancel, answer, report, resume.",
    "events": "The log of what happened to your calls: poll it or stream it.",
    "deliveries": "Events on their way to a webhook, with every attempt.",
    "upstreams": "The MCP servers whose tools can be called.",
    "keys": "API keys.",
    "portal links": "Links to pages of the dashboard that need no key.",
    "audit": "Who changed what.",
    "erasures": "Removal of stored calls, sessions and principals.",
    "insights": "What happens hour by hour, what is open now, and client sessions.",
    "usage": "Your limits, and what you use of them.",
    "operations": "Health, readiness, metrics, signing keys and problem types.",
    "callbacks": "Requests that Ringback sends to your webhooks.",
}


def apply_rules(document: dict[str, Any]) -> None:
    """Complete the document in place. Applying the rules twice changes nothing more."""
    tags: set[str] = set()
    for operation in iterate_operations(document):
        operation.setdefault("security", [])  # open to everyone, which tools distinguish from an omission
        tags.update(operation["tags"])
        for status, response in operation["responses"].items():
            if headers := _headers_of(status, response):
                response["headers"] = {**headers, **response.get("headers", {})}
    names = [*(name for name in TAG_DESCRIPTIONS if name in tags), *sorted(tags - TAG_DESCRIPTIONS.keys())]
    document["tags"] = [{"name": name, "description": TAG_DESCRIPTIONS.get(name, "")} for name in names]


def iterate_operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The operations that the service offers, and the callbacks that it sends."""
    for section in ("paths", "webhooks"):
        for methods in document[section].values():
            yield from methods.values()


def _headers_of(status: str, response: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = response.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    by_status = HEADERS_BY_STATUS.get(status, {}) if "content" in response else {}
    return {**by_status, **HEADERS_BY_SCHEMA.get(schema.rpartition("/")[2], {})}
