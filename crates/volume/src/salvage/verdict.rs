//! How much of a volume is left.

/// How much of a volume's metadata is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All of it: names and contents are as the volume would give them.
    Whole,
    /// A part: deleted files may be back, the newest changes may be missing.
    Damaged,
    /// Nothing: files have contents and no names.
    Missing,
}
