use super::*;

#[test]
fn passwords_are_not_shown() {
    let check = |url: &str, shown: &str| assert_eq!(without_password(url), shown);
    check("smb://me:secret@nas/x", "smb://me@nas/x");
    check("smb://me:sec@ret@nas/x", "smb://me@nas/x");
    check("sftp://nas:22/a@b", "sftp://nas:22/a@b");
    check("/mnt/a@b", "/mnt/a@b");
}

#[test]
fn a_title_names_each_subject_once() {
    let request = Request {
        verb: "all".to_owned(),
        subjects: Subjects {
            disks: vec![DiskTarget::Folder("/mnt/a".into()), DiskTarget::Folder("/mnt/b".into())],
            pool: Some(PoolTarget { folders: vec!["/mnt/a".into()], ..PoolTarget::default() }),
            host: Some(Host { name: "nas".to_owned(), port: 1 }),
            far: None,
            shares: vec![ShareTarget::Url("smb://me:secret@nas/x".to_owned())],
            both: true,
        },
        preset: Preset::Quick,
        changes: Changes::default(),
        labels: BTreeMap::new(),
        client: ClientOptions::default(),
        history: PathBuf::new(),
        program: PathBuf::new(),
        meter: None,
    };
    assert_eq!(request.title(), "all /mnt/a, /mnt/b, nas, smb://me@nas/x");
    // Two alone, both at once, the pool, the wire, the share, disks and wire.
    assert_eq!(request.subjects.count(), 7);
}
