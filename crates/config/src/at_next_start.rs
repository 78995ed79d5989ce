//! Changes of the file that a running larder does not take.
//!
//! - `reload.every_key_is_taken_or_named`: every key of the file takes effect when it is read again, or is named as one that
//!   waits. The configuration is taken apart field by field, so a new field does not compile before it is one or the other.
//! - `reload.named_until_the_start`: doors and limits are compared with those that larder started with. They are named again at
//!   each reading until it starts anew. Pools, stores and mounts that wait are no part of what runs ([`as_it_runs`]).

use super::{Config, Listen, MountConfig, PageConfig, PoolConfig, WebdavConfig};

/// The keys of `new` that take effect at the next start. `started` is the configuration that larder started with, `now` the one
/// that was read last: pools and stores come and go by commands, which write the file.
pub fn waiting(started: &Config, now: &Config, new: &Config) -> Vec<String> {
    let Config {
        data,
        listen,
        webdav,
        page,
        memory,
        connections,
        strangers,
        pools,
        stores,
        mounts,
        // Taken as they are read.
        nfs_domain: _,
        ssh_ca_keys: _,
        discovery: _,
        self_tests: _,
        volumes: _,
        shares: _,
        users: _,
        groups: _,
        replicates: _,
        replicas: _,
        next_uid: _,
        power: _,
        alerts: _,
        ups: _,
    } = new;
    let disks = |pools: &[PoolConfig]| {
        pools.iter().map(|PoolConfig { name, disks, scrub: _ }| (name.clone(), disks.clone())).collect::<Vec<_>>()
    };
    let is_taken_away = now.mounts.iter().any(|mount| !mounts.iter().any(|one| one.dir == mount.dir));
    let is_changed = mounts.iter().any(|one| now.mounts.iter().any(|mount| mount.dir == one.dir && mount != one));
    let mut names = differing(&[
        ("data", started.data != *data),
        ("[limits] memory", started.memory != *memory),
        ("[limits] connections", started.connections != *connections),
        ("[limits] strangers", started.strangers != *strangers),
        ("pools and their disks", disks(&now.pools) != disks(pools)),
        ("stores", now.stores != *stores),
        ("mounts that are not named any more", is_taken_away),
        ("mounts with other options", is_changed),
    ]);
    names.extend(of_listen(&started.listen, listen));
    names.extend(of_webdav(&started.webdav, webdav));
    names.extend(of_page(&started.page, page));
    names
}

/// `new` with the pools, stores and mounts of `now` in place of what waits for the next start.
pub fn as_it_runs(now: &Config, mut new: Config) -> Config {
    let scrub_of = |pool: &PoolConfig| {
        let same = new.pools.iter().find(|one| one.name == pool.name);
        same.map_or(pool.scrub, |same| same.scrub)
    };
    new.pools = now.pools.iter().map(|pool| PoolConfig { scrub: scrub_of(pool), ..pool.clone() }).collect();
    new.stores.clone_from(&now.stores);
    let is_new = |mount: &MountConfig| now.mounts.iter().all(|one| one.dir != mount.dir);
    let fresh = new.mounts.into_iter().filter(is_new);
    new.mounts = now.mounts.iter().cloned().chain(fresh).collect();
    new
}

fn of_listen(started: &Listen, new: &Listen) -> Vec<String> {
    let Listen { nfs, smb, sftp, webdav, webdavs, replication, portmapper, metrics } = new;
    differing(&[
        ("[listen] nfs", started.nfs != *nfs),
        ("[listen] smb", started.smb != *smb),
        ("[listen] sftp", started.sftp != *sftp),
        ("[listen] webdav", started.webdav != *webdav),
        ("[listen] webdavs", started.webdavs != *webdavs),
        ("[listen] replication", started.replication != *replication),
        ("[listen] portmapper", started.portmapper != *portmapper),
        ("[metrics]", started.metrics != *metrics),
    ])
}

fn of_webdav(started: &WebdavConfig, new: &WebdavConfig) -> Vec<String> {
    let WebdavConfig { certificate, insecure_http, trusted_proxies } = new;
    differing(&[
        ("[webdav] certificate and key", started.certificate != *certificate),
        ("[webdav] insecure_http", started.insecure_http != *insecure_http),
        ("[webdav] trusted_proxies", started.trusted_proxies != *trusted_proxies),
    ])
}

fn of_page(started: &PageConfig, new: &PageConfig) -> Vec<String> {
    // `may_run` is asked for at each request.
    let PageConfig { listen, networks, hosts, oidc, may_run: _ } = new;
    differing(&[
        ("[page] listen", started.listen != *listen),
        ("[page] networks", started.networks != *networks),
        ("[page] hosts", started.hosts != *hosts),
        ("[page.oidc]", started.oidc != *oidc),
    ])
}

fn differing(keys: &[(&str, bool)]) -> Vec<String> {
    keys.iter().filter(|(_, differs)| *differs).map(|(name, _)| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;

    const BEFORE: &str = "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[mount]]\ndir = \"/mnt/t\"\nvolume = \"t/v\"\n";

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("/larder.toml")).unwrap()
    }

    #[test]
    fn each_key_that_waits_is_named() {
        let check = |options: &str, named: &[&str]| {
            let (before, after) = (config(BEFORE), config(&format!("{BEFORE}{options}\n")));
            assert_eq!(waiting(&before, &before, &after), named, "{options}");
        };
        check("", &[]);
        check("[listen]\nsftp = \":10022\"", &["[listen] sftp"]);
        check("[limits]\nmemory = \"1 GiB\"\nconnections = 9", &["[limits] memory", "[limits] connections"]);
        check("[page]\nhosts = [\"nas.example.org\"]", &["[page] hosts"]);
        check("[page.oidc]\nissuer = \"https://id.example.org\"\nclient_id = \"larder\"", &["[page.oidc]"]);
        check("[webdav]\ninsecure_http = true", &["[webdav] insecure_http"]);
        check("[metrics]\nlisten = \"127.0.0.1:9633\"", &["[metrics]"]);
        // Taken at once.
        check("[[user]]\nname = \"ann\"\nuid = 1\n[discovery]\nenabled = false", &[]);
        check("[power]\nprice = 0.3", &[]);
    }

    #[test]
    fn what_waits_is_named_at_each_reading() {
        let now = config(BEFORE);
        let more = "[[mount]]\ndir = \"/mnt/u\"\nvolume = \"t/u\"\n";
        let text = BEFORE.replace("[\"a\"]", "[\"b\"]").replace("\"t/v\"", "\"t/w\"");
        let new = config(&format!("{text}{more}"));
        let named = ["pools and their disks", "mounts with other options"];
        assert_eq!(waiting(&now, &now, &new), named);
        let runs = as_it_runs(&now, new.clone());
        assert_eq!(waiting(&now, &runs, &new), named);
        assert!(waiting(&now, &runs, &config(&format!("{BEFORE}{more}"))).is_empty(), "it is put back");
        assert_eq!(runs.mounts.iter().map(|mount| mount.volume.to_string()).collect::<Vec<_>>(), ["t/v", "t/u"]);
        let gone = as_it_runs(&now, config("[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n"));
        assert_eq!(gone.mounts.len(), 1);
    }

    #[test]
    fn a_key_is_named_until_larder_starts_anew() {
        let (started, now) = (config(BEFORE), config(&format!("{BEFORE}[listen]\nsftp = \":10022\"\n")));
        assert_eq!(waiting(&started, &now, &now), ["[listen] sftp"]);
        assert!(waiting(&started, &now, &started).is_empty());
        // A pool that a command made is open, and one that the file alone names is not.
        let now = config(&format!("{BEFORE}[[pool]]\nname = \"u\"\ndisks = [\"b\"]\n"));
        assert!(waiting(&started, &now, &now).is_empty());
        assert_eq!(waiting(&started, &started, &now), ["pools and their disks"]);
        let gone = config("[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n");
        assert_eq!(waiting(&started, &started, &gone), ["mounts that are not named any more"]);
    }
}
