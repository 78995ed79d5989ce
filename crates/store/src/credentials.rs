//! Profiles, as every S3 tool reads them: `~/.aws/credentials` and `~/.aws/config`.
//!
//! The environment is read by `object_store`, and the roles of machines and containers by it, too, where nothing else is said.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use parking_lot::Mutex;

/// A profile file longer than this is none.
const PROFILE_BYTES_MAX: u64 = 1 << 20;
/// How often the files are looked at while requests are made.
const LOOK: Duration = Duration::from_secs(5);

/// What the profile says. Not printable (`bucket.no_secret_told`).
#[derive(Default)]
pub(crate) struct Profile {
    settings: HashMap<String, String>,
    /// Files and the section of each.
    files: Vec<(PathBuf, String)>,
}

/// Tells one content of a file from the next.
type Stamp = Vec<Option<(SystemTime, u64)>>;

impl Profile {
    /// The profile that the environment names, or `default`.
    pub(crate) fn load(var: impl Fn(&str) -> Option<String>) -> Profile {
        let name = var("AWS_PROFILE").or_else(|| var("AWS_DEFAULT_PROFILE")).unwrap_or_else(|| "default".to_owned());
        let at = |variable: &str, file: &str| {
            let home = || var("HOME").map(|home| PathBuf::from(home).join(".aws").join(file));
            var(variable).map(PathBuf::from).or_else(home)
        };
        let files = [
            (at("AWS_CONFIG_FILE", "config"), if name == "default" { name.clone() } else { format!("profile {name}") }),
            (at("AWS_SHARED_CREDENTIALS_FILE", "credentials"), name.clone()),
        ];
        let files = files.into_iter().filter_map(|(path, section)| Some((path?, section))).collect();
        Profile { settings: HashMap::new(), files }.read()
    }

    /// What the files say now.
    fn read(self) -> Profile {
        let mut settings = HashMap::new();
        for (path, section) in &self.files {
            let is_small = std::fs::metadata(path).is_ok_and(|meta| meta.len() <= PROFILE_BYTES_MAX);
            if let Some(text) = is_small.then(|| std::fs::read_to_string(path).ok()).flatten() {
                settings.extend(section_of(&text, section));
            }
        }
        Profile { settings, ..self }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn stamp(&self) -> Stamp {
        let stamp =
            |path: &PathBuf| std::fs::metadata(path).ok().and_then(|meta| Some((meta.modified().ok()?, meta.len())));
        self.files.iter().map(|(path, _)| stamp(path)).collect()
    }

    fn keys(&self) -> Option<Arc<AwsCredential>> {
        let said = |name: &str| self.get(name).map(str::to_owned);
        let (key_id, secret_key) = (said("aws_access_key_id")?, said("aws_secret_access_key")?);
        Some(Arc::new(AwsCredential { key_id, secret_key, token: said("aws_session_token") }))
    }
}

/// The keys of a profile. Whoever renews them there need not restart anything: the files are read again when they change.
pub(crate) struct ProfileKeys(Mutex<Seen>);

struct Seen {
    profile: Profile,
    stamp: Stamp,
    looked_at: Instant,
    keys: Arc<AwsCredential>,
}

impl ProfileKeys {
    /// `None`: there are no keys in it.
    pub(crate) fn new(profile: Profile) -> Option<Self> {
        // Before they are read: what changes meanwhile is seen next time.
        let stamp = profile.stamp();
        let profile = profile.read();
        let keys = profile.keys()?;
        Some(Self(Mutex::new(Seen { profile, stamp, looked_at: Instant::now(), keys })))
    }

    fn now(&self, every: Duration) -> Arc<AwsCredential> {
        let mut seen = self.0.lock();
        if seen.looked_at.elapsed() >= every {
            seen.looked_at = Instant::now();
            let stamp = seen.profile.stamp();
            if stamp != seen.stamp {
                seen.profile = std::mem::take(&mut seen.profile).read();
                // A file without keys is being written.
                if let Some(keys) = seen.profile.keys() {
                    (seen.keys, seen.stamp) = (keys, stamp);
                    tracing::info!("the keys of the bucket were read again: their file has changed");
                }
            }
        }
        Arc::clone(&seen.keys)
    }
}

impl fmt::Debug for ProfileKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProfileKeys")
    }
}

#[async_trait]
impl CredentialProvider for ProfileKeys {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        Ok(self.now(LOOK))
    }
}

/// The settings of one section of an INI file.
fn section_of(text: &str, section: &str) -> HashMap<String, String> {
    let mut inside = false;
    let mut found = HashMap::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            inside = name.trim() == section;
        } else if inside
            && !line.starts_with([' ', '\t'])
            && let Some((name, value)) = trimmed.split_once('=')
        {
            found.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_profile_that_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, config) = (folder.path().join("keys"), folder.path().join("config"));
        std::fs::write(
            &keys,
            "# x\n[default]\naws_access_key_id = A\n[nas]\naws_access_key_id=B\naws_secret_access_key = s=1/+\n",
        )
        .unwrap();
        std::fs::write(&config, "[default]\nregion = eu-1\n[profile nas]\nregion = eu-2\ns3 =\n  region = no\n")
            .unwrap();
        let var = |profile: Option<&'static str>| {
            let (keys, config) = (keys.clone(), config.clone());
            move |name: &str| match name {
                "AWS_PROFILE" => profile.map(str::to_owned),
                "AWS_SHARED_CREDENTIALS_FILE" => Some(keys.display().to_string()),
                "AWS_CONFIG_FILE" => Some(config.display().to_string()),
                _ => None,
            }
        };
        let plain = Profile::load(var(None));
        assert_eq!((plain.get("aws_access_key_id"), plain.get("region")), (Some("A"), Some("eu-1")));
        let named = Profile::load(var(Some("nas")));
        assert_eq!((named.get("aws_secret_access_key"), named.get("region")), (Some("s=1/+"), Some("eu-2")));
        assert!(Profile::load(|_| None).get("region").is_none());
        assert!(ProfileKeys::new(Profile::load(|_| None)).is_none());
    }

    #[test]
    fn keys_that_are_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        let write = |key: &str| std::fs::write(&file, key).unwrap();
        write("[default]\naws_access_key_id = A\naws_secret_access_key = a\naws_session_token = t\n");
        let path = file.display().to_string();
        let var = |name: &str| (name == "AWS_SHARED_CREDENTIALS_FILE").then(|| path.clone());
        let keys = ProfileKeys::new(Profile::load(var)).unwrap();
        let now = || (keys.now(Duration::ZERO).key_id.clone(), keys.now(Duration::ZERO).token.clone());
        assert_eq!(now(), ("A".into(), Some("t".into())));
        write("[default]\n");
        assert_eq!(now(), ("A".into(), Some("t".into())), "a file that is being written changes nothing");
        write("[default]\naws_access_key_id = BB\naws_secret_access_key = bb\n");
        assert_eq!(now(), ("BB".into(), None));
        assert!(!format!("{keys:?}").contains("BB"));
    }
}
