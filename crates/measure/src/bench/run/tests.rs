use super::*;

#[test]
fn a_title_names_each_subject_once() {
    let request = Request {
        verb: "all".to_owned(),
        subjects: Subjects {
            disks: vec![DiskTarget::Folder("/mnt/a".into()), DiskTarget::Folder("/mnt/b".into())],
            pool: Some(PoolTarget { folders: vec!["/mnt/a".into()], ..PoolTarget::default() }),
            host: Some(Host { name: "nas".to_owned(), port: 1 }),
            shares: vec![ShareTarget::Url("smb://me:secret@nas/x".to_owned())],
            both: true,
            ..Subjects::default()
        },
        preset: Preset::Quick,
        changes: Changes::default(),
        ciphers: false,
        labels: BTreeMap::new(),
        title: None,
        client: ClientOptions::default(),
        history: PathBuf::new(),
        program: PathBuf::new(),
        data: None,
        meter: None,
    };
    assert_eq!(request.title(), "all /mnt/a, /mnt/b, nas, smb://me@nas/x");
    let shares = [1, 2, 3].map(|n| ShareTarget::Url(format!("nfs://nas/{n}"))).to_vec();
    let many = Request { subjects: Subjects { shares, ..request.subjects.clone() }, ..request };
    assert_eq!(many.title(), "all /mnt/a, /mnt/b, nas, nfs://nas/1, 2 more");
    // Two alone, both at once, the pool, the wire, the shares, disks and wire.
    assert_eq!(many.subjects.count(), 9);
}
