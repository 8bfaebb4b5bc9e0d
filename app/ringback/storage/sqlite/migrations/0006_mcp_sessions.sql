-- Legacy MCP sessions: what a client and Ringback agreed on, so that a session outlives the process that began it. `state` is
-- sealed. `expires_at` moves while the session is used, but only every few minutes.
CREATE TABLE mcp_sessions (
    id         TEXT PRIMARY KEY,
    principal  TEXT NOT NULL,
    upstreams  TEXT,
    endpoint   TEXT NOT NULL,
    state      BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX mcp_sessions_of_principal ON mcp_sessions (principal, endpoint, expires_at);
CREATE INDEX mcp_sessions_expiring ON mcp_sessions (expires_at);
