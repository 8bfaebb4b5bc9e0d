"""Any JSON document with servers, as its text could be: white space, comments and trailing commas wherever they may stand."""

import json
from typing import Any, cast

from hypothesis import strategies as st

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
KEYS = st.sampled_from(["command", "args", "url", "env", "timeout", "x y", "//", "/*", "é"])
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)
COMMANDS = st.fixed_dictionaries(
    {"command": st.just("run")}, optional={"args": st.lists(TEXTS, max_size=3), "timeout": VALUES, "//": VALUES}
)
BLANKS = ("", " ", "\n", "\r\n", "\t", "\n    ", "\r\n\t")
COMMENTS = ('// a } , " comment\n', "/* a , ] */", "//\r\n")
GAPS = st.sampled_from([first + second for first in (*BLANKS, *COMMENTS) for second in (*BLANKS, *COMMENTS)])
"""One choice for each gap: a document has dozens, and a list of two pieces takes four choices."""


@st.composite
def json_texts(draw: st.DrawFn, value: Any, gaps: st.SearchStrategy[str]) -> str:
    """A text of the value, with any white space and comments between its tokens, and trailing commas."""

    def gap() -> str:
        return draw(gaps)

    def write(value: Any) -> str:
        match value:
            case dict():
                items = [
                    f"{gap()}{json.dumps(key)}{gap()}:{gap()}{write(each)}{gap()}"
                    for key, each in cast("dict[str, Any]", value).items()
                ]
                return f"{{{','.join(items)}{trailing(items)}{gap()}}}"
            case list():
                items = [f"{gap()}{write(each)}{gap()}" for each in cast("list[Any]", value)]
                return f"[{','.join(items)}{trailing(items)}{gap()}]"
            case _:
                return json.dumps(value, ensure_ascii=draw(st.booleans()))

    def trailing(items: list[str]) -> str:
        return "," if items and draw(st.booleans()) else ""

    return f"{draw(st.sampled_from(['', chr(0xFEFF)]))}{gap()}{write(value)}{gap()}"


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, Any]:
    """A text and its value: a few servers that a client could start, some that it could not, and other members."""
    entries = st.dictionaries(KEYS, VALUES, min_size=1, max_size=5)
    servers = draw(st.dictionaries(TEXTS, COMMANDS | entries, max_size=4))
    value = {**draw(st.dictionaries(TEXTS, VALUES, max_size=3)), "mcpServers": servers, "last": 1}
    return draw(json_texts(value, GAPS)), value
