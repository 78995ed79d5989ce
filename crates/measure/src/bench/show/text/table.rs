//! Columns that line up, whatever is in them, and no wider than the terminal.

use super::paint::Paint;
use crate::bench::show::Style;
use crate::bench::show::words::{shortened, told_apart, width};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) paint: Paint,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, paint: Paint::Plain }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Cell {
    pub(crate) fn painted(text: String, paint: Paint) -> Self {
        Self { text, paint }
    }
}

pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<Cell>>,
}

const GAP: usize = 2;
/// Even a crowded terminal shows so much of a name.
const NAME_MIN: usize = 8;

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Self { columns: columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Columns in which no row says anything are left out; the widest left-aligned ones give way first, and then the
    /// last ones are left out.
    pub(crate) fn render(&self, style: &Style, indent: usize) -> String {
        let room = style.width.saturating_sub(indent);
        let mut shown: Vec<usize> = (0..self.columns.len()).filter(|c| self.says(*c)).collect();
        let mut widths = self.widths(&shown, room);
        while shown.len() > 2 && widths.iter().sum::<usize>() + GAP * (widths.len() - 1) > room {
            shown.pop();
            widths = self.widths(&shown, room);
        }
        let names = |(column, width): (&usize, &usize)| {
            let cells: Vec<&str> =
                self.rows.iter().map(|row| row.get(*column).map_or("", |c| c.text.as_str())).collect();
            told_apart(&cells, *width)
        };
        let names: Vec<Vec<String>> = shown.iter().zip(&widths).map(names).collect();
        let header: Vec<Cell> = self.columns.iter().map(|(name, _)| Cell::painted(name.clone(), Paint::Dim)).collect();
        let mut text = String::new();
        for (at, row) in std::iter::once(&header).chain(&self.rows).enumerate() {
            let mut line = " ".repeat(indent);
            for (n, (column, width)) in shown.iter().zip(&widths).enumerate() {
                let gap = if n == 0 { 0 } else { GAP };
                let empty = Cell::default();
                let cell = row.get(*column).unwrap_or(&empty);
                let short = at.checked_sub(1).and_then(|row| names[n].get(row));
                line.push_str(&" ".repeat(gap));
                line.push_str(&padded(cell, short, *width, self.columns[*column].1, style));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// If no name were longer than `name_max`.
    pub(crate) fn natural_width(&self, name_max: usize) -> usize {
        let shown: Vec<usize> = (0..self.columns.len()).filter(|c| self.says(*c)).collect();
        let wide = |(c, w): (&usize, usize)| if self.columns[*c].1 == Align::Left { w.min(name_max) } else { w };
        let widths = self.widths(&shown, usize::MAX);
        shown.iter().zip(widths).map(wide).sum::<usize>() + GAP * shown.len().saturating_sub(1)
    }

    fn says(&self, column: usize) -> bool {
        self.rows.iter().any(|r| r.get(column).is_some_and(|cell| !cell.text.trim().is_empty()))
    }

    fn widths(&self, shown: &[usize], room: usize) -> Vec<usize> {
        let natural = |c: &usize| {
            let cells = self.rows.iter().filter_map(|r| r.get(*c)).map(|cell| width(&cell.text)).max();
            cells.unwrap_or(0).max(width(&self.columns[*c].0))
        };
        let mut widths: Vec<usize> = shown.iter().map(natural).collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        loop {
            let total = widths.iter().sum::<usize>() + gaps;
            let left = |n: &usize| self.columns[shown[*n]].1 == Align::Left && widths[*n] > NAME_MIN;
            let widest = (0..widths.len()).filter(left).max_by_key(|n| widths[*n]);
            match widest {
                Some(n) if total > room => {
                    widths[n] -= (total - room).min(widths[n] - NAME_MIN).min(1.max(widths[n] / 8))
                }
                _ => return widths,
            }
        }
    }
}

fn padded(cell: &Cell, short: Option<&String>, columns: usize, align: Align, style: &Style) -> String {
    let text = short.cloned().unwrap_or_else(|| shortened(&cell.text, columns));
    let blank = " ".repeat(columns.saturating_sub(width(&text)));
    let text = cell.paint.over(&text, style);
    if align == Align::Right { format!("{blank}{text}") } else { format!("{text}{blank}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Align::{Left, Right};

    fn style(width: usize) -> Style {
        Style { width, colour: false, unicode: true, cores: false }
    }

    #[test]
    fn wide_names_stay_in_their_column() {
        let mut table = Table::new(&[("NAME", Left), ("MEDIAN", Right)]);
        table.row(vec!["写真".into(), "406 MB/s".into()]);
        table.row(vec!["/mnt/a".into(), "9 MB/s".into()]);
        assert_eq!(table.render(&style(80), 0), "NAME      MEDIAN\n写真    406 MB/s\n/mnt/a    9 MB/s\n");
    }

    #[test]
    fn long_names_give_way_to_numbers() {
        let mut table = Table::new(&[("NAME", Left), ("WORK", Left), ("MEDIAN", Right)]);
        table.row(vec!["n".repeat(300).into(), "w".repeat(60).into(), "406 MB/s".into()]);
        for room in [40, 60, 100, 200] {
            let text = table.render(&style(room), 2);
            assert!(text.lines().all(|l| width(l) <= room), "{room}: {text}");
            assert!(text.contains("406 MB/s"));
        }
    }

    #[test]
    fn columns_that_say_nothing_are_not_there() {
        let mut table = Table::new(&[("A", Left), ("B", Left), ("C", Right)]);
        table.row(vec!["x".into(), "".into(), "1".into()]);
        assert_eq!(table.render(&style(80), 0), "A  C\nx  1\n");
    }
}
