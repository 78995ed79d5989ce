//! The versions of this box in its pools: `larder config history`, `show N`, `restore` and `recovery-key`.

use std::path::Path;

use larder_api::endpoints::{GetConfigHistory, GetConfigVersion, RenewRecoveryKey, RestoreConfig};
use larder_api::{ConfigHistory, ConfigRestore, Failure, VolumeSecret};
use larder_crypt::RecoveryKey;

use super::super::args::Global;
use super::super::password;
use super::super::reach::daemon;
use super::{confirmed, notes, shown};
use larder_config::times;

/// A file of that name is named as `./7`.
pub(super) fn is_number(file: &Path) -> bool {
    file.to_str().is_some_and(|text| text.parse::<u64>().is_ok())
}

pub(super) async fn history(global: &Global) -> Result<(), Failure> {
    let history = daemon(global).await?.ask(GetConfigHistory).await?;
    global.out().answer(&history, text)
}

fn text(history: &ConfigHistory) -> String {
    let mut text = format!("box {}, life {}\n", history.box_id, history.life);
    match history.opens_with.as_slice() {
        [] => text.push_str("nothing opens it on another machine; make a key with: larder config recovery-key\n"),
        with => text.push_str(&format!("opens on another machine with {}\n", with.join(", "))),
    }
    for one in &history.versions {
        let when = times::local_secs(i64::try_from(one.written_secs).unwrap_or(0));
        text.push_str(&format!("{:>6}  {when}  {}  {}\n", one.number, one.machine, one.changes.join(", ")));
    }
    if history.versions.is_empty() {
        text.push_str("no version was written yet\n");
    }
    text + &notes(&history.notes)
}

pub(super) async fn show(global: &Global, number: &str) -> Result<(), Failure> {
    let version = daemon(global).await?.call(GetConfigVersion, number, &()).await?;
    global.out().answer(&version, |version| version.text.clone())
}

pub(super) fn secret(password_file: Option<&Path>, recovery_key_file: Option<&Path>) -> Result<VolumeSecret, Failure> {
    let typed = match password_file.or(recovery_key_file) {
        Some(file) => password::passphrase_in(file)?,
        None => password::secret_line("Password of an owner of that box, or its recovery key", false)?,
    };
    Ok(match recovery_key_file.is_some() || RecoveryKey::parse(&typed).is_some() {
        true => VolumeSecret::Recovery(typed),
        false => VolumeSecret::Passphrase(typed),
    })
}

pub(super) async fn restore(global: &Global, asked: ConfigRestore, yes: bool) -> Result<(), Failure> {
    let client = daemon(global).await?;
    let look = ConfigRestore { dry_run: true, ..asked.clone() };
    let planned = client.call(RestoreConfig, (), &look).await?;
    if let Some((_, refused)) = planned.plan.refused().next() {
        return Err(Failure { message: format!("{}; nothing was restored", refused.message), ..refused.clone() });
    }
    let mut interrupts: Vec<&str> = planned.plan.interrupts().collect();
    if asked.from.is_some() {
        interrupts.extend(planned.notes.iter().map(String::as_str));
    }
    if !interrupts.is_empty() && !yes && !confirmed(&interrupts)? {
        return Err(Failure::invalid("nothing was restored"));
    }
    let asked = ConfigRestore { base: Some(planned.plan.base.clone()), ..asked };
    let restored = client.call(RestoreConfig, (), &asked).await?;
    global.out().answer(&restored, |restored| {
        let mut text = if asked.from.is_some() { String::new() } else { shown(&restored.plan) };
        text.push_str(&notes(&restored.notes));
        text + if asked.from.is_some() { "ready\n" } else { "restored\n" }
    })
}

pub(super) async fn recovery_key(global: &Global) -> Result<(), Failure> {
    let made = daemon(global).await?.call(RenewRecoveryKey, (), &()).await?;
    global.out().answer(&made, |made| {
        format!(
            "Recovery key: {}\nIt makes another machine this box again (larder up --import DIR...), and is shown this once. Write it down, \
             and keep it away from these disks. A recovery key of before opens nothing any more.\n",
            made.recovery_key
        )
    })
}
