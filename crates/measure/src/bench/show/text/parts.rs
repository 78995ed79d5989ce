//! Headings and facts, and plain ASCII for those who want it.

use super::paint::Paint;
use crate::bench::show::{Style, words};

/// Plain ASCII where that was asked for, each character as wide as before.
pub(crate) fn finished(text: &str, style: &Style) -> String {
    if style.unicode {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            _ if c.is_ascii() => out.push(c),
            'µ' => out.push('u'),
            '…' => out.push('~'),
            '±' => out.push('~'),
            '°' => out.push(' '),
            _ => out.push_str(&"?".repeat(words::width(&c.to_string()))),
        }
    }
    out
}

/// A heading with a blank line above.
pub(crate) fn heading(name: &str, meaning: &str, style: &Style) -> String {
    let name = words::shortened(&name.to_uppercase(), style.width);
    let meaning = words::shortened(meaning, style.width.saturating_sub(words::width(&name) + 2));
    let (name, meaning) = (Paint::Bold.over(&name, style), Paint::Dim.over(&meaning, style));
    format!("\n{name}  {meaning}").trim_end().to_owned() + "\n"
}

/// Names and what they stand for, the latter folded under itself.
pub(crate) fn fact(name: &str, value: &str, style: &Style) -> String {
    const NAME: usize = 9;
    let lines = words::folded(value, style.width.saturating_sub(NAME + 2).max(20));
    let name = Paint::Dim.over(&format!("{name:<NAME$}"), style);
    format!("  {name}{}\n", lines.join(&format!("\n{}", " ".repeat(NAME + 2))))
}
