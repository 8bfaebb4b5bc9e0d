"""`ringback help`: prints the page for operators, or a section of it."""

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import typer

from ringback.cli.output import exit_with_error, print_output

OPERATIONS: Final = "operations"
_IN_PACKAGE: Final = "operations.md"
_IN_REPOSITORY: Final = Path(__file__).parents[4] / "scripts" / "deploy" / "OPERATIONS.md"
"""The page itself. A wheel has it as `ringback/cli/operations.md` (pyproject.toml); an editable installation reads it here."""
_HEADING: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_MARK: Final = re.compile(r"^<!-- .*? -->\n", re.MULTILINE)


def show_help(
    page: Annotated[str | None, typer.Argument(metavar="PAGE", help="operations")] = None,
    section: Annotated[str | None, typer.Argument(metavar="SECTION", help="The beginning of a section's name.")] = None,
) -> None:
    """Print a page for operators, or one section of it. Without arguments: what there is."""
    sections = split_sections(read_operations_page())
    if page is None:
        print_output("ringback help operations [SECTION]\n\nSections:\n" + "".join(f"  {name}\n" for name in sections))
        print_output("The options of a command: ringback COMMAND --help")
    elif page != OPERATIONS:
        exit_with_error(
            f"There is one page: ringback help operations. The options of a command: ringback {page} --help"
        )
    elif section is None:
        print_output(read_operations_page().rstrip())
    else:
        print_output(_find_section(sections, section))


def read_operations_page() -> str:
    """The page without the marks of its tests."""
    packaged = resources.files("ringback.cli") / _IN_PACKAGE
    text = (packaged if packaged.is_file() else _IN_REPOSITORY).read_text(encoding="utf-8")
    return _MARK.sub("", text)


def split_sections(text: str) -> Mapping[str, str]:
    """The sections with their headings, by their names."""
    _, *parts = _HEADING.split(text)
    return {name: f"## {name}{body}".strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _find_section(sections: Mapping[str, str], wanted: str) -> str:
    found = [text for name, text in sections.items() if name.casefold().startswith(wanted.casefold())]
    if not found:
        exit_with_error(f"No section begins with '{wanted}'. There is: {', '.join(sections)}.")
    return "\n\n".join(found)
