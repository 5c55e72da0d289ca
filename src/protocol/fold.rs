//! Reads a JSON object by folding its members into a value that exists already: no tree, no allocation.
//!
//! Providers disagree about types (null for absent, a string for a list), so every reader here is lenient: what has an
//! unexpected shape is skipped, and only bytes that are not JSON are an error. Knows nothing of any wire format.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Takes in the members of an object, one by one, in whatever order they come.
pub(super) trait Members {
    /// Takes in the member `name`; its value has to be read from `map`, if only to skip it.
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;

    /// The object has no more members.
    fn end(&mut self) {}
}

/// Folds the object that `payload` is.
pub(super) fn fold(payload: &[u8], into: &mut impl Members) -> Result<(), serde_json::Error> {
    // Checking the whole once is cheaper than checking every string in it.
    let payload = std::str::from_utf8(payload).map_err(serde::de::Error::custom)?;
    let mut deserializer = serde_json::Deserializer::from_str(payload);
    Object(into).deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Skips a member.
pub(super) fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}

/// Reads a member that should be a whole number.
pub(super) fn number<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<u64>, A::Error> {
    match map.next_value_seed(Scalar::TOP)? {
        Value::Number(number) => Ok(Some(number)),
        Value::Word(_) | Value::Truth(_) | Value::Nothing => Ok(None),
    }
}

/// Reads a member that should be a string that is not empty.
pub(super) fn word<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Cow<'de, str>>, A::Error> {
    match map.next_value_seed(Scalar::TOP)? {
        Value::Word(word) if !word.is_empty() => Ok(Some(word)),
        Value::Word(_) | Value::Number(_) | Value::Truth(_) | Value::Nothing => Ok(None),
    }
}

/// Reads a member and tells whether it says anything: not null, false, zero, empty text, or an object or a list of
/// nothing but these.
pub(super) fn truth<'de, A: MapAccess<'de>>(map: &mut A) -> Result<bool, A::Error> {
    map.next_value_seed(Scalar::TOP).map(|value| value.says_anything())
}

/// Reads a member that should be a code, a word or a number, as text; empty when it is neither.
pub(super) fn code<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Cow<'de, str>, A::Error> {
    Ok(match map.next_value_seed(Scalar::TOP)? {
        Value::Word(word) => word,
        Value::Number(number) => Cow::Owned(number.to_string()),
        Value::Truth(_) | Value::Nothing => Cow::Borrowed(""),
    })
}

/// Folds an object; anything else is skipped.
pub(super) struct Object<'a, T>(pub(super) &'a mut T);

/// Folds every object of a list; an object alone counts as a list of one.
pub(super) struct Each<'a, T>(pub(super) &'a mut T);

enum Value<'de> {
    Word(Cow<'de, str>),
    Number(u64),
    Truth(bool),
    Nothing,
}

impl Value<'_> {
    fn says_anything(&self) -> bool {
        match self {
            Self::Word(word) => !word.is_empty(),
            Self::Truth(truth) => *truth,
            Self::Number(number) => *number != 0,
            Self::Nothing => false,
        }
    }
}

/// Reads a value of which only the kind matters, unless it is a scalar.
#[derive(Clone, Copy)]
struct Scalar {
    depth: u8,
}

impl Scalar {
    const TOP: Self = Self { depth: 0 };
    /// Lists and objects that deep say something unless they are empty.
    const DEPTH_MAX: u8 = 3;

    fn inner(self) -> Option<Self> {
        (self.depth < Self::DEPTH_MAX).then_some(Self { depth: self.depth + 1 })
    }
}

/// Methods of a [`Visitor`] that skip scalars; lists and objects are left to the implementor.
macro_rules! skip_scalars {
    ($value:expr) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any JSON value")
        }
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($value)
        }
    };
}
pub(super) use skip_scalars;

/// Reads and drops the rest of a list.
pub(super) fn drain_list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<bool, A::Error> {
    let mut any = false;
    while list.next_element::<IgnoredAny>()?.is_some() {
        any = true;
    }
    Ok(any)
}

/// Reads and drops the rest of an object.
pub(super) fn drain_object<'de, A: MapAccess<'de>>(mut map: A) -> Result<bool, A::Error> {
    let mut any = false;
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
        any = true;
    }
    Ok(any)
}

impl<'de, T: Members> DeserializeSeed<'de> for Object<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Members> Visitor<'de> for Object<'_, T> {
    type Value = ();

    skip_scalars!(());

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        drain_list(list).map(|_| ())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = map.next_key::<Name<'de>>()? {
            self.0.member(&name, &mut map)?;
        }
        self.0.end();
        Ok(())
    }
}

impl<'de, T: Members> DeserializeSeed<'de> for Each<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Members> Visitor<'de> for Each<'_, T> {
    type Value = ();

    skip_scalars!(());

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Object(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        Object(self.0).visit_map(map)
    }
}

impl<'de> DeserializeSeed<'de> for Scalar {
    type Value = Value<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Scalar {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value<'de>, E> {
        Ok(Value::Truth(truth))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value<'de>, E> {
        Ok(Value::Number(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value<'de>, E> {
        Ok(Value::Nothing)
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value<'de>, E> {
        let whole = (0.0..9.0e15).contains(&number) && number.fract() == 0.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked the line above")]
        Ok(if whole { Value::Number(number as u64) } else { Value::Nothing })
    }

    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Nothing)
    }

    fn visit_borrowed_str<E>(self, word: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Word(Cow::Borrowed(word)))
    }

    fn visit_str<E>(self, word: &str) -> Result<Value<'de>, E> {
        Ok(Value::Word(Cow::Owned(word.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value<'de>, A::Error> {
        let Some(inner) = self.inner() else { return drain_list(list).map(Value::Truth) };
        let mut any = false;
        while let Some(value) = list.next_element_seed(inner)? {
            any |= value.says_anything();
        }
        Ok(Value::Truth(any))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<'de>, A::Error> {
        let Some(inner) = self.inner() else { return drain_object(map).map(Value::Truth) };
        let mut any = false;
        while map.next_key::<IgnoredAny>()?.is_some() {
            any |= map.next_value_seed(inner)?.says_anything();
        }
        Ok(Value::Truth(any))
    }
}

/// A member's name, borrowed unless it is written with escapes.
struct Name<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;
        impl<'de> Visitor<'de> for Key {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member's name")
            }
            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }
            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Key)
    }
}

/// Makes readable what servers send though it is not quite JSON: halves of surrogate pairs cut between two chunks,
/// bytes that are not UTF-8, and the `NaN` and `Infinity` of Python. `None` when there is nothing of that kind.
pub(super) fn mend(payload: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(payload);
    let mut mended = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let mut in_string = false;
    let mut changed = matches!(text, Cow::Owned(_));
    while let Some((&byte, behind)) = rest.split_first() {
        let (taken, replacement) = if in_string { mend_in_string(rest) } else { mend_between(rest) };
        if let Some(replacement) = replacement {
            mended.extend_from_slice(replacement);
            changed = true;
        } else {
            mended.extend_from_slice(rest.get(..taken).unwrap_or_default());
        }
        if byte == b'"' {
            in_string = !in_string;
        }
        rest = rest.get(taken..).unwrap_or(behind);
    }
    changed.then_some(mended)
}

/// How many bytes to take of a string's rest, and what to write for them when it is not themselves.
fn mend_in_string(rest: &[u8]) -> (usize, Option<&'static [u8]>) {
    const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();
    if rest.first() != Some(&b'\\') {
        return (1, None);
    }
    let unit = |at: usize| {
        let escape = rest.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(escape).ok()?, 16).ok()
    };
    match (unit(0), unit(6)) {
        (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (12, None),
        (Some(0xd800..=0xdfff), _) => (6, Some(REPLACEMENT)),
        (Some(_), _) => (6, None),
        (None, _) => (2.min(rest.len()), None),
    }
}

/// The same between strings.
fn mend_between(rest: &[u8]) -> (usize, Option<&'static [u8]>) {
    const NOT_NUMBERS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let found = NOT_NUMBERS.into_iter().find(|name| rest.starts_with(name));
    found.map_or((1, None), |name| (name.len(), Some(b"null")))
}
