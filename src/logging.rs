//! Log lines on stderr: logfmt-like text or JSON, from `tracing`.

use std::fmt;

use tokenprobe::cli::{LogArgs, LogFormat};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

/// Starts logging at the level asked for. Other crates stay at `warn`, or at the level asked for when it is
/// `trace`: their chatter is for whoever debugs the transport.
pub(crate) fn start(args: &LogArgs) {
    let level = LevelFilter::from_level(args.level);
    let others = if args.level == tracing::Level::TRACE { level } else { level.min(LevelFilter::WARN) };
    // At `trace` this one prints session tokens.
    let signer = others.min(LevelFilter::WARN);
    let filter =
        Targets::new().with_default(others).with_target("aws_sigv4", signer).with_target("tokenprobe", level);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(filter);
    match args.format {
        // Events name their targets: a module's name beside them would be a second value of the same key.
        LogFormat::Json => registry.with(layer.json().flatten_event(true).with_target(false)).init(),
        LogFormat::Logfmt => {
            registry.with(layer.event_format(Logfmt)).init();
        }
    }
}

/// `ts=2026-01-01T00:00:00.000000Z level=info msg="sweep ended" sweep=hourly`
struct Logfmt;

impl<S, N> FormatEvent<S, N> for Logfmt
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "ts=")?;
        SystemTime.format_time(&mut writer)?;
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        write!(writer, " level={level}")?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        writeln!(writer, " msg={}{}", quoted(&fields.message), fields.rest)
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: String,
}

impl Fields {
    fn put(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.rest.push(' ');
            self.rest.push_str(field.name());
            self.rest.push('=');
            self.rest.push_str(&quoted(value));
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, &format!("{value:?}"));
    }
}

/// A value as it stands when it is one plain word, else quoted with its control characters escaped: a server's
/// words must not be able to forge a log line.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '=' | '\\');
    if !value.is_empty() && value.chars().all(plain) { value.to_owned() } else { format!("{value:?}") }
}
