-- oldest code: 34
-- Entries of the audit log by owner, counted by triggers, as all counts: beyond a number of them, the owner's oldest are removed.
CREATE TABLE audit_counts (
    owner   TEXT PRIMARY KEY,
    entries INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO audit_counts (owner, entries) SELECT owner, count(*) FROM audit_entries WHERE owner IS NOT NULL GROUP BY owner;

CREATE TRIGGER audit_entries_count_new AFTER INSERT ON audit_entries WHEN NEW.owner IS NOT NULL
BEGIN
    INSERT INTO audit_counts (owner, entries) VALUES (NEW.owner, 1)
    ON CONFLICT (owner) DO UPDATE SET entries = entries + 1;
END;

CREATE TRIGGER audit_entries_count_gone AFTER DELETE ON audit_entries WHEN OLD.owner IS NOT NULL
BEGIN
    UPDATE audit_counts SET entries = entries - 1 WHERE owner = OLD.owner;
    DELETE FROM audit_counts WHERE owner = OLD.owner AND entries = 0;
END;
