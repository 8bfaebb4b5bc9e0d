-- Random bytes, because a file system that compresses stores zeros in no space at all.
-- name: write
INSERT INTO write_probe (id, filler) VALUES (1, randomblob(:bytes))
ON CONFLICT (id) DO UPDATE SET filler = excluded.filler;

-- name: file
SELECT file FROM pragma_database_list WHERE name = 'main';
