//! Second factors of the page, for administrators.
//!
//! - `factors.gone_before_the_password`: passkeys and codes of a user are gone, durably, before a password that somebody else
//!   set is in force, unless they are to stay. A passkey that logs in alone would make the new password worth nothing.
//! - `factors.end_with_the_user`: they are gone with a user who is removed, by whatever way.

use std::path::Path;

use larder_api::{Failure, PasswordSet};
use larder_web::{FactorsEnded, factors_without};

use super::people::UserAdmin;
use larder_config::edit::replace_file;
use larder_document::folder::FACTORS_NAME;
use larder_servers::page::SESSIONS_BYTES_MAX;

/// Ends a user's factors in a data folder whose page is not served.
pub fn end_in_folder(folder: &Path, user: &str) -> Result<FactorsEnded, Failure> {
    let file = folder.join(FACTORS_NAME);
    let bytes = match std::fs::metadata(&file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(FactorsEnded::default()),
        Ok(about) if about.len() > SESSIONS_BYTES_MAX => Vec::new(),
        _ => std::fs::read(&file).map_err(|e| Failure::io(file.display(), &e))?,
    };
    let (rest, ended) = factors_without(&bytes, user)?;
    if ended != FactorsEnded::default() {
        replace_file(&file, &rest, 0o600)?;
    }
    Ok(ended)
}

pub fn password_set(ended: FactorsEnded) -> PasswordSet {
    let FactorsEnded { passkeys, has_codes, was_issued } = ended;
    PasswordSet { passkeys, codes: has_codes, issued: was_issued, ..PasswordSet::default() }
}

impl UserAdmin {
    pub(super) async fn end_factors_of(&self, user: &str) -> Result<FactorsEnded, Failure> {
        match self.servers.page_guest() {
            Some(guest) => guest.end_factors(user).await,
            None => end_in_folder(self.folder.path(), user),
        }
    }
}
