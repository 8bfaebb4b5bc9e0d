"""Ringback's own configuration as a document, to which connections add servers."""

from typing import Any, Final, cast

from ringback.cli.client_files.documents import JsonDocument, Replacement
from ringback.cli.client_files.json_edits import remove_members
from ringback.cli.client_files.text_edits import UnreadableDocument, apply_edits

EMPTY_CONFIGURATION: Final = '{\n  "mcpServers": {}\n}\n'
_CONTAINERS: Final = (("mcpServers",), ("servers",))


class Configuration(JsonDocument):
    """An `mcpServers` file. Comments and trailing commas are allowed. Raises `UnreadableDocument`."""

    def __init__(self, text: str = EMPTY_CONFIGURATION) -> None:
        super().__init__(text, allows_comments=True)
        containers = self.find_containers(_CONTAINERS)
        if len(containers) != 1 or not isinstance(self.get(containers[0]), dict):
            raise UnreadableDocument("needs an object with one key 'mcpServers'")
        self._container = containers[0]

    @property
    def servers(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.get(self._container))

    def add_servers(self, entries: dict[str, Any]) -> str:
        """The text with further servers at the end."""
        if not entries:
            return self.text
        return self.replace([Replacement(path=self._container, remove=(), add=entries)])

    def remove_servers(self, entries: dict[str, Any]) -> str | None:
        """The text without those servers that still have these settings. None if no server and nothing else remains."""
        names = {name for name, entry in entries.items() if self.servers.get(name) == entry}
        node = self.root.find_node(self._container)
        if node is None or not names:
            return self.text
        text = apply_edits(self.text, remove_members(self.text, node, names))
        return None if Configuration(text).value == Configuration().value else text
