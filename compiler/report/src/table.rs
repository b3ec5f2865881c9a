//! Text tables and number formats.

/// A table; the first columns are text, the others numbers.
pub struct Table {
    words: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with the given column heads; the first `words` columns are left-aligned, the others right-aligned.
    pub fn new(words: usize, heads: &[&str]) -> Self {
        Self { words, rows: vec![heads.iter().map(|head| (*head).to_string()).collect()] }
    }

    /// Appends a row with one cell per head.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as text, each line indented by two spaces.
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|c| self.rows.iter().filter_map(|row| row.get(c)).map(|cell| cell.chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                line.push(' ');
                line.push_str(&if column < self.words { format!("{cell:<width$}") } else { format!("{cell:>width$}") });
                line.push(' ');
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Formats as `12.3 M`: three digits and an SI prefix.
pub fn amount(number: f64) -> String {
    const UNITS: [(&str, f64); 5] = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)];
    match UNITS.iter().find(|(_, unit)| number >= *unit) {
        Some((unit, size)) => format!("{} {unit}", digits(number / size)).trim_end().to_string(),
        None => digits(number),
    }
}

/// Formats bytes as `12.3 MB`.
pub fn bytes(number: f64) -> String {
    let text = amount(number);
    if text.ends_with(|c: char| c.is_ascii_alphabetic()) { format!("{text}B") } else { format!("{text} B") }
}

/// Formats seconds as `12.3 us` or `1.23 ms`.
pub fn time(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "us"),
    };
    format!("{} {unit}", digits(number))
}

/// Formats a share as `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Formats with three significant digits.
pub fn digits(number: f64) -> String {
    let after = if number >= 99.95 || number == 0.0 {
        0
    } else if number >= 9.995 {
        1
    } else {
        2
    };
    format!("{number:.after$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!([amount(0.0), amount(7.0), amount(1234.0), amount(5.6e13)], ["0", "7.00", "1.23 k", "56.0 T"]);
        assert_eq!([bytes(12.0), bytes(4096.0)], ["12.0 B", "4.10 kB"]);
        assert_eq!([time(2.0), time(0.0123), time(4e-7)], ["2.00 s", "12.3 ms", "0.40 us"]);
        assert_eq!([digits(99.96), digits(9.996), percent(0.5)], ["100", "10.0", "50.0 %"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(1, &["name", "n"]);
        table.row(vec!["a".into(), "100".into()]);
        assert_eq!(table.text(), "  name    n\n  a     100\n");
    }
}
