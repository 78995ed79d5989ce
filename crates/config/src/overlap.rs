//! Shares that show files of another one. A share for certain users protects its files only if no other share lets more
//! people to them.

use std::borrow::Cow;

use larder_people::Door;

use super::{Config, ShareConfig};

impl Config {
    /// The ways past the lists of a share for certain users, one sentence for each: other shares over the same files that
    /// admit people whom it does not.
    pub fn ways_around(&self, share: &ShareConfig) -> Vec<String> {
        if !share.is_restricted() {
            return Vec::new();
        }
        let place = place(share);
        let overlaps = |other: &&ShareConfig| {
            share.volume == other.volume && other.name != share.name && have_common(&place, &self::place(other))
        };
        let others = self.shares.iter().filter(overlaps);
        others.flat_map(|other| [over_nfs(other), self.by_name(share, other)]).flatten().collect()
    }

    /// The users who come in by the other share and not by this one.
    fn by_name(&self, share: &ShareConfig, other: &ShareConfig) -> Option<String> {
        let doors = other.doors_of_people();
        let more = |user: &&super::UserConfig| {
            let person = self.person(user);
            match (share.writes_by_lists(&person), other.writes_by_lists(&person)) {
                (None, Some(_)) => true,
                (Some(writes_here), Some(writes_there)) => writes_there && !writes_here,
                _ => false,
            }
        };
        let users: Vec<&str> = self.users.iter().filter(more).map(|user| user.name.as_str()).collect();
        let people = match (other.lets_in_guests() && other.offers(Door::SMB), users.as_slice()) {
            (true, _) => "anybody".to_owned(),
            (false, []) => return None,
            (false, users) => users.join(", "),
        };
        (!doors.is_empty()).then(|| {
            format!(
                "through '{}' over {} by {people}: there only the owner and mode of each file protect them",
                other.name,
                doors.join(", ")
            )
        })
    }
}

fn over_nfs(other: &ShareConfig) -> Option<String> {
    let places = other.nfs_places().filter(|_| other.nfs_networks().is_some_and(|networks| !networks.is_empty()))?;
    Some(format!("through '{}' over NFS from {places}, where anybody is whoever he says", other.name))
}

/// The folder that a share shows. One of the host may be reached by several names.
fn place(share: &ShareConfig) -> Cow<'_, str> {
    let real = share.host_folder().and_then(|folder| folder.canonicalize().ok());
    real.and_then(|real| real.into_os_string().into_string().ok()).map_or(Cow::Borrowed(&share.folder), Cow::Owned)
}

/// Whether one folder lies within the other.
fn have_common(one: &str, other: &str) -> bool {
    let (outer, inner) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let rest = inner.strip_prefix(outer.trim_end_matches('/'));
    rest.is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    /// The ways around the share "private", for ann, of a configuration with these other shares.
    fn ways(private: &str, others: &str) -> String {
        let text = format!(
            "[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[user]]\nname = \"ann\"\nuid = 1\n[[user]]\nname = \"bob\"\nuid = 2\n\
             [[share]]\nname = \"private\"\nvolume = \"t/v\"\nfolder = \"p/ann\"\n{private}\n{others}"
        );
        let config = Config::parse(&text, Path::new("/larder.toml")).unwrap();
        config.ways_around(config.shares.iter().find(|share| share.name == "private").unwrap()).join("\n")
    }

    fn other(options: &str) -> String {
        format!("[[share]]\nname = \"files\"\nvolume = \"t/v\"\n{options}\n")
    }

    #[test]
    fn every_share_that_lets_more_people_to_the_files_is_named() {
        let ann = "users = [\"ann\"]";
        let check = |private: &str, others: &str, words: &[&str]| {
            let found = ways(private, others);
            assert!(words.iter().all(|word| found.contains(word)), "{private} {others}: {found}");
            assert_eq!(found.is_empty(), words.is_empty(), "{private} {others}: {found}");
        };
        check(ann, "", &[]);
        check("users = \"all\"", &other(""), &[]);
        check(ann, &other(""), &["'files' over NFS from this machine", "whoever he says", "SMB, SFTP, WebDAV by bob"]);
        check(ann, &other("networks = [\"10.0.0.0/8\"]\nusers = [\"ann\"]"), &["NFS from 10.0.0.0/8"]);
        check(ann, &other("nfs = false\nsmb = false"), &["over SFTP, WebDAV by bob"]);
        check(ann, &other("users = [\"ann\"]"), &[]);
        check(ann, &other("nfs = false\nguest = true"), &["by anybody"]);
        check("read_only_users = [\"bob\"]", &other("users = [\"bob\"]"), &["by bob"]);
        check("read_only_users = [\"bob\"]", &other("users = [\"bob\"]\nread_only = true"), &[]);
        for (folder, is_shown) in [("p", true), ("p/ann", true), ("p/ann/deep", true), ("p/annex", false), ("q", false)]
        {
            let found = ways(ann, &other(&format!("folder = \"{folder}\"")));
            assert_eq!(!found.is_empty(), is_shown, "{folder}: {found}");
        }
    }

    #[test]
    fn folders_of_the_host_overlap_by_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("real/inside")).unwrap();
        std::os::unix::fs::symlink(dir.join("real"), dir.join("link")).unwrap();
        let text = format!(
            "[[user]]\nname = \"ann\"\nuid = 1\n[[share]]\nname = \"a\"\nfolder = \"{0}/real/inside\"\nusers = [\"ann\"]\n\
             [[share]]\nname = \"b\"\nfolder = \"{0}/link\"\n",
            dir.display()
        );
        let config = Config::parse(&text, Path::new("/elsewhere/larder.toml")).unwrap();
        assert!(config.ways_around(&config.shares[0]).join("\n").contains("'b' over NFS"));
    }
}
