//! Figures in words.

use crate::describe::What;

/// MB/s as bench tools write them, or operations.
pub fn rate_words(rate: f64, what: What) -> String {
    match what.is_random() {
        true if rate >= 1e3 => format!("{:.1}k operations/s", rate / 1e3),
        true => format!("{rate:.0} operations/s"),
        false => bytes_words(rate),
    }
}

pub fn bytes_words(rate: f64) -> String {
    match rate {
        r if r >= 1e9 => format!("{:.2} GB/s", r / 1e9),
        r if r >= 9.95e6 => format!("{:.0} MB/s", r / 1e6),
        r if r >= 0.95e6 => format!("{:.1} MB/s", r / 1e6),
        r => format!("{:.0} kB/s", r / 1e3),
    }
}
