//! Users and groups, keys, certificates and tokens, as the doors know them.

use std::sync::Arc;

use larder_api::Failure;
use larder_nfs::Owners;
use larder_people::{NtHash, User};

use larder_config::{Config, GroupConfig, UserConfig};
use larder_document::Secrets;
use larder_document::Source;
use larder_servers::Servers;

/// What the doors were told of people last.
type Told = (Vec<User>, Vec<GroupConfig>, Option<String>);

pub struct PeoplePart {
    pub servers: Arc<Servers>,
    pub told: Option<Told>,
}

impl PeoplePart {
    /// Tells the doors. Whether users or groups are others than before.
    pub async fn tell(&mut self, source: &Source<'_>) -> Result<bool, Failure> {
        let Source { config, secrets, tokens } = source;
        let authorities = config.ssh_ca_keys.iter().filter_map(|line| line.parse().ok()).collect();
        self.servers.set_credentials(tokens.for_doors(config), authorities);
        self.servers.set_entitled(tokens.entitled(config));
        let now = (users(config, secrets), config.groups.clone(), config.nfs_domain.clone());
        if self.told.as_ref() == Some(&now) {
            return Ok(false);
        }
        self.told = None;
        self.servers.set_owners(owners(config));
        self.servers.set_users(&now.0).await?;
        self.told = Some(now);
        Ok(true)
    }
}

/// Names of users and groups for clients of NFS version 4.
fn owners(config: &Config) -> Owners {
    let users = config.users.iter().map(|user| (user.name.clone(), user.uid));
    let groups = config.groups.iter().map(|group| (group.name.clone(), group.gid));
    match &config.nfs_domain {
        Some(domain) => Owners::in_domain(domain.clone(), users, groups),
        None => Owners::default(),
    }
}

/// All users: one without a password may have a key, a certificate or a token. A hash that cannot
/// be unsealed locks out its user alone, and at the doors that want it.
fn users(config: &Config, secrets: &Secrets) -> Vec<User> {
    let user = |user: &UserConfig| {
        let name = &user.name;
        let nt_hash = secrets.nt_hash(name).unwrap_or_else(|failure| {
            tracing::error!("user '{name}' cannot log in over SMB: {failure}");
            None
        });
        let password = secrets.password_hash(name).unwrap_or_else(|failure| {
            tracing::error!("user '{name}' cannot log in with a password over SFTP or WebDAV: {failure}");
            None
        });
        // Lines that are no keys were refused when the file was read.
        let keys = user.ssh_keys.iter().filter_map(|line| line.parse().ok()).collect();
        User { password, nt_hash: nt_hash.map(NtHash), keys, ..config.person(user) }
    };
    config.users.iter().map(user).collect()
}
