//! Python features that templates use: methods of strings, and `strftime`.

use minijinja::value::{Tuple, Value, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

/// Methods of Python's `str` that the compatibility crate lacks, then those it has.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, name, args);
    };
    match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(text.strip_prefix(prefix).unwrap_or(text).into())
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(text.strip_suffix(suffix).unwrap_or(text).into())
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(parts(text.split_once(separator), separator, [text, "", ""]))
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(parts(
                text.rsplit_once(separator),
                separator,
                ["", "", text],
            ))
        }
        "rsplit" => {
            let (separator, most): (&str, Option<usize>) = from_args(args)?;
            let count = most.map_or(usize::MAX, |most| most.saturating_add(1));
            let mut pieces: Vec<Value> = text.rsplitn(count, separator).map(Value::from).collect();
            pieces.reverse();
            Ok(pieces.into())
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn parts(found: Option<(&str, &str)>, separator: &str, missing: [&str; 3]) -> Value {
    let parts = found.map_or(missing, |(before, after)| [before, separator, after]);
    Tuple::from(parts.map(Value::from)).into()
}

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// `strftime` in UTC and the C locale. `seconds` count from 1970-01-01T00:00Z.
pub(super) fn strftime(format: &str, seconds: i64) -> Result<String, Error> {
    let moment = Moment::new(seconds);
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut code = letters.next();
        let bare = code == Some('-');
        if bare {
            code = letters.next();
        }
        let field = code.and_then(|code| moment.field(code)).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidOperation,
                format!("strftime_now: format {format:?} is not supported"),
            )
        })?;
        let trimmed = field.trim_start_matches('0');
        out.push_str(match (bare, trimmed) {
            (false, _) => &field,
            (true, "") => "0",
            (true, _) => trimmed,
        });
    }
    Ok(out)
}

/// A moment in the Gregorian calendar.
struct Moment {
    year: i64,
    /// From 1.
    month: usize,
    /// From 1.
    day: i64,
    /// The day of the year, from 1.
    ordinal: i64,
    /// Day of the week, 0 for Sunday.
    weekday: usize,
    second: i64,
}

impl Moment {
    fn new(seconds: i64) -> Self {
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Days to a civil date: years that begin in March put the leap day last (H. Hinnant, chrono-compatible dates).
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 {
            march_month + 3
        } else {
            march_month - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        // March 1 is day 60, or 61 in leap years; January and February end the shifted year.
        let ordinal = if month > 2 {
            of_year + 60 + i64::from(leap)
        } else {
            of_year - 305
        };
        let weekday = (days + 4).rem_euclid(7) as usize;
        Self {
            year,
            month: month as usize,
            day,
            ordinal,
            weekday,
            second,
        }
    }

    fn field(&self, code: char) -> Option<String> {
        let (hour, minute) = (self.second / 3_600, self.second / 60 % 60);
        let month = MONTHS[self.month - 1];
        Some(match code {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year.rem_euclid(100)),
            'm' => format!("{:02}", self.month),
            'B' => month.to_owned(),
            'b' | 'h' => month[..3].to_owned(),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.ordinal),
            'A' => DAYS[self.weekday].to_owned(),
            'a' => DAYS[self.weekday][..3].to_owned(),
            'H' => format!("{hour:02}"),
            'I' => format!("{:02}", (hour + 11) % 12 + 1),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'M' => format!("{minute:02}"),
            'S' => format!("{:02}", self.second % 60),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
            'T' => format!("{hour:02}:{minute:02}:{:02}", self.second % 60),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}
