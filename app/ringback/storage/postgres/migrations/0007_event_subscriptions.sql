-- oldest code: 6
-- Subscriptions of MCP clients to events. Each is a row of `webhooks` with the same id, `sub_…`, and what only a subscription has is
-- here. A node of an older version delivers to it like to any other webhook. Once the webhook is gone the row is a tombstone.
CREATE TABLE subscriptions (
    id            text COLLATE "C" PRIMARY KEY,
    principal     text COLLATE "C" NOT NULL,
    event_name    text COLLATE "C" NOT NULL,
    arguments     text COLLATE "C" NOT NULL,
    error_profile text COLLATE "C" NOT NULL,
    key_id        text COLLATE "C",
    ttl_ms        bigint,
    created_at    bigint NOT NULL,
    refreshed_at  bigint NOT NULL,
    ended_at      bigint,
    "end"         text COLLATE "C"
);

ALTER TABLE subscriptions ALTER principal SET (n_distinct = -0.01), ALTER key_id SET (n_distinct = -0.01);

CREATE INDEX subscriptions_of_principal ON subscriptions (principal, created_at);
CREATE INDEX subscriptions_of_key ON subscriptions (key_id, id) WHERE ended_at IS NULL AND key_id IS NOT NULL;
CREATE INDEX subscriptions_of_event ON subscriptions (event_name, id) WHERE ended_at IS NULL;
CREATE INDEX subscriptions_ended ON subscriptions (ended_at) WHERE ended_at IS NOT NULL;

-- How many live subscriptions each principal has: its quota is not counted row by row. Subscribing holds the lock of the
-- principal's log, so this row is no point of contention besides.
CREATE TABLE subscription_counts (
    principal text COLLATE "C" PRIMARY KEY,
    live      bigint NOT NULL
);

CREATE FUNCTION count_subscription() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    more bigint := 0;
    counted text := coalesce(NEW.principal, OLD.principal);
BEGIN
    IF TG_OP <> 'DELETE' AND NEW.ended_at IS NULL THEN
        more := more + 1;
    END IF;
    IF TG_OP <> 'INSERT' AND OLD.ended_at IS NULL THEN
        more := more - 1;
    END IF;
    IF more > 0 THEN
        INSERT INTO subscription_counts (principal, live) VALUES (counted, more)
        ON CONFLICT (principal) DO UPDATE SET live = subscription_counts.live + more;
    ELSIF more < 0 THEN
        UPDATE subscription_counts SET live = live + more WHERE principal = counted;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER subscriptions_count AFTER INSERT OR DELETE OR UPDATE OF ended_at ON subscriptions
FOR EACH ROW EXECUTE FUNCTION count_subscription();

-- Whatever removes a webhook ends its subscription. One that has expired ended at its expiry.
CREATE FUNCTION end_subscription() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE subscriptions SET
        event_name = '', arguments = '', ended_at = coalesce(OLD.expires_at, OLD.updated_at), "end" = 'expired'
    WHERE id = OLD.id AND ended_at IS NULL;
    RETURN NULL;
END $$;

CREATE TRIGGER webhooks_end_subscription AFTER DELETE ON webhooks FOR EACH ROW
WHEN (OLD.id < 'wh_') EXECUTE FUNCTION end_subscription();

-- Registered webhooks have a quota of their own, and ids that sort after those of subscriptions.
CREATE INDEX webhooks_counted ON webhooks (principal) WHERE id > 'wh_' AND (origin <> 'call' OR call_id IS NULL);
-- Ids of subscriptions are not in the order of their making, as those of other webhooks are.
CREATE INDEX subscribed_webhooks_of_session ON webhooks (principal, client_session_id, created_at)
    WHERE id < 'wh_' AND client_session_id IS NOT NULL;

-- A challenge that its receiver has answered does not count against the receiver's origin.
ALTER TABLE challenges_sent ADD COLUMN answered boolean NOT NULL DEFAULT false;
