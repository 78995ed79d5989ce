//! A box as a person (or a bench) describes it, in TOML: its parts, the links between them, and its measurements.
//!
//! `raw.rs`         The fields as they are written.
//! `described.rs`   Their meaning: every name that is used is defined, every figure is positive, and ways through links are
//!                  followed to their end. `check.rs` makes sure of it; `way.rs` has the words for ways and accesses.
//! `limits.rs`      The best and the usual of each kind of disk.

mod check;
mod described;
mod error;
pub(crate) mod limits;
mod raw;
mod units;
mod way;

pub use described::{Caching, Described, Ends, How, Measured, Shape, Side};
pub(crate) use described::{Client, Disk, Goal, Layout, Link, Network, RANDOM_BLOCK_BYTES, Work};
pub use error::BadDescription;
pub(crate) use raw::is_bond;
#[cfg(test)]
pub(crate) use units::rate;
pub use way::{Path, What};

impl Described {
    pub fn parse(text: &str) -> Result<Self, BadDescription> {
        let raw: raw::Raw = toml::from_str(text).map_err(|e| BadDescription::Toml(hinted(e.to_string().trim_end())))?;
        let mut described = raw::described(raw)?;
        check::check(&described)?;
        check::follow_links(&mut described)?;
        Ok(described)
    }

    /// The fields of one `[[client]]`, as a file of its own.
    pub(crate) fn client(text: &str) -> Result<Client, BadDescription> {
        raw::client_alone(text)
    }
}

/// Adds the usual remedy for a value of the wrong type.
fn hinted(text: &str) -> String {
    let hint = match text {
        t if t.contains("expected a string") => {
            "; rates, sizes and times are in quotes and have a unit, such as \"450MB/s\": which is it?"
        }
        t if t.contains("invalid type: string") && t.contains("expected f64") => {
            "; operations and percents are plain numbers, such as 90000"
        }
        _ => "",
    };
    format!("{}{hint}", first_lines(text))
}

/// The first lines of an error. The parser quotes the line at fault, which may be all of a file that is no description.
fn first_lines(text: &str) -> String {
    const LINES: usize = 6;
    const CHARS: usize = 160;
    let short = |line: &str| match line.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    };
    text.lines().take(LINES).map(short).collect::<Vec<_>>().join("\n")
}
