"""Each line of the log is one fact, with a name of its own, and OPERATIONS.md says what each name means."""

import ast
import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import ringback
from ringback.domain.webhook_text import WEBHOOK_EVENTS

ROOT: Final = Path(ringback.__file__).parent
OPERATIONS: Final = ROOT.parent.parent / "scripts" / "deploy" / "OPERATIONS.md"
LIBRARIES: Final = frozenset({"agents", "client", "extension", "receiver"})
"""They log into the logs of the programs that use them."""
METHODS: Final[Mapping[str, frozenset[str]]] = {
    "debug": frozenset({"debug"}),
    "info": frozenset({"info"}),
    "warning": frozenset({"warning"}),
    "error": frozenset({"error"}),
    "exception": frozenset({"error"}),
}
LEVELS: Final = frozenset(logging.getLevelNamesMapping()) & {"DEBUG", "INFO", "WARNING", "ERROR"}
LOGS: Final = re.compile(r"\b(?:audit_)?log\.\w+\(")
"""What a module that logs has. Only such modules are parsed."""
EVENT: Final = re.compile(r"[a-z][a-z_]*(\.[a-z_]+)+")
COMPUTED: Final[Mapping[str, frozenset[str]]] = {"str(name)": frozenset(map(str, WEBHOOK_EVENTS))}
"""Names that are values of an enumeration."""
FORBIDDEN_FACTS: Final = frozenset(
    {"arguments", "body", "data", "excerpt", "headers", "meta", "payload", "result", "secret", "token", "resume_token"}
)
"""Names of what no line may have: payloads and secrets."""

MEMBERS_OF_A_LINE: Final = frozenset({"time", "level", "logger", "event", "exception"})
"""What each JSON line says about itself: a fact of the same name would take its place."""

ABOUT_ONE_CALL: Final = re.compile(r"(call|delivery|question)\.")
KNOWN_BY_ID_ONLY: Final = frozenset({"call.unreadable", "delivery.unreadable", "question.not_answered"})
"""Lines about a row that cannot be read, which have its columns, and about an answer to a question of another node."""


class LogCall(NamedTuple):
    """One statement that logs."""

    where: str
    names: frozenset[str]
    levels: frozenset[str]
    """Empty if the level is computed elsewhere."""
    facts: frozenset[str]
    """The keys that the statement writes itself."""
    functions: frozenset[str]
    """Functions whose facts it has."""


def find_log_calls(path: Path) -> Iterator[LogCall]:
    text = path.read_text(encoding="utf-8")
    if not LOGS.search(text):
        return
    tree = ast.parse(text)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(node.value, ast.Constant)
        for target in ([node.target] if isinstance(node, ast.AnnAssign) else node.targets)
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_logger(node.func.value)):
            continue
        method = node.func.attr
        if method not in {*METHODS, "log"}:
            continue
        message = node.args[1 if method == "log" else 0]
        levels = METHODS.get(method) or find_levels(node.args[0])
        names = find_names(message, tree, constants)
        yield LogCall(f"{path.relative_to(ROOT)}:{node.lineno}", names, levels, find_keys(node), find_functions(node))


def is_logger(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Name) and expression.id in {"log", "audit_log"}


def find_levels(expression: ast.expr) -> frozenset[str]:
    return frozenset(
        each.attr.lower() for each in ast.walk(expression) if isinstance(each, ast.Attribute) and each.attr in LEVELS
    )


def find_names(message: ast.expr, tree: ast.Module, constants: Mapping[str, object]) -> frozenset[str]:
    """The names that the message can be: constants, a constant of the module, or what callers give as the first argument."""
    if (text := ast.unparse(message)) in COMPUTED:
        return COMPUTED[text]
    if not isinstance(message, ast.Name):
        choices = [message.body, message.orelse] if isinstance(message, ast.IfExp) else [message]
        return frozenset(str(ast.literal_eval(each)) for each in choices)
    if message.id in constants:
        return frozenset({str(constants[message.id])})
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and each.args]
    given = [each.args[0].value for each in calls if isinstance(each.args[0], ast.Constant)]
    return frozenset(each for each in given if isinstance(each, str) and EVENT.fullmatch(each))


def find_keys(call: ast.Call) -> frozenset[str]:
    extra = [keyword.value for keyword in call.keywords if keyword.arg == "extra"]
    dictionaries = [each for value in extra for each in ast.walk(value) if isinstance(each, ast.Dict)]
    return frozenset(
        key.value
        for each in dictionaries
        for key in each.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    )


def find_functions(call: ast.Call) -> frozenset[str]:
    return frozenset(
        each.func.id for each in ast.walk(call) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
    )


@cache
def list_log_calls() -> tuple[LogCall, ...]:
    paths = sorted(path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in LIBRARIES)
    return tuple(call for path in paths for call in find_log_calls(path))


def read_table() -> Mapping[str, frozenset[str]]:
    """The levels of each event, as the operator's page has them."""
    rows = re.findall(
        r"^\| ((?:`[a-z_.]+`(?:, )?)+) \| ((?:debug|info|warning|error)(?:, \w+)*) \| .+ \|$",
        OPERATIONS.read_text("utf-8"),
        re.MULTILINE,
    )
    return {
        name: frozenset(levels.split(", ")) for names, levels in rows for name in re.findall(r"`([a-z_.]+)`", names)
    }


def test_each_line_of_the_log_has_a_stable_dotted_name() -> None:
    odd = [(call.where, name) for call in list_log_calls() for name in call.names or [""] if not EVENT.fullmatch(name)]
    assert odd == []


def test_the_page_for_operators_has_each_event_with_its_levels_and_no_other() -> None:
    logged: defaultdict[str, set[str]] = defaultdict(set)
    for call in list_log_calls():
        for name in call.names:
            logged[name] |= call.levels
    documented = read_table()

    assert documented.keys() == logged.keys()
    wrong = {
        name: (sorted(documented[name]), sorted(levels))
        for name, levels in logged.items()
        if not levels <= documented[name]
    }
    assert wrong == {}


def test_each_line_about_a_call_or_a_delivery_has_the_ids_that_its_client_gave_it() -> None:
    about_calls = [call for call in list_log_calls() if any(ABOUT_ONE_CALL.match(name) for name in call.names)]
    without = [call for call in about_calls if not call.functions & {"call_facts", "delivery_facts"}]

    assert len(about_calls) > len(without) > 0
    assert {name for call in without for name in call.names} == KNOWN_BY_ID_ONLY


def test_no_line_has_a_payload_or_a_secret() -> None:
    assert [call.where for call in list_log_calls() if call.facts & FORBIDDEN_FACTS] == []


def test_no_fact_takes_the_place_of_what_a_json_line_says_about_itself() -> None:
    assert [each.where for each in list_log_calls() if each.facts & MEMBERS_OF_A_LINE] == []
