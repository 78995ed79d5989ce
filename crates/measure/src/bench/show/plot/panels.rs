//! Series over a common x: one panel, or small ones side by side; lines, or areas stacked upon each other.

use super::parts::{Axis, Head, Size};
use super::svg::{self, px};
use crate::bench::show::units::Unit;
use crate::stats::thinned;

/// One line or one layer of a stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    /// Which of the names, and so which colour.
    pub(crate) n: usize,
    pub(crate) x: Vec<f64>,
    /// As many; NaN is a hole.
    pub(crate) y: Vec<f64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Panel {
    /// Shown where there are several.
    pub(crate) name: String,
    pub(crate) series: Vec<Series>,
    /// Upright lines with a word.
    pub(crate) marks: Vec<(f64, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Panels {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Of the legend.
    pub(crate) names: Vec<String>,
    /// Class prefix: `s` for series, `c` for what a core does.
    pub(crate) palette: &'static str,
    pub(crate) panels: Vec<Panel>,
    pub(crate) stacked: bool,
    /// Each point marked: where there are few.
    pub(crate) dots: bool,
}

const TOP: f64 = 26.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
const AXIS: f64 = 40.0;
const GAP: f64 = 14.0;

/// The inside of one panel's axes.
#[derive(Clone, Copy, Debug)]
struct Frame {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Series {
    pub(crate) fn thinned(&self, points_max: usize) -> Self {
        Self { n: self.n, x: thinned(&self.x, points_max), y: thinned(&self.y, points_max) }
    }
}

impl Panels {
    fn grid(&self, size: Size) -> (usize, f64) {
        match (self.panels.len(), size) {
            (0 | 1, Size::Wide) => (1, 250.0),
            (0 | 1, Size::Narrow) => (1, 190.0),
            (n, Size::Wide) => (n.min(4), 84.0),
            (n, Size::Narrow) => (n.min(2), 70.0),
        }
    }

    fn frame(&self, n: usize, size: Size) -> Frame {
        let (columns, height) = self.grid(size);
        let name = if self.panels.len() > 1 { 16.0 } else { 0.0 };
        let room = (size.width() - LEFT - RIGHT - GAP * (columns - 1) as f64) / columns as f64;
        let left = LEFT + (n % columns) as f64 * (room + GAP);
        let top = TOP + (n / columns) as f64 * (height + GAP + name) + name;
        Frame { left, top, right: left + room, bottom: top + height }
    }

    pub(super) fn svg(&self, head: &Head<'_>, size: Size) -> String {
        let (columns, _) = self.grid(size);
        let mut body = svg::text(6.0, 14.0, "axis-name", &self.y.name);
        let last_row = self.panels.len().saturating_sub(1) / columns;
        let mut bottom = TOP;
        for (n, panel) in self.panels.iter().enumerate() {
            let frame = self.frame(n, size);
            let below = n + columns >= self.panels.len() || n / columns == last_row;
            body.push_str(&self.panel(n, panel, frame, (n.is_multiple_of(columns), below), head, size));
            bottom = frame.bottom.max(bottom);
        }
        body.push_str(&svg::text(size.width() - RIGHT, bottom + AXIS - 6.0, "axis-name end", &self.x.name));
        let from = (LEFT, bottom + AXIS + 14.0);
        let legend = svg::legend(&self.names, self.palette, from, size.width() - 8.0, &mut body);
        svg::whole(head, size, bottom + AXIS + legend + 6.0, &body)
    }

    /// `edge`: whether it stands at the left, and whether nothing stands below it: there are the ticks' labels.
    fn panel(&self, n: usize, panel: &Panel, f: Frame, edge: (bool, bool), head: &Head<'_>, size: Size) -> String {
        let clip = format!("{}-{}-clip{n}", head.id, size.suffix());
        let rect = [f.left, f.top, f.right, f.bottom].map(px).join(" ");
        let mut body = format!("<g class=\"panel\" data-panel=\"{n}\" data-rect=\"{rect}\">");
        body.push_str(&svg::rect(f.left, f.top, f.right - f.left, f.bottom - f.top, "back"));
        body.push_str(&self.y_ticks(f, edge.0));
        body.push_str(&format!("<g class=\"x-ticks\">{}</g>", self.x_ticks(f, edge.1, size)));
        if self.panels.len() > 1 {
            body.push_str(&svg::text(f.left, f.top - 5.0, "panel-name", &svg::fitted(&panel.name, f.right - f.left)));
        }
        // Marked points may stand out by their radius.
        let room = if self.dots { 6.0 } else { 1.0 };
        body.push_str(&format!(
            "<clipPath id=\"{clip}\">{}</clipPath>",
            svg::rect(f.left - room, f.top - room, f.right - f.left + 2.0 * room, f.bottom - f.top + 2.0 * room, "")
        ));
        body.push_str(&format!("<g clip-path=\"url(#{clip})\" class=\"data\">"));
        // A point takes two pixels; more would not be seen, only stored.
        let points_max = size.points_max().min(((f.right - f.left) / 2.0) as usize);
        let series: Vec<Series> = panel.series.iter().map(|s| s.thinned(points_max)).collect();
        body.push_str(&if self.stacked { self.areas(&series, f) } else { self.lines(&series, f) });
        body.push_str("</g>");
        body.push_str(&self.marks(panel, f));
        body.push_str("</g>");
        body
    }

    fn y_ticks(&self, f: Frame, labels: bool) -> String {
        let most = if f.bottom - f.top < 120.0 { 2 } else { 5 };
        let mut text = String::new();
        for tick in self.y.scale.ticks(most) {
            let Some(part) = self.y.scale.place(tick) else { continue };
            let y = f.bottom - part * (f.bottom - f.top);
            text.push_str(&svg::line((f.left, y), (f.right, y), "grid"));
            if labels {
                text.push_str(&svg::text(f.left - 6.0, y + 4.0, "tick end", &self.y.unit.tick(tick)));
            }
        }
        text
    }

    fn x_ticks(&self, f: Frame, labels: bool, size: Size) -> String {
        let label = if self.x.unit == Unit::Size { 74.0 } else { 50.0 };
        let most = ((f.right - f.left) / label).max(1.0) as usize;
        let mut text = String::new();
        for tick in self.x.scale.ticks(most) {
            let Some(part) = self.x.scale.place(tick) else { continue };
            let x = f.left + part * (f.right - f.left);
            text.push_str(&svg::line((x, f.top), (x, f.bottom), "grid"));
            if labels {
                text.push_str(&svg::tick(x, f.bottom + 16.0, size.width(), &self.x.unit.tick(tick)));
            }
        }
        text
    }

    fn at(&self, x: f64, y: f64, f: Frame) -> Option<(f64, f64)> {
        let (across, up) = (self.x.scale.place(x)?, self.y.scale.place(y)?);
        Some((f.left + across * (f.right - f.left), f.bottom - up * (f.bottom - f.top)))
    }

    /// A hole ends a line; the next point begins a new one.
    fn lines(&self, series: &[Series], f: Frame) -> String {
        let mut text = String::new();
        for s in series {
            let mut path = String::new();
            let mut open = false;
            let mut dots = String::new();
            for (x, y) in s.x.iter().zip(&s.y) {
                let Some((x, y)) = self.at(*x, *y, f) else {
                    open = false;
                    continue;
                };
                path.push_str(&format!("{}{} {}", if open { "L" } else { "M" }, px(x), px(y)));
                open = true;
                if self.dots || s.x.len() == 1 {
                    dots.push_str(&svg::marker(s.n, x, y, 4.0, &format!("dot {}{}", self.palette, s.n % COLOURS)));
                }
            }
            let class = format!("line {}{}", self.palette, s.n % COLOURS);
            text.push_str(&format!("<g data-n=\"{}\"><path class=\"{class}\" d=\"{path}\"/>{dots}</g>", s.n));
        }
        text
    }

    /// Each upon those before it. Where nothing is known of any, the stack is interrupted.
    fn areas(&self, series: &[Series], f: Frame) -> String {
        let moments = series.iter().map(|s| s.x.len().min(s.y.len())).min().unwrap_or(0);
        let known = |n: usize| series.iter().any(|s| s.y[n].is_finite());
        let mut below = vec![0.0; moments];
        let mut text = String::new();
        for s in series {
            let above: Vec<f64> =
                (0..moments).map(|n| below[n] + if s.y[n].is_finite() { s.y[n].max(0.0) } else { 0.0 }).collect();
            let mut path = String::new();
            let mut n = 0;
            while n < moments {
                let end = (n..moments).find(|m| !known(*m)).unwrap_or(moments);
                let place = |n: usize, y: f64| self.at(s.x[n], y, f).map(|(x, y)| format!("{} {}", px(x), px(y)));
                let upper = (n..end).filter_map(|n| place(n, above[n]));
                let lower = (n..end).rev().filter_map(|n| place(n, below[n]));
                let corners: Vec<String> = upper.chain(lower).collect();
                if !corners.is_empty() {
                    path.push_str(&format!("M{}Z", corners.join("L")));
                }
                n = end + 1;
            }
            let class = format!("area {}{}", self.palette, s.n % COLOURS);
            text.push_str(&format!("<g data-n=\"{}\"><path class=\"{class}\" d=\"{path}\"/></g>", s.n));
            below = above;
        }
        text
    }

    /// Labels of marks that stand close together are one below the other; those at the same place only one.
    fn marks(&self, panel: &Panel, f: Frame) -> String {
        let mut shown: Vec<(f64, &str)> = Vec::new();
        for (at, label) in &panel.marks {
            let Some(part) = self.x.scale.place(*at) else { continue };
            if shown.len() < 6 && shown.iter().all(|(other, l)| (other - part).abs() > 0.02 || l != label) {
                shown.push((part, label));
            }
        }
        let mut text = String::new();
        for (n, (part, label)) in shown.iter().enumerate() {
            let x = f.left + part * (f.right - f.left);
            let left = *part > 0.6;
            let room = if left { x - f.left } else { f.right - x } - 8.0;
            let at = if left { x - 5.0 } else { x + 5.0 };
            text.push_str("<g class=\"mark\">");
            text.push_str(&svg::line((x, f.top), (x, f.bottom), "mark-line"));
            let class = if left { "mark-label end" } else { "mark-label" };
            text.push_str(&svg::text(at, f.top + 14.0 + 15.0 * n as f64, class, &svg::fitted(label, room)));
            text.push_str("</g>");
        }
        text
    }
}

/// As many classes as `plot.css` has of each palette.
pub(crate) const COLOURS: usize = 6;
