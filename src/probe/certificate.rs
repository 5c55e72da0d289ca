//! Until when a certificate is valid: the one thing a person wants to know of it, read from its DER form.
//!
//! Pure. Trust is decided elsewhere; nothing here is checked.

use chrono::{DateTime, NaiveDateTime, Utc};

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0]`, the version, which the first version leaves out.
const VERSION: u8 = 0xa0;

/// The end of the certificate's validity; `None` when it cannot be read.
pub(super) fn not_after(certificate: &[u8]) -> Option<DateTime<Utc>> {
    let mut whole = certificate;
    let mut signed = take(&mut whole, SEQUENCE)?;
    let mut body = take(&mut signed, SEQUENCE)?;
    if body.first() == Some(&VERSION) {
        skip(&mut body)?;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        skip(&mut body)?;
    }
    let mut validity = take(&mut body, SEQUENCE)?;
    skip(&mut validity)?;
    let (tag, time) = element(&mut validity)?;
    instant(tag, std::str::from_utf8(time).ok()?)
}

fn instant(tag: u8, text: &str) -> Option<DateTime<Utc>> {
    let text = text.strip_suffix('Z')?;
    let full = match tag {
        // Two digits of the year: below 50 it is this century (RFC 5280).
        UTC_TIME => {
            let century = if text.get(..2)?.parse::<u8>().ok()? < 50 { "20" } else { "19" };
            format!("{century}{text}")
        }
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    Some(NaiveDateTime::parse_from_str(&full, "%Y%m%d%H%M%S").ok()?.and_utc())
}

fn skip(bytes: &mut &[u8]) -> Option<()> {
    element(bytes).map(|_| ())
}

fn take<'a>(bytes: &mut &'a [u8], wanted: u8) -> Option<&'a [u8]> {
    element(bytes).filter(|(tag, _)| *tag == wanted).map(|(_, content)| content)
}

/// The next element's tag and content; what is left stays in `bytes`.
fn element<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > size_of::<u32>() {
            return None;
        }
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some((tag, content))
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;

    use super::*;

    #[test]
    fn the_end_is_found_in_both_spellings() {
        for year in [2027, 2060] {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 3, 4);
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap();
            let expect = Utc.with_ymd_and_hms(year, 3, 4, 0, 0, 0).unwrap();
            assert_eq!(not_after(certificate.der()), Some(expect));
            // Cut anywhere, it is unknown or the same, and nothing breaks.
            for length in 0..certificate.der().len() {
                assert!(not_after(&certificate.der()[..length]).is_none_or(|end| end == expect));
            }
        }
        assert_eq!(not_after(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
