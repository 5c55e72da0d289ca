//! The status page: a snapshot as one HTML document that needs no script.
//!
//! Pure: a snapshot and the time in, text out.

use std::fmt::{self, Display, Write as _};

use chrono::{DateTime, TimeDelta, Utc};

use super::{BudgetStatus, CellStatus, Latency, Readiness, Status, SweepStatus};

/// The page's style sheet: light or dark as the reader's system is.
pub(super) const STYLE: &str = include_str!("page.css");

/// The page.
pub(super) fn render(status: &Status, readiness: Readiness, now: DateTime<Utc>) -> String {
    let mut out = String::with_capacity(16 * 1024);
    // Writing to a string cannot fail.
    let _ = write_page(&mut out, status, readiness, now);
    out
}

fn write_page(out: &mut String, status: &Status, readiness: Readiness, now: DateTime<Utc>) -> fmt::Result {
    let (word, class) = match readiness {
        Readiness::Ready => ("ready", "good"),
        Readiness::Starting => ("starting", "wait"),
        Readiness::Draining => ("shutting down", "wait"),
    };
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"refresh\" content=\"15\">\n<title>tokenprobe</title>\n\
         <link rel=\"stylesheet\" href=\"page.css\">\n</head>\n<body>\n<header>\n<h1>tokenprobe</h1>\n\
         <p><span class=\"state {class}\">{word}</span> version {} · up {}</p>\n</header>\n<main>\n",
        Text(status.version),
        Span(now - status.started_at),
    )?;
    write_sweeps(out, &status.sweeps, now)?;
    write_cells(out, &status.cells, now)?;
    write_budgets(out, &status.budgets)?;
    out.write_str(
        "</main>\n<footer>\n<nav><a href=\"metrics\">metrics</a> <a href=\"api/v1/status\">this page as JSON</a> \
         <a href=\"-/healthy\">healthy</a> <a href=\"-/ready\">ready</a></nav>\n\
         <p>Measured by tokenprobe's own probes on their schedule, not from user traffic. \
         <span class=\"low\">~</span> marks a percentile that rests on too few samples.</p>\n</footer>\n</body>\n</html>\n",
    )
}

fn write_sweeps(out: &mut String, sweeps: &[SweepStatus], now: DateTime<Utc>) -> fmt::Result {
    out.write_str("<section>\n<h2>Sweeps</h2>\n")?;
    if sweeps.is_empty() {
        return out.write_str("<p>No sweep is configured.</p>\n</section>\n");
    }
    out.write_str(
        "<div class=\"wide\"><table>\n<thead><tr><th scope=\"col\">sweep<th scope=\"col\">schedule\
         <th scope=\"col\">last start<th scope=\"col\">result<th scope=\"col\">next start</tr></thead>\n<tbody>\n",
    )?;
    for sweep in sweeps {
        let result = match (sweep.running, sweep.last_result) {
            (true, _) => "running",
            (false, Some(result)) => result.as_str(),
            (false, None) => "not run yet",
        };
        let paused = if sweep.paused { " <small>(paused)</small>" } else { "" };
        write!(
            out,
            "<tr><th scope=\"row\">{}{paused}<td><code>{}</code>",
            Text(&sweep.name),
            Text(&sweep.schedule)
        )?;
        writeln!(
            out,
            "<td>{}<td class=\"{result}\">{result}<td>{}</tr>",
            Moment(sweep.last_start, now),
            Moment(sweep.next_start, now),
        )?;
    }
    out.write_str("</tbody>\n</table></div>\n</section>\n")
}

fn write_cells(out: &mut String, cells: &[CellStatus], now: DateTime<Utc>) -> fmt::Result {
    out.write_str("<section>\n<h2>Latest levels</h2>\n")?;
    if cells.iter().all(|cell| cell.measured_at.is_none()) {
        return out.write_str("<p>Nothing is measured yet: the first level has not ended.</p>\n</section>\n");
    }
    out.write_str(
        "<div class=\"wide\"><table>\n<thead>\n<tr><th scope=\"col\" rowspan=\"2\">target\
         <th scope=\"col\" rowspan=\"2\">model<th scope=\"col\" rowspan=\"2\">sweep\
         <th scope=\"col\" rowspan=\"2\" class=\"n\">prompt<br>tokens\
         <th scope=\"col\" rowspan=\"2\" class=\"n\">concur&shy;rency\
         <th scope=\"colgroup\" colspan=\"3\">time to first token<th scope=\"col\" rowspan=\"2\" class=\"n\">TPOT<br>P50\
         <th scope=\"col\" rowspan=\"2\" class=\"n\">total TPS<th scope=\"col\" rowspan=\"2\" class=\"n\">ok / failed\
         <th scope=\"col\" rowspan=\"2\">measured</tr>\n\
         <tr><th scope=\"col\" class=\"n\">P50<th scope=\"col\" class=\"n\">P95<th scope=\"col\" class=\"n\">P99</tr>\n\
         </thead>\n<tbody>\n",
    )?;
    for cell in cells {
        write_cell(out, cell, now)?;
    }
    out.write_str("</tbody>\n</table></div>\n</section>\n")
}

fn write_budgets(out: &mut String, budgets: &[BudgetStatus]) -> fmt::Result {
    if budgets.is_empty() {
        return Ok(());
    }
    out.write_str(
        "<section>\n<h2>Budget</h2>\n<div class=\"wide\"><table>\n<thead><tr><th scope=\"col\">of\
         <th scope=\"col\">per<th scope=\"col\">unit<th scope=\"col\" class=\"n\">remaining\
         <th scope=\"col\" class=\"n\">limit</tr></thead>\n<tbody>\n",
    )?;
    for budget in budgets {
        let digits = if budget.unit == "cost" { 4 } else { 0 };
        writeln!(
            out,
            "<tr><th scope=\"row\">{}<td>{}<td>{}<td class=\"n{}\">{:.digits$}<td class=\"n\">{:.digits$}</tr>",
            Text(&budget.scope),
            budget.period,
            budget.unit,
            if budget.remaining <= 0.0 { " failed" } else { "" },
            budget.remaining,
            budget.limit,
        )?;
    }
    out.write_str("</tbody>\n</table></div>\n</section>\n")
}

fn write_cell(out: &mut String, cell: &CellStatus, now: DateTime<Utc>) -> fmt::Result {
    write!(
        out,
        "<tr><td>{}<th scope=\"row\">{}<td>{}<td class=\"n\">{}<td class=\"n\">{}",
        Text(&cell.target),
        Text(&cell.model),
        Text(&cell.sweep),
        cell.prompt_tokens,
        cell.rate.map_or_else(|| cell.concurrency.to_string(), |rate| format!("{rate}/s")),
    )?;
    if cell.measured_at.is_none() {
        return out.write_str("<td colspan=\"7\">not measured yet</tr>\n");
    }
    for name in ["p50", "p95", "p99"] {
        write!(out, "<td class=\"n\">{}", Percentile(cell.ttft_seconds.as_ref(), name))?;
    }
    write!(out, "<td class=\"n\">{}", Percentile(cell.tpot_seconds.as_ref(), "p50"))?;
    match cell.throughput_tokens_per_second {
        Some(speed) => write!(out, "<td class=\"n\">{speed:.1}")?,
        None => out.write_str("<td class=\"n\">–")?,
    }
    let failed = cell.requests.saturating_sub(cell.ok);
    write!(out, "<td class=\"n{}\">{} / {failed}", if failed > 0 { " failed" } else { "" }, cell.ok)?;
    for (class, count) in &cell.failures {
        write!(out, "<br><small>{count} {class}</small>")?;
    }
    writeln!(out, "<td>{}</tr>", Moment(cell.measured_at, now))
}

/// Text that cannot become markup.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// One percentile in milliseconds, marked when it rests on too few samples.
struct Percentile<'a>(Option<&'a Latency>, &'static str);

impl Display for Percentile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(latency) = self.0 else { return f.write_str("–") };
        let seconds = match self.1 {
            "p50" => latency.p50,
            "p95" => latency.p95,
            _ => latency.p99,
        };
        if latency.low_confidence.contains(&self.1) {
            let samples = latency.count;
            write!(f, "<span class=\"low\" title=\"only {samples} samples\">~</span>")?;
        }
        write!(f, "{:.1}&nbsp;ms", seconds * 1e3)
    }
}

/// An instant, relative to now, with the exact time for whoever wants it.
struct Moment(Option<DateTime<Utc>>, DateTime<Utc>);

impl Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Some(at), now) = *self else { return f.write_str("–") };
        let exact = at.format("%Y-%m-%dT%H:%M:%SZ");
        write!(f, "<time datetime=\"{exact}\" title=\"{exact}\">")?;
        if at > now { write!(f, "in {}", Span(at - now)) } else { write!(f, "{} ago", Span(now - at)) }?;
        f.write_str("</time>")
    }
}

/// A length of time, as exact as a reader wants it.
struct Span(TimeDelta);

impl Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.num_seconds().max(0);
        match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
            (0, 0, 0, seconds) => write!(f, "{seconds} s"),
            (0, 0, minutes, _) => write!(f, "{minutes} min"),
            (0, hours, minutes, _) => write!(f, "{hours} h {minutes} min"),
            (days, hours, _, _) => write!(f, "{days} d {hours} h"),
        }
    }
}
