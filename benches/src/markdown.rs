//! Markdown tables.

use std::fmt::Write as _;

/// A table. A column of numbers and dashes is aligned to the right.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// # Panics
    /// If the row has more or fewer cells than the head.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(row.len(), self.head.len(), "{row:?}");
        self.rows.push(row);
    }
}

/// Cells, to be joined with others.
pub fn words<S: ToString>(words: impl IntoIterator<Item = S>) -> Vec<String> {
    words.into_iter().map(|word| word.to_string()).collect()
}

/// A table without rows is empty text.
impl std::fmt::Display for Table {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        let numeric = |column: usize| {
            let mut cells = self.rows.iter().map(|row| row[column].trim_matches('*')).filter(|cell| !cell.is_empty());
            let number = |cell: &str| cell == "–" || cell.starts_with(|first: char| first.is_ascii_digit());
            let words = |cell: &str| cell.contains(|c: char| c.is_alphabetic());
            cells.clone().next().is_some() && cells.all(|cell| number(cell) && !words(cell))
        };
        let mut text = String::new();
        writeln!(text, "| {} |", self.head.join(" | "))?;
        let rules = (0..self.head.len()).map(|column| if numeric(column) { "---:" } else { "---" });
        writeln!(text, "|{}|", rules.collect::<Vec<_>>().join("|"))?;
        for row in &self.rows {
            writeln!(text, "| {} |", row.join(" | "))?;
        }
        out.write_str(text.trim_end())
    }
}
