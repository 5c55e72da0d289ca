//! A secret as the file writes it: a variable's name, a file's path, or the value itself.
//!
//! Whatever may be a credential is masked before anything is said about it. Knows nothing of what it is for.

use std::path::Path;

use toml::{Spanned, de::DeValue};

use super::{
    diagnostic::At,
    secret::{Secret, SecretError},
    section::{Section, kind, mask_texts},
    target::Surroundings,
};

/// A secret in any of its three forms: `{ env = "X" }`, `{ file = "/path" }`, or the value itself.
pub(super) fn written_secret(
    section: &Section<'_>,
    key: &'static str,
    at: &At,
    raw: &Spanned<DeValue<'_>>,
    surroundings: &Surroundings<'_>,
    literal: fn(&str) -> Result<Secret, SecretError>,
) -> Option<Secret> {
    let notes = section.notes();
    let form = "{ env = \"VARIABLE\" }, { file = \"/path\" } or a string";
    let DeValue::Table(table) = raw.get_ref() else {
        notes.mask(raw.span());
        let secret = match raw.get_ref().as_str() {
            Some(text) => literal(text).map_err(|error| error.to_string()),
            None => Err(format!("must be {form}, not {}", kind(raw.get_ref()))),
        };
        return secret.map_err(|message| notes.complain(at, message)).ok();
    };
    for form in ["env", "file"] {
        notes.know(format!("targets.{key}.{form}"));
    }
    let mut entries = table.iter();
    let (Some((form_key, value)), None) = (entries.next(), entries.next()) else {
        mask_texts(notes, raw);
        notes.complain(at, format!("must hold exactly one of `env` and `file`; write {form}"));
        return None;
    };
    let key_place = at.place.trim_end_matches('"');
    let value_at = At { span: value.span(), place: format!("{key_place}.{}\"", form_key.get_ref()) };
    let result = match (form_key.get_ref().as_ref(), value.get_ref().as_str()) {
        ("env", Some(name)) if is_variable_name(name) => {
            Secret::from_variable(name, surroundings.environment).map_err(|error| error.to_string())
        }
        // Whoever puts the key itself here must not read it in an error message.
        ("env", Some(_)) => {
            notes.mask(value.span());
            Err("is not the name of an environment variable; write one like \"GATEWAY_API_KEY\"".to_owned())
        }
        ("file", Some(key)) if is_no_path(key, surroundings.directory) => {
            notes.mask(value.span());
            Err("names no file there is, and looks like the key itself; write it into a file and name that"
                .to_owned())
        }
        ("file", Some(path)) => {
            let path = surroundings.directory.join(path);
            Secret::from_file(&path).map_err(|error| error.to_string())
        }
        ("env" | "file", None) => {
            notes.mask(value.span());
            Err(format!("must be a string, not {}", kind(value.get_ref())))
        }
        _ => {
            mask_texts(notes, raw);
            Err(format!("unknown key; write {form}"))
        }
    };
    result.map_err(|message| notes.complain(&value_at, message)).ok()
}

/// Whether a text is more likely a key than the name of a file: it is long, has neither directories nor an ending, and there
/// is no such file.
fn is_no_path(text: &str, directory: &Path) -> bool {
    const CHARS_MIN: usize = 16;
    text.len() >= CHARS_MIN && !text.contains(['/', '.']) && !directory.join(text).exists()
}

fn is_variable_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit())
}
