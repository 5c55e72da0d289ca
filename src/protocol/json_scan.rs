//! Finds where a JSON value ends, without building it: bytes may come in any pieces, each is looked at once.
//!
//! Knows brackets and strings, nothing of grammar: the parser that reads the value afterwards judges that.

/// Scans a growing buffer for the end of the first bracketed value in it.
#[derive(Debug, Default)]
pub(super) struct JsonScan {
    scanned: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    first: Option<u8>,
    stage: Stage,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Only whitespace so far.
    #[default]
    Before,
    Inside,
    /// What began is not a bracketed value: its end cannot be told from its bytes.
    NotAValue,
    /// Complete, and ends here.
    Ended(usize),
}

impl JsonScan {
    /// Looks at what was added to `buffer` since the last call; the offset just behind the first value once that is
    /// complete. The buffer may only have grown since.
    pub(super) fn advance(&mut self, buffer: &[u8]) -> Option<usize> {
        if matches!(self.stage, Stage::Before | Stage::Inside) {
            let fresh = buffer.get(self.scanned..).unwrap_or_default();
            for (offset, byte) in fresh.iter().enumerate() {
                self.step(*byte, self.scanned + offset);
                if !matches!(self.stage, Stage::Before | Stage::Inside) {
                    break;
                }
            }
            self.scanned = buffer.len();
        }
        match self.stage {
            Stage::Ended(end) => Some(end),
            Stage::Before | Stage::Inside | Stage::NotAValue => None,
        }
    }

    /// The first byte that is not whitespace.
    pub(super) fn first_byte(&self) -> Option<u8> {
        self.first
    }

    fn step(&mut self, byte: u8, at: usize) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        if self.first.is_none() && !byte.is_ascii_whitespace() {
            self.first = Some(byte);
        }
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.stage = Stage::Inside;
            }
            b'}' | b']' if self.depth > 0 => {
                self.depth -= 1;
                if self.depth == 0 {
                    self.stage = Stage::Ended(at + 1);
                }
            }
            b'"' if self.depth > 0 => self.in_string = true,
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ if self.depth == 0 => self.stage = Stage::NotAValue,
            _ => {}
        }
    }
}

/// The complete bracketed values at the head of `bytes`, and what remains behind them.
pub(super) fn split_values(bytes: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let mut values = Vec::new();
    let mut rest = bytes;
    while let Some((value, behind)) =
        JsonScan::default().advance(rest).and_then(|end| rest.split_at_checked(end))
    {
        values.push(value);
        rest = behind;
    }
    (values, rest)
}
