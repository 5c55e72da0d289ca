//! `prompts`: the file that prompts come from, read once when the configuration is.

use std::{fs::File, io::Read as _, path::Path};

use crate::prompt::{Prompts, book};

/// Reads a text to cut prompts from or, from a `.jsonl`, whole prompts.
///
/// # Errors
/// What is wrong with the file, and where.
pub(crate) fn read_prompts(path: &Path) -> Result<Prompts, String> {
    let name = path.display();
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(book::FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read {name}: {error}"))?;
    if read as u64 > book::FILE_BYTES_MAX {
        let most = book::FILE_BYTES_MAX >> 20;
        return Err(format!("{name} is larger than {most} MiB; a part of it does as well"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("{name} is not UTF-8 text: the byte at {at} is not part of any; convert it")
    })?;
    // Editors of some systems put a mark of the byte order before it.
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    let is_lines = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("jsonl"));
    let prompts = if is_lines { book::Real::parse(&text) } else { book::Text::parse(text) };
    prompts.map_err(|error| format!("{name}: {error}"))
}
