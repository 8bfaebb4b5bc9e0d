"""Rules that no linter checks: the top-level files, the sizes of files and functions, sleeping in tests."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.support.limits import WAIT_SECONDS

ROOT = Path(__file__).parents[2]

TOP_LEVEL_ENTRIES = {
    ".ci",
    ".env.example",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "app",
    "openapi",
    "pyproject.toml",
    "scripts",
    "tests",
}

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
PROTOCOL_METHODS_MAX = 8
"""The largest sizes in well-kept projects of this field; typical ones are a third."""

_SERVICE_UNIT = re.compile(r"store\.write\b")
_NUMBERED_PARAMETER = re.compile(r"[=(,+] ?\?\d")
_RAISED_CONSTANT = re.compile(r"\braise\s+\(?[A-Z_][A-Z0-9_]*\b(?![.(a-z])")

SLEEPING_MODULES = {"asyncio", "anyio", "time", "trio"}
SKIP_MARKS = {"skip", "skipif", "xfail", "importorskip"}
_SLEEP_OR_SKIP = re.compile(
    rf"\.sleep\b(?!\(0\))|^(from|import) .*\bsleep\b|^    sleep,$|\.({'|'.join(sorted(SKIP_MARKS))})\b", re.MULTILINE
)
"""What every sleep and skip matches, and little else: parsing takes most of a test's time."""

SERVICE_UNITS = {
    "upstream_reloads.py": 1,  # a notification; no row
    "api_keys.py": 3,  # one row of a key, by an operator
    "resume_recorder.py": 1,  # a batch of all principals; it skips calls that are locked
    "key_registration.py": 1,  # one row of a key
    "sealing_keys.py": 2,  # the few rows of keys, at the start of a node and by an operator
    "login_waits.py": 1,  # tokens of a shared login, and calls of all principals that waited for it
    "readiness.py": 1,  # the probe's row
    "mcp_sessions.py": 1,  # sessions of all principals that had requests
    "node_signals.py": 1,  # a notification; no row
    "tool_aliases.py": 1,  # names that all principals share
    "upstream_controls.py": 1,  # one row of an upstream, by an operator
}
"""Units in `services` with `store.write`, by file, and what they lock. Such units share few connections, which leases and
recorded attempts need too."""

SOURCES = sorted((ROOT / "app").rglob("*.py"))
TEST_FILES = sorted((ROOT / "tests").rglob("test_*.py"))

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_nothing_else_lies_at_the_top() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_SECONDS, check=True
    )
    assert {path.split("/")[0] for path in listed.stdout.split("\0") if path} - TOP_LEVEL_ENTRIES == set()


def test_every_dependency_has_a_reason() -> None:
    lines = _pyproject().splitlines()
    silent = [
        wanted
        for wanted in [*_dependencies(), *_development_dependencies()]
        if not any(line.strip().startswith(f'"{wanted}",') and "#" in line for line in lines)
    ]
    assert silent == []


def test_an_agent_s_process_needs_six_packages_at_most_and_no_protocol_sdk() -> None:
    base: list[str] = tomllib.loads(_pyproject())["project"]["dependencies"]

    assert len(base) <= 6
    assert [wanted for wanted in base if wanted.startswith(("mcp", "pydantic-settings"))] == []


def test_every_dependency_is_bounded_below_and_above() -> None:
    assert [wanted for wanted in _dependencies() if ">=" not in wanted or "<" not in wanted] == []


def test_files_functions_and_protocols_stay_small() -> None:
    found = {str(path.relative_to(ROOT)): list(_find_large_parts(path.read_text(encoding="utf-8"))) for path in SOURCES}

    assert {path: parts for path, parts in found.items() if parts} == {}


def test_units_that_lock_rows_of_one_principal_run_on_its_share_of_the_connections() -> None:
    """A unit for a request of a principal is run by `store.write_for`."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in SOURCES if "services" in path.parts}
    found = {name: len(_SERVICE_UNIT.findall(text)) for name, text in texts.items()}

    assert {name: number for name, number in found.items() if number} == SERVICE_UNITS


def test_no_test_sleeps_or_is_skipped() -> None:
    """Only tests/support may sleep, to poll a real process."""
    found = {
        str(path.relative_to(ROOT)): list(_find_sleeps_and_skips(path.read_text(encoding="utf-8")))
        for path in TEST_FILES
    }

    assert {path: lines for path, lines in found.items() if lines} == {}


def _find_large_parts(text: str) -> Iterator[str]:
    if text.count("\n") > FILE_LINES_MAX:
        yield "the file"
    for node in _walk_statements(ast.parse(text)):
        if isinstance(node, Function) and _lines(node) > FUNCTION_LINES_MAX:
            yield node.name
        if isinstance(node, ast.ClassDef) and _is_protocol(node) and _methods(node) > PROTOCOL_METHODS_MAX:
            yield node.name


def _walk_statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """All statements, at any depth. Expressions, which are nine of ten nodes, are not visited."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, name, ()):
            if isinstance(node, ast.stmt):
                yield node
            yield from _walk_statements(node)


def _find_sleeps_and_skips(text: str) -> Iterator[int]:
    """Lines that sleep or skip. Only a file that may have some is parsed."""
    if _SLEEP_OR_SKIP.search(text):
        tree = ast.parse(text)
        yield from _sleeps(tree)
        yield from (n.lineno for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in SKIP_MARKS)


def _sleeps(tree: ast.Module) -> Iterator[int]:
    """Lines with a sleep; `sleep(0)`, which only yields, is allowed."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=0)]):
                continue
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr="sleep")) if module in SLEEPING_MODULES:
                yield node.lineno
            case ast.ImportFrom(module=module, names=names) if module in SLEEPING_MODULES:
                yield from (node.lineno for alias in names if alias.name == "sleep")
            case _:
                continue


def _pyproject() -> str:
    return (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def _dependencies() -> list[str]:
    project = tomllib.loads(_pyproject())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["server"]]


def _development_dependencies() -> list[str]:
    groups: dict[str, list[str]] = tomllib.loads(_pyproject())["dependency-groups"]
    return [wanted for group in groups.values() for wanted in group]


def _lines(function: Function) -> int:
    """Lines of a function without its decorators and its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    last = function.end_lineno or function.lineno
    first = body[0].lineno if body else last
    return last - first + 1


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def _methods(node: ast.ClassDef) -> int:
    """The public methods of a class, without properties."""
    return sum(isinstance(statement, Function) and not _is_property(statement) for statement in node.body)


def _is_property(function: Function) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in function.decorator_list)


def test_no_statement_numbers_its_parameters_because_python_3_14_refuses_values_in_a_sequence_for_them() -> None:
    numbered = [str(path) for path in SOURCES if _NUMBERED_PARAMETER.search(path.read_text(encoding="utf-8"))]

    assert numbered == []


def test_no_error_object_is_raised_more_than_once() -> None:
    """Each raise adds its frames to the traceback of the object: a constant keeps those of all requests that failed with it."""
    raised = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in SOURCES
        for line in _find_raised_constants(path.read_text(encoding="utf-8"))
    ]

    assert raised == []


def _find_raised_constants(text: str) -> Iterator[int]:
    """Lines that raise a constant. Only a file that may have some is parsed."""
    if _RAISED_CONSTANT.search(text):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name) and node.exc.id.isupper():
                yield node.lineno
