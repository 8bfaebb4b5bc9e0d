"""The options of the reports of tool calls."""

import pytest

from ringback.extension.tool_call_reporting import ToolCallReporting


def test_a_single_text_is_no_collection_of_tools() -> None:
    """Its characters would be taken for names, and no call would be reported."""
    with pytest.raises(ValueError, match="`tools` must be a sequence"):
        ToolCallReporting.reporting("http://127.0.0.1:8090", upstream="reports", tools="build_report")
