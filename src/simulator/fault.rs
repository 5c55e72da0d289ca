//! The ways in which a model can be made to misbehave, by the suffixes of its name: `qwen3-8b+429+role-first`.
//!
//! Data only: what each does is done by `refusal` (before the answer) and `reply` (within it).

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// One way to misbehave.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Fault {
            /// All of them, with the suffix that asks for each.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$variant, $name),)+];
        }
    };
}

faults! {
    /// 429 with `Retry-After: 1`.
    RateLimited = "429",
    /// 401.
    Unauthorized = "401",
    /// 404, as if the model did not exist.
    NotFound = "404",
    /// 500.
    ServerError = "500",
    /// 503.
    Unavailable = "503",
    /// Every fifth request is a 500.
    Flaky = "flaky",
    /// A web page with status 200, as a captive portal or a login proxy sends it.
    Html = "html",
    /// 400 when `stream_options` is sent.
    UsageRejected = "usage-rejected",
    /// The connection is reset before a byte is answered.
    Reset = "reset",
    /// Headers come late (by [`super::Settings::lateness`]).
    SlowHeaders = "slow-headers",
    /// Headers come at once, the first token late (by [`super::Settings::lateness`]).
    SlowFirst = "slow-first",
    /// Everything takes twice as long.
    Slow = "slow",
    /// Two tokens, then silence on an open connection.
    Stall = "stall",
    /// Two tokens, then the connection is closed without an end.
    Truncate = "truncate",
    /// Two tokens, then an error event and a proper end.
    ErrorInStream = "error-in-stream",
    /// A proper answer without a single token.
    Empty = "empty",
    /// Usage is never told.
    NoUsage = "no-usage",
    /// Not a stream, whatever was asked for.
    Json = "json",
    /// All tokens in one write at the end.
    Burst = "burst",
    /// Four tokens in every event.
    FourPerChunk = "four-per-chunk",
    /// The role-only chunk is sent at once, before prefill.
    RoleFirst = "role-first",
    /// Comments are sent while the first token is awaited.
    Keepalive = "keepalive",
    /// Thinks before it answers (no fault, but asked for in the same way).
    Reasoning = "reasoning",
}

/// A set of faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults(u32);

impl Faults {
    /// Parses `429+role-first`.
    ///
    /// # Errors
    /// The first suffix that is not known.
    pub fn parse(suffixes: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for suffix in suffixes.split('+') {
            let known = Fault::ALL.iter().find(|(_, name)| *name == suffix);
            let (fault, _) = known.ok_or_else(|| suffix.to_owned())?;
            faults = faults.with(*fault);
        }
        Ok(faults)
    }

    /// Whether `fault` is among them.
    #[must_use]
    pub fn has(self, fault: Fault) -> bool {
        self.0 & fault.bit() != 0
    }

    /// These and `fault`.
    #[must_use]
    pub fn with(self, fault: Fault) -> Self {
        Self(self.0 | fault.bit())
    }

    /// Those of both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// All names that [`Self::parse`] knows, for an error message.
    #[must_use]
    pub fn names() -> String {
        Fault::ALL.iter().map(|(_, name)| format!("+{name}")).collect::<Vec<_>>().join(", ")
    }
}

impl Fault {
    fn bit(self) -> u32 {
        1 << self as u32
    }
}
