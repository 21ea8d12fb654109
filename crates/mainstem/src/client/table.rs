//! How answers are printed for people: lists as tables, one thing as lines of names and values. What comes from clients is printed without
//! control characters, which terminals would obey.

use serde_json::Value;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Count,
    Bytes,
    /// A second.
    Rate,
    /// Bytes a second.
    ByteRate,
    /// Milliseconds since 1970.
    Time,
    /// Milliseconds.
    Duration,
}

/// A column or a line: its title, the path of its value with dots between, its form.
pub type Column = (&'static str, &'static str, Form);

/// A value by a path of names with dots between.
pub fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, |value, name| &value[name])
}

/// Bytes with a unit.
pub fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Milliseconds with a unit.
pub fn duration(ms: f64) -> String {
    match ms / 1000.0 {
        seconds if seconds < 1.0 => format!("{ms:.0} ms"),
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.1} h", seconds / 3600.0),
        seconds => format!("{:.1} d", seconds / 86_400.0),
    }
}

/// Milliseconds since 1970 as RFC 3339 has it, in UTC.
pub fn time(ms: i64) -> String {
    let (seconds, days) = (ms.div_euclid(1000).rem_euclid(86_400), ms.div_euclid(86_400_000));
    // Days since 1 March 0000, so that a leap day is the last of its year: 400 years have 146,097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day_of_month:02}T{:02}:{:02}:{:02}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// Without control characters.
pub fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|letter| if letter.is_control() { letter.escape_default().collect::<Vec<_>>() } else { vec![letter] })
        .collect()
}

fn written(value: &Value, form: Form) -> String {
    let number = value.as_f64();
    match (form, number) {
        (_, None) => match value {
            Value::Null => "-".to_owned(),
            Value::String(text) if text.is_empty() => "-".to_owned(),
            Value::String(text) => plain(text),
            Value::Bool(value) => if *value { "yes" } else { "no" }.to_owned(),
            Value::Array(items) if items.is_empty() => "-".to_owned(),
            Value::Array(items) => items.iter().map(|item| written(item, Form::Text)).collect::<Vec<_>>().join(","),
            other => plain(&other.to_string()),
        },
        (Form::Bytes, Some(number)) => bytes(number),
        (Form::ByteRate, Some(number)) => format!("{}/s", bytes(number)),
        (Form::Rate, Some(number)) => format!("{number:.1}/s"),
        (Form::Duration, Some(number)) => duration(number),
        (Form::Time, Some(_)) => value.as_i64().map_or_else(|| "-".to_owned(), time),
        (Form::Text | Form::Count, Some(_)) => value.to_string(),
    }
}

/// A table with a head. Numbers stand to the right.
pub fn list(items: &[Value], columns: &[Column]) -> String {
    let rows: Vec<Vec<String>> = items
        .iter()
        .map(|item| columns.iter().map(|(_, path, form)| written(at(item, path), *form)).collect())
        .collect();
    let length = |text: &str| text.chars().count();
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(place, (title, _, _))| {
            rows.iter().map(|row| length(&row[place])).chain([length(title)]).max().unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    let mut line = |cells: Vec<&str>| {
        let mut text = String::new();
        for (place, cell) in cells.into_iter().enumerate() {
            let gap = " ".repeat(widths[place] - length(cell));
            let (before, after) = if columns[place].2 == Form::Text { ("", gap.as_str()) } else { (gap.as_str(), "") };
            text.push_str(&format!("{before}{cell}{after}  "));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(columns.iter().map(|(title, _, _)| *title).collect());
    rows.iter().for_each(|row| line(row.iter().map(String::as_str).collect()));
    out
}

/// Lines of names and values.
pub fn one(value: &Value, lines: &[Column]) -> String {
    let width = lines.iter().map(|(title, _, _)| title.chars().count()).max().unwrap_or(0);
    lines.iter().map(|(title, path, form)| format!("{title:width$}  {}\n", written(at(value, path), *form))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_782_399_000), "2000-02-28T23:59:59Z");
        assert_eq!(time(951_868_800_000), "2000-03-01T00:00:00Z");
        assert_eq!(time(1_709_210_096_789), "2024-02-29T12:34:56Z");
        assert_eq!(time(-1000), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn tables_line_up_and_obey_nobody() {
        let items = [json!({"name": "a", "n": {"x": 5}}), json!({"name": "long\u{1b}[31m", "n": {"x": 12345}})];
        let shown =
            list(&items, &[("NAME", "name", Form::Text), ("N", "n.x", Form::Count), ("GONE", "no", Form::Text)]);
        assert_eq!(shown, "NAME                N  GONE\na                   5  -\nlong\\u{1b}[31m  12345  -\n");
        assert_eq!(
            one(&items[0], &[("Name", "name", Form::Text), ("Number", "n.x", Form::Bytes)]),
            "Name    a\nNumber  5 B\n"
        );
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes(1023.0), "1023 B");
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(bytes(3.0 * 1024.0 * 1024.0 * 1024.0), "3.0 GiB");
        assert_eq!(duration(500.0), "500 ms");
        assert_eq!(duration(90_000.0), "90.0 s");
        assert_eq!(duration(604_800_000.0), "7.0 d");
    }
}
