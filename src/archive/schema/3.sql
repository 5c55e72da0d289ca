-- From here on the concurrency of a level or probe of an open loop is its rate, as text: '5/s'.
-- JSON: what only such a level has.
ALTER TABLE levels ADD COLUMN open_loop TEXT;

-- What findings and comparisons need of a level beside its latencies.
ALTER TABLE levels ADD COLUMN throughput_standard_error REAL;
-- 95% intervals of the percentiles: 30 little-endian floats of 4 bytes, NaN where a side is not bounded.
ALTER TABLE levels ADD COLUMN intervals BLOB;
-- JSON; whatever else is known of a level, by name.
ALTER TABLE levels ADD COLUMN details TEXT;

-- A cell's history is read from the index alone: a row with its distributions is ten times as long.
DROP INDEX levels_by_cell;
CREATE INDEX levels_by_cell ON levels (
    target, model, prompt_tokens, concurrency, ended_at, run_id, incomplete, requests, ok,
    ttft_p50, ttft_p95, tpot_p50, tpot_p95, throughput_tokens_per_second
);
CREATE INDEX probes_failed ON probes (at) WHERE class IS NOT NULL;
CREATE INDEX probes_failed_by_model ON probes (target, model, at) WHERE class IS NOT NULL;

-- Runs that others are compared with, by name.
CREATE TABLE baselines (
    name TEXT PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    saved_at INTEGER NOT NULL
) WITHOUT ROWID;
