//! What the processes of the benchmark tell each other: one line each, in plain text.

use std::{fmt, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// What the server really did for one request. Instants are nanoseconds of its monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Truth {
    pub(crate) trace: u128,
    pub(crate) received: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) tokens: u32,
    pub(crate) complete: bool,
}

/// What a client measured of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) trace: u128,
    pub(crate) ttft: Duration,
    pub(crate) tpot: Duration,
}

/// What a process cost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) peak_memory_kib: u64,
}

/// One line of a child's output.
pub(crate) enum Line {
    Truth(Truth),
    Measured(Measured),
    /// A request that gave no measurement.
    Failed,
    Usage(Usage),
}

/// How a failed request is told.
pub(crate) const FAILED: &str = "failed";

impl Usage {
    /// So far.
    pub(crate) fn of_this_process() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = Duration::from_secs(cpu.tv_sec.unsigned_abs());
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|value| value.trim().trim_end_matches("kB").trim().parse().ok());
        Self {
            cpu: seconds + Duration::from_nanos(cpu.tv_nsec.unsigned_abs()),
            peak_memory_kib: kib.unwrap_or(0),
        }
    }
}

impl Line {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let numbers: Vec<u128> = words.map_while(|word| word.parse().ok()).collect();
        let small = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        match (kind, numbers.as_slice()) {
            ("truth", &[trace, received, first, last, tokens, complete]) => Some(Self::Truth(Truth {
                trace,
                received: small(received),
                first: small(first),
                last: small(last),
                tokens: u32::try_from(tokens).ok()?,
                complete: complete == 1,
            })),
            ("measured", &[trace, ttft, tpot]) => Some(Self::Measured(Measured {
                trace,
                ttft: Duration::from_nanos(small(ttft)),
                tpot: Duration::from_nanos(small(tpot)),
            })),
            (FAILED, _) => Some(Self::Failed),
            ("usage", &[cpu, kib]) => Some(Self::Usage(Usage {
                cpu: Duration::from_nanos(small(cpu)),
                peak_memory_kib: small(kib),
            })),
            _ => None,
        }
    }
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, received, first, last, tokens, complete } = self;
        write!(f, "truth {trace} {received} {first} {last} {tokens} {}", u8::from(*complete))
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "measured {} {} {}", self.trace, self.ttft.as_nanos(), self.tpot.as_nanos())
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "usage {} {}", self.cpu.as_nanos(), self.peak_memory_kib)
    }
}
