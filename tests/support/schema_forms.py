"""Forms made of schemas, and the arguments that come back from them."""

from typing import Any

from ringback.ui.forms.form_fields import SchemaField
from ringback.ui.forms.form_values import write_value
from ringback.ui.forms.schema_forms import build_form

Schema = dict[str, Any]


def write_arguments(root: SchemaField, arguments: dict[str, Any]) -> dict[str, list[str]] | None:
    """What a viewer types for these arguments; None if the form cannot show all of them."""
    typed: dict[str, list[str]] = {}
    return typed if write_value(root, arguments, typed) else None


def make_form(properties: Schema, *required: str, **more: object) -> SchemaField:
    return build_form({"type": "object", "properties": properties, "required": list(required), **more})
