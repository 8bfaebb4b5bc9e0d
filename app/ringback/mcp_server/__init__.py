"""The MCP gateway: change the URL, get callbacks."""
