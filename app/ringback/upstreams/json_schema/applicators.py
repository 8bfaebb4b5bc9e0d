"""The keywords that apply other schemas to a value, its members or its items."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from ringback.upstreams.json_schema.assertions import check_names_beside
from ringback.upstreams.json_schema.branches import report_no_branch
from ringback.upstreams.json_schema.evaluation import Evaluation
from ringback.upstreams.json_schema.values import describe, describe_names

Schema = Mapping[str, Any]


# -- the same value --


def follow_reference(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
    run.follow(run.document.resolve(schema, argument, run.steps), value)


def follow_dynamic_reference(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
    run.follow(run.document.resolve_dynamic(schema, argument, run.list_scope(), run.steps), value)


def follow_recursive_reference(run: Evaluation, _argument: Any, value: Any, schema: Schema) -> None:
    run.follow(run.document.resolve_recursive(schema, run.list_scope()), value)


def check_all_of(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    for each in argument:
        run.apply(each, value)


def check_any_of(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if all(run.judge(each, value) is False for each in argument):
        report_no_branch(run, argument, value)


def check_one_of(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    possible = certain = 0
    for each in argument:
        verdict = run.judge(each, value)
        possible += verdict is not False
        certain += verdict is True
        if certain > 1:
            return run.report(lambda: f"{describe(value)} is valid under more than one of the given schemas")
    if not possible:
        report_no_branch(run, argument, value)
    return None


def check_not(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if run.judge(argument, value) is True:
        run.report(lambda: f"{describe(value)} should not be valid under {_describe_schema(argument)}")


def check_if(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
    verdict = run.judge(argument, value)
    branch = "then" if verdict else "else"
    if verdict is not None and branch in schema:
        run.apply(schema[branch], value)


# -- members --


def check_properties(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if isinstance(value, dict):
        run.steps.count(len(argument))
        for name, each in cast("dict[str, Any]", argument).items():
            if name in value:
                run.apply_at(name, each, value[name])


def check_pattern_properties(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if isinstance(value, dict):
        for pattern, each in cast("dict[str, Any]", argument).items():
            for name, member in cast("dict[str, Any]", value).items():
                if run.matches(pattern, name):
                    run.apply_at(name, each, member)


def check_additional_properties(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
    if argument is True or not isinstance(value, dict):
        return
    additional = _list_additional(run, cast("dict[str, Any]", value), schema)
    if argument is not False:
        for name in additional:
            run.apply_at(name, argument, value[name])
    elif additional:
        verb = "was" if len(additional) == 1 else "were"
        run.report(
            lambda: f"Additional properties are not allowed ({describe_names(sorted(additional))} {verb} unexpected)"
        )


def _list_additional(run: Evaluation, value: dict[str, Any], schema: Schema) -> list[str]:
    """A pattern that cannot be compiled may match, so a property is additional only if no pattern can match it."""
    run.steps.count(len(value))
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    return [
        name
        for name in value
        if name not in properties and all(run.matches(pattern, name) is False for pattern in patterns)
    ]


def check_property_names(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if isinstance(value, dict):
        for name in cast("dict[str, Any]", value):
            run.apply(argument, name)


def check_dependent_schemas(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if isinstance(value, dict):
        run.steps.count(len(argument))
        for name, each in cast("dict[str, Any]", argument).items():
            if name in value:
                run.apply(each, value)


def check_dependencies(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    """Drafts 4 to 7: a schema or a list of names for each name."""
    if isinstance(value, dict):
        run.steps.count(len(argument))
        for name, each in cast("dict[str, Any]", argument).items():
            if name in value and isinstance(each, list):
                check_names_beside(run, name, cast("list[str]", each), value)
            elif name in value:
                run.apply(each, value)


# -- items --


def check_prefix_items(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if isinstance(value, list):
        for index, (item, each) in enumerate(zip(cast("list[Any]", value), argument, strict=False)):
            run.apply_at(index, each, item)


def check_items(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
    """A list, which 2020-12 does not allow, has the meaning of older drafts: schemas that name no dialect have such lists."""
    if isinstance(argument, list):
        check_prefix_items(run, argument, value, schema)
    else:
        _apply_from(run, len(schema.get("prefixItems", ())), argument, value)


def check_items_of_older_drafts(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
    if isinstance(argument, list):
        check_prefix_items(run, argument, value, schema)
    else:
        _apply_from(run, 0, argument, value)


def check_additional_items(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
    prefix = schema.get("items")
    if isinstance(prefix, list):
        _apply_from(run, len(cast("list[Any]", prefix)), argument, value)


def _apply_from(run: Evaluation, first: int, schema: Any, value: Any) -> None:
    if schema is True or not isinstance(value, list):
        return
    items = cast("list[Any]", value)
    if schema is False:
        if len(items) > first:
            run.report(lambda: f"Expected at most {first} items but found {len(items)}")
        return
    for index in range(first, len(items)):
        run.apply_at(index, schema, items[index])


def check_contains(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
    if not isinstance(value, list):
        return
    at_least, at_most = schema.get("minContains", 1), schema.get("maxContains")
    until = at_least if at_most is None else at_most + 1
    possible, certain = _count_valid(run, argument, cast("list[Any]", value), until=until)
    if at_most is not None and certain > at_most:
        run.report(lambda: f"Too many items match {_describe_schema(argument)} (expected at most {describe(at_most)})")
    elif possible < at_least:
        run.report(lambda: _describe_too_few(argument, value, possible, at_least))


def check_contains_of_older_drafts(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    """Without `minContains` and `maxContains`."""
    check_contains(run, argument, value, {})


def _describe_too_few(schema: Any, value: Any, found: int, at_least: Any) -> str:
    rule = f"(expected at least {describe(at_least)}"
    if not found:
        return f"No item of {describe(value)} matches {_describe_schema(schema)} {rule})"
    return f"Too few items match {_describe_schema(schema)} {rule} but only {found} matched)"


def _describe_schema(schema: Any) -> str:
    return describe(schema, otherwise="the given schema")


def _count_valid(run: Evaluation, schema: Any, items: Iterable[Any], *, until: float) -> tuple[int, int]:
    """The items that may be valid, and those that certainly are: at most `until`."""
    possible = certain = 0
    for item in items:
        if certain >= until:
            break
        verdict = run.judge(schema, item)
        possible += verdict is not False
        certain += verdict is True
    return possible, certain


def skip_unchecked(run: Evaluation, _argument: Any, _value: Any, _schema: Schema) -> None:
    run.mark_uncertain()
