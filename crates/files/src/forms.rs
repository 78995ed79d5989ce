//! Unicode forms of names (UAX 15). The same letters can be stored composed (NFC), as Windows and Linux type them, or
//! decomposed (NFD), as Macs do. A door that ignores forms takes both for one name.
//!
//! - `forms.exact_first`: a name means the entry that is stored under exactly its bytes, if there is one. So two entries that
//!   differ in form alone both stay reachable.
//! - `forms.as_stored`: a change to an entry that is stored in the other form keeps its spelling, and nothing makes a second
//!   entry beside it. Only the rename of an entry to its own other form changes the form. As with case, two
//!   creations at the same moment can make both.
//! - `forms.two_more`: a name costs at most two more look-ups by key, and none if it is ASCII. So an entry that mixes both
//!   forms is found by its own spelling alone.

use bytes::Bytes;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use larder_base::boxed;
use larder_fs::{Attr, Cred, FsError, FsResult, Ino, NameMatch};

use crate::Files;
use crate::facts::{Change, Duty, does};
use crate::tree::Tree;

const COMPOSED: ComposingNormalizerBorrowed<'static> = ComposingNormalizerBorrowed::new_nfc();
const DECOMPOSED: DecomposingNormalizerBorrowed<'static> = DecomposingNormalizerBorrowed::new_nfd();

impl Files {
    /// The same door, to which names that differ in their Unicode form alone are one.
    pub fn ignoring_forms(&self) -> Files {
        Files { ignores_forms: true, ..self.clone() }
    }
}

/// Before a change: its names become those of the entries that it is about, where they are stored
/// in the other form (`forms.as_stored`).
pub(crate) async fn before(files: &Files, change: &mut Change<'_>) {
    if !files.ignores_forms {
        return;
    }
    for at in 0..change.entries.len() {
        let (dir, name) = &change.entries[at];
        if name.is_ascii() {
            continue;
        }
        does(Duty::Spelling);
        let stored = other_spelling(&files.tree, change.cred, *dir, name).await.map(|stored| (*dir, stored.into()));
        // An entry takes its own other form.
        if let Some(stored) = stored.filter(|stored| at == 0 || change.entries[0] != *stored) {
            change.entries[at] = stored;
        }
    }
}

/// The spelling of the entry of `dir` that a change of `name` is about, where it is not `name`.
#[boxed]
async fn other_spelling(tree: &Tree, cred: &Cred, dir: Ino, name: &[u8]) -> Option<Vec<u8>> {
    // Anything but an absent name is for the change itself to meet.
    match tree.lookup(cred, dir, name, NameMatch::Exact).await {
        Err(FsError::NotFound) => {}
        _ => return None,
    }
    for form in other_forms(name) {
        if tree.lookup(cred, dir, form.as_bytes(), NameMatch::Exact).await.is_ok() {
            return Some(form.into_bytes());
        }
    }
    None
}

/// Finds by its other forms what was not found under `name` itself.
#[boxed]
pub(crate) async fn lookup(tree: &Tree, cred: &Cred, dir: Ino, name: &[u8], how: NameMatch) -> FsResult<Attr> {
    for form in other_forms(name) {
        match tree.lookup(cred, dir, form.as_bytes(), how).await {
            Err(FsError::NotFound | FsError::NameTooLong) => {}
            found => return found,
        }
    }
    Err(FsError::NotFound)
}

/// As [`lookup`], the spelling of the entry.
#[boxed]
pub(crate) async fn stored_name(tree: &Tree, dir: Ino, name: &[u8]) -> FsResult<Bytes> {
    for form in other_forms(name) {
        match tree.stored_name(dir, form.as_bytes()).await {
            Err(FsError::NotFound | FsError::NameTooLong) => {}
            found => return found,
        }
    }
    Err(FsError::NotFound)
}

/// Composed and decomposed, as far as they are not `name`.
fn other_forms(name: &[u8]) -> impl Iterator<Item = String> {
    let text = std::str::from_utf8(name).ok().filter(|text| !text.is_ascii());
    let forms = text.map(|text| [COMPOSED.normalize(text).into_owned(), DECOMPOSED.normalize(text).into_owned()]);
    forms.into_iter().flatten().filter(move |form| form.as_bytes() != name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: &[&str]) {
        assert_eq!(other_forms(name.as_bytes()).collect::<Vec<_>>(), expected, "{name:?}");
    }

    #[test]
    fn a_name_has_the_forms_that_others_type() {
        check("plain", &[]);
        check("caf\u{e9}", &["cafe\u{301}"]);
        check("cafe\u{301}", &["caf\u{e9}"]);
        check("\u{ac01}", &["\u{1100}\u{1161}\u{11a8}"]);
        // Marks in another order, and a mixture.
        check("q\u{307}\u{323}", &["q\u{323}\u{307}", "q\u{323}\u{307}"]);
        check("\u{e9}e\u{301}", &["\u{e9}\u{e9}", "e\u{301}e\u{301}"]);
        check("日本", &[]);
        assert_eq!(other_forms(b"\xff\xc3\xa9").count(), 0, "not UTF-8");
    }

    #[test]
    fn a_hostile_name_stays_small() {
        let marks = "a".to_owned() + &"\u{323}\u{301}".repeat(63);
        let wide = "\u{1d160}".repeat(63);
        for name in [marks, wide] {
            for form in other_forms(name.as_bytes()) {
                assert!(form.len() <= 6 * name.len(), "{} of {}", form.len(), name.len());
            }
        }
    }
}
