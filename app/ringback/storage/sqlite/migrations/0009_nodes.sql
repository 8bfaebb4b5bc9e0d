-- oldest code: 8
-- Duties that one node has at a time, for example to watch the upstreams for changes.
CREATE TABLE leaders (
    duty  TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The rate limits of webhooks, shared by all nodes: when each is full again, in microseconds since 1970.
CREATE TABLE webhook_rates (
    webhook_id TEXT PRIMARY KEY REFERENCES webhooks (id) ON DELETE CASCADE,
    full_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
