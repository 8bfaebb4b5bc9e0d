"""A schema that was read once: its keywords, its ids and anchors, and the targets of its references."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from ringback.upstreams.json_schema.assertions import accept_null
from ringback.upstreams.json_schema.dialects import FORMS, SCHEMA_FORMS, SCHEMA_MAPS, find_dialect
from ringback.upstreams.json_schema.evaluation import Keyword
from ringback.upstreams.json_schema.patterns import Patterns
from ringback.upstreams.json_schema.steps import SchemaUnusable, StepCounter
from ringback.upstreams.json_schema.values import describe, describe_name

Schema = Mapping[str, Any]

_CHECKED_UNLESS_NULLABLE: Final = frozenset(
    ("$dynamicRef", "$recursiveRef", "$ref", "allOf", "anyOf", "const", "enum", "if", "not", "oneOf", "type")
)
"""The keywords that can reject null."""
_DEFINITIONS: Final = ("$defs", "definitions")
"""The keywords whose schemas apply only where a reference leads to them."""


class SchemaDocument:
    """A schema with an index of its parts. The index refers to them by identity, so the document keeps the schema."""

    def __init__(self, root: Schema, steps: StepCounter) -> None:
        """Raises `SchemaUnusable` for an invalid schema and `StepLimitExceeded` for one that is too large."""
        self.root = root
        self.patterns = Patterns()
        self._dialect = find_dialect(root)
        self._keywords: dict[int, list[tuple[Keyword, Any]]] = {}
        self._bases: dict[int, str] = {}
        self._anchors: dict[tuple[str, str], Schema] = {}
        self._dynamic_anchors: dict[tuple[str, str], Schema] = {}
        self._targets: dict[tuple[str, str], Any] = {}
        self._anchors["", ""] = root
        self._read(root, "", steps)

    def list_keywords(self, schema: Schema) -> list[tuple[Keyword, Any]]:
        return self._keywords[id(schema)]

    def get_base(self, schema: Schema) -> str:
        return self._bases[id(schema)]

    # -- references --

    def resolve(self, schema: Schema, reference: str, steps: StepCounter) -> Any:
        """The target of a reference in this schema. Raises `SchemaUnusable` if it is not in the document."""
        base = self.get_base(schema)
        steps.count_text(len(base) + len(reference))
        if (base, reference) not in self._targets:
            steps.count(len(base) + len(reference))
            self._targets[base, reference] = self._find_target(base, reference, steps)
        return self._targets[base, reference]

    def resolve_dynamic(self, schema: Schema, reference: str, scope: Iterable[str], steps: StepCounter) -> Any:
        """The target in the outermost resource that has the same dynamic anchor."""
        target = self.resolve(schema, reference, steps)
        anchor = reference.partition("#")[2]
        if not isinstance(target, dict):
            return target
        initial = cast("Schema", target)
        if self._dynamic_anchors.get((self.get_base(initial), anchor)) is not initial:
            return initial
        found = (self._dynamic_anchors[base, anchor] for base in scope if (base, anchor) in self._dynamic_anchors)
        return next(found, initial)

    def resolve_recursive(self, schema: Schema, scope: Iterable[str]) -> Schema:
        """The resource of this schema or, if it is open to recursion, the outermost one that is."""
        resource = self._anchors[self.get_base(schema), ""]
        if resource.get("$recursiveAnchor") is not True:
            return resource
        candidates = (self._anchors[base, ""] for base in scope)
        return next((each for each in candidates if each.get("$recursiveAnchor") is True), resource)

    def require_targets(self, steps: StepCounter) -> None:
        """Resolve each reference that a value can reach. Raises `SchemaUnusable` for the first one without a target."""
        unread: list[Any] = [self.root]
        seen = set[int]()
        while unread:
            schema = unread.pop()
            steps.count(1)
            if not isinstance(schema, dict) or id(cast("Any", schema)) in seen:
                continue
            seen.add(id(cast("Any", schema)))
            applied = {name: each for name, each in cast("Schema", schema).items() if name not in _DEFINITIONS}
            references = [applied[name] for name in ("$ref", "$dynamicRef") if name in applied]
            unread += [self.resolve(cast("Schema", schema), each, steps) for each in references]
            unread += _list_subschemas(applied)

    def _find_target(self, base: str, reference: str, steps: StepCounter) -> Any:
        uri, fragment = _join(base, reference)
        try:
            if not fragment.startswith("/"):
                return self._anchors[uri, fragment]
            return self._find_by_pointer(uri, fragment, steps)
        except LookupError:
            raise SchemaUnusable(
                f"the reference {_describe_reference(reference)} has no target in the schema"
            ) from None

    def _find_by_pointer(self, uri: str, pointer: str, steps: StepCounter) -> Any:
        """The part that a JSON pointer (RFC 6901) refers to. It may be outside the known places of schemas.

        Raises `LookupError` if there is none.
        """
        target: Any = self._anchors[uri, ""]
        base = uri
        for step in pointer.split("/")[1:]:
            target = _get_member(target, step.replace("~1", "/").replace("~0", "~"))
            base = self._bases.get(id(target), base)
        if not isinstance(target, dict | bool):
            raise SchemaUnusable("a reference has a target that is not a schema")
        if isinstance(target, dict) and id(cast("Any", target)) not in self._keywords:
            self._read(cast("Schema", target), base, steps)
        return cast("Any", target)

    # -- reading --

    def _read(self, root: Schema, base: str, steps: StepCounter) -> None:
        """Index the schema and all schemas in it. A step for each keyword, each schema and each name in it.

        If it raises, the schemas count as unread: a later value can have more steps.
        """
        unread: list[tuple[Any, str]] = [(root, base)]
        read: list[int] = []
        try:
            while unread:
                schema, base = unread.pop()
                steps.count(1)
                if isinstance(schema, dict) and id(cast("Any", schema)) not in self._keywords:
                    inner_base = self._read_one(cast("Schema", schema), base, steps)
                    read.append(id(cast("Any", schema)))
                    unread.extend((each, inner_base) for each in _list_subschemas(cast("Schema", schema)))
        except BaseException:
            for each in read:
                del self._keywords[each]
            raise

    def _read_one(self, schema: Schema, base: str, steps: StepCounter) -> str:
        for name, argument in schema.items():
            is_read = name in FORMS and name != "enum" and isinstance(argument, list | dict)
            steps.count(2 + (len(cast("list[Any]", argument)) if is_read else 0))
            _require_form(name, argument, steps)
        base = self._read_names(schema, base, steps)
        self._bases[id(schema)] = base
        self._keywords[id(schema)] = self._list_checks(schema)
        return base

    def _list_checks(self, schema: Schema) -> list[tuple[Keyword, Any]]:
        keywords = self._dialect.keywords
        stands_alone = "$ref" in schema and self._dialect.reference_stands_alone
        names = ["$ref"] if stands_alone else [name for name in schema if name in keywords]
        checks = {name: keywords[name] for name in names}
        if schema.get("nullable") is True:
            checks |= {name: accept_null(checks[name]) for name in names if name in _CHECKED_UNLESS_NULLABLE}
        return [(check, schema[name]) for name, check in checks.items()]

    def _read_names(self, schema: Schema, base: str, steps: StepCounter) -> str:
        """Index the id and the anchors of a schema. Return its base URI."""
        uri = schema.get(self._dialect.id_keyword)
        if isinstance(uri, str) and not ("$ref" in schema and self._dialect.reference_stands_alone):
            steps.count(len(base) + len(uri))
            joined, fragment = _join(base, uri)
            self._anchors.setdefault((joined, fragment), schema)
            if not uri.startswith("#"):
                base = joined
                self._anchors.setdefault((base, ""), schema)  # the id may have a fragment
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := schema.get(keyword), str):
                self._anchors.setdefault((base, anchor), schema)
        if isinstance(anchor := schema.get("$dynamicAnchor"), str):
            self._dynamic_anchors.setdefault((base, anchor), schema)
        return base


def _join(base: str, reference: str) -> tuple[str, str]:
    try:
        uri, fragment = urldefrag(urljoin(base, reference) if not reference.startswith("#") else base + reference)
    except ValueError:
        raise SchemaUnusable("an id or a reference is not a URI") from None
    return uri, unquote(fragment)


def _require_form(name: str, argument: Any, steps: StepCounter) -> None:
    if (is_formed := FORMS.get(name)) is None:
        return
    if name in ("dependencies", "dependentRequired") and isinstance(argument, dict):
        for each in cast("dict[str, Any]", argument).values():
            steps.count(1 + (len(cast("list[Any]", each)) if isinstance(each, list) else 0))
    if not is_formed(argument):
        raise SchemaUnusable(f"the keyword {name} has a wrong argument{_describe_argument(name, argument)}")


def _describe_argument(name: str, argument: Any) -> str:
    """Texts of other keywords than `type` and whole objects stay out of it: they may be secrets of the upstream."""
    is_shown = name == "type" or not isinstance(argument, str | list | dict)
    return f": {describe(argument, otherwise='a long one')}" if is_shown else ""


def _describe_reference(reference: str) -> str:
    """Without a user, a password and a query, which may be secrets."""
    try:
        parts = urlsplit(reference)
    except ValueError:
        return "that is not a URI"
    if not parts.netloc:
        return describe_name(reference.partition("?")[0] if not reference.startswith("#") else reference)
    return describe_name(f"{parts.scheme}://{parts.hostname or ''}{parts.path}")


def _list_subschemas(schema: Schema) -> Iterator[Any]:
    for name in SCHEMA_FORMS:
        argument = schema.get(name)
        if argument is None:
            continue
        if isinstance(argument, list):
            yield from cast("list[Any]", argument)
        elif name in SCHEMA_MAPS:
            yield from argument.values()
        else:
            yield argument


def _get_member(target: Any, step: str) -> Any:
    try:
        return cast("list[Any]", target)[int(step)] if isinstance(target, list) else target[step]
    except (ValueError, TypeError):
        raise LookupError(step) from None
