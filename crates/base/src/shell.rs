//! Commands that a person may type as they are shown.

use std::path::Path;

/// A path as a word of a shell.
pub fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:,@%=".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        for (path, typed) in [
            ("/mnt/disk-1", "/mnt/disk-1"),
            ("/mnt/my disk", "'/mnt/my disk'"),
            ("/mnt/it's", r"'/mnt/it'\''s'"),
            ("$(x)", "'$(x)'"),
            ("", "''"),
        ] {
            assert_eq!(word(Path::new(path)), typed);
        }
    }
}
