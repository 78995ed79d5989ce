//! Feature flags of what lies on disks: what a reader that does not know a feature may still do.
//!
//! A structure that changes in a way that old programs would misread gets a name in one of three sets. Names stand for
//! ever; a program keeps names that it does not know when it writes the structure again.

use serde::{Deserialize, Serialize};

/// Names of features, by what who does not know them may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compatible: Vec<String>,
    /// Read, but not write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_only_compatible: Vec<String>,
    /// Nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incompatible: Vec<String>,
}

/// The features that a program knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    pub read_only_compatible: &'static [&'static str],
    pub incompatible: &'static [&'static str],
}

/// The access that a program has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    Full,
    /// Because of these features.
    ReadOnly(Vec<String>),
    /// Because of these features.
    Refused(Vec<String>),
}

impl Features {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn access(&self, known: &Known) -> Access {
        let unknown = |names: &[String], known: &[&str]| -> Vec<String> {
            names.iter().filter(|name| !known.contains(&name.as_str())).cloned().collect()
        };
        let refused = unknown(&self.incompatible, known.incompatible);
        let read_only = unknown(&self.read_only_compatible, known.read_only_compatible);
        match (refused.is_empty(), read_only.is_empty()) {
            (false, _) => Access::Refused(refused),
            (true, false) => Access::ReadOnly(read_only),
            (true, true) => Access::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_decides() {
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let known = Known { read_only_compatible: &["b"], incompatible: &["c"] };
        let features = |a: &[&str], b: &[&str], c: &[&str]| Features {
            compatible: names(a),
            read_only_compatible: names(b),
            incompatible: names(c),
        };
        assert_eq!(Features::default().access(&known), Access::Full);
        assert_eq!(features(&["new"], &["b"], &["c"]).access(&known), Access::Full);
        assert_eq!(features(&[], &["b", "x"], &["c"]).access(&known), Access::ReadOnly(names(&["x"])));
        assert_eq!(features(&[], &["x"], &["c", "y"]).access(&known), Access::Refused(names(&["y"])));
    }
}
