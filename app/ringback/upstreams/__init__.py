"""Talks to MCP servers: keeps their connections open and offers sessions, lists, requests and change notifications.

    registry ──▶ connection ──▶ handshake ──▶ session ──▶ session_dispatcher ──▶ transports
                     │                           └──▶ legacy_session
                     ├──▶ call_session        requests of one call, and its log messages
                     ├──▶ principal_sessions  a session for each principal (`isolation: principal`)
                     ├──▶ child_monitor       replaces a frozen child process
                     └──▶ catalog             cached lists, and the check of arguments before a call
    proxy           lists and requests that the MCP gateway passes through
    subscriptions   list and resource changes, for gateway clients and webhooks
    config          the `mcpServers` file

    session_ports   what drivers see of a session
    errors          why a request or a connection failed; `connection_problems` names causes for users
    faults          counts invalid messages of an upstream
    notification_hub  progress and log messages of running calls, for listeners in this process

The runner imports this package; this package never imports the runner.
"""
