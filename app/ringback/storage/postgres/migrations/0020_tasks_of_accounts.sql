-- oldest code: 11
-- With credentials for each principal, each has an account at the upstream, and accounts may have equal task ids. As an
-- expression, because a plan by an index of the principal would visit all its calls.
CREATE INDEX calls_of_owned_task ON calls (
    upstream, hashtextextended((replace(handle, '\u0000', '\ufffd')::json #> '{1,task_id}')::text COLLATE "C", 0), (principal || '')
) WHERE handle IS NOT NULL;

DROP INDEX calls_of_task;
