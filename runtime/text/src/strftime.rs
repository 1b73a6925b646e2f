//! `strftime_now`: the date in a prompt. The time is handed in, never read from a clock here.

use crate::jinja::error::{Error, Result};

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
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

/// Calendar fields of a count of seconds since 1970-01-01T00:00:00 on the local clock.
struct Civil {
    year: i64,
    month: usize,
    day: i64,
    seconds: i64,
    weekday: usize,
    day_of_year: i64,
}

fn is_leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

fn month_days(year: i64, month: usize) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn civil(local_unix_s: i64) -> Civil {
    const DAYS_IN_400_YEARS: i64 = 146_097;
    let days = local_unix_s.div_euclid(86_400);
    // Whole 400-year cycles first, so that the walk over years below is short for any input.
    let mut year = 1970 + 400 * days.div_euclid(DAYS_IN_400_YEARS);
    let mut left = days.rem_euclid(DAYS_IN_400_YEARS);
    while left >= 365 + i64::from(is_leap(year)) {
        left -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let day_of_year = left + 1;
    let mut month = 1;
    while left >= month_days(year, month) {
        left -= month_days(year, month);
        month += 1;
    }
    Civil {
        year,
        month,
        day: left + 1,
        seconds: local_unix_s.rem_euclid(86_400),
        // 1 January 1970 was a Thursday.
        weekday: (days + 4).rem_euclid(7) as usize,
        day_of_year,
    }
}

/// Days since the first Monday-based (`first` 1) or Sunday-based (`first` 0) week began, in weeks.
fn week_of_year(t: &Civil, first: i64) -> i64 {
    let weekday = (t.weekday as i64 - first).rem_euclid(7);
    (t.day_of_year - 1 + 7 - weekday) / 7
}

/// Year and week by ISO 8601.
fn iso_week(t: &Civil) -> (i64, i64) {
    let weekday = (t.weekday as i64 + 6) % 7;
    let week = (t.day_of_year - 1 - weekday + 10) / 7;
    let weeks_of = |year: i64| {
        let corner = |year: i64| (year + year / 4 - year / 100 + year / 400) % 7;
        52 + i64::from(corner(year) == 4 || corner(year - 1) == 3)
    };
    match week {
        ..1 => (t.year - 1, weeks_of(t.year - 1)),
        week if week > weeks_of(t.year) => (t.year + 1, 1),
        week => (t.year, week),
    }
}

/// One directive: a number with its width and fill, or a text. `None`: there is no such directive.
fn directive(t: &Civil, c: char, local_unix_s: i64) -> Option<(String, usize, char)> {
    let (hour, minute, second) = (t.seconds / 3600, t.seconds / 60 % 60, t.seconds % 60);
    let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let number = |number: i64, width: usize| Some((number.to_string(), width, '0'));
    let blank = |number: i64, width: usize| Some((number.to_string(), width, ' '));
    let text = |text: &str| Some((text.to_string(), 0, ' '));
    let all = |format: &str| Some((strftime(local_unix_s, format).unwrap_or_default(), 0, ' '));
    match c {
        'Y' => number(t.year, 1),
        'C' => number(t.year.div_euclid(100), 2),
        'y' => number(t.year.rem_euclid(100), 2),
        'G' => number(iso_week(t).0, 1),
        'g' => number(iso_week(t).0.rem_euclid(100), 2),
        'V' => number(iso_week(t).1, 2),
        'U' => number(week_of_year(t, 0), 2),
        'W' => number(week_of_year(t, 1), 2),
        'm' => number(t.month as i64, 2),
        'd' => number(t.day, 2),
        'e' => blank(t.day, 2),
        'j' => number(t.day_of_year, 3),
        'B' => text(MONTHS[t.month - 1]),
        'b' | 'h' => text(&MONTHS[t.month - 1][..3]),
        'A' => text(DAYS[t.weekday]),
        'a' => text(&DAYS[t.weekday][..3]),
        'w' => number(t.weekday as i64, 1),
        'u' => number((t.weekday as i64 + 6) % 7 + 1, 1),
        'H' => number(hour, 2),
        'k' => blank(hour, 2),
        'I' => number(hour12, 2),
        'l' => blank(hour12, 2),
        'M' => number(minute, 2),
        'S' => number(second, 2),
        'p' => text(if hour < 12 { "AM" } else { "PM" }),
        'P' => text(if hour < 12 { "am" } else { "pm" }),
        'F' => all("%Y-%m-%d"),
        'T' | 'X' => all("%H:%M:%S"),
        'D' | 'x' => all("%m/%d/%y"),
        'R' => all("%H:%M"),
        'r' => all("%I:%M:%S %p"),
        'c' => all("%a %b %e %H:%M:%S %Y"),
        'n' => text("\n"),
        't' => text("\t"),
        // A time without a zone has neither.
        'z' | 'Z' => text(""),
        '%' => text("%"),
        _ => None,
    }
}

/// Formats the local time as Python does on Linux, in the C locale; unknown directives stay as
/// written. The parts of a second aren't known, so a format that asks for them is refused.
pub fn strftime(local_unix_s: i64, format: &str) -> Result<String> {
    let t = civil(local_unix_s);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let written = chars.as_str();
        let mut next = chars.next();
        let flag = next.filter(|c| "-_0^#".contains(*c));
        if flag.is_some() {
            next = chars.next();
        }
        let Some(c) = next else {
            out.push('%');
            out.extend(flag);
            break;
        };
        if matches!(c, 'f' | 's' | 'E' | 'O' | ':' | '+') || c.is_ascii_digit() {
            return Err(Error::unsupported(format!("the directive %{c} of strftime_now")));
        }
        let Some((text, width, fill)) = directive(&t, c, local_unix_s) else {
            out.push('%');
            let rest = chars.as_str().len();
            out.push_str(&written[..written.len() - rest]);
            continue;
        };
        let fill = match flag {
            Some('_') => ' ',
            Some('0') => '0',
            _ => fill,
        };
        if flag != Some('-') {
            out.extend(std::iter::repeat_n(fill, width.saturating_sub(text.len())));
        }
        match (flag, c) {
            (Some('^'), _) => out.push_str(&text.to_uppercase()),
            (Some('#'), 'p') => out.push_str(&text.to_lowercase()),
            (Some('#'), _) => out.push_str(&text.to_uppercase()),
            _ => out.push_str(&text),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    fn strftime(at: i64, format: &str) -> String {
        super::strftime(at, format).unwrap()
    }

    #[test]
    fn known_days() {
        assert_eq!(strftime(0, "%a %d %b %Y %j %H:%M:%S"), "Thu 01 Jan 1970 001 00:00:00");
        assert_eq!(strftime(951_782_400, "%A %F %j"), "Tuesday 2000-02-29 060");
        assert_eq!(strftime(-1, "%F %T %I%p"), "1969-12-31 23:59:59 11PM");
        assert_eq!(strftime(1_735_689_599, "%e %B %y|%Q|%%|%"), "31 December 24|%Q|%|%");
        assert_eq!(
            strftime(951_782_400, "%-d %-m %_d %^a %U %W %V %G"),
            "29 2 29 TUE 09 09 09 2000"
        );
        assert_eq!(
            strftime(1_735_689_599, "%D %R %r %c"),
            "12/31/24 23:59 11:59:59 PM Tue Dec 31 23:59:59 2024"
        );
    }
}
