"""Validates the `data` of published events against the payload_schema that their principal declared."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ringback.services.events.event_types import DeclaredPayload
from ringback.upstreams.catalog.argument_validation import ERRORS_MAX, format_error
from ringback.upstreams.json_schema.schema import BoundedSchema, SchemaCache
from ringback.upstreams.json_schema.steps import SchemaUnusable, StepCounter, StepLimitExceeded

log = logging.getLogger(__name__)


class JsonPayloadSchemas:
    """Implements `services.events.event_types.PayloadSchemas`. The events of one request share the steps of one validation."""

    def __init__(self) -> None:
        self._schemas = SchemaCache(BoundedSchema)

    def find_schema_error(self, schema: Mapping[str, Any]) -> str | None:
        try:
            self._schemas.get(schema)
        except SchemaUnusable as problem:
            return str(problem)
        except StepLimitExceeded:
            return "the schema is too large"
        except Exception as problem:  # noqa: BLE001 - the boundary to foreign schemas
            _log_unforeseen(problem)
        return None

    def find_errors(self, payloads: Sequence[DeclaredPayload]) -> Sequence[Mapping[str, str]]:
        steps = StepCounter()
        found: list[Mapping[str, str]] = []
        for payload in payloads:
            if steps.left < 0:
                break
            found += self._find_errors(payload, steps)
        if steps.left < 0:
            log.info("event.data_not_validated", extra={"events": len(payloads)})
        return found[:ERRORS_MAX]

    def _find_errors(self, payload: DeclaredPayload, steps: StepCounter) -> list[Mapping[str, str]]:
        try:
            schema = self._schemas.get(payload.schema)
            errors, _ = schema.find_errors(payload.data, errors_max=ERRORS_MAX, steps=steps)
        except (
            SchemaUnusable,
            StepLimitExceeded,
        ):  # declared before declarations were checked, or a `$ref` without a target
            return []
        except Exception as problem:  # noqa: BLE001 - the same boundary
            _log_unforeseen(problem)
            return []
        return [format_error(error, *payload.place) for error in errors]


def _log_unforeseen(problem: Exception) -> None:
    """A defect of the check. The data is accepted: its receivers lose nothing by it, and the publisher cannot mend it."""
    log.error("event.schema_not_checked", exc_info=problem)
