-- oldest code: 26
-- Entries of the audit log by owner, counted by triggers, as all counts: beyond a number of them, the owner's oldest are removed.
-- The count of an owner is the sum of its rows, for the reason of `call_counts`.
CREATE TABLE audit_counts (
    owner   text COLLATE "C" NOT NULL,
    part    bigint GENERATED ALWAYS AS IDENTITY,
    entries bigint NOT NULL,
    PRIMARY KEY (owner, part)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE FUNCTION add_audit_entries(counted text, more bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    counted_part bigint;
    is_empty boolean;
BEGIN
    UPDATE audit_counts SET entries = entries + more
    WHERE owner = counted AND part = (
        SELECT part FROM audit_counts WHERE owner = counted ORDER BY part LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    )
    RETURNING part, entries = 0 INTO counted_part, is_empty;
    IF NOT FOUND THEN
        INSERT INTO audit_counts (owner, entries) VALUES (counted, more);
    ELSIF is_empty THEN
        DELETE FROM audit_counts WHERE owner = counted AND part = counted_part;
    END IF;
END $$;

-- Once for each statement, for the reason of `count_new_calls`.
CREATE FUNCTION count_audit_entries() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    counted record;
BEGIN
    FOR counted IN
        SELECT changed_entries.owner, count(*) AS entries FROM changed_entries
        WHERE changed_entries.owner IS NOT NULL GROUP BY changed_entries.owner ORDER BY changed_entries.owner
    LOOP
        PERFORM add_audit_entries(counted.owner, CASE TG_OP WHEN 'DELETE' THEN -counted.entries ELSE counted.entries END);
    END LOOP;
    RETURN NULL;
END $$;

CREATE TRIGGER audit_entries_count_new AFTER INSERT ON audit_entries REFERENCING NEW TABLE AS changed_entries
FOR EACH STATEMENT EXECUTE FUNCTION count_audit_entries();
CREATE TRIGGER audit_entries_count_gone AFTER DELETE ON audit_entries REFERENCING OLD TABLE AS changed_entries
FOR EACH STATEMENT EXECUTE FUNCTION count_audit_entries();

-- After the triggers: they hold the lock with which no other transaction adds an entry.
INSERT INTO audit_counts (owner, entries)
SELECT owner, count(*) FROM audit_entries WHERE owner IS NOT NULL GROUP BY owner;
