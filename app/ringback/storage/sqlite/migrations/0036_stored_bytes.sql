-- oldest code: 34
-- Bytes that quotas limit, counted by triggers, as all counts: a quota is checked with every start, and older code counts, too.

-- Bytes of the arguments and `_meta` of a call as JSON, whether they are sealed or not. Of a call that older code has stored:
-- as they are stored.
ALTER TABLE calls ADD COLUMN argument_bytes INTEGER;
UPDATE calls SET argument_bytes = (
    SELECT length(CAST(arguments AS BLOB)) + length(CAST(meta AS BLOB)) FROM inputs WHERE inputs.call_id = calls.id
);

ALTER TABLE call_counts ADD COLUMN argument_bytes INTEGER NOT NULL DEFAULT 0;
-- The error of a call that has no result counts as its result, from now on.
INSERT INTO call_counts (principal, status, calls, result_bytes, argument_bytes)
SELECT
    principal, status, 0,
    coalesce(sum(coalesce(result_bytes, length(CAST(error AS BLOB)))), 0),
    coalesce(sum(argument_bytes), 0)
FROM calls WHERE true GROUP BY principal, status
ON CONFLICT (principal, status) DO UPDATE SET
    result_bytes = excluded.result_bytes, argument_bytes = excluded.argument_bytes;

DROP TRIGGER calls_count_new;
CREATE TRIGGER calls_count_new AFTER INSERT ON calls
BEGIN
    INSERT INTO call_counts (principal, status, calls, result_bytes, argument_bytes)
    VALUES (
        NEW.principal, NEW.status, 1, coalesce(NEW.result_bytes, length(CAST(NEW.error AS BLOB)), 0),
        coalesce(NEW.argument_bytes, 0)
    )
    ON CONFLICT (principal, status) DO UPDATE SET
        calls = calls + 1,
        result_bytes = result_bytes + excluded.result_bytes,
        argument_bytes = argument_bytes + excluded.argument_bytes;
END;

DROP TRIGGER calls_count_moved;
CREATE TRIGGER calls_count_moved AFTER UPDATE OF status, result_bytes, argument_bytes ON calls
WHEN NEW.status <> OLD.status OR NEW.result_bytes IS NOT OLD.result_bytes OR NEW.argument_bytes IS NOT OLD.argument_bytes
BEGIN
    UPDATE call_counts SET
        calls = calls - 1,
        result_bytes = result_bytes - coalesce(OLD.result_bytes, length(CAST(OLD.error AS BLOB)), 0),
        argument_bytes = argument_bytes - coalesce(OLD.argument_bytes, 0)
    WHERE principal = OLD.principal AND status = OLD.status;
    INSERT INTO call_counts (principal, status, calls, result_bytes, argument_bytes)
    VALUES (
        NEW.principal, NEW.status, 1, coalesce(NEW.result_bytes, length(CAST(NEW.error AS BLOB)), 0),
        coalesce(NEW.argument_bytes, 0)
    )
    ON CONFLICT (principal, status) DO UPDATE SET
        calls = calls + 1,
        result_bytes = result_bytes + excluded.result_bytes,
        argument_bytes = argument_bytes + excluded.argument_bytes;
END;

DROP TRIGGER calls_count_gone;
CREATE TRIGGER calls_count_gone AFTER DELETE ON calls
BEGIN
    UPDATE call_counts SET
        calls = calls - 1,
        result_bytes = result_bytes - coalesce(OLD.result_bytes, length(CAST(OLD.error AS BLOB)), 0),
        argument_bytes = argument_bytes - coalesce(OLD.argument_bytes, 0)
    WHERE principal = OLD.principal AND status = OLD.status;
END;

-- For older code, which does not know the column.
CREATE TRIGGER inputs_count_new AFTER INSERT ON inputs WHEN (SELECT argument_bytes FROM calls WHERE id = NEW.call_id) IS NULL
BEGIN
    UPDATE calls SET argument_bytes = length(CAST(NEW.arguments AS BLOB)) + length(CAST(NEW.meta AS BLOB)) WHERE id = NEW.call_id;
END;

-- Bytes of each principal's events and deliveries.
--
--   event_bytes     `data` of the events that come from outside: those that clients published, those of upstreams, and progress of
--                   calls. All other events are written by the service itself, and their `data` is small
--   delivery_bytes  sealed bodies of deliveries. One event has a body for each webhook that gets it
CREATE TABLE byte_counts (
    principal      TEXT PRIMARY KEY,
    event_bytes    INTEGER NOT NULL,
    delivery_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO byte_counts (principal, event_bytes, delivery_bytes)
SELECT principal, sum(length(CAST(data AS BLOB))), 0 FROM events
WHERE occurred_at IS NOT NULL OR name = 'call.progress' GROUP BY principal;

CREATE TRIGGER events_count_new AFTER INSERT ON events WHEN NEW.occurred_at IS NOT NULL OR NEW.name = 'call.progress'
BEGIN
    INSERT INTO byte_counts (principal, event_bytes, delivery_bytes) VALUES (NEW.principal, length(CAST(NEW.data AS BLOB)), 0)
    ON CONFLICT (principal) DO UPDATE SET event_bytes = event_bytes + excluded.event_bytes;
END;

CREATE TRIGGER events_count_changed AFTER UPDATE OF data ON events WHEN NEW.occurred_at IS NOT NULL OR NEW.name = 'call.progress'
BEGIN
    UPDATE byte_counts SET event_bytes = event_bytes + length(CAST(NEW.data AS BLOB)) - length(CAST(OLD.data AS BLOB))
    WHERE principal = NEW.principal;
END;

CREATE TRIGGER events_count_gone AFTER DELETE ON events WHEN OLD.occurred_at IS NOT NULL OR OLD.name = 'call.progress'
BEGIN
    UPDATE byte_counts SET event_bytes = event_bytes - length(CAST(OLD.data AS BLOB)) WHERE principal = OLD.principal;
    DELETE FROM byte_counts WHERE principal = OLD.principal AND event_bytes = 0 AND delivery_bytes = 0;
END;

-- Whose the body is. NULL for a body that older code has stored: it is not counted, and is removed after some weeks.
ALTER TABLE bodies ADD COLUMN principal TEXT;

CREATE TRIGGER bodies_count_new AFTER INSERT ON bodies WHEN NEW.principal IS NOT NULL
BEGIN
    INSERT INTO byte_counts (principal, event_bytes, delivery_bytes) VALUES (NEW.principal, 0, length(NEW.body))
    ON CONFLICT (principal) DO UPDATE SET delivery_bytes = delivery_bytes + excluded.delivery_bytes;
END;

CREATE TRIGGER bodies_count_changed AFTER UPDATE OF body ON bodies
WHEN NEW.principal IS NOT NULL AND length(NEW.body) <> length(OLD.body)
BEGIN
    UPDATE byte_counts SET delivery_bytes = delivery_bytes + length(NEW.body) - length(OLD.body) WHERE principal = NEW.principal;
END;

CREATE TRIGGER bodies_count_gone AFTER DELETE ON bodies WHEN OLD.principal IS NOT NULL
BEGIN
    UPDATE byte_counts SET delivery_bytes = delivery_bytes - length(OLD.body) WHERE principal = OLD.principal;
    DELETE FROM byte_counts WHERE principal = OLD.principal AND event_bytes = 0 AND delivery_bytes = 0;
END;
