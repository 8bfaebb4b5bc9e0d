-- oldest code: 13
-- When the last event of the log was created. No event is created before the one that precedes it, so a log can be searched by time.
ALTER TABLE log_heads ADD COLUMN last_at INTEGER NOT NULL DEFAULT 0;
