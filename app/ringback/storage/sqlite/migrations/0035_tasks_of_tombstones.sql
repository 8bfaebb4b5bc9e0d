-- oldest code: 34
-- Which tasks of upstreams the expired and erased calls followed. A node of an older version writes none, and does not look.
ALTER TABLE tombstones ADD COLUMN task_hash TEXT;

CREATE INDEX tombstones_of_task ON tombstones (task_hash, principal) WHERE task_hash IS NOT NULL;
