use larder_base::Timestamp;
use larder_fs::*;

use super::*;

fn directory() -> InodeCore {
    new_core(FileId { ino: Ino(2), generation: 1 }, FileKind::Directory, Ino::ROOT, Timestamp::new(1, 0))
}

fn add(core: &mut InodeCore, name: &str) {
    core.learn_name(name.as_bytes(), name.to_lowercase().as_bytes());
    core.entries += 1;
}

#[test]
fn what_was_never_added_is_lacking() {
    let mut core = directory();
    assert!(core.surely_lacks(b"a"));
    add(&mut core, "A");
    assert!(!core.surely_lacks(b"A") && !core.surely_lacks(b"a") && core.surely_lacks(b"b"));
    add(&mut core, "b");
    core.entries -= 1;
    assert!(!core.surely_lacks(b"b"), "a removal proves nothing");
    core.entries = 0;
    assert!(core.surely_lacks(b"b"));
    add(&mut core, "c");
    assert!(core.surely_lacks(b"A") && !core.surely_lacks(b"c"), "it was empty in between");
}

#[test]
fn nothing_is_known_of_entries_from_before() {
    let mut core = directory();
    core.entries = 1;
    add(&mut core, "a");
    assert!(!core.surely_lacks(b"b"));
}

#[test]
fn a_set_that_was_given_up_is_not_begun_again_while_there_are_entries() {
    let mut core = directory();
    add(&mut core, "a");
    core.negative_names = None;
    add(&mut core, "b");
    assert!(!core.surely_lacks(b"c"));
}
