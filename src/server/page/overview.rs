//! The front page: how everything does, the worst first; what runs, and what runs next.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::{Shell, model_link, query};
use crate::{
    html::{grouped, latency, load_words, moment, percent_change, span, sparkline, tokens_per_second},
    server::{
        BudgetStatus, SweepStatus,
        models::{Measured, ModelState, ModelStatus},
    },
};

/// Models that a visitor wants to see.
#[derive(Debug, Default, Deserialize)]
pub(in crate::server) struct Sought {
    /// Only of this state.
    #[serde(default)]
    state: String,
    /// Only those whose target or model contains this.
    #[serde(default)]
    find: String,
}

impl Sought {
    fn wants(&self, model: &ModelStatus) -> bool {
        let find = self.find.to_lowercase();
        let named = |name: &str| name.to_lowercase().contains(&find);
        (self.state.is_empty() || self.state == model.state.as_str())
            && (find.is_empty() || named(&model.target) || named(&model.model))
    }
}

/// The page; `complaint` says why the archive is not read.
pub(in crate::server) fn overview(
    shell: &Shell<'_>,
    models: &[ModelStatus],
    sought: &Sought,
    complaint: Option<&str>,
) -> String {
    let mut shown: Vec<&ModelStatus> = models.iter().filter(|model| sought.wants(model)).collect();
    // The sort is stable: equals stay in the order of the configuration.
    shown.sort_by_key(|model| model.state);
    let content = html! {
        h1.unseen { "Overview" }
        div #summary data-live { (summary(shell, models, sought)) }
        section aria-labelledby="models-title" {
            div.title {
                h2 #models-title { "Models" }
                form.find method="get" action="." role="search" {
                    @if !sought.state.is_empty() { input type="hidden" name="state" value=(sought.state); }
                    input type="search" name="find" value=(sought.find) placeholder="target or model" aria-label="Find a target or model";
                    button { "Find" }
                }
            }
            div #models data-live {
                @if let Some(complaint) = complaint { p.none { "No trend and no last week: " (complaint) "." } }
                (table(shell, models, &shown))
            }
        }
        section #sweeps-section aria-labelledby="sweeps-title" {
            h2 #sweeps-title { "Sweeps" }
            div #sweeps data-live { (sweeps(shell)) }
        }
        div #budgets data-live { (budgets(&shell.status.budgets)) }
    };
    shell.page("Overview", ".", &content)
}

/// How many models do how well: each number leads to them. What runs comes along: it may be far below.
fn summary(shell: &Shell<'_>, models: &[ModelStatus], sought: &Sought) -> Markup {
    let count = |state: ModelState| models.iter().filter(|model| model.state == state).count();
    let running = shell.status.sweeps.iter().filter(|sweep| sweep.running).count();
    html! {
        ul.summary {
            @for state in ModelState::ALL {
                @let chosen = sought.state == state.as_str();
                li {
                    // Nothing bad is no alarm.
                    a class={ "tile " (if count(state) > 0 { class(state) } else { "idle" }) } aria-current=[chosen.then_some("true")]
                        href=(if chosen { ".".to_owned() } else { format!("?{}", query([("state", state.as_str())])) }) {
                        b { (count(state)) } " " (word(state))
                    }
                }
            }
            li { a.tile href="#sweeps-title" { b { (running) } " " @if running == 1 { "sweep running" } @else { "sweeps running" } } }
        }
    }
}

fn table(shell: &Shell<'_>, models: &[ModelStatus], shown: &[&ModelStatus]) -> Markup {
    html! {
        @if models.is_empty() {
            p.none { "No sweep is configured: add " code { "[[targets]]" } " and " code { "[[sweeps]]" } " to the configuration, then reload." }
        } @else if shown.is_empty() {
            p.none { "No model is like that. " a href="." { "Show all " (models.len()) } }
        } @else {
            table.models {
                caption.unseen { "Latest numbers of every model, at its lightest level" }
                thead {
                    tr {
                        th scope="col" { "state" } th scope="col" { "model" }
                        th.n scope="col" { "TTFT P95" } th.n scope="col" { "TPOT P95" } th.n scope="col" { "total TPS" }
                        th scope="col" { "TTFT trend" } th.n scope="col" { "knee / safe" } th scope="col" { "measured" }
                    }
                }
                tbody { @for model in shown { (row(model, shell.now)) } }
            }
        }
    }
}

fn row(model: &ModelStatus, now: DateTime<Utc>) -> Markup {
    let seconds: fn(f64) -> String = latency;
    html! {
        tr class=(class(model.state)) {
            td.is { span class={ "badge " (class(model.state)) } { (word(model.state)) } }
            th scope="row" {
                a href=(model_link(&model.target, &model.model)) { (model.model) }
                small { (model.target) " · " (grouped(model.prompt_tokens.into())) " tokens, " (load_words(model.load())) }
                @if let Some(reason) = &model.reason { small.reason { (reason) } }
            }
            td.n.void[model.ttft_p95_seconds.latest.is_none()] data-name="TTFT P95" { (measured(&model.ttft_p95_seconds, seconds, Larger::Worse, model.samples < 20)) }
            td.n.void[model.tpot_p95_seconds.latest.is_none()] data-name="TPOT P95" { (measured(&model.tpot_p95_seconds, seconds, Larger::Worse, model.samples < 20)) }
            td.n.void[model.throughput_tokens_per_second.latest.is_none()] data-name="total TPS" { (measured(&model.throughput_tokens_per_second, tokens_per_second, Larger::Better, false)) }
            td.trend.void[model.trend.len() < 2] data-name="TTFT trend" { (sparkline(&model.trend, &trend(model))) }
            @let capacity = knee_and_safe(model);
            td.n.void[capacity.is_none()] data-name="knee / safe" { (capacity.as_deref().unwrap_or("–")) }
            td.when.void[model.measured_at.is_none()] data-name="measured" { (moment(model.measured_at, now)) }
        }
    }
}

fn knee_and_safe(model: &ModelStatus) -> Option<String> {
    let known = |concurrency: Option<u32>, rate: Option<f64>| {
        let rate = rate.map(|rate| format!("{rate}/s"));
        rate.or_else(|| concurrency.map(|concurrency| concurrency.to_string()))
    };
    let knee = known(model.knee_concurrency, model.knee_requests_per_second);
    let safe = known(model.safe_concurrency, model.safe_requests_per_second);
    if knee.is_none() && safe.is_none() {
        return None;
    }
    let shown = |load: Option<String>| load.unwrap_or_else(|| "–".into());
    Some(format!("{} / {}", shown(knee), shown(safe)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Larger {
    Worse,
    Better,
}

/// A number over what it should be and what it was.
fn measured(measured: &Measured, text: fn(f64) -> String, larger: Larger, low: bool) -> Markup {
    let Some(latest) = measured.latest else { return html! { "–" } };
    let missed = measured.objective.is_some_and(|objective| latest > objective);
    let change = measured.last_week.and_then(|before| percent_change(before, latest));
    html! {
        span.missed[missed] {
            @if low { span.low title="rests on fewer than 20 samples" { "~" } }
            (text(latest))
        }
        @if let Some(objective) = measured.objective {
            small { @if missed { "over " } @else { "of " } (text(objective)) }
        }
        @if let Some(change) = change {
            @let class = if change.abs() < 5.0 { "none" } else if (change > 0.0) == (larger == Larger::Worse) { "bad" } else { "good" };
            small.change {
                // Not "-0%".
                @if change.abs() < 0.5 { "as last week" } @else { span class=(class) { (format!("{change:+.0}%")) } " on last week" }
            }
        }
    }
}

fn trend(model: &ModelStatus) -> String {
    match (model.trend.first(), model.trend.last()) {
        (Some(first), Some(last)) => format!(
            "TTFT P95 of the last {} levels, from {} to {}",
            model.trend.len(),
            latency(*first),
            latency(*last)
        ),
        _ => String::new(),
    }
}

fn sweeps(shell: &Shell<'_>) -> Markup {
    html! {
        @if shell.status.sweeps.is_empty() {
            p.none { "No sweep is configured." }
        } @else {
            @if !shell.may_change {
                p.small { "To run, pause or resume from here, start tokenprobe with " code { "--web.enable-lifecycle" } " or with a credential in its web configuration." }
            }
            div.wide { table.sweeps {
                thead { tr {
                    th scope="col" { "sweep" } th scope="col" { "schedule" } th scope="col" { "state" }
                    th scope="col" { "last start" } th scope="col" { "next start" }
                    @if shell.may_change { th scope="col" { span.unseen { "actions" } } }
                } }
                tbody { @for sweep in &shell.status.sweeps { (sweep_row(shell, sweep)) } }
            } }
        }
    }
}

fn sweep_row(shell: &Shell<'_>, sweep: &SweepStatus) -> Markup {
    let took = sweep.last_end.zip(sweep.last_start).filter(|(end, start)| end >= start && !sweep.running);
    html! {
        tr data-sweep=(sweep.name) {
            th scope="row" { (sweep.name) }
            td { code { (sweep.schedule) } }
            td.doing { (doing(sweep)) }
            td data-name="last start" { (moment(sweep.last_start, shell.now)) @if let Some((end, start)) = took { small { " took " (span(end - start)) } } }
            td data-name="next start" { @if sweep.paused { "when resumed" } @else { (moment(sweep.next_start, shell.now)) } }
            @if shell.may_change { td.actions { (actions(sweep)) } }
        }
    }
}

fn doing(sweep: &SweepStatus) -> Markup {
    html! {
        @match (&sweep.progress, sweep.last_result) {
            (Some(progress), _) => {
                progress max=(progress.requests.max(1)) value=(progress.requests_done) aria-label={ "progress of " (sweep.name) } {}
                small.at {
                    (progress.requests_done) " of " (progress.requests) " requests"
                    @if let Some(level) = &progress.level {
                        " · " (level.model) ", " (level.prompt_tokens) " tokens, " (level.load)
                    }
                }
            }
            (None, _) if sweep.paused => span.badge.warn { "paused" },
            (None, Some(result)) => span class={ "result " (result.as_str()) } { (result.as_str()) },
            (None, None) => span.none { "not run yet" },
        }
    }
}

fn actions(sweep: &SweepStatus) -> Markup {
    let pause = if sweep.paused { ("resume", "Resume") } else { ("pause", "Pause") };
    let path = |verb: &str| format!("api/v1/sweeps/{}/{verb}", super::path_segment(&sweep.name));
    html! {
        @for (verb, name) in [("run", "Run now"), pause] {
            form method="post" action=(path(verb)) data-ask {
                button disabled[verb == "run" && (sweep.running || sweep.paused)] aria-label={ (name) ": " (sweep.name) } { (name) }
            }
        }
    }
}

fn budgets(budgets: &[BudgetStatus]) -> Markup {
    html! {
        @if !budgets.is_empty() {
            section aria-labelledby="budget-title" {
                h2 #budget-title { "Budget" }
                ul.budgets {
                    @for budget in budgets {
                        @let text = if budget.unit == "cost" { |number: f64| format!("{number:.4}") } else { grouped };
                        li.bad[budget.remaining <= 0.0] {
                            b { (scope(&budget.scope)) } ": " (text(budget.remaining)) " of " (text(budget.limit)) " " (budget.unit) " left " (period(budget.period))
                            meter min="0" max=(budget.limit) value=(budget.remaining.max(0.0)) low=(budget.limit / 10.0)
                                aria-label={ (budget.unit) " left " (period(budget.period)) " of " (scope(&budget.scope)) } {}
                        }
                    }
                }
            }
        }
    }
}

/// What a budget is for, as a reader says it.
fn scope(scope: &str) -> String {
    match scope.split_once(':') {
        Some((kind, name)) => format!("{kind} {name}"),
        None if scope == "all" => "all probes".into(),
        None => scope.into(),
    }
}

fn period(period: &str) -> String {
    if period == "day" { "today".into() } else { format!("this {period}") }
}

fn class(state: ModelState) -> &'static str {
    match state {
        ModelState::Failing => "bad",
        ModelState::Slow => "warn",
        ModelState::Waiting => "idle",
        ModelState::Good => "good",
    }
}

fn word(state: ModelState) -> &'static str {
    match state {
        ModelState::Failing => "failing",
        ModelState::Slow => "slow",
        ModelState::Waiting => "not measured",
        ModelState::Good => "good",
    }
}
