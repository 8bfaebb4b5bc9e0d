"""Why a value is valid under no branch of `anyOf` or `oneOf`.

Each optional property of pydantic is an `anyOf` of its type and null. A branch for another type says nothing about the value,
so the error is one of the branches for its type: the deepest, because most of the value matches there. In a union of objects
that a constant distinguishes, the branches with another constant say nothing either.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

from ringback.upstreams.json_schema.evaluation import REPORT_STEPS, Evaluation, Place, SchemaError
from ringback.upstreams.json_schema.steps import SchemaUnusable, StepLimitExceeded
from ringback.upstreams.json_schema.values import describe, describe_names, describe_values

EXPLANATION_STEPS_MAX: Final = 10_000
"""For one error: at most 20 ms. They are among the steps of the validation."""
ERRORS_MAX: Final = 5
"""Of each branch."""
ALTERNATIVES_MAX: Final = 3
CHOICES: Final = frozenset({"const", "enum"})

Branch = Sequence[SchemaError]


def report_no_branch(run: Evaluation, schemas: Sequence[Any], value: Any) -> None:
    """Report that the value is certainly invalid under each of these schemas."""
    run.end_judgement()
    reason = _find_reason(run, schemas, value)
    if reason is None:
        run.report(lambda: f"{describe(value)} is not valid under any of the given schemas")
    else:
        run.report(lambda: reason.detail, keyword=reason.keyword, allowed=reason.allowed, path=reason.path)


def _find_reason(run: Evaluation, schemas: Sequence[Any], value: Any) -> SchemaError | None:
    """None if it takes too many steps or levels. The value is invalid all the same, so `report` keeps its steps."""
    try:
        with run.steps.limit(EXPLANATION_STEPS_MAX, reserve=REPORT_STEPS):
            branches = [run.collect_errors_of(schema, value, errors_max=ERRORS_MAX) for schema in schemas]
            return _select_reason(run.get_place(), [each for each in branches if each], value)
    except (StepLimitExceeded, SchemaUnusable, RecursionError):
        return None


def _select_reason(here: Place, branches: Sequence[Branch], value: Any) -> SchemaError | None:
    fitting = [branch for branch in branches if not _find_at(branch, here, {"type"})]
    if not branches or not fitting:
        return _describe_types(here, branches, value) if branches else None
    same_choices = [branch for branch in fitting if not any(error.keyword in CHOICES for error in branch)]
    if len(fitting) > 1 and not same_choices:
        return _describe_choices(fitting) or _join_best(fitting)
    return _join_best(same_choices or fitting)


def _find_at(branch: Branch, place: Place, keywords: Iterable[str]) -> list[SchemaError]:
    return [error for error in branch if error.path == place and error.keyword in keywords]


def _describe_types(here: Place, branches: Sequence[Branch], value: Any) -> SchemaError:
    types = _unite(error.allowed for branch in branches for error in _find_at(branch, here, {"type"}))
    return SchemaError(here, f"{describe(value)} is not of type {describe_names(types)}", "type", types)


def _unite(lists: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(lists)))


def _describe_choices(branches: Sequence[Branch]) -> SchemaError | None:
    """All choices, if the branches have them at the same place."""
    errors = [next(error for error in branch if error.keyword in CHOICES) for branch in branches]
    if len({error.path for error in errors}) > 1:
        return None
    choices = chain.from_iterable(error.allowed for error in errors)
    return SchemaError(errors[0].path, f"one of {describe_values(choices)} was expected")


def _join_best(branches: Sequence[Branch]) -> SchemaError:
    """The deepest error of the branches; alternatives that are as good are named too."""
    deepest = [max(branch, key=lambda error: len(error.path)) for branch in branches]
    ranks = [(-len(error.path), len(branch)) for error, branch in zip(deepest, branches, strict=True)]
    best = [error for error, rank in zip(deepest, ranks, strict=True) if rank == min(ranks)]
    details = list(dict.fromkeys(error.detail for error in best if error.path == best[0].path))
    if len(details) == 1 or len(details) > ALTERNATIVES_MAX:
        return best[0]
    return SchemaError(best[0].path, ", or ".join(details))
