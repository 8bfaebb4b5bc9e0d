"""Our bounded validation finds the same values valid as jsonschema, for small schemas of all dialects."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import validator_for

from ringback.upstreams.json_schema.schema import BoundedSchema

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, 2.5, -3, 6, "", "a", "ab", "abc"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
TYPES = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])
LENGTHS = st.integers(0, 3)
LIMITS = st.sampled_from([0, 1, 2.5, 6])


def _keep_few(schema: dict[str, Any]) -> dict[str, Any]:
    """A filter would write its strategy as text, 110 kB, when it rejects a schema; Hypothesis warns of that."""
    return dict(list(schema.items())[:7])


def make_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists, maps = st.lists(inner, min_size=1, max_size=3), st.dictionaries(NAMES, inner, max_size=3)
    names = st.lists(NAMES, min_size=1, max_size=3, unique=True)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), lists),
        **dict.fromkeys(("additionalItems", "additionalProperties", "contains", "not", "propertyNames"), inner),
        **dict.fromkeys(("if", "then", "else"), inner),
        **dict.fromkeys(("properties", "dependentSchemas"), maps),
        **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"), LENGTHS),
        **dict.fromkeys(("minContains", "maxContains"), LENGTHS),
        **dict.fromkeys(("minimum", "maximum"), LIMITS),
        "const": VALUES,
        "dependencies": st.dictionaries(NAMES, inner | names, max_size=2),
        "dependentRequired": st.dictionaries(NAMES, names, max_size=2),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "items": inner,
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "required": names,
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "uniqueItems": st.booleans(),
    }
    return st.fixed_dictionaries({}, optional=keywords).map(_keep_few) | st.one_of(
        *(st.fixed_dictionaries({name: arguments}) for name, arguments in keywords.items())
    )


SIMPLEST: list[Any] = [{}, True, False]
SCHEMAS = st.recursive(st.sampled_from(SIMPLEST), make_schemas, max_leaves=6)
DIALECTS = st.sampled_from(
    [
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ]
)


@given(SCHEMAS, VALUES, DIALECTS)
def test_a_value_is_valid_exactly_if_jsonschema_finds_it_valid(schema: Any, value: Any, dialect: str) -> None:
    root = {"$schema": dialect, "properties": {"value": schema}}
    other = validator_for(root)(root)

    errors, is_complete = BoundedSchema(root).find_errors({"value": value}, errors_max=100)

    assert is_complete
    assert (not errors) == other.is_valid({"value": value})
