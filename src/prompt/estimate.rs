//! About how many tokens a text has, without a tokenizer.
//!
//! Reckoned in whole sixtieths of a token, so that what parts of a text add up to is exactly what the whole is worth.

/// In sixtieths of a token.
pub(super) type Units = u64;

const TOKEN: Units = 60;
/// Three characters are two tokens.
const CHINESE_CHAR: Units = 40;
/// A blank line is one token.
const NEWLINE: Units = 30;
/// Numbers and hexadecimal are cut into short pieces.
const DIGIT: Units = 39;
/// What a letter beyond the sixth adds: long words are rarely whole.
const FURTHER_LETTER: Units = 3;
const LETTERS_OF_A_WORD: u64 = 6;

/// About how many tokens a byte-pair tokenizer of today makes of a text: a word is a little more than one, a
/// punctuation mark one, and Chinese has three characters for two.
#[must_use]
pub fn estimate_tokens(text: &str) -> f64 {
    tokens(units(text))
}

/// What so many units are in tokens.
pub(super) const fn tokens(units: Units) -> f64 {
    units as f64 / TOKEN as f64
}

/// [`estimate_tokens`], exactly.
pub(super) const fn units(text: &str) -> Units {
    let mut units = 0;
    let (mut letters, mut digits) = (0, 0);
    // Byte by byte: the prompt of every probe comes through here, and every worker waits for it.
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if byte.is_ascii_alphanumeric() || *byte == b'\'' {
            letters += 1;
            digits += byte.is_ascii_digit() as u64;
            continue;
        }
        units += run(letters, digits);
        (letters, digits) = (0, 0);
        units += match *byte {
            b' ' => 0,
            b'\n' => NEWLINE,
            byte if byte.is_ascii() => TOKEN,
            // The first byte of a character, which stands for all of it.
            0xc0.. => CHINESE_CHAR,
            _ => 0,
        };
    }
    units + run(letters, digits)
}

/// Letters and digits without a break between them.
const fn run(letters: u64, digits: u64) -> Units {
    match (letters, digits) {
        (0, _) => 0,
        (_, 0) => TOKEN + letters.saturating_sub(LETTERS_OF_A_WORD) * FURTHER_LETTER,
        (letters, _) => letters * DIGIT,
    }
}
