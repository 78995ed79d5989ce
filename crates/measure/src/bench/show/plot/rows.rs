//! Rows with names, over one axis: bars, or dots that show each repeat.

use super::parts::{Axis, Head, Size};
use super::svg;
use crate::bench::show::units::Unit;

#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) label: String,
    /// A heading over the rows that follow; its own row has nothing else.
    pub(crate) heading: bool,
    pub(crate) bar: Option<f64>,
    /// The best that was possible: an outline behind the bar.
    pub(crate) ghost: Option<f64>,
    pub(crate) dots: Vec<Dot>,
    /// An upright stroke: the median of dots.
    pub(crate) median: Option<f64>,
    /// Two ends of a line: the smallest and the largest.
    pub(crate) range: Option<(f64, f64)>,
    /// At the end of the row.
    pub(crate) value: String,
    pub(crate) n: usize,
    /// Misleading, or not comparable.
    pub(crate) doubtful: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Dot {
    pub(crate) value: f64,
    pub(crate) n: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) x: Axis,
    pub(crate) rows: Vec<Row>,
    pub(crate) names: Vec<String>,
    /// An upright line at this value, such as 1 in ratios.
    pub(crate) line_at: Option<f64>,
}

const TOP: f64 = 8.0;
const AXIS: f64 = 40.0;
/// Letters of headings are wider by this.
const BOLD: f64 = 1.15;

struct Layout {
    left: f64,
    right: f64,
    row: f64,
    /// From a row's top to the middle of its bar.
    middle: f64,
}

impl Rows {
    fn layout(&self, size: Size) -> Layout {
        let value = self.rows.iter().map(|r| svg::text_px(&r.value)).fold(0.0, f64::max) + 12.0;
        match size {
            Size::Wide => {
                let label =
                    self.rows.iter().filter(|r| !r.heading).map(|r| svg::text_px(&r.label)).fold(60.0, f64::max);
                Layout { left: (label + 22.0).min(260.0), right: size.width() - value, row: 24.0, middle: 12.0 }
            }
            Size::Narrow => Layout { left: 8.0, right: size.width() - value.max(16.0), row: 38.0, middle: 25.0 },
        }
    }

    pub(super) fn svg(&self, head: &Head<'_>, size: Size) -> String {
        let layout = self.layout(size);
        let height = |row: &Row| if row.heading { 26.0 } else { layout.row };
        let bottom = TOP + self.rows.iter().map(height).sum::<f64>();
        let mut body = self.ticks(&layout, bottom, size);
        let mut y = TOP;
        for row in &self.rows {
            if row.heading {
                body.push_str(&svg::text(
                    8.0,
                    y + 18.0,
                    "group-name",
                    &svg::fitted(&row.label, (size.width() - 16.0) / BOLD),
                ));
            } else {
                body.push_str(&self.row(row, y, &layout, size));
            }
            y += height(row);
        }
        body.push_str(&svg::text(layout.right, bottom + AXIS - 6.0, "axis-name end", &self.x.name));
        let from = (12.0, bottom + AXIS + 14.0);
        let legend = svg::legend(&self.names, "s", from, size.width() - 8.0, &mut body);
        svg::whole(head, size, bottom + AXIS + legend + 6.0, &body)
    }

    fn at(&self, value: f64, layout: &Layout) -> Option<f64> {
        self.x.scale.place(value).map(|part| layout.left + part * (layout.right - layout.left))
    }

    fn ticks(&self, layout: &Layout, bottom: f64, size: Size) -> String {
        let room = if matches!(self.x.unit, Unit::Latency | Unit::Ratio) { 60.0 } else { 74.0 };
        let most = ((layout.right - layout.left) / room).max(2.0) as usize;
        let mut text = String::new();
        for tick in self.x.scale.ticks(most) {
            let Some(x) = self.at(tick, layout) else { continue };
            text.push_str(&svg::line((x, TOP), (x, bottom), "grid"));
            text.push_str(&svg::tick(x, bottom + 16.0, size.width(), &self.x.unit.tick(tick)));
        }
        if let Some(x) = self.line_at.and_then(|v| self.at(v, layout)) {
            text.push_str(&svg::line((x, TOP), (x, bottom), "mark-line"));
        }
        text
    }

    fn row(&self, row: &Row, top: f64, layout: &Layout, size: Size) -> String {
        let middle = top + layout.middle;
        let tip = if row.value.is_empty() { row.label.clone() } else { format!("{}: {}", row.label, row.value) };
        let class = if row.doubtful { "row doubtful" } else { "row" };
        let mut text = format!("<g class=\"{class}\" data-n=\"{}\" data-tip=\"{}\">", row.n, svg::escape(&tip));
        text.push_str(&svg::rect(0.0, top, size.width(), layout.row, "hit"));
        let sign = if row.doubtful { "! " } else { "" };
        text.push_str(&match size {
            Size::Wide => {
                let label = svg::fitted(&format!("{sign}{}", row.label), layout.left - 16.0);
                svg::text(layout.left - 8.0, middle + 4.0, "label end", &label)
            }
            Size::Narrow => svg::text(
                layout.left,
                top + 13.0,
                "label near",
                &svg::fitted(&format!("{sign}{}", row.label), size.width() - 16.0),
            ),
        });
        text.push_str(&self.drawn(row, middle, layout));
        text.push_str("</g>");
        text
    }

    fn drawn(&self, row: &Row, middle: f64, layout: &Layout) -> String {
        let mut text = String::new();
        let place = |value: f64| self.at(value, layout);
        let mut end = layout.left;
        if let Some(x) = row.ghost.and_then(place) {
            text.push_str(&svg::rect(layout.left, middle - 7.0, x - layout.left, 14.0, "ghost"));
            end = end.max(x);
        }
        if let Some(x) = row.bar.and_then(place) {
            let class = format!("bar s{}", row.n % super::panels::COLOURS);
            text.push_str(&svg::rect(layout.left, middle - 7.0, (x - layout.left).max(1.0), 14.0, &class));
            end = end.max(x);
        }
        if let Some((low, high)) = row.range.and_then(|(low, high)| place(low).zip(place(high))) {
            text.push_str(&svg::line(
                (low, middle),
                (high, middle),
                &format!("range s{}", row.n % super::panels::COLOURS),
            ));
            end = end.max(high);
        }
        for dot in &row.dots {
            let Some(x) = place(dot.value) else { continue };
            let class = format!("dot s{}", dot.n % super::panels::COLOURS);
            text.push_str(&format!("<g data-n=\"{}\">{}</g>", dot.n, svg::marker(dot.n, x, middle, 4.0, &class)));
            end = end.max(x);
        }
        if let Some(x) = row.median.and_then(place) {
            text.push_str(&svg::line((x, middle - 8.0), (x, middle + 8.0), "median"));
        }
        // Bars carry their value at the end; beside dots all values stand in one column.
        let at = if row.bar.is_some() { end.min(layout.right) } else { layout.right };
        text.push_str(&svg::text(at + 8.0, middle + 4.0, "value near", &row.value));
        text
    }

    /// For tests: where the axis begins and ends, in pixels.
    #[cfg(test)]
    pub(super) fn span_px(&self, size: Size) -> (String, String) {
        let layout = self.layout(size);
        (svg::px(layout.left), svg::px(layout.right))
    }
}
