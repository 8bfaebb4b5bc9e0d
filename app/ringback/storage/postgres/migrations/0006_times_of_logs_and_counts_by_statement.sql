-- oldest code: 4
-- When the last event of the log was created. No event is created before the one that precedes it, so a log can be searched by time.
ALTER TABLE log_heads ADD COLUMN last_at bigint NOT NULL DEFAULT 0;

-- New rows are counted once for each statement. A count that is changed for each row has a version for each, and within one
-- transaction every change steps through all earlier versions: the work grows with the square of the batch.
-- Changes and removals of rows are counted for each row: a unit of work has at most some hundreds, and most statements that change
-- a row change no count, which a trigger for the statement would have to find out each time.
CREATE FUNCTION count_new_calls() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    new record;
BEGIN
    FOR new IN
        SELECT
            new_calls.principal,
            count(*) FILTER (WHERE status = 'working') AS working,
            count(*) FILTER (WHERE status = 'input_required') AS input_required,
            count(*) FILTER (WHERE status = 'completed') AS completed,
            count(*) FILTER (WHERE status = 'failed') AS failed,
            count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
            coalesce(sum(result_bytes), 0)::bigint AS result_bytes
        FROM new_calls GROUP BY new_calls.principal ORDER BY new_calls.principal
    LOOP
        UPDATE call_counts SET
            working = call_counts.working + new.working,
            input_required = call_counts.input_required + new.input_required,
            completed = call_counts.completed + new.completed,
            failed = call_counts.failed + new.failed,
            cancelled = call_counts.cancelled + new.cancelled,
            result_bytes = call_counts.result_bytes + new.result_bytes
        WHERE principal = new.principal AND part = (
            SELECT part FROM call_counts WHERE principal = new.principal ORDER BY part LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        );
        IF NOT FOUND THEN
            INSERT INTO call_counts (principal, working, input_required, completed, failed, cancelled, result_bytes)
            VALUES (
                new.principal, new.working, new.input_required, new.completed, new.failed, new.cancelled, new.result_bytes
            );
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

DROP TRIGGER calls_count_new ON calls;
CREATE TRIGGER calls_count_new AFTER INSERT ON calls REFERENCING NEW TABLE AS new_calls
FOR EACH STATEMENT EXECUTE FUNCTION count_new_calls();

-- On the partitioned table, into which all statements insert: a partition's own trigger would not run. No delivery becomes held by
-- a change that moves it between the partitions.
CREATE FUNCTION count_new_held() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    new record;
BEGIN
    FOR new IN
        SELECT new_deliveries.webhook_id, count(*) AS held FROM new_deliveries
        WHERE state = 'held' GROUP BY new_deliveries.webhook_id ORDER BY new_deliveries.webhook_id
    LOOP
        UPDATE held_counts SET held = held_counts.held + new.held
        WHERE webhook_id = new.webhook_id AND part = (
            SELECT part FROM held_counts WHERE webhook_id = new.webhook_id ORDER BY part LIMIT 1
            FOR NO KEY UPDATE SKIP LOCKED
        );
        IF NOT FOUND THEN
            INSERT INTO held_counts (webhook_id, held) VALUES (new.webhook_id, new.held);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

DROP TRIGGER deliveries_held_new ON open_deliveries;
CREATE TRIGGER deliveries_held_new AFTER INSERT ON deliveries REFERENCING NEW TABLE AS new_deliveries
FOR EACH STATEMENT EXECUTE FUNCTION count_new_held();
