//! Bars made of characters.

use crate::bench::show::Style;

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

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { width: 60, colour: false, unicode: true, cores: false };
    const ASCII: Style = Style { width: 60, colour: false, unicode: false, cores: false };

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
}
