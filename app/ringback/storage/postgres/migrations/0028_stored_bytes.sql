-- oldest code: 26
-- Bytes that quotas limit, counted by triggers, as all counts: a quota is checked with every start, and a node of an older version
-- counts, too.

-- Bytes of the arguments and `_meta` of a call as JSON, whether they are sealed or not. NULL for a call that a node of an older
-- version has stored, also before this migration: writing all calls anew would stop every node. The bytes of such a call
-- are those of its row in `inputs`.
ALTER TABLE calls ADD COLUMN argument_bytes bigint;
ALTER TABLE call_counts ADD COLUMN argument_bytes bigint NOT NULL DEFAULT 0;

-- The error of a call that has no result counts as its result, from now on.
INSERT INTO call_counts (principal, working, input_required, completed, failed, cancelled, result_bytes, argument_bytes)
SELECT
    principal, 0, 0, 0, 0, 0,
    coalesce(sum(CASE WHEN result_bytes IS NULL THEN octet_length(error) END), 0),
    coalesce(sum(octet_length(arguments) + octet_length(meta)), 0)
FROM calls LEFT JOIN inputs ON inputs.call_id = calls.id GROUP BY principal;

CREATE OR REPLACE FUNCTION count_new_calls() RETURNS trigger LANGUAGE plpgsql AS $$
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
            coalesce(sum(coalesce(result_bytes, octet_length(error))), 0)::bigint AS result_bytes,
            coalesce(sum(argument_bytes), 0)::bigint AS argument_bytes
        FROM new_calls GROUP BY new_calls.principal ORDER BY new_calls.principal
    LOOP
        UPDATE call_counts SET
            working = call_counts.working + new.working,
            input_required = call_counts.input_required + new.input_required,
            completed = call_counts.completed + new.completed,
            failed = call_counts.failed + new.failed,
            cancelled = call_counts.cancelled + new.cancelled,
            result_bytes = call_counts.result_bytes + new.result_bytes,
            argument_bytes = call_counts.argument_bytes + new.argument_bytes
        WHERE principal = new.principal AND part = (
            SELECT part FROM call_counts WHERE principal = new.principal ORDER BY part LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        );
        IF NOT FOUND THEN
            INSERT INTO call_counts (
                principal, working, input_required, completed, failed, cancelled, result_bytes, argument_bytes
            )
            VALUES (
                new.principal, new.working, new.input_required, new.completed, new.failed, new.cancelled, new.result_bytes,
                new.argument_bytes
            );
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION count_call() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    counted text := coalesce(NEW.principal, OLD.principal);
    new_status text := coalesce(NEW.status, '');
    old_status text := coalesce(OLD.status, '');
    more_bytes bigint :=
        coalesce(NEW.result_bytes, octet_length(NEW.error), 0) - coalesce(OLD.result_bytes, octet_length(OLD.error), 0);
    more_argument_bytes bigint := coalesce(NEW.argument_bytes, 0) - coalesce(OLD.argument_bytes, 0);
BEGIN
    UPDATE call_counts SET
        working = working + (new_status = 'working')::int - (old_status = 'working')::int,
        input_required = input_required + (new_status = 'input_required')::int - (old_status = 'input_required')::int,
        completed = completed + (new_status = 'completed')::int - (old_status = 'completed')::int,
        failed = failed + (new_status = 'failed')::int - (old_status = 'failed')::int,
        cancelled = cancelled + (new_status = 'cancelled')::int - (old_status = 'cancelled')::int,
        result_bytes = result_bytes + more_bytes,
        argument_bytes = argument_bytes + more_argument_bytes
    WHERE principal = counted AND part = (
        SELECT part FROM call_counts WHERE principal = counted ORDER BY part LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    );
    IF NOT FOUND THEN
        INSERT INTO call_counts (
            principal, working, input_required, completed, failed, cancelled, result_bytes, argument_bytes
        )
        VALUES (
            counted,
            (new_status = 'working')::int - (old_status = 'working')::int,
            (new_status = 'input_required')::int - (old_status = 'input_required')::int,
            (new_status = 'completed')::int - (old_status = 'completed')::int,
            (new_status = 'failed')::int - (old_status = 'failed')::int,
            (new_status = 'cancelled')::int - (old_status = 'cancelled')::int,
            more_bytes,
            more_argument_bytes
        );
    END IF;
    RETURN NULL;
END $$;

-- The arguments of a call without `argument_bytes`, when it is stored and when it is deleted.
CREATE FUNCTION count_arguments_of_older_code() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    counted text := coalesce(NEW.principal, OLD.principal);
    more_bytes bigint := (
        SELECT octet_length(arguments) + octet_length(meta) FROM inputs WHERE call_id = coalesce(NEW.id, OLD.id)
    );
BEGIN
    IF TG_OP = 'DELETE' THEN
        more_bytes := -more_bytes;
    END IF;
    IF more_bytes <> 0 THEN
        UPDATE call_counts SET argument_bytes = argument_bytes + more_bytes
        WHERE principal = counted AND part = (
            SELECT part FROM call_counts WHERE principal = counted ORDER BY part LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        );
        IF NOT FOUND THEN
            INSERT INTO call_counts (
                principal, working, input_required, completed, failed, cancelled, result_bytes, argument_bytes
            )
            VALUES (counted, 0, 0, 0, 0, 0, 0, more_bytes);
        END IF;
    END IF;
    RETURN OLD;
END $$;

-- At the commit, when the row in `inputs` is there. The deletion of a call deletes that row in the same statement, after this one.
CREATE CONSTRAINT TRIGGER calls_count_older_new AFTER INSERT ON calls DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
WHEN (NEW.argument_bytes IS NULL) EXECUTE FUNCTION count_arguments_of_older_code();
CREATE TRIGGER calls_count_older_gone BEFORE DELETE ON calls FOR EACH ROW
WHEN (OLD.argument_bytes IS NULL) EXECUTE FUNCTION count_arguments_of_older_code();

-- Bytes of each principal's events and deliveries: the sums of its rows, for the reason of `call_counts`.
--
--   event_bytes     `data` of the events that come from outside: those that clients published, those of upstreams, and progress of
--                   calls. All other events are written by the service itself, and their `data` is small
--   delivery_bytes  sealed bodies of deliveries. One event has a body for each webhook that gets it
CREATE TABLE byte_counts (
    principal      text COLLATE "C" NOT NULL,
    part           bigint GENERATED ALWAYS AS IDENTITY,
    event_bytes    bigint NOT NULL,
    delivery_bytes bigint NOT NULL,
    PRIMARY KEY (principal, part)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE FUNCTION add_bytes(counted text, more_event_bytes bigint, more_delivery_bytes bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    counted_part bigint;
    is_empty boolean;
BEGIN
    UPDATE byte_counts SET event_bytes = event_bytes + more_event_bytes, delivery_bytes = delivery_bytes + more_delivery_bytes
    WHERE principal = counted AND part = (
        SELECT part FROM byte_counts WHERE principal = counted ORDER BY part LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    )
    RETURNING part, event_bytes = 0 AND delivery_bytes = 0 INTO counted_part, is_empty;
    IF NOT FOUND THEN
        INSERT INTO byte_counts (principal, event_bytes, delivery_bytes)
        VALUES (counted, more_event_bytes, more_delivery_bytes);
    ELSIF is_empty THEN
        DELETE FROM byte_counts WHERE principal = counted AND part = counted_part;
    END IF;
END $$;

-- Once for each statement, for the reason of `count_new_calls`.
CREATE FUNCTION count_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    counted record;
BEGIN
    FOR counted IN
        SELECT changed_events.principal, sum(octet_length(data)) AS bytes FROM changed_events
        WHERE occurred_at IS NOT NULL OR name = 'call.progress'
        GROUP BY changed_events.principal ORDER BY changed_events.principal
    LOOP
        PERFORM add_bytes(counted.principal, CASE TG_OP WHEN 'DELETE' THEN -counted.bytes ELSE counted.bytes END, 0);
    END LOOP;
    RETURN NULL;
END $$;

CREATE FUNCTION count_changed_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM add_bytes(NEW.principal, octet_length(NEW.data)::bigint - octet_length(OLD.data), 0);
    RETURN NULL;
END $$;

CREATE TRIGGER events_count_new AFTER INSERT ON events REFERENCING NEW TABLE AS changed_events
FOR EACH STATEMENT EXECUTE FUNCTION count_events();
CREATE TRIGGER events_count_gone AFTER DELETE ON events REFERENCING OLD TABLE AS changed_events
FOR EACH STATEMENT EXECUTE FUNCTION count_events();
CREATE TRIGGER events_count_changed AFTER UPDATE OF data ON events FOR EACH ROW
WHEN (NEW.occurred_at IS NOT NULL OR NEW.name = 'call.progress') EXECUTE FUNCTION count_changed_event();

-- After the triggers: they hold the lock with which no other transaction adds an event.
INSERT INTO byte_counts (principal, event_bytes, delivery_bytes)
SELECT principal, sum(octet_length(data)), 0 FROM events
WHERE occurred_at IS NOT NULL OR name = 'call.progress' GROUP BY principal;

-- Whose the body is. NULL for a body that a node of an older version has stored: it is not counted, and removed after some weeks.
ALTER TABLE bodies ADD COLUMN principal text COLLATE "C";

CREATE FUNCTION count_bodies() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    counted record;
BEGIN
    FOR counted IN
        SELECT changed_bodies.principal, sum(octet_length(body)) AS bytes FROM changed_bodies
        WHERE changed_bodies.principal IS NOT NULL
        GROUP BY changed_bodies.principal ORDER BY changed_bodies.principal
    LOOP
        PERFORM add_bytes(counted.principal, 0, CASE TG_OP WHEN 'DELETE' THEN -counted.bytes ELSE counted.bytes END);
    END LOOP;
    RETURN NULL;
END $$;

CREATE FUNCTION count_changed_body() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM add_bytes(NEW.principal, 0, octet_length(NEW.body)::bigint - octet_length(OLD.body));
    RETURN NULL;
END $$;

CREATE TRIGGER bodies_count_new AFTER INSERT ON bodies REFERENCING NEW TABLE AS changed_bodies
FOR EACH STATEMENT EXECUTE FUNCTION count_bodies();
CREATE TRIGGER bodies_count_gone AFTER DELETE ON bodies REFERENCING OLD TABLE AS changed_bodies
FOR EACH STATEMENT EXECUTE FUNCTION count_bodies();
CREATE TRIGGER bodies_count_changed AFTER UPDATE OF body ON bodies FOR EACH ROW
WHEN (NEW.principal IS NOT NULL AND octet_length(NEW.body) <> octet_length(OLD.body)) EXECUTE FUNCTION count_changed_body();
