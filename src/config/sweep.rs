//! `[[sweeps]]` and `[defaults]`: a grid on a schedule, and its rules between keys.

use std::{collections::HashSet, path::Path, sync::Arc, time::Duration};

use chrono_tz::Tz;

use super::{
    Abort, ConnectionPolicy, LevelSettings, Objectives, PrefixCache, PromptLanguage, Sweep, Target, budget,
    diagnostic::{At, Notes, Placed},
    file::{
        AnyDuration, Cache, Concurrency, FilePath, Flag, MaxTokens, Model, Name, PositiveDuration,
        PositiveRatio, PromptTokens, Quiet, Ratio, ReasoningBudget, Requests, Temperature, Text,
        WarmupRequests, Zone,
    },
    load::{LoadKeys, OpenLoop},
    nearest::mend,
    prompts::read_prompts,
    section::Section,
};
use crate::{
    arrivals::{Arrivals, Rate},
    prompt::Prompts,
    protocol::Timeouts,
    schedule::{Schedule, ScheduleError},
};

type List<T> = Placed<Vec<Placed<T>>>;
/// A target and the models to probe there.
type TargetModels = (Arc<Target>, Vec<Arc<str>>);

/// The keys `[defaults]` and a sweep have in common; what is absent is `None`.
#[derive(Default, Clone)]
pub(super) struct SweepKeys {
    timezone: Option<Placed<Zone>>,
    jitter: Option<Placed<AnyDuration>>,
    run_on_start: Option<Placed<Flag>>,
    models: Option<List<Model>>,
    prompt_tokens: Option<List<PromptTokens>>,
    concurrency: Option<List<Concurrency>>,
    load: Option<LoadKeys>,
    requests_per_level: Option<Placed<Requests>>,
    warmup_requests: Option<Placed<WarmupRequests>>,
    max_tokens: Option<Placed<MaxTokens>>,
    reasoning_budget: Option<Placed<ReasoningBudget>>,
    temperature: Option<Placed<Temperature>>,
    timeout: TimeoutKeys,
    objectives: ObjectiveKeys,
    abort: AbortKeys,
    connection: Option<ConnectionPolicy>,
    prefix_cache: Option<Placed<Cache>>,
    prompt_language: Option<PromptLanguage>,
    prompts: Option<Placed<FilePath>>,
    calibrate: Option<Placed<Flag>>,
    refine: Option<Placed<Flag>>,
    max_tokens_control: Option<Placed<MaxTokens>>,
    quiet_hours: Option<List<Quiet>>,
}

#[derive(Default, Clone)]
struct TimeoutKeys {
    connect: Option<Placed<PositiveDuration>>,
    headers: Option<Placed<PositiveDuration>>,
    first_token: Option<Placed<PositiveDuration>>,
    stall: Option<Placed<PositiveDuration>>,
    total: Option<Placed<PositiveDuration>>,
}

#[derive(Default, Clone)]
struct ObjectiveKeys {
    ttft: Option<Placed<PositiveDuration>>,
    tpot: Option<Placed<PositiveDuration>>,
    duration: Option<Placed<PositiveDuration>>,
    success_ratio: Option<Placed<Ratio>>,
}

#[derive(Default, Clone)]
struct AbortKeys {
    failure_ratio: Option<Placed<PositiveRatio>>,
    after_knee: Option<Placed<Flag>>,
}

/// What the sweeps of a file may refer to.
pub(super) struct Scope<'a> {
    pub defaults: &'a SweepKeys,
    pub timezone: Tz,
    pub targets: &'a [Arc<Target>],
    /// What relative paths are relative to.
    pub directory: &'a Path,
    /// Names that targets have, also those that could not be read: naming one is no further mistake.
    pub target_names: &'a [String],
}

/// Reads `[defaults]`.
pub(super) fn read_defaults(section: Section<'_>) -> SweepKeys {
    let keys = SweepKeys::read(&section, &SweepKeys::default());
    section.finish();
    keys
}

/// Reads one sweep; `None` when something it cannot do without is missing or bad (which was complained about).
pub(super) fn read(section: Section<'_>, scope: &Scope<'_>) -> Option<Placed<Sweep>> {
    let name = section.value::<Name>("name");
    if section.raw("name").is_none() {
        section.missing("name", "add name = \"...\", it becomes the label `sweep`");
    }
    let keys = SweepKeys::read(&section, scope.defaults);
    let schedule = schedule(&section, &keys, scope);
    let targets = targets(&section, &keys, scope);
    let prompts = prompts(&section, &keys, scope.directory);
    let prompt_tokens = prompt_tokens(&section, &keys, prompts.as_ref());
    let levels = levels(&section, &keys, targets.as_deref().unwrap_or_default());
    let timeouts = keys.timeout.resolve(section.notes());
    let workers =
        levels.as_ref().filter(|(_, rates, _)| rates.is_empty()).map(|(concurrency, ..)| concurrency);
    warn_if_thin(&section, &keys, workers.map_or(&[], Vec::as_slice));
    let max_tokens_control = control(&section, &keys);
    let limits = budget::limits(&section);
    let covered = targets.iter().flatten().map(|(target, models)| (target, models.as_slice()));
    budget::complain_if_unpriced(&section, &limits, covered);
    section.finish();
    let name = name?;
    let (concurrency, rates, arrivals) = levels?;
    let sweep = Sweep {
        name: name.value.0.as_str().into(),
        schedule: schedule?,
        run_on_start: keys.run_on_start.as_ref().is_some_and(|flag| flag.value.0),
        targets: targets?,
        prompt_tokens: prompt_tokens?,
        concurrency,
        rates,
        level: LevelSettings { arrivals, ..keys.level(timeouts, prompts?) },
        objectives: keys.objectives.resolve(),
        abort: keys.abort.resolve(),
        refine: keys.refine.as_ref().is_some_and(|flag| flag.value.0),
        max_tokens_control,
        quiet_hours: keys
            .quiet_hours
            .iter()
            .flat_map(|list| &list.value)
            .map(|hours| hours.value.0)
            .collect(),
        budget: limits,
    };
    Some(Placed { value: sweep, at: name.at })
}

/// Where prompts come from; `None` when the file is bad (which was complained about).
fn prompts(section: &Section<'_>, keys: &SweepKeys, directory: &Path) -> Option<Prompts> {
    let Some(path) = &keys.prompts else { return Some(Prompts::Generated) };
    let read = read_prompts(&directory.join(&path.value.0));
    let prompts = read.map_err(|error| section.notes().complain(&path.at, error)).ok()?;
    if let (Prompts::Real(_), Some(cache)) = (&prompts, &keys.prefix_cache)
        && matches!(cache.value.0, PrefixCache::Shared(_))
    {
        let message =
            "needs prompts that are written for it; real ones begin as they begin: \"cold\" or \"warm\"";
        section.notes().complain(&cache.at, message);
    }
    Some(prompts)
}

/// The wanted lengths. Real prompts have their own, so their cells have one name: what is written, or about the median.
fn prompt_tokens(section: &Section<'_>, keys: &SweepKeys, prompts: Option<&Prompts>) -> Option<Vec<u32>> {
    if keys.prompts.is_some() && prompts.is_none() && keys.prompt_tokens.is_none() {
        // A file that could not be read may have said it.
        return None;
    }
    let Some(Prompts::Real(real)) = prompts else {
        return ascending(section, keys.prompt_tokens.as_ref(), "prompt_tokens", "[1000]", |v| v.0);
    };
    let Some(list) = &keys.prompt_tokens else { return Some(vec![real.nominal_tokens()]) };
    if list.value.len() > 1 {
        let message = "prompts of a .jsonl have their own lengths, so this is only what their cells are called: write one number";
        section.notes().complain(&list.at, message);
        return None;
    }
    Some(list.value.iter().map(|tokens| tokens.value.0).collect())
}

/// Another output limit than the sweep's own, which would show nothing.
fn control(section: &Section<'_>, keys: &SweepKeys) -> Option<u32> {
    let control = keys.max_tokens_control.as_ref()?;
    let own = keys.max_tokens.as_ref().map_or(LevelSettings::default().max_tokens, |own| own.value.0);
    if control.value.0 == own {
        let message = format!(
            "is the same as max_tokens, {own}; a control needs another, like {}",
            own.saturating_mul(8)
        );
        section.notes().complain(&control.at, message);
    }
    Some(control.value.0)
}

/// A level with fewer requests than workers never measures one under its full load for long.
fn warn_if_thin(section: &Section<'_>, keys: &SweepKeys, concurrency: &[u32]) {
    let Some(requests) = &keys.requests_per_level else { return };
    let Some(highest) = concurrency.last().filter(|highest| **highest > requests.value.0) else { return };
    let message = format!(
        "is below the concurrency {highest}: not every worker measures a request; make it {highest} or more"
    );
    section.notes().warn(&requests.at, &message);
}

impl SweepKeys {
    fn read(section: &Section<'_>, defaults: &Self) -> Self {
        let defaults = defaults.clone();
        Self {
            timezone: section.value("timezone").or(defaults.timezone),
            jitter: section.value("jitter").or(defaults.jitter),
            run_on_start: section.value("run_on_start").or(defaults.run_on_start),
            models: section.list("models").or(defaults.models),
            prompt_tokens: section.list("prompt_tokens").or(defaults.prompt_tokens),
            concurrency: section.list("concurrency").or(defaults.concurrency),
            load: LoadKeys::read(section, defaults.load),
            requests_per_level: section.value("requests_per_level").or(defaults.requests_per_level),
            warmup_requests: section.value("warmup_requests").or(defaults.warmup_requests),
            max_tokens: section.value("max_tokens").or(defaults.max_tokens),
            reasoning_budget: section.value("reasoning_budget").or(defaults.reasoning_budget),
            temperature: section.value("temperature").or(defaults.temperature),
            timeout: TimeoutKeys::read(section, defaults.timeout),
            objectives: ObjectiveKeys::read(section, defaults.objectives),
            abort: AbortKeys::read(section, defaults.abort),
            connection: section.choice("connection", &["reuse", "new"]).or(defaults.connection),
            prefix_cache: section.value("prefix_cache").or(defaults.prefix_cache),
            prompt_language: section
                .choice("prompt_language", &["en", "zh", "mixed"])
                .or(defaults.prompt_language),
            prompts: section.value("prompts").or(defaults.prompts),
            calibrate: section.value("calibrate").or(defaults.calibrate),
            refine: section.value("refine").or(defaults.refine),
            max_tokens_control: section.value("max_tokens_control").or(defaults.max_tokens_control),
            quiet_hours: section.list("quiet_hours").or(defaults.quiet_hours),
        }
    }

    fn level(&self, timeouts: Timeouts, prompts: Prompts) -> LevelSettings {
        let default = LevelSettings::default();
        LevelSettings {
            requests: self.requests_per_level.as_ref().map_or(default.requests, |v| v.value.0),
            warmup_requests: self.warmup_requests.as_ref().map_or(default.warmup_requests, |v| v.value.0),
            reasoning_budget: self.reasoning_budget.as_ref().map_or(default.reasoning_budget, |v| v.value.0),
            arrivals: Arrivals::default(),
            max_tokens: self.max_tokens.as_ref().map_or(default.max_tokens, |v| v.value.0),
            temperature: self.temperature.as_ref().map(|v| v.value.0),
            timeouts,
            connection: self.connection.unwrap_or_default(),
            prefix_cache: self.prefix_cache.as_ref().map(|v| v.value.0).unwrap_or_default(),
            prompt_language: self.prompt_language.unwrap_or_default(),
            calibrate: self.calibrate.as_ref().is_none_or(|v| v.value.0),
            prompts,
        }
    }
}

impl TimeoutKeys {
    fn read(section: &Section<'_>, defaults: Self) -> Self {
        let Some(timeout) = section.section("timeout") else { return defaults };
        let keys = Self {
            connect: timeout.value("connect").or(defaults.connect),
            headers: timeout.value("headers").or(defaults.headers),
            first_token: timeout.value("first_token").or(defaults.first_token),
            stall: timeout.value("stall").or(defaults.stall),
            total: timeout.value("total").or(defaults.total),
        };
        timeout.finish();
        keys
    }

    /// A deadline that was written must not be longer than the whole; one that was not is cut to it.
    fn resolve(&self, notes: &Notes) -> Timeouts {
        let default = LevelSettings::default().timeouts;
        let total = self.total.as_ref().map_or(default.total, |total| total.value.0);
        let resolve = |written: &Option<Placed<PositiveDuration>>, default: Duration| {
            let Some(written) = written else { return default.min(total) };
            if written.value.0 > total {
                let total = humantime::format_duration(total);
                let message = format!(
                    "is longer than `total`, {total}, and so never passes; shorten it or raise total"
                );
                notes.complain(&written.at, message);
            }
            written.value.0
        };
        Timeouts {
            connect: resolve(&self.connect, default.connect),
            headers: resolve(&self.headers, default.headers),
            first_token: resolve(&self.first_token, default.first_token),
            stall: resolve(&self.stall, default.stall),
            total,
        }
    }
}

impl ObjectiveKeys {
    fn read(section: &Section<'_>, defaults: Self) -> Self {
        let Some(objectives) = section.section("objectives") else { return defaults };
        let keys = Self {
            ttft: objectives.value("ttft").or(defaults.ttft),
            tpot: objectives.value("tpot").or(defaults.tpot),
            duration: objectives.value("duration").or(defaults.duration),
            success_ratio: objectives.value("success_ratio").or(defaults.success_ratio),
        };
        objectives.finish();
        keys
    }

    fn resolve(&self) -> Objectives {
        let duration = |key: &Option<Placed<PositiveDuration>>| key.as_ref().map(|placed| placed.value.0);
        Objectives {
            ttft: duration(&self.ttft),
            tpot: duration(&self.tpot),
            duration: duration(&self.duration),
            success_ratio: self.success_ratio.as_ref().map(|placed| placed.value.0),
        }
    }
}

impl AbortKeys {
    fn read(section: &Section<'_>, defaults: Self) -> Self {
        let Some(abort) = section.section("abort") else { return defaults };
        let keys = Self {
            failure_ratio: abort.value("failure_ratio").or(defaults.failure_ratio),
            after_knee: abort.value("after_knee").or(defaults.after_knee),
        };
        abort.finish();
        keys
    }

    fn resolve(&self) -> Abort {
        let default = Abort::default();
        Abort {
            failure_ratio: self.failure_ratio.as_ref().map_or(default.failure_ratio, |v| v.value.0),
            after_knee: self.after_knee.as_ref().map_or(default.after_knee, |v| v.value.0),
        }
    }
}

fn schedule(section: &Section<'_>, keys: &SweepKeys, scope: &Scope<'_>) -> Option<Schedule> {
    let cron = section.value::<Text>("schedule");
    let every = section.value::<PositiveDuration>("every");
    let timezone = keys.timezone.as_ref().map_or(scope.timezone, |zone| zone.value.0);
    let (has_cron, has_every) = (section.raw("schedule").is_some(), section.raw("every").is_some());
    let (schedule, at) = match (cron, every) {
        (Some(_), Some(every)) => {
            section.notes().complain(&every.at, "a sweep has `schedule` or `every`, not both; remove one");
            return None;
        }
        (Some(cron), None) => (Schedule::cron(&cron.value.0, timezone), cron.at),
        (None, Some(every)) => (Schedule::every(every.value.0, timezone), every.at),
        (None, None) => {
            if !has_cron && !has_every {
                section.missing(
                    "schedule",
                    "add schedule = \"0 0 * * * *\" (every full hour) or every = \"1h\"",
                );
            }
            return None;
        }
    };
    let schedule = schedule.map_err(|error| section.notes().complain(&at, error.to_string())).ok()?;
    let Some(jitter) = &keys.jitter else { return Some(schedule) };
    let jittered = schedule.clone().with_jitter(jitter.value.0);
    let place = section.here().place;
    let message = |error: ScheduleError| {
        // It may stand in [defaults], far from the schedule it does not suit.
        if jitter.at.place.starts_with(&place) { error.to_string() } else { format!("{error} in {place}") }
    };
    jittered.map_err(|error| section.notes().complain(&jitter.at, message(error))).ok()
}

fn targets(section: &Section<'_>, keys: &SweepKeys, scope: &Scope<'_>) -> Option<Vec<TargetModels>> {
    let names = section.list::<Name>("targets");
    if section.raw("targets").is_none() {
        section.missing("targets", "add targets = [\"...\"], the names of [[targets]]");
    }
    let names = names?;
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for name in &names.value {
        let wanted = name.value.0.as_str();
        if !seen.insert(wanted) {
            section.notes().complain(&name.at, format!("\"{wanted}\" is listed twice; remove one"));
        } else if let Some(target) = scope.targets.iter().find(|target| target.name.as_ref() == wanted) {
            found.push((Arc::clone(target), name.at.clone()));
        } else if !scope.target_names.iter().any(|name| name == wanted) {
            section.notes().complain(&name.at, unknown_target(wanted, scope.target_names));
        }
    }
    let complete = found.len() == names.value.len();
    let chosen = choose_models(section.notes(), keys.models.as_ref(), &found, complete)?;
    complete.then_some(chosen)
}

fn unknown_target(wanted: &str, names: &[String]) -> String {
    if names.is_empty() {
        return format!("no target is called \"{wanted}\", for there are no [[targets]]; add one");
    }
    format!("no target is called \"{wanted}\"; {}", mend(wanted, names.iter().map(String::as_str)))
}

/// The models to probe at each target: all of them, or those of `models`. Every model asked for must be at one
/// of the targets, and every target must have one of them.
fn choose_models(
    notes: &Notes,
    filter: Option<&List<Model>>,
    targets: &[(Arc<Target>, At)],
    complete: bool,
) -> Option<Vec<TargetModels>> {
    let Some(filter) = filter else {
        return Some(targets.iter().map(|(target, _)| (Arc::clone(target), target.models.clone())).collect());
    };
    let mut good = true;
    let mut seen = HashSet::new();
    for model in &filter.value {
        let wanted = model.value.0.as_str();
        let known = || targets.iter().flat_map(|(target, _)| &target.models).map(AsRef::as_ref);
        if !seen.insert(wanted) {
            notes.complain(&model.at, format!("\"{wanted}\" is listed twice; remove one"));
            good = false;
        } else if complete && !known().any(|model| model == wanted) {
            let known: Vec<&str> = known().collect();
            let message =
                format!("no target of this sweep has the model \"{wanted}\"; {}", mend(wanted, known));
            notes.complain(&model.at, message);
            good = false;
        }
    }
    let mut chosen = Vec::new();
    for (target, at) in targets {
        let models: Vec<_> =
            target.models.iter().filter(|model| seen.contains(model.as_ref())).cloned().collect();
        if models.is_empty() && good {
            let name = &target.name;
            notes.complain(at, format!("\"{name}\" has none of this sweep's models; remove it or add one"));
            good = false;
        }
        chosen.push((Arc::clone(target), models));
    }
    good.then_some(chosen)
}

/// Concurrency levels, or the bound of an open loop with its rates.
fn levels(
    section: &Section<'_>,
    keys: &SweepKeys,
    targets: &[TargetModels],
) -> Option<(Vec<u32>, Vec<Rate>, Arrivals)> {
    let Some(load) = &keys.load else {
        let closed = ascending(section, keys.concurrency.as_ref(), "concurrency", "[1, 4, 8]", |v| v.0)?;
        return Some((closed, Vec::new(), Arrivals::default()));
    };
    let OpenLoop { rates, arrivals, max_in_flight } =
        load.resolve(section, targets.iter().map(|(target, _)| &**target))?;
    Some((vec![max_in_flight], rates, arrivals))
}

/// A list of numbers without repetition, cheapest first.
fn ascending<T>(
    section: &Section<'_>,
    list: Option<&List<T>>,
    key: &'static str,
    example: &str,
    number: fn(&T) -> u32,
) -> Option<Vec<u32>> {
    let Some(list) = list else {
        if section.raw(key).is_none() {
            section.missing(key, &format!("add {key} = {example}"));
        }
        return None;
    };
    let mut seen = HashSet::new();
    for element in &list.value {
        let number = number(&element.value);
        if !seen.insert(number) {
            section.notes().complain(&element.at, format!("{number} is listed twice; remove one"));
        }
    }
    let mut numbers: Vec<u32> = seen.into_iter().collect();
    numbers.sort_unstable();
    Some(numbers)
}
