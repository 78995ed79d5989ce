//! Abilities of a terminal.

/// How text is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; 100 where there is none.
    pub width: usize,
    /// Escape sequences. Never the only sign of anything.
    pub colour: bool,
    /// Otherwise plain ASCII.
    pub unicode: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { width: 100, colour: false, unicode: true }
    }
}
