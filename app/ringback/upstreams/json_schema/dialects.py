"""The dialects of JSON Schema: which keyword has which meaning, and which form its argument must have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from ringback.upstreams.json_schema import applicators, assertions
from ringback.upstreams.json_schema.evaluation import Keyword
from ringback.upstreams.json_schema.values import TYPES, is_integer, is_number

Form = Callable[[Any], bool]
"""Whether the argument of a keyword can be used. The schemas in it are examined one by one, the rest in full."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A draft of JSON Schema."""

    keywords: Mapping[str, Keyword]
    id_keyword: str = "$id"
    reference_stands_alone: bool = True
    """Keywords beside `$ref` have no meaning (until draft 7)."""


_DRAFT_4_KEYWORDS: Final[dict[str, Keyword]] = {
    "$ref": applicators.follow_reference,
    "additionalItems": applicators.check_additional_items,
    "additionalProperties": applicators.check_additional_properties,
    "allOf": applicators.check_all_of,
    "anyOf": applicators.check_any_of,
    "dependencies": applicators.check_dependencies,
    "enum": assertions.check_enum,
    "items": applicators.check_items_of_older_drafts,
    "maxItems": assertions.check_max_items,
    "maxLength": assertions.check_max_length,
    "maxProperties": assertions.check_max_properties,
    "maximum": assertions.check_maximum,
    "minItems": assertions.check_min_items,
    "minLength": assertions.check_min_length,
    "minProperties": assertions.check_min_properties,
    "minimum": assertions.check_minimum,
    "multipleOf": assertions.check_multiple_of,
    "not": applicators.check_not,
    "oneOf": applicators.check_one_of,
    "pattern": assertions.check_pattern,
    "patternProperties": applicators.check_pattern_properties,
    "properties": applicators.check_properties,
    "required": assertions.check_required,
    "type": assertions.check_type_of_draft_4,
    "uniqueItems": assertions.check_unique_items,
}
_DRAFT_6_KEYWORDS: Final[dict[str, Keyword]] = {
    **_DRAFT_4_KEYWORDS,
    "const": assertions.check_const,
    "contains": applicators.check_contains_of_older_drafts,
    "exclusiveMaximum": assertions.check_exclusive_maximum,
    "exclusiveMinimum": assertions.check_exclusive_minimum,
    "propertyNames": applicators.check_property_names,
    "type": assertions.check_type,
}
_DRAFT_7_KEYWORDS: Final[dict[str, Keyword]] = {**_DRAFT_6_KEYWORDS, "if": applicators.check_if}
_COMMON_SINCE_2019: Final[dict[str, Keyword]] = {
    **{name: keyword for name, keyword in _DRAFT_7_KEYWORDS.items() if name != "dependencies"},
    "contains": applicators.check_contains,
    "dependentRequired": assertions.check_dependent_required,
    "dependentSchemas": applicators.check_dependent_schemas,
    "unevaluatedItems": applicators.skip_unchecked,
    "unevaluatedProperties": applicators.skip_unchecked,
}
_KEYWORDS_2019: Final[dict[str, Keyword]] = {
    **_COMMON_SINCE_2019,
    "$recursiveRef": applicators.follow_recursive_reference,
}
_KEYWORDS_2020: Final[dict[str, Keyword]] = {
    **{name: keyword for name, keyword in _COMMON_SINCE_2019.items() if name != "additionalItems"},
    "$dynamicRef": applicators.follow_dynamic_reference,
    "items": applicators.check_items,
    "prefixItems": applicators.check_prefix_items,
}
_DEFAULT_DIALECT: Final = Dialect(_KEYWORDS_2020, reference_stands_alone=False)
_DIALECTS: Final[Mapping[str, Dialect]] = {
    "http://json-schema.org/draft-04/schema": Dialect(_DRAFT_4_KEYWORDS, id_keyword="id"),
    "http://json-schema.org/draft-06/schema": Dialect(_DRAFT_6_KEYWORDS),
    "http://json-schema.org/draft-07/schema": Dialect(_DRAFT_7_KEYWORDS),
    "https://json-schema.org/draft/2019-09/schema": Dialect(_KEYWORDS_2019, reference_stands_alone=False),
}


def find_dialect(schema: Mapping[str, Any]) -> Dialect:
    """The dialect that `$schema` names; 2020-12 without it and for an unknown one."""
    uri = schema.get("$schema")
    return _DIALECTS.get(uri.removesuffix("#"), _DEFAULT_DIALECT) if isinstance(uri, str) else _DEFAULT_DIALECT


# -- forms --


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _is_schemas(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_schema, cast("list[Any]", value)))


def _is_schema_map(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, cast("dict[str, Any]", value).values()))


def _is_schema_or_schemas(value: Any) -> bool:
    return _is_schema(value) or _is_schemas(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, cast("list[Any]", value)))


def _is_texts_map(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_texts, cast("dict[str, Any]", value).values()))


def _is_dependencies(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_schema(each) or _is_texts(each) for each in cast("dict[str, Any]", value).values()
    )


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _is_length(value: Any) -> bool:
    return is_integer(value) and value >= 0


def _is_positive(value: Any) -> bool:
    return is_number(value) and value > 0


def _is_number_or_boolean(value: Any) -> bool:
    """Draft 4 has a boolean, later drafts a number."""
    return isinstance(value, int | float)


def _is_type(value: Any) -> bool:
    names = cast("list[Any]", value) if isinstance(value, list) else [value]
    return all(isinstance(name, str) and name in TYPES for name in names)


SCHEMA_MAPS: Final = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
"""The keywords whose arguments have a schema for each name."""
SCHEMA_FORMS: Final[Mapping[str, Form]] = {
    **dict.fromkeys(
        ("additionalItems", "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then"),
        _is_schema,
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _is_schemas),
    **dict.fromkeys(SCHEMA_MAPS, _is_schema_map),
    "dependencies": _is_dependencies,
    "items": _is_schema_or_schemas,
}
"""Of the keywords whose arguments contain schemas."""
FORMS: Final[Mapping[str, Form]] = {
    **SCHEMA_FORMS,
    **dict.fromkeys(("$ref", "$dynamicRef", "$recursiveRef", "$schema", "pattern"), _is_text),
    **dict.fromkeys(
        (
            *("maxContains", "maxItems", "maxLength", "maxProperties"),
            *("minContains", "minItems", "minLength", "minProperties"),
        ),
        _is_length,
    ),
    **dict.fromkeys(("maximum", "minimum"), is_number),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum"), _is_number_or_boolean),
    "dependentRequired": _is_texts_map,
    "enum": lambda value: isinstance(value, list),
    "multipleOf": _is_positive,
    "required": _is_texts,
    "type": _is_type,
    "uniqueItems": _is_boolean,
}
"""Of all keywords that are checked, in all dialects."""
