//! A whole file: from its path or text to a [`Config`], or to everything that is wrong with it.

use std::{collections::HashSet, fs, path::Path, sync::Arc, time::Duration};

use chrono_tz::Tz;
use toml::de::DeTable;

use super::{
    ArchiveSettings, Budget, Config, ConfigError, Environment, Histograms, SeriesCount, Server, Sweep,
    Target, bounded, budget,
    diagnostic::{At, Notes, Placed},
    file::{AnyDuration, ByteSize, Days, FilePath, ListenAddress, Zone},
    histograms, process_environment,
    section::Section,
    sweep::{self, Scope},
    target::{self, Surroundings},
};

/// Largest configuration file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The bytes of a configuration file.
///
/// # Errors
/// It cannot be read, or is longer than any configuration.
pub(crate) fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    bounded::read(path, FILE_BYTES_MAX)
}

impl Config {
    /// Reads a file, with the secrets it names from this process's environment and from files.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column, key and mend.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let text = read(path).map_err(|message| ConfigError::whole_file(&file, message))?;
        Self::parse(&text, path, &process_environment)
    }

    /// The same from text. `path` is named in errors, and relative paths in the file start at its directory.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, path: &Path, environment: &dyn Environment) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let notes = Notes::default();
        let table = DeTable::parse(text).map_err(|error| {
            ConfigError::syntax(&file, text, error.span().unwrap_or(0..0), error.message())
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let surroundings = Surroundings { environment, directory };
        let config = read_document(Section::root(table.get_ref(), &notes), &surroundings);
        if notes.has_problems() {
            return Err(notes.into_error(&file, text));
        }
        Ok(Self { warnings: notes.into_warnings(), ..config })
    }
}

fn read(path: &Path) -> Result<String, String> {
    let metadata = fs::metadata(path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            return "there is no such file; name one with --config.file, or try `tokenprobe serve --demo`"
                .to_owned();
        }
        format!("cannot be read: {error}; let this user read it")
    })?;
    if metadata.is_dir() {
        return Err("is a directory; name the file in it".to_owned());
    }
    let bytes = read_file(path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::FileTooLarge {
            return error.to_string();
        }
        format!("cannot be read: {error}; let this user read it")
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(valid).filter(|byte| **byte == b'\n').count() + 1;
        format!("is not UTF-8 (first bad byte in line {line}); save it as UTF-8")
    })
}

pub(super) fn read_document(root: Section<'_>, surroundings: &Surroundings<'_>) -> Config {
    let notes = root.notes();
    let timezone = root.value::<Zone>("timezone").map_or(Tz::UTC, |zone| zone.value.0);
    let server = root.section("server").map(read_server).unwrap_or_default();
    let archive =
        root.section("archive").map(|section| read_archive(section, surroundings)).unwrap_or_default();
    let mut histograms = root.section("histograms").map(histograms::read).unwrap_or_default();
    let defaults = root.section("defaults").map(sweep::read_defaults).unwrap_or_default();
    let whole = root.section("budget").map(budget::read).unwrap_or_default();
    let targets = read_targets(&root, surroundings);
    let target_names = names(&root, "targets");
    let scope = Scope {
        defaults: &defaults,
        timezone,
        targets: &targets,
        target_names: &target_names,
        directory: surroundings.directory,
    };
    let sweeps = read_sweeps(&root, &scope);
    if root.raw("targets").is_none() {
        root.missing("targets", "add a [[targets]] table with name, base_url and models");
    }
    if root.raw("sweeps").is_none() {
        notes.warn(
            &root.at("sweeps", 0..0),
            "there is no [[sweeps]] table, so nothing is probed on a schedule",
        );
    }
    for sweep in &sweeps {
        histograms.add_objectives(&sweep.value.objectives);
    }
    let budget = budget::assemble(&root, whole, &targets, &sweeps);
    check_series(&root, &histograms, &budget, &sweeps);
    root.finish();
    Config {
        server,
        archive,
        histograms,
        budget,
        targets,
        sweeps: sweeps.into_iter().map(|sweep| Arc::new(sweep.value)).collect(),
        warnings: Vec::new(),
    }
}

fn read_server(section: Section<'_>) -> Server {
    let default = Server::default();
    let server = Server {
        listen_address: section
            .value::<ListenAddress>("listen_address")
            .map_or(default.listen_address, |address| address.value.0),
        shutdown_grace: section
            .value::<AnyDuration>("shutdown_grace")
            .map_or(default.shutdown_grace, |grace| grace.value.0),
    };
    section.finish();
    server
}

fn read_archive(section: Section<'_>, surroundings: &Surroundings<'_>) -> ArchiveSettings {
    let default = ArchiveSettings::default();
    let days = |key, default| {
        section
            .value::<Days>(key)
            .map_or(default, |days| Duration::from_secs(u64::from(days.value.0) * 86_400))
    };
    let path = section.value::<FilePath>("path");
    let archive = ArchiveSettings {
        path: path.map(|path| surroundings.directory.join(path.value.0)),
        measurements: days("measurements_days", default.measurements),
        runs: days("runs_days", default.runs),
        size_max: section.value::<ByteSize>("max_size").map_or(default.size_max, |size| size.value.0),
    };
    section.finish();
    archive
}

fn read_targets(root: &Section<'_>, surroundings: &Surroundings<'_>) -> Vec<Arc<Target>> {
    let sections = root.sections("targets").into_iter();
    let targets: Vec<_> = sections.filter_map(|section| target::read(section, surroundings)).collect();
    let mut seen = HashSet::new();
    for target in &targets {
        complain_if_seen(root, &mut seen, target, &target.value.name);
    }
    targets.into_iter().map(|target| Arc::new(target.value)).collect()
}

fn read_sweeps(root: &Section<'_>, scope: &Scope<'_>) -> Vec<Placed<Sweep>> {
    let sections = root.sections("sweeps").into_iter();
    let sweeps: Vec<_> = sections.filter_map(|section| sweep::read(section, scope)).collect();
    let mut seen = HashSet::new();
    for sweep in &sweeps {
        complain_if_seen(root, &mut seen, sweep, &sweep.value.name);
    }
    sweeps
}

fn complain_if_seen<T>(
    root: &Section<'_>,
    seen: &mut HashSet<Arc<str>>,
    placed: &Placed<T>,
    name: &Arc<str>,
) {
    if !seen.insert(Arc::clone(name)) {
        let message = format!("\"{name}\" is already the name of another; names are labels, make it unique");
        root.notes().complain(&placed.at, message);
    }
}

/// The names written, whether or not the rest of their tables can be used.
fn names(root: &Section<'_>, key: &'static str) -> Vec<String> {
    let elements = root.raw(key).and_then(|raw| raw.get_ref().as_array());
    let tables = elements.into_iter().flatten().filter_map(|element| element.get_ref().as_table());
    tables.filter_map(|table| table.get("name")?.get_ref().as_str().map(str::to_owned)).collect()
}

fn check_series(root: &Section<'_>, histograms: &Histograms, budget: &Budget, sweeps: &[Placed<Sweep>]) {
    let count = SeriesCount::of(histograms, budget, sweeps.iter().map(|sweep| &sweep.value));
    if count.total <= histograms.max_series {
        return;
    }
    let largest = sweeps.iter().max_by_key(|sweep| sweep.value.cell_count());
    let Some(largest) = largest else { return };
    let message = format!(
        "the configuration asks for {} series, more than max_series = {}; {}; \
         cut that list, or raise max_series in [histograms]",
        count.total,
        histograms.max_series,
        largest.value.grid(),
    );
    let place = largest.at.place.trim_end_matches(": key \"name\"").to_owned();
    root.notes().complain(&At { place, ..largest.at.clone() }, message);
}

impl Sweep {
    /// How many cells it has.
    #[must_use]
    pub fn cell_count(&self) -> usize {
        self.ladder_count().saturating_mul(self.levels())
    }

    /// How many ladders it has.
    #[must_use]
    pub fn ladder_count(&self) -> usize {
        let models: usize = self.targets.iter().map(|(_, models)| models.len()).sum();
        models.saturating_mul(self.prompt_tokens.len())
    }

    /// Its dimensions in words, and which of them is the longest.
    fn grid(&self) -> String {
        let models: usize = self.targets.iter().map(|(_, models)| models.len()).sum();
        let (levels, kind) = if self.rates.is_empty() {
            ("concurrency", "concurrency levels")
        } else {
            ("load.rate", "rates")
        };
        let dimensions =
            [("models", models), ("prompt_tokens", self.prompt_tokens.len()), (levels, self.levels())];
        let (longest, length) = dimensions.into_iter().max_by_key(|(_, length)| *length).unwrap_or_default();
        format!(
            "this sweep's grid is the largest: {models} models x {} prompt lengths x {} {kind} = \
             {} cells, of which `{longest}` is the longest ({length})",
            self.prompt_tokens.len(),
            self.levels(),
            self.cell_count(),
        )
    }
}
