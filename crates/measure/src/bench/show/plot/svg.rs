//! The letters of SVG.

use super::colours;
use super::parts::{Head, Size};
use crate::bench::show::words;

/// Of text of 12 pixels in common sans-serif fonts, a little generous.
const CHARACTER_PX: f64 = 6.7;

/// For text and for attributes in double quotes, in SVG and HTML. Control characters have no place in either.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in words::clean(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A coordinate with one digit after the point.
pub(crate) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

pub(crate) fn text_px(text: &str) -> f64 {
    words::width(text) as f64 * CHARACTER_PX
}

/// As much of it as fits.
pub(crate) fn fitted(text: &str, room_px: f64) -> String {
    words::shortened(&words::clean(text), (room_px / CHARACTER_PX).max(1.0) as usize)
}

pub(crate) fn text(x: f64, y: f64, class: &str, text: &str) -> String {
    format!("<text x=\"{}\" y=\"{}\" class=\"{class}\">{}</text>", px(x), px(y), escape(text))
}

/// The label of a place on the x axis: in its middle, unless the picture ends there.
pub(crate) fn tick(x: f64, y: f64, right: f64, label: &str) -> String {
    let half = text_px(label) / 2.0;
    match x {
        x if x + half > right => text(right, y, "tick end", label),
        x if x < half => text(0.0, y, "tick", label),
        x => text(x, y, "tick middle", label),
    }
}

pub(crate) fn line(from: (f64, f64), to: (f64, f64), class: &str) -> String {
    let (x1, y1, x2, y2) = (px(from.0), px(from.1), px(to.0), px(to.1));
    format!("<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" class=\"{class}\"/>")
}

pub(crate) fn rect(x: f64, y: f64, width: f64, height: f64, class: &str) -> String {
    let (x, y, width, height) = (px(x), px(y), px(width.max(0.0)), px(height.max(0.0)));
    format!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" class=\"{class}\"/>")
}

/// One of six shapes, so that colours are not alone.
pub(crate) fn marker(shape: usize, x: f64, y: f64, r: f64, class: &str) -> String {
    let polygon = |corners: &[(f64, f64)]| {
        let corners: Vec<String> =
            corners.iter().map(|(dx, dy)| format!("{},{}", px(x + dx * r), px(y + dy * r))).collect();
        format!("<polygon points=\"{}\" class=\"{class}\"/>", corners.join(" "))
    };
    match shape % 6 {
        0 => format!("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" class=\"{class}\"/>", px(x), px(y), px(r)),
        1 => polygon(&[(0.0, -1.2), (1.2, 0.9), (-1.2, 0.9)]),
        2 => polygon(&[(-0.95, -0.95), (0.95, -0.95), (0.95, 0.95), (-0.95, 0.95)]),
        3 => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        4 => polygon(&[(0.0, 1.2), (1.2, -0.9), (-1.2, -0.9)]),
        _ => polygon(&[(-1.2, -0.5), (1.2, -0.5), (1.2, 0.5), (-1.2, 0.5)]),
    }
}

/// From the tag to the end, with title and description for those who listen.
pub(crate) fn whole(head: &Head<'_>, size: Size, height: f64, body: &str) -> String {
    let id = format!("{}-{}", head.id, size.suffix());
    let paper = rect(0.0, 0.0, size.width(), height, "paper");
    let (width, height) = (px(size.width()), px(height));
    // In a page the sheet says how large it is; a file says it itself.
    let (sized, style, paper) = match head.alone {
        true => {
            (format!(" width=\"{width}\" height=\"{height}\""), format!("<style>{}</style>", colours::plain()), paper)
        }
        false => Default::default(),
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" id=\"{id}\"{sized} viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>{style}{paper}{body}</svg>",
        escape(head.title),
        escape(head.desc)
    )
}

/// Keys beside each other, in as many lines as they take. Returns the height that they took.
pub(crate) fn legend(names: &[String], palette: &str, from: (f64, f64), right: f64, body: &mut String) -> f64 {
    const LINE_PX: f64 = 18.0;
    let (mut x, mut y) = from;
    for (n, name) in names.iter().enumerate() {
        let name = fitted(name, right - from.0 - 20.0);
        let wide = 18.0 + text_px(&name) + 14.0;
        if x > from.0 && x + wide - 14.0 > right {
            (x, y) = (from.0, y + LINE_PX);
        }
        let class = format!("{palette}{n}");
        body.push_str(&format!("<g class=\"key\" data-n=\"{n}\">"));
        body.push_str(&rect(x - 3.0, y - 12.0, wide - 6.0, 16.0, "hit"));
        let shape = if palette == "s" { n } else { 2 };
        body.push_str(&marker(shape, x + 5.0, y - 4.0, 5.0, &format!("dot {class}")));
        body.push_str(&text(x + 16.0, y, "", &name));
        body.push_str("</g>");
        x += wide;
    }
    if names.is_empty() { 0.0 } else { y - from.1 + LINE_PX }
}
