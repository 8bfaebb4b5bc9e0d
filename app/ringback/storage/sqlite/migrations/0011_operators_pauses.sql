-- oldest code: 9
-- What operators and owners pause. Code that does not know these columns goes on sending to a paused webhook, and leases calls of a
-- paused upstream.

-- An upstream without a row takes calls. `intake` is 'paused' (its queued calls stay queued) or 'draining' (it takes no new ones).
CREATE TABLE upstream_controls (
    upstream   TEXT PRIMARY KEY,
    intake     TEXT NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE webhooks ADD COLUMN paused_at INTEGER;
-- The owner's own retry schedule, a JSON list of seconds; NULL is the schedule that `retries` names.
ALTER TABLE webhooks ADD COLUMN retry_steps TEXT;

-- When the last probe was due that somebody requested: the next one waits.
ALTER TABLE origins ADD COLUMN probe_requested_at INTEGER;
