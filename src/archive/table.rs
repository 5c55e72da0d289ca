//! Levels as a flat table for programs that analyse: one row a level, written as CSV or Parquet.
//!
//! What the columns are is said once; both shapes have the same, in the same order.

use std::{io::Write, sync::Arc};

use chrono::{DateTime, SecondsFormat, Utc};
use parquet::{
    basic::{LogicalType, Repetition, TimeUnit, Type as Physical},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type},
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::types::{Type, TypePtr},
};

use super::{
    exchange::ImportError,
    read::RunListing,
    row::{LevelRow, Spread},
    store::Store,
};

/// Rows of a row group: what is held in memory at once.
const ROW_GROUP_MAX: usize = 20_000;

/// What a table is written to.
pub(super) type Out<'o> = &'o mut (dyn Write + Send);

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(Option<String>),
    Count(Option<i64>),
    Number(Option<f64>),
    Flag(Option<bool>),
    /// Milliseconds since 1970.
    Instant(i64),
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Count,
    Number,
    Flag,
    Instant,
}

const COLUMNS: [(&str, Kind); 33] = [
    ("run", Kind::Count),
    ("sweep", Kind::Text),
    ("started_at", Kind::Instant),
    ("ended_at", Kind::Instant),
    ("target", Kind::Text),
    ("model", Kind::Text),
    ("served_model", Kind::Text),
    ("prompt_tokens", Kind::Count),
    ("concurrency", Kind::Count),
    ("requests", Kind::Count),
    ("ok", Kind::Count),
    ("failures", Kind::Text),
    ("ttft_mean_seconds", Kind::Number),
    ("ttft_p50_seconds", Kind::Number),
    ("ttft_p95_seconds", Kind::Number),
    ("ttft_p99_seconds", Kind::Number),
    ("tpot_mean_seconds", Kind::Number),
    ("tpot_p50_seconds", Kind::Number),
    ("tpot_p95_seconds", Kind::Number),
    ("tpot_p99_seconds", Kind::Number),
    ("request_tps_mean", Kind::Number),
    ("request_tps_p50", Kind::Number),
    ("duration_mean_seconds", Kind::Number),
    ("duration_p50_seconds", Kind::Number),
    ("duration_p95_seconds", Kind::Number),
    ("duration_p99_seconds", Kind::Number),
    ("throughput_tokens_per_second", Kind::Number),
    ("throughput_requests_per_second", Kind::Number),
    ("prompt_tokens_measured", Kind::Number),
    ("cached_ratio", Kind::Number),
    ("client_saturated", Kind::Flag),
    ("incomplete", Kind::Flag),
    ("rate", Kind::Number),
];

fn row(run: &RunListing, level: &LevelRow) -> Vec<Value> {
    let failures: Vec<String> =
        level.failures.iter().map(|(class, count)| format!("{class}:{count}")).collect();
    let text = |text: &String| Value::Text(Some(text.clone()));
    let count = |number: i64| Value::Count(Some(number));
    let of = |spread: Option<Spread>| {
        let numbers = spread.map(Spread::numbers).map_or([None; 4], |numbers| numbers.map(Some));
        numbers.map(Value::Number)
    };
    let mut row = vec![
        count(run.id),
        text(&run.run.sweep),
        Value::Instant(level.started_at),
        Value::Instant(level.ended_at),
        text(&level.target),
        text(&level.model),
        Value::Text(level.served_model.clone()),
        count(level.prompt_tokens.into()),
        // What is in flight at a rate is not asked for.
        Value::Count(level.open_loop.is_none().then(|| level.concurrency.into())),
        count(level.requests.into()),
        count(level.ok.into()),
        Value::Text(Some(failures.join(" "))),
    ];
    row.extend(of(level.ttft));
    row.extend(of(level.tpot));
    row.extend(of(level.request_tps).into_iter().take(2));
    row.extend(of(level.duration));
    row.extend(
        [
            level.throughput_tokens_per_second,
            level.throughput_requests_per_second,
            level.prompt_tokens_measured,
            level.cached_ratio,
        ]
        .map(Value::Number),
    );
    row.extend([Value::Flag(level.client_saturated), Value::Flag(Some(level.incomplete))]);
    row.push(Value::Number(level.open_loop.map(|open| open.rate.per_second())));
    row
}

/// Writes the levels of these runs, the oldest first, as CSV. A spreadsheet takes what begins like a formula for one, and
/// some texts were chosen by servers: a quote before them makes them texts.
pub(super) fn csv(store: &Store, runs: &[RunListing], out: Out<'_>) -> Result<(), ImportError> {
    let mut table = csv::Writer::from_writer(out);
    let io = |error: csv::Error| ImportError::Io(error.into());
    table.write_record(COLUMNS.map(|(name, _)| name)).map_err(io)?;
    for run in runs.iter().rev() {
        for level in store.levels(run.id)? {
            table.write_record(row(run, &level).iter().map(Value::shown)).map_err(io)?;
        }
    }
    table.flush().map_err(ImportError::Io)
}

/// The same as Parquet, uncompressed: a reader of any version takes it.
pub(super) fn parquet(store: &Store, runs: &[RunListing], out: Out<'_>) -> Result<(), ImportError> {
    let io = |error: ParquetError| ImportError::Io(std::io::Error::other(error));
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(out, schema().map_err(io)?, properties).map_err(io)?;
    let mut rows = Vec::new();
    for run in runs.iter().rev() {
        rows.extend(store.levels(run.id)?.iter().map(|level| row(run, level)));
        if rows.len() >= ROW_GROUP_MAX {
            write_group(&mut file, &rows).map_err(io)?;
            rows.clear();
        }
    }
    write_group(&mut file, &rows).map_err(io)?;
    file.close().map(drop).map_err(io)
}

fn schema() -> Result<TypePtr, ParquetError> {
    let columns = COLUMNS.map(|(name, kind)| {
        let (physical, logical) = match kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Count => (Physical::INT64, None),
            Kind::Number => (Physical::DOUBLE, None),
            Kind::Flag => (Physical::BOOLEAN, None),
            Kind::Instant => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
        };
        let column = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        column.build().map(Arc::new)
    });
    let fields = columns.into_iter().collect::<Result<Vec<_>, _>>()?;
    Type::group_type_builder("level").with_fields(fields).build().map(Arc::new)
}

fn write_group(file: &mut SerializedFileWriter<Out<'_>>, rows: &[Vec<Value>]) -> Result<(), ParquetError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut group = file.next_row_group()?;
    for (index, (_, kind)) in COLUMNS.iter().enumerate() {
        let column = rows.iter().filter_map(|row| row.get(index));
        match kind {
            Kind::Text => write_column::<ByteArrayType>(&mut group, column.map(Value::text)),
            Kind::Count | Kind::Instant => write_column::<Int64Type>(&mut group, column.map(Value::integer)),
            Kind::Number => write_column::<DoubleType>(&mut group, column.map(Value::number)),
            Kind::Flag => write_column::<BoolType>(&mut group, column.map(Value::flag)),
        }?;
    }
    group.close().map(drop)
}

/// Writes the next column of a group; what is unknown has no value.
fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Out<'_>>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let mut known = Vec::new();
    let levels: Vec<i16> = values
        .map(|value| {
            let level = i16::from(value.is_some());
            known.extend(value);
            level
        })
        .collect();
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(&known, Some(&levels), None)?;
    column.close()
}

impl Value {
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => {
                let text = text.as_deref().unwrap_or_default();
                let quote = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
                format!("{quote}{text}")
            }
            Self::Count(count) => count.map(|count| count.to_string()).unwrap_or_default(),
            Self::Number(number) => number.map(|number| number.to_string()).unwrap_or_default(),
            Self::Flag(flag) => flag.map(|flag| flag.to_string()).unwrap_or_default(),
            Self::Instant(millis) => {
                let at: Option<DateTime<Utc>> = DateTime::from_timestamp_millis(*millis);
                at.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true)).unwrap_or_default()
            }
        }
    }

    fn text(&self) -> Option<ByteArray> {
        if let Self::Text(text) = self { text.as_deref().map(ByteArray::from) } else { None }
    }

    fn integer(&self) -> Option<i64> {
        match self {
            Self::Count(number) => *number,
            Self::Instant(millis) => Some(*millis),
            Self::Text(_) | Self::Number(_) | Self::Flag(_) => None,
        }
    }

    fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { *number } else { None }
    }

    fn flag(&self) -> Option<bool> {
        if let Self::Flag(flag) = self { *flag } else { None }
    }
}
