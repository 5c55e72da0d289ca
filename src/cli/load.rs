//! Where the configuration file is looked for.

use std::path::Path;

use crate::config::Config;

/// Used when no `--config.file` is given.
pub(super) const DEFAULT_FILE: &str = "tokenprobe.toml";

/// Reads the configuration.
///
/// # Errors
/// The text to show: what is wrong, where, and the mend.
pub(super) fn config(path: Option<&Path>) -> Result<Config, String> {
    Config::load(path.unwrap_or(Path::new(DEFAULT_FILE))).map_err(|error| error.to_string())
}
