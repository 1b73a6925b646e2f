//! `strftime_now`: the date in a prompt. The time is handed in, never read from a clock here.

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

/// Formats the local time as C's strftime does in the C locale; unknown directives stay as written.
pub fn strftime(local_unix_s: i64, format: &str) -> String {
    let t = civil(local_unix_s);
    let (hour, minute, second) = (t.seconds / 3600, t.seconds / 60 % 60, t.seconds % 60);
    let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => out.push_str(&t.year.to_string()),
            Some('y') => out.push_str(&format!("{:02}", t.year.rem_euclid(100))),
            Some('m') => out.push_str(&format!("{:02}", t.month)),
            Some('d') => out.push_str(&format!("{:02}", t.day)),
            Some('e') => out.push_str(&format!("{:2}", t.day)),
            Some('j') => out.push_str(&format!("{:03}", t.day_of_year)),
            Some('B') => out.push_str(MONTHS[t.month - 1]),
            Some('b' | 'h') => out.push_str(&MONTHS[t.month - 1][..3]),
            Some('A') => out.push_str(DAYS[t.weekday]),
            Some('a') => out.push_str(&DAYS[t.weekday][..3]),
            Some('w') => out.push_str(&t.weekday.to_string()),
            Some('H') => out.push_str(&format!("{hour:02}")),
            Some('I') => out.push_str(&format!("{hour12:02}")),
            Some('M') => out.push_str(&format!("{minute:02}")),
            Some('S') => out.push_str(&format!("{second:02}")),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('F') => out.push_str(&format!("{}-{:02}-{:02}", t.year, t.month, t.day)),
            Some('T') => out.push_str(&format!("{hour:02}:{minute:02}:{second:02}")),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::strftime;

    #[test]
    fn known_days() {
        assert_eq!(strftime(0, "%a %d %b %Y %j %H:%M:%S"), "Thu 01 Jan 1970 001 00:00:00");
        assert_eq!(strftime(951_782_400, "%A %F %j"), "Tuesday 2000-02-29 060");
        assert_eq!(strftime(-1, "%F %T %I%p"), "1969-12-31 23:59:59 11PM");
        assert_eq!(strftime(1_735_689_599, "%e %B %y|%Q|%%|%"), "31 December 24|%Q|%|%");
    }
}
