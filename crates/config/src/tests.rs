#![allow(clippy::unwrap_used)]

use super::*;

const FILE: &str = "/etc/larder/larder.toml";

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new(FILE)).map_err(|e| e.message)
}

#[test]
fn networks_beyond_this_machine() {
    let reach = |text: &str| reach_others(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    assert!(!reach("") && !reach("127.0.0.0/8 ::1/128") && !reach("127.0.0.1/32"));
    assert!(reach("127.0.0.0/7") && reach("::1/128 192.168.1.7/32") && reach("0.0.0.0/0") && reach("::/0"));
    let private = private_networks();
    let is_private = |text: &str| private.iter().any(|network| network.contains(text.parse().unwrap()));
    for inside in ["127.0.0.1", "10.1.1.1", "172.31.0.1", "192.168.9.9", "::ffff:192.168.9.9", "fd00::1", "::1"] {
        assert!(is_private(inside), "{inside}");
    }
    for outside in ["100.64.0.1", "169.254.1.1", "fe80::1", "203.0.113.1", "::ffff:169.254.1.1", "2001:db8::1"] {
        assert!(!is_private(outside), "{outside}");
    }
}

#[test]
fn a_whole_file() {
    let config = parse(
        r#"
        data = "/var/lib/larder"
        [listen]
        nfs = "127.0.0.1:0"
        smb = "off"
        [limits]
        memory = "256MiB"
        [[pool]]
        name = "tank"
        disks = ["/mnt/a", "b"]
        [[volume]]
        name = "tank/files"
        record_size = "64K"
        quota = "1TB"
        compression = "zstd"
        sync = "relaxed"
        [[user]]
        name = "ann"
        uid = 1000
        [[share]]
        name = "Files"
        volume = "tank/files"
        networks = ["10.0.0.0/8", "::1"]
        squash = "all"
        anon_uid = 1000
        users = ["ann"]
        encrypt = "required"
        "#,
    )
    .unwrap();
    assert_eq!(config.data, Path::new("/var/lib/larder"));
    assert_eq!(config.listen.nfs, Some("127.0.0.1:0".parse().unwrap()));
    assert_eq!((config.listen.smb, config.listen.portmapper), (None, None));
    assert_eq!(config.memory, Some(ByteSize(256 << 20)));
    assert_eq!(config.pools[0].disks, [Path::new("/mnt/a"), Path::new("/etc/larder/b")]);
    assert_eq!(config.volumes[0].change.record_bytes, Some(65536));
    assert_eq!(config.volumes[0].change.quota_bytes, Some(1_000_000_000_000));
    let share = &config.shares[0];
    assert_eq!((share.squash, share.anon_uid, share.anon_gid, share.encrypt), (Squash::All, 1000, NOBODY, true));
    assert_eq!(share.nfs_networks().unwrap()[1].to_string(), "::1/128");
    assert_eq!(config.users[0].gid, 1000);
}

#[test]
fn an_empty_file_has_defaults() {
    let config = parse("").unwrap();
    assert_eq!(config.data, Path::new("/etc/larder"));
    assert_eq!(config.listen.nfs, Some("0.0.0.0:12049".parse().unwrap()));
    assert_eq!(config.listen.smb, Some("0.0.0.0:14445".parse().unwrap()));
    assert!(config.pools.is_empty());
}

#[test]
fn complaints_name_the_place() {
    let check = |text: &str, want: &str| {
        let got = parse(text).unwrap_err();
        assert!(got.contains(want), "{text}: {got}");
        assert!(got.starts_with(FILE), "{got}");
    };
    check("[listen]\nnsf = \"x\"", "larder.toml:2:1: unknown key `nsf`");
    check("[listen]\nnsf = \"x\"", "did you mean `nfs`?");
    check("[[shares]]\nname = \"x\"", ":1:3: unknown key `shares`, did you mean `share`?");
    check(
        "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[pool]]\nname = \"t\"\ndisks = [\"b\"]",
        ":5:8: two [[pool or store]] are named 't'",
    );
    check(
        "[[pool]]\nname = \"tank\"\ndisks = [\"a\"]\n[[volume]]\nname = \"tnak/a\"",
        ":5:8: no pool 'tnak', did you mean 'tank'?",
    );
    check(
        "[[user]]\nname = \"ann\"\nuid = 7\n[[group]]\nname = \"g\"\ngid = 9\nmembers = [\"anne\"]",
        ":7:12: no user 'anne', did you mean 'ann'?",
    );
    check("[listen]\nnfs = 5", "larder.toml:2:7: ");
    check("[listen]\nnfs = \"nowhere\"", "larder.toml:2:7: 'nowhere' is not an address");
    check("a = [", "larder.toml:1:");
    check("[limits]\nmemory = \"1M\"", ":2:10: 1.00 MiB of memory is too little");
    check("[limits]\nconnections = 0", ":2:15: ");
    check("[limits]\nstrangers = \"1M\"", ":2:13: 1.00 MiB for connections that log in is too little");
    check("[webdav]\ntrusted_proxies = [\"::1\", \"proxy\"]", ":2:27: ");
    check("[[pool]]\nname = \"Tank\"\ndisks = [\"a\"]", ":2:8: 'Tank' is not a name");
    check("[[pool]]\nname = \"tank\"\ndisks = []", "at least one disk");
    check("[[pool]]\nname = \"tank\"", "the key `disks` is missing");
    check("[[pool]]\nname = \"t\"\ndisks = [\"a\", \"a\"]", ":3:15: the disk /etc/larder/a is named twice");
    check("[[volume]]\nname = \"tank/a\"", ":2:8: no pool 'tank'");
    let pool = "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n";
    let with = |rest: &str| format!("{pool}{rest}");
    check(&with("[[volume]]\nname = \"t\""), ":5:8: 't' is not POOL/VOLUME");
    check(&with("[[volume]]\nname = \"t/v\"\nrecord_size = \"5K\""), ":6:15: ");
    let snapshots = |counts: &str| with(&format!("[[volume]]\nname = \"t/v\"\nsnapshots = {counts}"));
    check(&snapshots("{ hourly = 0 }"), ":6:13: snapshots keeps none: give hourly, daily, weekly or monthly a number");
    check(&snapshots("{}"), ":6:13: snapshots keeps none");
    check(&snapshots("{ daily = 99999 }"), ":6:13: daily = 99999 is more than a volume keeps: give at most 2500");
    check(&snapshots("{ dayly = 1 }"), ":6:15: unknown key `dayly`");
    check(&snapshots("{ daily = -1 }"), ":6:23: ");
    check(&snapshots("\"daily\""), ":6:13: ");
    check(&with("[[share]]\nname = \"a/b\"\nvolume = \"t/v\""), ":5:8: ");
    check(&with("[[share]]\nname = \"ipc$\"\nvolume = \"t/v\""), "reserved");
    check(&with("[[share]]\nname = \"a\"\nvolume = \"t/v\"\nusers = [\"bob\"]"), ":7:10: no user 'bob'");
    check(&with("[[share]]\nname = \"a\"\nvolume = \"t/v\"\nusers = \"bob\""), ":7:9: users is \"all\" or a list");
    check(&with("[[share]]\nname = \"a\"\nvolume = \"t/v\"\nusers = 5"), ":7:9: ");
    check(&with("[[share]]\nname = \"a\"\nvolume = \"t/v\"\nnetworks = [\"10.0.0.0/33\"]"), "is no network");
    check(&with("[[share]]\nname = \"a\""), ":5:8: a share needs a volume");
    check(&with("[[share]]\nname = \"a\"\nvalume = \"t/v\""), ":6:1: unknown key `valume`, did you mean `volume`?");
    let on_host = |folder: &str| with(&format!("[[share]]\nname = \"a\"\nfolder = \"{folder}\""));
    check(&on_host("photos"), ":6:10: 'photos' is no folder of this machine");
    check(&on_host("/srv/../etc"), "is no folder of this machine");
    check(&on_host("/"), "is no folder of this machine");
    check(&on_host("/etc/larder/a/b"), "overlaps with the disk /etc/larder/a");
    check(&on_host("/etc"), "overlaps with the disk /etc/larder/a");
    check(&on_host("/etc/larder/photos"), "overlaps with larder's own data");
    check(&format!("{}\nsnapshots_shown = true", on_host("/srv/a")), "has no snapshots");
    check(
        &with("[[mount]]\ndir = \"/m\"\nvolume = \"t/v\"\noptions = [\"ro\", \"shiny\"]"),
        ":7:18: 'shiny' is not a mount option",
    );
    check(&with("[[mount]]\ndir = \"/m\"\nvolume = \"u/v\""), ":6:10: no pool 'u'");
    check(
        &with("[[share]]\nname = \"a\"\nvolume = \"t/v\"\n[[share]]\nname = \"A\"\nvolume = \"t/w\""),
        "two [[share]] are named 'a'",
    );
}

#[test]
fn listen_addresses() {
    let host = IpAddr::from([10, 0, 0, 1]);
    let check = |text: &str, want: Option<&str>| {
        assert_eq!(parse_listen(text, host, 7).unwrap().map(|a| a.to_string()).as_deref(), want, "{text}");
    };
    check("off", None);
    check(":0", Some("10.0.0.1:0"));
    check("2049", Some("10.0.0.1:2049"));
    check("127.0.0.1", Some("127.0.0.1:7"));
    check("[::]:5", Some("[::]:5"));
    check("::1", Some("[::1]:7"));
    for bad in ["", "host", "1.2.3.4:99999", ":x", "70000"] {
        assert!(parse_listen(bad, host, 7).is_err(), "{bad}");
    }
}

#[test]
fn a_fresh_file_reads_back_and_edits_keep_comments() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("larder.toml");
    let config = parse(
        r#"
        [[pool]]
        name = "tank"
        disks = ["disk1"]
        [[volume]]
        name = "tank/files"
        [[user]]
        name = "ann"
        uid = 1000
        [[share]]
        name = "files"
        volume = "tank/files"
        "#,
    )
    .unwrap();
    let mut moved = config.clone();
    moved.data = folder.path().to_owned();
    moved.pools[0].disks = vec![folder.path().join("disk1")];
    let text = edit::fresh(&moved, folder.path());
    assert!(text.contains("disks = [\"disk1\"]"), "{text}");
    std::fs::write(&file, &text).unwrap();
    assert_eq!(Config::load(&file).unwrap(), moved);

    let mut editor = edit::Editor::open(&file).unwrap();
    editor.add_user(&UserConfig {
        name: "bob".into(),
        uid: 1001,
        gid: 100,
        groups: vec![5],
        ssh_keys: vec![],
        role: Default::default(),
    });
    let volume = VolumeName::parse("tank/files").unwrap();
    let mount = MountConfig {
        dir: "/srv/files".into(),
        volume,
        options: vec!["ro".into(), "noatime".into()],
        snapshot: Some("a".into()),
    };
    editor.set_mount(&MountConfig { options: Vec::new(), ..mount.clone() });
    editor.set_mount(&mount);
    let after = editor.save().unwrap();
    assert_eq!(after.users.len(), 2);
    assert_eq!(after.mounts, [mount]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# What larder serves."), "{text}");

    let mut editor = edit::Editor::open(&file).unwrap();
    editor.remove_user("ann");
    editor.remove_pool("tank");
    let after = editor.save().unwrap();
    assert!(after.pools.is_empty() && after.shares.is_empty() && after.volumes.is_empty() && after.mounts.is_empty());
    assert_eq!(after.users[0].name, "bob");

    // An edit that makes the file invalid leaves it as it was.
    let mut editor = edit::Editor::open(&file).unwrap();
    editor.add_user(&UserConfig {
        name: "bob".into(),
        uid: 1,
        gid: 1,
        groups: vec![],
        ssh_keys: vec![],
        role: Default::default(),
    });
    assert!(editor.save().is_err());
    assert_eq!(Config::load(&file).unwrap(), after);
}

#[test]
fn a_share_whose_last_user_goes_is_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("larder.toml");
    let text = "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[user]]\nname = \"ann\"\nuid = 1\n[[user]]\nname = \"bob\"\nuid = 2\n";
    let lists = ["users = [\"ann\"]", "read_only_users = [\"ann\"]", "users = [\"ann\"]\nread_only_users = [\"ann\"]"];
    for list in lists {
        std::fs::write(&file, format!("{text}[[share]]\nname = \"s\"\nvolume = \"t/v\"\n{list}\n")).unwrap();
        let mut editor = edit::Editor::open(&file).unwrap();
        editor.remove_user("ann");
        let after = editor.save().unwrap();
        assert!(after.shares[0].is_for_nobody(), "{list}: {:?}", after.shares[0]);
        assert_eq!(after.shares[0].nfs_networks(), None, "{list}");
        assert_eq!(after.notes().len(), 2, "{:?}", after.notes());
    }
}

#[test]
fn the_journal_that_answers_for_a_store() {
    let pool = |name: &str| format!("[[pool]]\nname = \"{name}\"\ndisks = [\"{name}\"]\n");
    let store = |rest: &str| format!("[[store]]\nname = \"s\"\nurl = \"s3://home/x\"\n{rest}");
    let journal = |text: String| parse(&text).map(|config| config.stores[0].journal.clone());
    let wanted = "durability = \"journal\"";
    assert_eq!(journal(pool("a") + &store("")).unwrap(), None);
    assert_eq!(journal(pool("a") + &store("durability = \"bucket\"")).unwrap(), None);
    assert_eq!(journal(pool("a") + &store(wanted)).unwrap().as_deref(), Some("a"));
    let named = format!("{wanted}\njournal = \"b\"");
    assert_eq!(journal(pool("a") + &pool("b") + &store(&named)).unwrap().as_deref(), Some("b"));
    for (text, want) in [
        (store(wanted), "a journal lies on a pool: name it"),
        (pool("a") + &pool("b") + &store(wanted), "(pools: a, b)"),
        (pool("a") + &store(&named), "there is no pool 'b'"),
        (pool("a") + &store("durability = \"both\""), "'both' is no durability"),
        (pool("a") + &store("journal = \"a\""), "journal is for durability"),
    ] {
        let got = parse(&text).unwrap_err();
        assert!(got.contains(want), "{text}: {got}");
    }
    let config = parse(&(pool("a") + &store(wanted))).unwrap();
    let both = parse(&(pool("a") + &store(&format!("standby = true\n{wanted}")))).unwrap();
    assert!(both.stores[0].standby && both.stores[0].journal.is_some(), "a standby may answer from a journal");
    let written = format!("{}[[store]]\n{}", pool("a"), store::table(&config.stores[0]));
    assert_eq!(parse(&written).unwrap().stores, config.stores);
}

#[test]
fn a_volume_that_moves_takes_its_tables_along() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("larder.toml");
    let text = "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[pool]]\nname = \"u\"\ndisks = [\"b\"]\n\
        [[volume]]\nname = \"t/v\" # ours\nquota = \"1GiB\"\n[[share]]\nname = \"s\"\nvolume = \"t/v\"\n\
        [[share]]\nname = \"other\"\nvolume = \"t/w\"\n[[mount]]\ndir = \"/m\"\nvolume = \"t/v\"\n\
        [[replicate]]\nvolume = \"t/v\"\nto = \"u/v\"\n[[replicate]]\nvolume = \"t/v\"\nto = \"u/copy\"\n";
    std::fs::write(&file, text).unwrap();
    let mut editor = edit::Editor::open(&file).unwrap();
    editor.move_volume(&VolumeName::parse("t/v").unwrap(), &VolumeName::parse("u/v").unwrap());
    editor.save().unwrap();
    let gone = "[[replicate]]\nvolume = \"t/v\"\nto = \"u/v\"\n";
    let want = text.replace(gone, "").replace("\"t/v\"", "\"u/v\"");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), want);
}

/// Whatever is written there: a sentence with file and line, never a panic.
fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(message) = parse(text) {
        assert!(message.starts_with(FILE), "{message}");
    }
    let _ = (parse_listen(text, std::net::Ipv4Addr::LOCALHOST.into(), 1), parse_network(text), parse_record_size(text));
    let _ = (parse_quota(text), parse_memory(text), VolumeName::parse(text));
}

#[test]
fn fuzz_config() {
    let whole = r#"
        data = "/var/lib/larder"
        [listen]
        nfs = "127.0.0.1:0"
        [[pool]]
        name = "tank"
        disks = ["/mnt/a", "b"]
        [[volume]]
        name = "tank/files"
        record_size = "64K"
        quota = "1TB"
        [[share]]
        name = "files"
        volume = "tank/files"
        [[user]]
        name = "ann"
        uid = 1001
    "#;
    crate::driver::drive(
        "config",
        &[whole.into(), b":2049".to_vec(), b"10.0.0.0/8".to_vec(), b"128K".to_vec()],
        config,
    );
}

#[test]
fn schedules_of_snapshots() {
    let text = "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[volume]]\nname = \"t/v\"\n";
    assert_eq!(parse(text).unwrap().volumes[0].snapshots, None);
    let wanted = |counts: &str| parse(&format!("{text}{counts}")).unwrap().volumes[0].snapshots.unwrap();
    let counts = larder_api::SnapshotCounts { hourly: 24, daily: 30, ..Default::default() };
    assert_eq!(wanted("snapshots = { hourly = 24, daily = 30 }"), counts);
    assert_eq!(wanted("[volume.snapshots]\nhourly = 24\ndaily = 30\nweekly = 0"), counts);
}

#[test]
fn names_of_users_look_like_no_other_and_like_no_path_or_option() {
    for name in
        ["", ".", "..", "...", ".ann", "-rf", "a b", "a/b", "a\nb", "ann\u{200b}", "rtl\u{202e}b", "\u{feff}ann"]
    {
        assert!(check_user_name(name).is_err(), "{name:?}");
    }
    for name in ["ann", "Ann.Miller", "_backup", "o'brien", "émilie", "7"] {
        check_user_name(name).unwrap();
    }
    assert!(check_user_name("rtl\u{202e}b").unwrap_err().contains("rtl\\u{202e}b"), "it is shown as it is");
}
