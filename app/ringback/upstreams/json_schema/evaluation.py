"""One validation of a value."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ringback.upstreams.json_schema.steps import SchemaUnusable, StepCounter, StepLimitExceeded
from ringback.upstreams.json_schema.values import describe

if TYPE_CHECKING:
    from ringback.upstreams.json_schema.document import SchemaDocument

DEPTH_MAX: Final = 150
"""Of schemas that apply each other. A level takes two frames of Python, which allows a thousand."""
REPORT_STEPS: Final = 20
BRANCH_REPORT_STEPS: Final = 100
"""In a branch, which may have many errors: writing the excerpt of a value takes up to 30 µs."""

Keyword = Callable[["Evaluation", Any, Any, Mapping[str, Any]], None]
"""Checks a value: (evaluation, argument of the keyword, value, schema that has the keyword)."""


Place = tuple[str | int, ...]
"""Of a part of the value: the names and indexes that lead to it."""


@dataclass(frozen=True, slots=True)
class SchemaError:
    """Why a value is invalid, and where in the value."""

    path: Place
    detail: str
    keyword: str = ""
    """`type`, `const` or `enum`; empty for other keywords."""
    allowed: Sequence[Any] = ()
    """The arguments of that keyword: types or values."""


class _EnoughErrors(Exception):
    """The evaluation has as many errors as it looks for."""


class Evaluation:
    """Applies schemas to one value and collects errors."""

    def __init__(self, document: "SchemaDocument", *, errors_max: int, steps: StepCounter) -> None:
        self.document = document
        self.steps = steps
        self.errors: list[SchemaError] = []
        self._errors_max = errors_max
        self._report_steps = REPORT_STEPS
        self._depth = 0
        self._path: list[str | int] = []
        self._scope: list[str] = []
        self._followed: set[tuple[int, int]] = set()
        self._only_validity: bool = False
        self._is_certain: bool = True

    def collect_errors(self, value: Any) -> None:
        """Fill `errors`; raises `StepLimitExceeded` if the validation is incomplete, `SchemaUnusable` for a wrong reference."""
        try:
            self.apply(self.document.root, value)
        except _EnoughErrors:
            return

    # -- for keywords --

    def apply(self, schema: Any, value: Any) -> None:
        """Check the value, at the place where the evaluation is."""
        self.steps.count(1)
        if schema is True:
            return
        if schema is False:
            self.report(lambda: f"{describe(value)} is not allowed")
            return
        keywords = self.document.list_keywords(schema)
        self.steps.count(len(keywords))
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise StepLimitExceeded
        entered = self._enter_resource(schema)
        for keyword, argument in keywords:
            keyword(self, argument, value, schema)
        if entered:
            self._scope.pop()
        self._depth -= 1

    def apply_at(self, place: str | int, schema: Any, value: Any) -> None:
        """Check a member or an item of the value."""
        self._path.append(place)
        self.apply(schema, value)
        self._path.pop()

    def judge(self, schema: Any, value: Any) -> bool | None:
        """Whether the value is valid; None if that depends on a keyword that is not checked.

        It ends at the first error and reports nothing.
        """
        before = self._only_validity, self._is_certain, self._depth, len(self._path), len(self._scope)
        self._only_validity = self._is_certain = True
        verdict: bool | None = False
        try:
            self.apply(schema, value)
            verdict = True if self._is_certain else None
        except _EnoughErrors:
            pass
        finally:
            self._only_validity, self._is_certain, self._depth, path, scope = before
            del self._path[path:]
            del self._scope[scope:]
        self._is_certain = self._is_certain and verdict is not None
        return verdict

    def end_judgement(self) -> None:
        """End a branch of which only the validity matters, since the value is invalid."""
        if self._only_validity:
            raise _EnoughErrors

    def get_place(self) -> Place:
        return tuple(self._path)

    def matches(self, pattern: str, text: str) -> bool | None:
        """None if the pattern is not checked."""
        found = self.document.patterns.matches(pattern, text, self.steps)
        if found is None:
            self.mark_uncertain()
        return found

    def mark_uncertain(self) -> None:
        """A keyword of the schema is not checked: the value may be invalid."""
        self._is_certain = False

    def collect_errors_of(self, schema: Any, value: Any, *, errors_max: int) -> Sequence[SchemaError]:
        """The first errors under this schema. They are not reported."""
        reporting = self.errors, self._errors_max, self._report_steps
        before = self._is_certain, self._depth, len(self._path), len(self._scope)
        found: list[SchemaError] = []
        self.errors, self._errors_max, self._report_steps = found, errors_max, BRANCH_REPORT_STEPS
        try:
            self.apply(schema, value)
        except _EnoughErrors:
            pass
        finally:
            self.errors, self._errors_max, self._report_steps = reporting
            self._is_certain, self._depth, path, scope = before
            del self._path[path:]
            del self._scope[scope:]
        return found

    def report(
        self,
        write_detail: Callable[[], str],
        *,
        keyword: str = "",
        allowed: Sequence[Any] = (),
        path: Place | None = None,
    ) -> None:
        """Report an error, at the place where the evaluation is unless `path` is another one.

        The detail is written only if a caller sees it.
        """
        self.end_judgement()
        self.steps.count(self._report_steps)
        place = self.get_place() if path is None else path
        self.errors.append(SchemaError(place, write_detail(), keyword, allowed))
        if len(self.errors) >= self._errors_max:
            raise _EnoughErrors

    def follow(self, schema: Any, value: Any) -> None:
        """Apply the target of a reference. Raises `SchemaUnusable` for one that leads to itself without another value."""
        followed = id(schema), id(value)
        if followed in self._followed:
            raise SchemaUnusable("a reference leads to itself")
        self._followed.add(followed)
        try:
            self.apply(schema, value)
        finally:
            self._followed.discard(followed)

    def list_scope(self) -> Iterable[str]:
        """The base URIs of the resources that the evaluation is in, the outermost first."""
        self.steps.count(len(self._scope))
        return self._scope

    def _enter_resource(self, schema: Mapping[str, Any]) -> bool:
        base = self.document.get_base(schema)
        if self._scope and self._scope[-1] == base:
            return False
        self._scope.append(base)
        return True
