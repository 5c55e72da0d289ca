//! Reads one table of the file key by key, so that every problem in it is found, not only the first.
//!
//! A value is deserialised on its own, into a type that cannot hold a bad one: the caret stands under it. What
//! no one asked for by [`Section::finish`] is an unknown key. What keys mean is not known here.

use std::{cell::RefCell, ops::Range};

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue, ValueDeserializer},
};

use super::{
    diagnostic::{At, Notes, Placed},
    nearest::nearest,
};

/// A table of the file and how far it has been read.
pub(super) struct Section<'a> {
    table: &'a DeTable<'a>,
    span: Range<usize>,
    /// In words: `sweeps[1] "hourly"`; empty for the file itself.
    place: String,
    /// For the list of known keys: `sweeps.timeout`; empty for the file itself.
    path: String,
    notes: &'a Notes,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// The file itself.
    pub fn root(table: &'a DeTable<'a>, notes: &'a Notes) -> Self {
        Self::new(table, 0..0, String::new(), String::new(), notes)
    }

    fn new(
        table: &'a DeTable<'a>,
        span: Range<usize>,
        place: String,
        path: String,
        notes: &'a Notes,
    ) -> Self {
        Self { table, span, place, path, notes, known: RefCell::default() }
    }

    /// The value of a key; `None` when it is absent, or bad and complained about.
    pub fn value<T: DeserializeOwned>(&self, key: &'static str) -> Option<Placed<T>> {
        let raw = self.raw(key)?;
        self.deserialize(key, raw)
    }

    /// A list that is not empty. Each bad element is complained about.
    pub fn list<T: DeserializeOwned>(&self, key: &'static str) -> Option<Placed<Vec<Placed<T>>>> {
        let raw = self.raw(key)?;
        let at = self.at(key, raw.span());
        let DeValue::Array(elements) = raw.get_ref() else {
            let found = kind(raw.get_ref());
            self.notes.complain(&at, format!("must be a list, not {found}; write it in brackets: [...]"));
            return None;
        };
        if elements.is_empty() {
            self.notes.complain(&at, "must not be empty; list at least one, or remove the key");
            return None;
        }
        let value: Vec<_> = elements.iter().filter_map(|element| self.deserialize(key, element)).collect();
        (value.len() == elements.len()).then_some(Placed { value, at })
    }

    /// One of a few words.
    pub fn choice<T: DeserializeOwned>(&self, key: &'static str, words: &[&str]) -> Option<T> {
        let raw = self.raw(key)?;
        let all = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
        let message = match raw.get_ref().as_str() {
            Some(word) if words.contains(&word) => {
                return self.deserialize(key, raw).map(|placed| placed.value);
            }
            Some(word) => match nearest(word, words.iter().copied()) {
                Some(near) => format!("\"{word}\" is not one of {all}; did you mean \"{near}\"?"),
                None => format!("\"{word}\" is not known; write one of {all}"),
            },
            None => format!("must be a string, not {}; write one of {all}", kind(raw.get_ref())),
        };
        self.notes.complain(&self.at(key, raw.span()), message);
        None
    }

    /// A table inside this one.
    pub fn section(&self, key: &'static str) -> Option<Section<'a>> {
        let raw = self.raw(key)?;
        let DeValue::Table(table) = raw.get_ref() else {
            let message = format!("must be a table, not {}; write {{ ... }}", kind(raw.get_ref()));
            self.notes.complain(&self.at(key, raw.span()), message);
            return None;
        };
        let place = if self.place.is_empty() { key.to_owned() } else { format!("{}: {key}", self.place) };
        Some(Self::new(table, raw.span(), place, self.path_of(key), self.notes))
    }

    /// A table under one of the user's own keys. To the list of known keys, all of these are one.
    pub fn entry(&self, key: &str) -> Option<Section<'a>> {
        let raw = self.table.get(key)?;
        let at = self.at(key, raw.span());
        let DeValue::Table(table) = raw.get_ref() else {
            let message = format!("must be a table, not {}; write {{ ... }}", kind(raw.get_ref()));
            self.notes.complain(&at, message);
            return None;
        };
        Some(Self::new(table, raw.span(), at.place, self.path.clone(), self.notes))
    }

    /// An array of tables, `[[key]]`, each called by its number (from 1) and its name.
    pub fn sections(&self, key: &'static str) -> Vec<Section<'a>> {
        let Some(raw) = self.raw(key) else { return Vec::new() };
        let wrong = |value: &Spanned<DeValue<'_>>| {
            let message = format!("this is {}; write [[{key}]] above each of them", kind(value.get_ref()));
            self.notes.complain(&self.at(key, value.span()), message);
        };
        let DeValue::Array(elements) = raw.get_ref() else {
            wrong(raw);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (index, element) in elements.iter().enumerate() {
            let DeValue::Table(table) = element.get_ref() else {
                wrong(element);
                continue;
            };
            let name = table.get("name").and_then(|name| name.get_ref().as_str());
            let name = name.map_or(String::new(), |name| format!(" \"{}\"", name.escape_debug()));
            let place = format!("{key}[{}]{name}", index + 1);
            sections.push(Self::new(table, element.span(), place, self.path_of(key), self.notes));
        }
        sections
    }

    /// The value of a key as it was parsed.
    pub fn raw(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.borrow_mut().push(key);
        self.notes.know(self.path_of(key));
        self.table.get(key)
    }

    /// Every key and value, for tables whose keys are the user's own; none of them is unknown then.
    pub fn entries(&self) -> impl Iterator<Item = (Placed<&'a str>, &'a Spanned<DeValue<'a>>)> + '_ {
        self.table.iter().map(|(key, value)| {
            (Placed { value: key.get_ref().as_ref(), at: self.at(key.get_ref(), key.span()) }, value)
        })
    }

    /// Where a value of this table stands.
    pub fn at(&self, key: &str, span: Range<usize>) -> At {
        let separator = if self.place.is_empty() { "" } else { ": " };
        At { span, place: format!("{}{separator}key \"{}\"", self.place, key.escape_debug()) }
    }

    /// Where this table stands.
    pub fn here(&self) -> At {
        At { span: self.span.clone(), place: self.place.clone() }
    }

    /// A key that must be there is not. A misspelt one will be complained about as unknown.
    pub fn missing(&self, key: &str, mend: &str) {
        let known = self.known.borrow();
        let unknown =
            self.table.keys().map(|name| name.get_ref().as_ref()).filter(|name| !known.contains(name));
        if nearest(key, unknown).is_some() {
            return;
        }
        self.notes.complain(&self.here(), format!("key \"{key}\" is missing; {mend}"));
    }

    /// What was noticed so far.
    pub fn notes(&self) -> &'a Notes {
        self.notes
    }

    /// Complains about every key nobody asked for.
    pub fn finish(self) {
        let known = self.known.borrow();
        for (key, value) in self.table {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            // It may be a misspelt `api_key`.
            mask_texts(self.notes, value);
            let message = nearest(name, known.iter().copied()).map_or_else(
                || format!("unknown key; known here are {}", listed(&known)),
                |near| format!("unknown key; did you mean \"{near}\"?"),
            );
            self.notes.complain(&self.at(name, key.span()), message);
        }
    }

    fn deserialize<T: DeserializeOwned>(&self, key: &str, raw: &Spanned<DeValue<'a>>) -> Option<Placed<T>> {
        let at = self.at(key, raw.span());
        match T::deserialize(ValueDeserializer::from(raw.clone())) {
            Ok(value) => Some(Placed { value, at }),
            Err(error) => {
                let span = error.span().unwrap_or(raw.span());
                self.notes.complain(&At { span, ..at }, error.message());
                None
            }
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

fn listed(keys: &[&str]) -> String {
    let mut keys: Vec<_> = keys.iter().map(|key| format!("\"{key}\"")).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.join(", ")
}

/// Hides every text of a value.
pub(super) fn mask_texts(notes: &Notes, value: &Spanned<DeValue<'_>>) {
    match value.get_ref() {
        DeValue::String(_) => notes.mask(value.span()),
        DeValue::Array(elements) => elements.iter().for_each(|element| mask_texts(notes, element)),
        DeValue::Table(table) => table.values().for_each(|value| mask_texts(notes, value)),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {}
    }
}

/// What a value is, with its article.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
