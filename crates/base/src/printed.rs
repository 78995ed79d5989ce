//! Text for terminals, scripts and logs, in which names of files, snapshots, machines and disks may come from anybody.
//!
//! - `printed.steers_nothing`: no name moves the cursor, changes colours, begins a line of its own or turns the order of what
//!   follows it. Characters that do are written out, as in `new\nline`.
//! - `printed.columns_line_up`: a column of a table is as wide as a terminal shows its widest cell.
//!   Characters of Chinese, Japanese and Korean take two columns (Unicode TR 11).

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

/// Whether a character acts on what is around it: controls of terminals, separators of lines, and marks of direction
/// (Unicode TR 9 and TR 36).
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A name within a line.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if steers(c) || c == '\\' { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Whole lines as they are printed. `has_colour`: the program's own changes of colour (`ESC [ 32 m`) stay.
pub fn lines(text: &str, has_colour: bool) -> Cow<'_, str> {
    if !text.contains(|c| c != '\n' && steers(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = if has_colour { colour_bytes(rest) } else { 0 };
        let (head, tail) = rest.split_at(if colour > 0 { colour } else { c.len_utf8() });
        match colour > 0 || c == '\n' || !steers(c) {
            true => out.push_str(head),
            false => out.extend(c.escape_default()),
        }
        rest = tail;
    }
    Cow::Owned(out)
}

/// The length of the change of colour that the text begins with (ECMA-48 8.3.117, SGR).
fn colour_bytes(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else { return 0 };
    let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    if rest.as_bytes().get(digits) == Some(&b'm') { digits + 3 } else { 0 }
}

/// JSON with nothing in its strings that acts on a terminal: the same value.
pub fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        // Every such character is within a string, and of the first 65,536.
        match steers(c) && c != '\n' {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// An entry of a log. Its further lines are set in, so that none looks like an entry of its own.
pub fn entry(text: &str, has_colour: bool) -> String {
    let body = text.trim_end_matches('\n');
    let end = text.get(body.len()..).unwrap_or_default();
    format!("{}{end}", lines(body, has_colour).replace('\n', "\n    "))
}

/// The columns that a terminal gives a text without controls.
pub fn width(text: &str) -> usize {
    text.width()
}

/// `text`, and blanks behind it, or before it, up to so many columns.
pub fn padded(text: &str, columns: usize, is_right: bool) -> String {
    let blank = " ".repeat(columns.saturating_sub(width(text)));
    if is_right { blank + text } else { text.to_owned() + &blank }
}

/// Columns aligned: the first row is the header, right-aligned columns are named by index.
pub fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> = rows.iter().map(|row| row.iter().map(|cell| shown(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| width(s)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if c > 0 {
                line.push_str("  ");
            }
            line.push_str(&padded(cell, *width, right.contains(&c)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_is_written_out() {
        for (text, is) in [
            ("holiday \u{e4}\u{1f469}\u{200d}\u{1f373}", "holiday \u{e4}\u{1f469}\u{200d}\u{1f373}"),
            ("a\x1b[31mred", "a\\u{1b}[31mred"),
            ("a\nb\tc\\d", "a\\nb\\tc\\\\d"),
            ("gpj.\u{202e}exe", "gpj.\\u{202e}exe"),
            ("\u{200f}\u{2067}\u{61c}\u{feff}", "\\u{200f}\\u{2067}\\u{61c}\\u{feff}"),
            ("\u{9b}31m\u{7f}\r", "\\u{9b}31m\\u{7f}\\r"),
            ("\u{2028}", "\\u{2028}"),
            ("C:\\plain", "C:\\plain"),
        ] {
            assert_eq!(shown(text), is);
        }
        assert_eq!(shown(&"x".repeat(300)), "x".repeat(300));
    }

    #[test]
    fn pages_keep_lines_and_the_programs_own_colours() {
        let page = "\x1b[32m\u{2713}\x1b[0m fine\n\x1b[2Jgone\x1b]0;title\x07\r\x1b[1;31mx\n";
        assert_eq!(
            lines(page, true),
            "\x1b[32m\u{2713}\x1b[0m fine\n\\u{1b}[2Jgone\\u{1b}]0;title\\u{7}\\r\x1b[1;31mx\n"
        );
        assert!(!lines(page, false).contains('\x1b'));
        assert_eq!(lines("a\nb", false), "a\nb");
        assert_eq!(lines("\x1b[", true), "\\u{1b}[");
        assert_eq!(lines("\x1b[3\u{e4}m", true), "\\u{1b}[3\u{e4}m");
    }

    #[test]
    fn json_stays_the_same_value() {
        let line = "{\"name\":\"\u{202e}\\u001b\u{7f}\u{e4}\"}";
        assert_eq!(json(line), "{\"name\":\"\\u202e\\u001b\\u007f\u{e4}\"}");
    }

    /// `printed.columns_line_up`
    #[test]
    fn wide_names_stay_in_their_column() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = [row(["NAME", "SIZE"]), row(["\u{5199}\u{771f}", "4 GB"]), row(["tank", "12 GB"])];
        assert_eq!(table(&rows, &[1]), "NAME   SIZE\n\u{5199}\u{771f}   4 GB\ntank  12 GB\n");
    }

    #[test]
    fn entries_of_a_log_are_one_each() {
        assert_eq!(entry("WARN a\nINFO forged\n", false), "WARN a\n    INFO forged\n");
        assert_eq!(entry("plain\n", true), "plain\n");
    }
}
