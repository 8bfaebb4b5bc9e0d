-- oldest code: 11
-- Calls that ran more than once. An index on `runs` itself would give each dispatch new entries in all indexes of calls: it changes
-- with every dispatch, and this column with the second one. A generated column would write the whole table anew.
ALTER TABLE calls ADD COLUMN is_rerun boolean NOT NULL DEFAULT false;
UPDATE calls SET is_rerun = true WHERE runs > 1;

CREATE FUNCTION mark_rerun_call() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.is_rerun := true;
    RETURN NEW;
END
$$;

-- Also for nodes of an older version, which do not know the column.
CREATE TRIGGER calls_rerun_new BEFORE INSERT ON calls FOR EACH ROW WHEN (NEW.runs > 1) EXECUTE FUNCTION mark_rerun_call();
CREATE TRIGGER calls_rerun_changed BEFORE UPDATE OF runs ON calls FOR EACH ROW WHEN (NEW.runs > 1) EXECUTE FUNCTION mark_rerun_call();

CREATE INDEX calls_rerun ON calls (principal, id) WHERE is_rerun;
CREATE INDEX calls_rerun_of_all ON calls (id) WHERE is_rerun;

-- Deliveries that were tried again: few, and their calls are found by them.
CREATE INDEX deliveries_retried ON deliveries (principal, call_id) WHERE attempts > 1;
CREATE INDEX deliveries_retried_of_all ON deliveries (call_id, attempts) WHERE attempts > 1;
