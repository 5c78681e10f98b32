//! Date and time for chat templates, formatted like C's `strftime`.

/// Point in time, in seconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock(pub i64);

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
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Calendar date and time of day in UTC.
struct Date {
    year: i64,
    month: usize,
    day: i64,
    weekday: usize,
    day_of_year: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Clock {
    /// Returns the current time of the system clock.
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self(since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX)))
    }

    fn date(self) -> Date {
        let (days, seconds) = (self.0.div_euclid(86400), self.0.rem_euclid(86400));
        // Days since March 1 of year 0, so a leap day is the last day of its year. Every era of 400 years has equally
        // many days.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 2 } else { month - 10 };
        let year = year_of_era + era * 400 + i64::from(month < 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let month = usize::try_from(month).unwrap_or(0);
        let before = before.get(month).copied().unwrap_or(0) + i64::from(leap && month > 1);
        Date {
            year,
            month,
            day,
            weekday: usize::try_from((days + 4).rem_euclid(7)).unwrap_or(0),
            day_of_year: before + day,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }

    /// Formats the time by a `strftime` pattern. Unknown `%` directives are kept unchanged.
    pub fn format(self, pattern: &str) -> String {
        let date = self.date();
        let month = MONTHS.get(date.month).copied().unwrap_or_default();
        let weekday = DAYS.get(date.weekday).copied().unwrap_or_default();
        let hour_of_12 = (date.hour + 11) % 12 + 1;
        let number = date.month as i64 + 1;
        let mut out = String::new();
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut directive = rest.next();
            let unpadded = directive == Some('-');
            if unpadded {
                directive = rest.next();
            }
            let two = |n: i64| if unpadded { n.to_string() } else { format!("{n:02}") };
            out.push_str(&match directive {
                Some('Y') => date.year.to_string(),
                Some('y') => two(date.year.rem_euclid(100)),
                Some('m') => two(number),
                Some('d') => two(date.day),
                Some('e') if unpadded => date.day.to_string(),
                Some('e') => format!("{:2}", date.day),
                Some('B') => month.to_owned(),
                Some('b' | 'h') => month.chars().take(3).collect(),
                Some('A') => weekday.to_owned(),
                Some('a') => weekday.chars().take(3).collect(),
                Some('H') => two(date.hour),
                Some('I') => two(hour_of_12),
                Some('M') => two(date.minute),
                Some('S') => two(date.second),
                Some('p') => if date.hour < 12 { "AM" } else { "PM" }.to_owned(),
                Some('j') if unpadded => date.day_of_year.to_string(),
                Some('j') => format!("{:03}", date.day_of_year),
                Some('F') => format!("{}-{number:02}-{:02}", date.year, date.day),
                Some('T') => format!("{:02}:{:02}:{:02}", date.hour, date.minute, date.second),
                Some('D') => format!("{number:02}/{:02}/{:02}", date.day, date.year.rem_euclid(100)),
                Some('Z') => "UTC".to_owned(),
                Some('z') => "+0000".to_owned(),
                Some('n') => "\n".to_owned(),
                Some('%') => "%".to_owned(),
                Some(other) => format!("%{other}"),
                None => "%".to_owned(),
            });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn dates_are_formatted() {
        let form = |seconds: i64, form: &str| Clock(seconds).format(form);
        assert_eq!(form(0, "%d %b %Y %H:%M:%S %A %j"), "01 Jan 1970 00:00:00 Thursday 001");
        assert_eq!(form(951_782_400, "%Y-%m-%d %a %-j"), "2000-02-29 Tue 60");
        assert_eq!(
            form(1_735_689_599, "%F %T %I %p %-m/%-d/%y %j"),
            "2024-12-31 23:59:59 11 PM 12/31/24 366"
        );
        assert_eq!(form(-1, "%d %B %Y %Q %%"), "31 December 1969 %Q %");
        assert_eq!(form(4_107_542_400, "%e. %B %Y"), " 1. March 2100");
    }
}
