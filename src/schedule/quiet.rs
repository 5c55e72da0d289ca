//! Quiet hours: spans of the local day in which nothing is started. Pure: the local time is an argument.

use chrono::{Datelike as _, NaiveDateTime, Timelike as _, Weekday};

const DAYS: [(&str, Weekday); 7] = [
    ("MON", Weekday::Mon),
    ("TUE", Weekday::Tue),
    ("WED", Weekday::Wed),
    ("THU", Weekday::Thu),
    ("FRI", Weekday::Fri),
    ("SAT", Weekday::Sat),
    ("SUN", Weekday::Sun),
];
const MINUTES_PER_DAY: u32 = 24 * 60;

/// One span: from a time of day to another, past midnight when the end is not later than the start, on the days on
/// which it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietHours {
    /// By days from Monday.
    days: [bool; 7],
    from_minute: u32,
    to_minute: u32,
}

impl QuietHours {
    /// Reads `22:00-06:00`, `MON-FRI 08:00-18:00` or `SUN 00:00-24:00`.
    ///
    /// # Errors
    /// What is wrong with it and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (days, span) = match words.as_slice() {
            [span] => ([true; 7], *span),
            [days, span] => (parse_days(days)?, *span),
            _ => return Err(wrong(text)),
        };
        let (from, to) = span.split_once('-').ok_or_else(|| wrong(text))?;
        let minute = |time| parse_minute(time).ok_or_else(|| wrong(text));
        let (from_minute, to_minute) = (minute(from)?, minute(to)?);
        if from_minute == MINUTES_PER_DAY {
            return Err(wrong(text));
        }
        Ok(Self { days, from_minute, to_minute })
    }

    /// Whether a local time lies in it.
    #[must_use]
    pub fn contains(&self, local: NaiveDateTime) -> bool {
        let minute = local.hour() * 60 + local.minute();
        let on = |day: Weekday| self.days.get(day.num_days_from_monday() as usize).copied().unwrap_or(false);
        let today = local.weekday();
        if self.to_minute > self.from_minute {
            return on(today) && (self.from_minute..self.to_minute).contains(&minute);
        }
        (on(today) && minute >= self.from_minute) || (on(today.pred()) && minute < self.to_minute)
    }
}

fn wrong(text: &str) -> String {
    format!(
        "\"{}\" are no hours; write them like \"22:00-06:00\" or \"MON-FRI 08:00-18:00\"",
        text.escape_debug()
    )
}

fn parse_minute(time: &str) -> Option<u32> {
    let (hours, minutes) = time.split_once(':')?;
    let number = |digits: &str| {
        let two = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        if two { digits.parse::<u32>().ok() } else { None }
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minute = hours * 60 + minutes;
    (minutes < 60 && minute <= MINUTES_PER_DAY).then_some(minute)
}

fn parse_days(text: &str) -> Result<[bool; 7], String> {
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut day, last) = (parse_day(first)?, parse_day(last)?);
        loop {
            if let Some(on) = days.get_mut(day.num_days_from_monday() as usize) {
                *on = true;
            }
            if day == last {
                break;
            }
            day = day.succ();
        }
    }
    Ok(days)
}

fn parse_day(text: &str) -> Result<Weekday, String> {
    let found = DAYS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, day)| *day).ok_or_else(|| {
        format!(
            "\"{}\" is no day of the week; write MON, TUE, WED, THU, FRI, SAT or SUN",
            text.escape_debug()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_of_days_and_past_midnight() {
        // 2026-06-01 is a Monday.
        let check = |hours: &str, local: &str, expect: bool| {
            let quiet = QuietHours::parse(hours).unwrap();
            assert_eq!(quiet.contains(local.parse().unwrap()), expect, "{hours} at {local}");
        };
        check("22:00-06:00", "2026-06-01T21:59:59", false);
        check("22:00-06:00", "2026-06-01T22:00:00", true);
        check("22:00-06:00", "2026-06-02T05:59:59", true);
        check("22:00-06:00", "2026-06-02T06:00:00", false);
        check("MON-FRI 08:00-18:00", "2026-06-05T08:00:00", true);
        check("MON-FRI 08:00-18:00", "2026-06-06T08:00:00", false);
        check("FRI 22:00-06:00", "2026-06-06T05:00:00", true);
        check("FRI 22:00-06:00", "2026-06-05T05:00:00", false);
        check("sat-mon,WED 00:00-24:00", "2026-06-01T23:59:59", true);
        check("SAT-MON,WED 00:00-24:00", "2026-06-02T00:00:00", false);
        check("00:00-00:00", "2026-06-02T12:00:00", true);
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for text in [
            "",
            "22-6",
            "22:00",
            "25:00-26:00",
            "24:00-06:00",
            "8:00-9:00",
            "22:60-23:00",
            "MO 08:00-09:00",
            "a b c",
        ] {
            assert!(QuietHours::parse(text).is_err(), "{text}");
        }
    }
}
