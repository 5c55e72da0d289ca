-- What the daemon must know again after a restart that is no measurement, by name: spent budgets, calibrations.
CREATE TABLE notes (
    name TEXT PRIMARY KEY,
    written_at INTEGER NOT NULL,
    value TEXT NOT NULL
) WITHOUT ROWID;
