//! Profiles, as every S3 tool reads them: `~/.aws/credentials` and `~/.aws/config`.
//!
//! The environment is read by `object_store`, and the roles of machines and containers by it, too, where nothing else is said.

use std::collections::HashMap;
use std::path::PathBuf;

/// A profile file longer than this is none.
const PROFILE_BYTES_MAX: u64 = 1 << 20;

/// What the profile says. Not printable (`bucket.no_secret_told`).
#[derive(Default)]
pub(crate) struct Profile(HashMap<String, String>);

impl Profile {
    /// The profile that the environment names, or `default`.
    pub(crate) fn load(var: impl Fn(&str) -> Option<String>) -> Profile {
        let name = var("AWS_PROFILE").or_else(|| var("AWS_DEFAULT_PROFILE")).unwrap_or_else(|| "default".to_owned());
        let at = |variable: &str, file: &str| {
            let home = || var("HOME").map(|home| PathBuf::from(home).join(".aws").join(file));
            var(variable).map(PathBuf::from).or_else(home)
        };
        let mut found = HashMap::new();
        for (path, section) in [
            (at("AWS_CONFIG_FILE", "config"), if name == "default" { name.clone() } else { format!("profile {name}") }),
            (at("AWS_SHARED_CREDENTIALS_FILE", "credentials"), name.clone()),
        ] {
            let small = path.filter(|path| std::fs::metadata(path).is_ok_and(|meta| meta.len() <= PROFILE_BYTES_MAX));
            if let Some(text) = small.and_then(|path| std::fs::read_to_string(path).ok()) {
                found.extend(section_of(&text, &section));
            }
        }
        Profile(found)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
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
    }
}
