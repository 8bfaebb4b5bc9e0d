-- Every filter of a list, and every question of a worker, gets an index that serves it, or is asked in bounded steps: what one
-- principal stores must not make a statement longer for the others.

-- Calls that have not simply succeeded: those that are open, and those that failed. Most calls are completed, and a page of
-- completed ones is found along the principal's own index; so an ordinary call adds one entry here and takes it out again.
CREATE INDEX calls_of_status ON calls (principal, status, id) WHERE status <> 'completed';

-- The highest ticket of an upstream, which every lease of calls asks for.
CREATE INDEX turns_last ON turns (upstream, ticket);

-- What still waits to be sent of a call: progress that something newer replaces, and ends that the client knows already.
DROP INDEX deliveries_progress;
CREATE INDEX deliveries_waiting_of_call ON deliveries (call_id, kind) WHERE state IN ('held', 'pending');

-- What has waited for too long, without a look at what has not.
CREATE INDEX deliveries_pending_age ON deliveries (webhook_id, give_up_at) WHERE state = 'pending';

-- What is being sent to a webhook, and of which order key: few rows at any time, beside thousands that wait.
CREATE INDEX deliveries_leased_to ON deliveries (webhook_id, order_key) WHERE state = 'leased';

-- What is due to an ordered webhook and stands in no order: found without a look at what does.
CREATE INDEX deliveries_without_key ON deliveries (webhook_id, due_at) WHERE order_key IS NULL AND state = 'pending';

-- Webhooks that are disabled or have expired watch nothing.
DROP INDEX webhooks_watching;
CREATE INDEX webhooks_watching ON webhooks (expires_at, principal, upstream, resource_uri)
    WHERE instr(events, '"upstream.changed"') > 0 AND upstream IS NOT NULL AND state <> 'disabled';

-- How many deliveries are held for each webhook. Every event asks for it, and counting ten thousand rows each time made the
-- ends of a principal's calls seventeen times slower. The triggers run only when something becomes held or stops being held.
CREATE TABLE held_counts (
    webhook_id TEXT PRIMARY KEY,
    held       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO held_counts (webhook_id, held)
SELECT webhook_id, count(*) FROM deliveries WHERE state = 'held' GROUP BY webhook_id;

CREATE TRIGGER deliveries_held_new AFTER INSERT ON deliveries WHEN NEW.state = 'held'
BEGIN
    INSERT INTO held_counts (webhook_id, held) VALUES (NEW.webhook_id, 1)
    ON CONFLICT (webhook_id) DO UPDATE SET held = held + 1;
END;

-- One trigger for both ways, because each costs every attempt that is settled some 8 µs, although it hardly ever runs.
CREATE TRIGGER deliveries_held_changed AFTER UPDATE OF state ON deliveries
WHEN (NEW.state = 'held') <> (OLD.state = 'held')
BEGIN
    INSERT INTO held_counts (webhook_id, held) VALUES (NEW.webhook_id, iif(NEW.state = 'held', 1, -1))
    ON CONFLICT (webhook_id) DO UPDATE SET held = held + excluded.held;
    DELETE FROM held_counts WHERE webhook_id = NEW.webhook_id AND held <= 0;
END;

CREATE TRIGGER deliveries_held_gone AFTER DELETE ON deliveries WHEN OLD.state = 'held'
BEGIN
    UPDATE held_counts SET held = held - 1 WHERE webhook_id = OLD.webhook_id;
    DELETE FROM held_counts WHERE webhook_id = OLD.webhook_id AND held <= 0;
END;
