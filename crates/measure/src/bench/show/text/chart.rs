//! Bars, and plots made of characters: braille where the terminal can, one mark per point where it cannot.

use super::Style;
use super::paint::Paint;
use crate::bench::show::scale::Scale;
use crate::bench::show::units::Unit;
use crate::bench::show::words::{shortened, width};

/// A bar of `columns` at most; eighths of a column, or whole ones.
pub(super) fn bar(part: f64, columns: usize, style: &Style) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    if columns == 0 {
        return String::new();
    }
    if !style.unicode {
        return "#".repeat((part * columns as f64).round() as usize);
    }
    let eighths = (part * columns as f64 * 8.0).round() as usize;
    // Something is never nothing.
    let eighths = if part > 0.0 { eighths.max(1) } else { 0 };
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// 0 to 100 as the height of one character; a hole is a middle dot.
pub(super) fn level(percent: f64, style: &Style) -> char {
    const LEVELS: [[char; 9]; 2] =
        [[' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'], [' ', '.', ':', '-', '=', '+', '*', '#', '@']];
    if !percent.is_finite() {
        return if style.unicode { '·' } else { '?' };
    }
    let n = (percent.clamp(0.0, 100.0) / 100.0 * 8.0).round() as usize;
    let n = if percent >= 1.0 { n.max(1) } else { n };
    LEVELS[usize::from(!style.unicode)][n]
}

pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) struct Plot {
    pub(super) lines: Vec<Line>,
    pub(super) x: Scale,
    pub(super) x_unit: Unit,
    pub(super) y: Scale,
    pub(super) y_unit: Unit,
    /// Upright lines: where, and what it means.
    pub(super) marks: Vec<(f64, String)>,
    pub(super) rows: usize,
}

const MARKS: [[char; 6]; 2] = [['●', '▲', '■', '◆', '○', '△'], ['o', '^', '#', '+', 'x', '%']];
const TICKS: usize = 5;

pub(super) fn mark(line: usize, style: &Style) -> char {
    MARKS[usize::from(!style.unicode)][line % MARKS[0].len()]
}

/// What is drawn: for each character its dots (braille) or its mark, and whose it is.
struct Canvas {
    columns: usize,
    rows: usize,
    cells: Vec<(u8, Option<char>, Option<usize>)>,
}

impl Canvas {
    fn new(columns: usize, rows: usize) -> Self {
        Self { columns, rows, cells: vec![(0, None, None); columns * rows] }
    }

    /// A dot at a place counted in half columns and quarter rows, from the top left.
    fn dot(&mut self, x: usize, y: usize, line: usize) {
        /// Bits of the braille block (U+2800), by column and row.
        const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
        let (column, row) = (x / 2, y / 4);
        if let Some(cell) = self.at(column, row) {
            cell.0 |= BITS[x % 2][y % 4];
            cell.2 = Some(line);
        }
    }

    fn put(&mut self, column: usize, row: usize, mark: char, line: Option<usize>) {
        if let Some(cell) = self.at(column, row) {
            (cell.1, cell.2) = (Some(mark), line);
        }
    }

    fn at(&mut self, column: usize, row: usize) -> Option<&mut (u8, Option<char>, Option<usize>)> {
        (column < self.columns && row < self.rows).then(|| &mut self.cells[row * self.columns + column])
    }

    fn row(&self, row: usize, style: &Style) -> String {
        let mut text = String::new();
        for (dots, mark, line) in &self.cells[row * self.columns..(row + 1) * self.columns] {
            let shown = match (mark, dots) {
                (Some(mark), _) => *mark,
                (None, 0) => ' ',
                (None, dots) if style.unicode => char::from_u32(0x2800 + u32::from(*dots)).unwrap_or('.'),
                _ => '.',
            };
            let paint = line.map_or(Paint::Dim, Paint::Line);
            text.push_str(&paint.over(&shown.to_string(), style));
        }
        text
    }
}

impl Plot {
    pub(super) fn render(&self, style: &Style, indent: usize) -> String {
        let rows = self.whole_rows();
        let labels: Vec<(usize, String)> = self.y_labels(rows);
        let label_width = labels.iter().map(|(_, l)| width(l)).max().unwrap_or(0).max(width(self.y_unit.name()));
        let columns = style.width.saturating_sub(indent + label_width + 3).clamp(20, 100);
        let canvas = self.drawn(columns, rows, style);
        let (margin, axis) = (" ".repeat(indent), if style.unicode { '┤' } else { '|' });
        let mut text = format!("{margin}{:>label_width$}\n", self.y_unit.name());
        for row in 0..rows {
            let label = labels.iter().find(|(at, _)| *at == row).map_or("", |(_, l)| l);
            let side = match (label.is_empty(), style.unicode) {
                (false, _) => axis,
                (true, true) => '│',
                (true, false) => '|',
            };
            text.push_str(format!("{margin}{label:>label_width$} {side}{}", canvas.row(row, style)).trim_end());
            text.push('\n');
        }
        let (corner, dash) = if style.unicode { ("└", "─") } else { ("+", "-") };
        let blank = " ".repeat(label_width + 1);
        text.push_str(&format!("{margin}{blank}{corner}{}\n", dash.repeat(columns)));
        text.push_str(format!("{margin}{blank} {}", self.x_labels(columns)).trim_end());
        text.push('\n');
        text.push_str(&self.legend(style, indent + label_width + 2));
        text
    }

    /// As many rows as put every tick on one, the same distance apart.
    fn whole_rows(&self) -> usize {
        let gaps = self.y.ticks(TICKS).len().saturating_sub(1).max(1);
        gaps * (self.rows / gaps).max(1) + 1
    }

    fn y_labels(&self, rows: usize) -> Vec<(usize, String)> {
        let place = |tick: f64| self.y.place(tick).map(|part| ((1.0 - part) * (rows - 1) as f64).round() as usize);
        self.y.ticks(TICKS).into_iter().filter_map(|t| Some((place(t)?, self.y_unit.tick(t)))).collect()
    }

    /// Beside each other without touching: a label without room is left out.
    fn x_labels(&self, columns: usize) -> String {
        let mut text = String::new();
        let ticks = self.x.ticks(columns / 9);
        let last = ticks.len().saturating_sub(1);
        for (n, tick) in ticks.into_iter().enumerate() {
            let label =
                if n == last && self.x_unit == Unit::Seconds { self.x_unit.show(tick) } else { self.x_unit.tick(tick) };
            let Some(part) = self.x.place(tick) else { continue };
            let centre = (part * (columns - 1) as f64).round() as usize;
            let start = centre.saturating_sub(width(&label) / 2).min(columns.saturating_sub(width(&label)));
            let used = width(&text);
            if used == 0 || start > used {
                text.push_str(&" ".repeat(start.saturating_sub(used)));
                text.push_str(&label);
            }
        }
        text
    }

    fn drawn(&self, columns: usize, rows: usize, style: &Style) -> Canvas {
        let mut canvas = Canvas::new(columns, rows);
        let fine = (columns * 2 - 1, rows * 4 - 1);
        for (x, _) in &self.marks {
            if let Some(part) = self.x.place(*x) {
                let column = (part * (columns - 1) as f64).round() as usize;
                (0..rows).for_each(|row| canvas.put(column, row, if style.unicode { '┊' } else { ':' }, None));
            }
        }
        for (n, line) in self.lines.iter().enumerate() {
            let place = |(x, y): &(f64, f64)| {
                Some((self.x.place(*x)? * fine.0 as f64, (1.0 - self.y.place(*y)?) * fine.1 as f64))
            };
            let places: Vec<Option<(f64, f64)>> = line.points.iter().map(place).collect();
            for pair in places.windows(2) {
                if let [Some(from), Some(to)] = pair {
                    stroke(&mut canvas, *from, *to, n);
                }
            }
            // Few points are marked one by one, many would only smear.
            let marked = line.points.len() <= columns / 3 || line.points.len() == 1;
            for (x, y) in places.into_iter().flatten().filter(|_| marked) {
                canvas.put(x.round() as usize / 2, y.round() as usize / 4, mark(n, style), Some(n));
            }
        }
        canvas
    }

    fn legend(&self, style: &Style, indent: usize) -> String {
        let room = style.width.saturating_sub(indent).max(20);
        let mut lines = vec![String::new()];
        let mut used = 0;
        let named = self.lines.iter().enumerate().filter(|(_, l)| !l.name.is_empty());
        let keys = named.map(|(n, l)| (mark(n, style).to_string(), l.name.as_str(), Paint::Line(n)));
        let sign = if style.unicode { "┊" } else { ":" };
        let marks = self.marks.iter().map(|(_, label)| (sign.to_owned(), label.as_str(), Paint::Dim));
        for (sign, name, paint) in keys.chain(marks) {
            let name = shortened(name, room.saturating_sub(2));
            let wide = width(&name) + 2;
            if used > 0 && used + 3 + wide > room {
                lines.push(String::new());
                used = 0;
            }
            let Some(line) = lines.last_mut() else { continue };
            if used > 0 {
                line.push_str("   ");
                used += 3;
            }
            line.push_str(&format!("{} {name}", paint.over(&sign, style)));
            used += wide;
        }
        let margin = " ".repeat(indent);
        lines.iter().filter(|l| !l.is_empty()).map(|l| format!("{margin}{l}\n")).collect()
    }
}

/// Dots from one place to another, one for each step of the longer side.
fn stroke(canvas: &mut Canvas, from: (f64, f64), to: (f64, f64), line: usize) {
    let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0);
    for n in 0..=steps as usize {
        let part = n as f64 / steps;
        let (x, y) = (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part);
        canvas.dot(x.round() as usize, y.round() as usize, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::show::scale::ScaleKind;

    const PLAIN: Style = Style { width: 60, colour: false, unicode: true };
    const ASCII: Style = Style { width: 60, colour: false, unicode: false };

    #[test]
    fn bars_are_as_long_as_their_part() {
        assert_eq!(bar(1.0, 10, &PLAIN), "██████████");
        assert_eq!(bar(0.5, 10, &PLAIN), "█████");
        assert_eq!(bar(0.5125, 10, &PLAIN), "█████▏");
        assert_eq!(bar(1e-9, 10, &PLAIN), "▏");
        assert_eq!([bar(0.0, 10, &PLAIN), bar(f64::NAN, 10, &PLAIN)], ["", ""]);
        assert_eq!([bar(0.5, 10, &ASCII), bar(7.0, 10, &ASCII)], ["#####", "##########"]);
    }

    #[test]
    fn levels_rise_and_holes_show() {
        let strip: String = [0.0, 50.0, 100.0, f64::NAN].into_iter().map(|p| level(p, &PLAIN)).collect();
        assert_eq!(strip, " ▄█·");
        let strip: String = [0.0, 50.0, 100.0, f64::NAN].into_iter().map(|p| level(p, &ASCII)).collect();
        assert_eq!(strip, " =@?");
    }

    fn rising(style: &Style) -> String {
        let points: Vec<(f64, f64)> = (12..=25).map(|e| (2f64.powi(e), f64::from(e) * 1e7)).collect();
        let plot = Plot {
            x: Scale::log(points.iter().map(|p| p.0), ScaleKind::Log2),
            x_unit: Unit::Size,
            y: Scale::from_zero(points.iter().map(|p| p.1), 5),
            y_unit: Unit::Rate,
            lines: vec![Line { name: "nfs3".into(), points }],
            marks: vec![(65536.0, "knee".into())],
            rows: 10,
        };
        plot.render(style, 2)
    }

    #[test]
    fn a_rising_line_rises() {
        let text = rising(&ASCII);
        let column = |mark: char, line: &str| line.find(mark);
        let first: Vec<usize> = text.lines().filter_map(|l| column('o', l.split_once('|')?.1)).collect();
        assert!(first.len() >= 5 && first.windows(2).all(|w| w[0] > w[1]), "{text}");
        assert!(text.is_ascii() && text.contains("o nfs3   : knee") && text.contains("250 |"), "{text}");
        assert!(text.contains("4 KiB") && text.contains(" 64 KiB "), "{text}");
        assert!(text.lines().all(|l| width(l) <= 60), "{text}");
    }

    #[test]
    fn every_line_fits_and_every_point_is_marked() {
        let text = rising(&PLAIN);
        assert!(text.lines().all(|l| width(l) <= 60), "{text}");
        assert_eq!(text.matches('●').count(), 15, "14 points and the legend: {text}");
    }

    #[test]
    fn a_plot_of_nothing_is_an_empty_frame() {
        let plot = Plot {
            lines: vec![Line { name: String::new(), points: vec![(f64::NAN, f64::NAN)] }],
            x: Scale::exact([]),
            x_unit: Unit::Seconds,
            y: Scale::from_zero([], 5),
            y_unit: Unit::Rate,
            marks: Vec::new(),
            rows: 4,
        };
        assert_eq!(plot.render(&ASCII, 0).lines().count(), 9);
    }
}
