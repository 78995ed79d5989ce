//! Colour only when asked, and never as the only sign of anything.

use crate::bench::show::Style;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Paint {
    #[default]
    Plain,
    Bold,
    Dim,
    Good,
    Warn,
    Bad,
    /// Of the n-th line of a plot.
    Line(usize),
}

/// Of the 256 colours of terminals, told apart by colour-blind eyes too: blue, vermilion, green, pink, orange, sky.
const LINES: [u8; 6] = [33, 202, 36, 175, 214, 81];

impl Paint {
    pub(crate) fn over(self, text: &str, style: &Style) -> String {
        let code = match self {
            _ if !style.colour || text.trim().is_empty() => return text.to_owned(),
            Self::Plain => return text.to_owned(),
            Self::Bold => "1".to_owned(),
            Self::Dim => "2".to_owned(),
            Self::Good => "32".to_owned(),
            Self::Warn => "33".to_owned(),
            Self::Bad => "31".to_owned(),
            Self::Line(n) => format!("38;5;{}", LINES[n % LINES.len()]),
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
