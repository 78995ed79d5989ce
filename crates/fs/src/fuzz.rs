//! POSIX lists that programs of the host have written, fed with anything. Driven by the test below, and with coverage by `fuzz/`.

/// POSIX lists of a file and of a directory, with each other as default list.
pub fn posix_list(data: &[u8]) {
    let (one, two) = data.split_at(data.len() / 2);
    for (access, default) in [(Some(data), None), (None, Some(data)), (Some(one), Some(two))] {
        for is_directory in [false, true] {
            let Ok(Some(acl)) = crate::posix_acl::convert(access, default, 0o750, is_directory) else { continue };
            assert!(acl.rules.len() <= data.len() * 4 + 16, "as many rules as there are entries, about");
        }
    }
    for (mode, is_directory) in [(0o7777, true), (0o600, false)] {
        if let Some(list) = crate::posix_acl::inherited(data, mode, is_directory) {
            assert!(crate::posix_acl::convert(Some(&list), None, mode, is_directory).is_ok(), "its own list is one");
        }
    }
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;

    #[test]
    fn fuzz_posix_list() {
        let entry =
            |tag: u16, perm: u16, id: u32| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat();
        let list =
            [entry(1, 6, u32::MAX), entry(2, 4, 1000), entry(4, 4, u32::MAX), entry(0x10, 7, 0), entry(0x20, 0, 0)];
        let list = [&2u32.to_le_bytes()[..], &list.concat()].concat();
        drive("posix_list", &[list.clone(), [list.clone(), list].concat()], super::posix_list);
    }
}
