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
    /// Also a table of every core, for each run that filled one.
    pub cores: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { width: 100, colour: false, unicode: true, cores: false }
    }
}
