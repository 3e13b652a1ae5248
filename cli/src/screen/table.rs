//! Tables: columns as wide as their widest cell, two spaces apart, no lines.

use std::io::{self, Write};

/// Rows under a heading.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table with a heading, and no rows yet.
    pub(crate) fn new(heading: [&str; N]) -> Self {
        Self { rows: vec![heading.map(str::to_owned)] }
    }

    /// Adds a row; what a machine said is made safe for the terminal.
    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| super::printable(&cell)));
    }

    /// Writes the table, its columns aligned.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(width);
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                line.push_str(&format!("{cell:width$}  "));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let mut table = Table::new(["NAME", "STATE", ""]);
        table.row(["etcd".into(), "ready".into(), String::new()]);
        table.row(["kube.apiserver".into(), "ä".into(), "x".into()]);
        let mut text = Vec::new();
        table.print(&mut text).unwrap();
        let expected = "NAME            STATE\netcd            ready\nkube.apiserver  ä      x\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
