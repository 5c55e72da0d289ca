//! The file and its tables: opened, recognised as ours, brought to the current version.

use std::{
    fmt,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::store::Store;

/// Marks a SQLite file as an archive of this program ("tokp").
const APPLICATION_ID: i32 = 0x746f_6b70;
/// How long another process may hold the file before that counts as a failure.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The steps from an empty file to the current version; `user_version` counts those that were taken. Only ever
/// appended to.
const MIGRATIONS: &[&str] =
    &[include_str!("schema/1.sql"), include_str!("schema/2.sql"), include_str!("schema/3.sql")];

/// Why an archive cannot be used.
#[derive(Debug)]
pub enum ArchiveError {
    /// There is no such file.
    Missing(PathBuf),
    /// The file is a SQLite file of something else.
    Foreign(PathBuf),
    /// The file never was one of SQLite.
    Other(PathBuf),
    /// The file was written by a newer program.
    Newer {
        /// Which.
        path: PathBuf,
        /// Its version.
        found: usize,
    },
    /// SQLite cannot read or write it.
    Sqlite(PathBuf, rusqlite::Error),
}

/// Opens an archive that is there already, to be read; an older one is brought to the current version.
///
/// # Errors
/// There is no such archive, or it cannot be read.
pub fn open_existing(path: &Path) -> Result<Store, ArchiveError> {
    if !path.exists() {
        return Err(ArchiveError::Missing(path.to_owned()));
    }
    if is_text(path) {
        return Err(ArchiveError::Other(path.to_owned()));
    }
    let sqlite = |error| ArchiveError::Sqlite(path.to_owned(), error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(sqlite)?;
    if check(&connection, path)? < MIGRATIONS.len() {
        drop(connection);
        return open(path);
    }
    Ok(Store::new(connection))
}

/// Opens an archive to be written, creating it when it is not there.
///
/// # Errors
/// The file cannot be written, or is something else.
pub fn open(path: &Path) -> Result<Store, ArchiveError> {
    if is_text(path) {
        return Err(ArchiveError::Other(path.to_owned()));
    }
    let sqlite = |error| ArchiveError::Sqlite(path.to_owned(), error);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(sqlite)?;
    let version = check(&connection, path)?;
    if version == 0 {
        // Has to be set before the first table is there; the pages that retention frees go back piece by piece.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(sqlite)?;
    }
    // With a write-ahead log, readers do not hold up the writer, and what was committed survives `kill -9`.
    connection.pragma_update(None, "journal_mode", "WAL").map_err(sqlite)?;
    connection.pragma_update(None, "synchronous", "NORMAL").map_err(sqlite)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(sqlite)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20).map_err(sqlite)?;
    migrate(&mut connection).map_err(sqlite)?;
    Ok(Store::new(connection))
}

/// Whether a file begins as no archive does, broken or not: somebody's configuration or key, named by mistake.
pub(super) fn is_text(path: &Path) -> bool {
    const HEAD_BYTES_MAX: u64 = 512;
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES_MAX).read_to_end(&mut head));
    let is_plain = |c: char| !c.is_control() || c.is_whitespace();
    // The last character may be cut.
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    read.is_ok() && !head.is_empty() && text.len() + 4 > head.len() && text.chars().all(is_plain)
}

/// Whether a file that no daemon kept its archive in begins as none of SQLite's does. One that was broken later has the
/// claim beside it that its daemon made, or its log, and is no stranger's.
#[must_use]
pub fn is_of_others(path: &Path) -> bool {
    const MAGIC: &[u8] = b"SQLite format 3\0";
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        Path::new(&name).exists()
    };
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut head));
    read.is_ok() && !head.is_empty() && head != MAGIC && !beside(".lock") && !beside("-wal")
}

/// The version of a file that is ours or empty.
fn check(connection: &Connection, path: &Path) -> Result<usize, ArchiveError> {
    let sqlite = |error| ArchiveError::Sqlite(path.to_owned(), error);
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let application = number("application_id").map_err(sqlite)?;
    let version = usize::try_from(number("user_version").map_err(sqlite)?).unwrap_or(usize::MAX);
    let count = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(count, [], |row| row.get(0)).map_err(sqlite)?;
    if application != APPLICATION_ID && (application != 0 || tables > 0) {
        return Err(ArchiveError::Foreign(path.to_owned()));
    }
    if version > MIGRATIONS.len() {
        return Err(ArchiveError::Newer { path: path.to_owned(), found: version });
    }
    Ok(version)
}

/// Takes the steps that are missing, each as a whole: a program killed between them goes on from there.
fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    loop {
        // Two programs may open a new file at once; the lock comes before the look.
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let version: i32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let Some(step) = usize::try_from(version).ok().and_then(|version| MIGRATIONS.get(version)) else {
            return Ok(());
        };
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", version + 1)?;
        transaction.commit()?;
    }
}

impl ArchiveError {
    /// Whether the file's content is broken, so that only a new file helps.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Sqlite(_, error) if is_corruption(error))
    }
}

/// Whether this says that the file's content is broken.
pub(super) fn is_corruption(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(
                f,
                "there is no archive {}; name one with --archive, or set path in [archive] and let tokenprobe run",
                path.display()
            ),
            Self::Other(path) => {
                write!(
                    f,
                    "{} is a file of something else, and no archive of tokenprobe; name another",
                    path.display()
                )
            }
            Self::Foreign(path) => {
                write!(f, "{} is a SQLite file, but no archive of tokenprobe; name another", path.display())
            }
            Self::Newer { path, found } => write!(
                f,
                "{} was written by a newer tokenprobe (schema {found}, this one knows {}); use that, or another file",
                path.display(),
                MIGRATIONS.len()
            ),
            Self::Sqlite(path, error) => write!(f, "archive {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ArchiveError {}
