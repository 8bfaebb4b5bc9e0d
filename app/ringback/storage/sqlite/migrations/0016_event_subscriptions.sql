-- oldest code: 15
-- Subscriptions of MCP clients to events. Each is a row of `webhooks` with the same id, `sub_…`, and what only a subscription has is
-- here. A node of an older version delivers to it like to any other webhook. Once the webhook is gone the row is a tombstone.
CREATE TABLE subscriptions (
    id            TEXT PRIMARY KEY,
    principal     TEXT NOT NULL,
    event_name    TEXT NOT NULL,
    arguments     TEXT NOT NULL,
    error_profile TEXT NOT NULL,
    key_id        TEXT,
    ttl_ms        INTEGER,
    created_at    INTEGER NOT NULL,
    refreshed_at  INTEGER NOT NULL,
    ended_at      INTEGER,
    "end"         TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX subscriptions_of_principal ON subscriptions (principal, created_at);
CREATE INDEX subscriptions_of_key ON subscriptions (key_id, id) WHERE ended_at IS NULL AND key_id IS NOT NULL;
CREATE INDEX subscriptions_of_event ON subscriptions (event_name, id) WHERE ended_at IS NULL;
CREATE INDEX subscriptions_ended ON subscriptions (ended_at) WHERE ended_at IS NOT NULL;

-- How many live subscriptions each principal has: its quota is not counted row by row.
CREATE TABLE subscription_counts (
    principal TEXT PRIMARY KEY,
    live      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER subscriptions_count_new AFTER INSERT ON subscriptions WHEN NEW.ended_at IS NULL
BEGIN
    INSERT INTO subscription_counts (principal, live) VALUES (NEW.principal, 1)
    ON CONFLICT (principal) DO UPDATE SET live = live + 1;
END;

CREATE TRIGGER subscriptions_count_changed AFTER UPDATE OF ended_at ON subscriptions
WHEN (NEW.ended_at IS NULL) <> (OLD.ended_at IS NULL)
BEGIN
    INSERT INTO subscription_counts (principal, live) VALUES (NEW.principal, iif(NEW.ended_at IS NULL, 1, 0))
    ON CONFLICT (principal) DO UPDATE SET live = live + iif(NEW.ended_at IS NULL, 1, -1);
    DELETE FROM subscription_counts WHERE principal = NEW.principal AND live = 0;
END;

CREATE TRIGGER subscriptions_count_gone AFTER DELETE ON subscriptions WHEN OLD.ended_at IS NULL
BEGIN
    UPDATE subscription_counts SET live = live - 1 WHERE principal = OLD.principal;
    DELETE FROM subscription_counts WHERE principal = OLD.principal AND live = 0;
END;

-- Whatever removes a webhook ends its subscription. One that has expired ended at its expiry.
CREATE TRIGGER webhooks_end_subscription AFTER DELETE ON webhooks WHEN OLD.id < 'wh_'
BEGIN
    UPDATE subscriptions SET
        event_name = '', arguments = '', ended_at = coalesce(OLD.expires_at, OLD.updated_at), "end" = 'expired'
    WHERE id = OLD.id AND ended_at IS NULL;
END;

-- Registered webhooks have a quota of their own, and ids that sort after those of subscriptions.
CREATE INDEX webhooks_counted ON webhooks (principal) WHERE id > 'wh_' AND (origin <> 'call' OR call_id IS NULL);
-- Ids of subscriptions are not in the order of their making, as those of other webhooks are.
CREATE INDEX subscribed_webhooks_of_session ON webhooks (principal, client_session_id, created_at)
    WHERE id < 'wh_' AND client_session_id IS NOT NULL;

-- A challenge that its receiver has answered does not count against the receiver's origin.
ALTER TABLE challenges_sent ADD COLUMN answered INTEGER NOT NULL DEFAULT 0;
