//! A version of this box, put back while it runs.
//!
//! - `restore.whole_or_not`: what the configuration of a version would change is planned first, and refused as that of any file.
//!   People and their passwords come before the file that names them; if the file is refused after all, they go back. A crash in
//!   between leaves the files of the version together (`contents.whole_or_nothing`).
//! - `restore.pools_stay`: pools are where they are now, whatever the version says of their disks.
//! - `sent.at_the_next_start`: a machine that becomes the box of a replica does so when it starts again, with its own pools, doors and
//!   mounts, and with people, tokens, keys and alerts of the box.

use std::sync::Arc;

use larder_api::{ConfigApplied, ConfigApply, ConfigPlan, ConfigRestore, ConfigText, Failure};
use larder_keep::{Storage, keyrings};

use crate::applying::Applying;
use larder_config::edit::Editor;
use larder_config::{VolumeName, may_run};
use larder_copies::BoxRecord;
use larder_copies::box_record::contents::{Contents, Gathered, Writer};
use larder_copies::box_record::sent::opened_beside;
use larder_document::{DataFolder, Document, NtHashes, Secrets, Tokens};
use larder_servers::links::HeldLinks;

pub struct Restoring {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub folder: Arc<DataFolder>,
    pub record: Arc<BoxRecord>,
    pub applying: Arc<Applying>,
    pub links: Arc<HeldLinks>,
}

impl Restoring {
    pub async fn restore(&self, asked: ConfigRestore) -> Result<ConfigApplied, Failure> {
        match (asked.number, &asked.from) {
            (Some(number), None) => self.restore_version(number, &asked).await,
            (_, Some(_)) => self.restore_from_replica(asked).await,
            _ => Err(Failure::invalid("name a version, or a replica").action("larder config restore N")),
        }
    }

    async fn restore_version(&self, number: u64, asked: &ConfigRestore) -> Result<ConfigApplied, Failure> {
        let version = self.record.version(number).await?;
        let text = self.with_pools_of_now(version.config()?)?;
        let plan = self.applying.plan_for(&ConfigText { text: text.clone(), name: None }).await?;
        let mut notes = vec![format!(
            "passwords, app tokens and links will be those of version {number}; host keys and certificates that differ count from the \
             next start on"
        )];
        if asked.dry_run {
            return Ok(ConfigApplied { plan, notes });
        }
        let base = asked
            .base
            .clone()
            .ok_or_else(|| Failure::invalid("a restoration names the state that it was planned for"))?;
        if plan.base != base {
            let message = format!("{} was changed meanwhile: nothing was restored", plan.file.display());
            return Err(Failure::busy(message).action("look again with: larder config show N"));
        }
        if let Some((_, refused)) = plan.refused().next() {
            return Err(Failure { message: format!("{}; nothing was restored", refused.message), ..refused.clone() });
        }
        if plan.at_next_start().next().is_some() && !asked.at_next_start {
            return Err(Failure::invalid(
                "some of it takes effect when larder starts, and not before; nothing was restored",
            )
            .action(format!("restore it with: larder config restore {number} --at-next-start; then restart larder")));
        }
        let before = self.as_it_is(&version)?;
        self.put_back(version.with_config(text.clone())).await?;
        // The file is the version's by now: what it changes is compared with what is served.
        let applied = self.apply_restored(text, asked.at_next_start).await;
        match applied {
            Ok(applied) => {
                notes.extend(applied.notes);
                tracing::info!(number, "restored a version of this box");
                Ok(ConfigApplied { plan, notes })
            }
            Err(failure) => {
                if let Err(error) = self.put_back(before).await {
                    tracing::error!("the files of before could not be put back: {}", error.message);
                }
                Err(failure)
            }
        }
    }

    /// What the box is now, in the form of a version.
    fn as_it_is(&self, like: &Contents) -> Result<Contents, Failure> {
        let (gathered, _) = Gathered::read(self.folder.path(), &self.document.file, NtHashes::Kept)?;
        let by = Writer {
            machine: like.machine.clone(),
            box_name: like.box_name.clone(),
            box_id: like.box_id,
            life: like.life.clone(),
            former: like.former.clone(),
            owners: like.owners.clone(),
        };
        Ok(gathered.into_version(like.number, keyrings::now(), by, Vec::new()))
    }

    /// Files first; then this process has the people of them.
    async fn put_back(&self, contents: Contents) -> Result<(), Failure> {
        let mut state = self.document.lock().await;
        contents.put_back(self.folder.path(), &self.document.file, None)?;
        let mut secrets = Secrets::open(self.folder.path())?;
        secrets.take_nt_hashes_of(&state.secrets)?;
        state.tokens = Tokens::open(self.folder.path(), &secrets)?;
        state.secrets = secrets;
        drop(state);
        self.links.read_again().await
    }

    async fn apply_restored(&self, text: String, at_next_start: bool) -> Result<ConfigApplied, Failure> {
        let plan = self.applying.plan_for(&ConfigText { text: text.clone(), name: None }).await?;
        self.applying.apply(ConfigApply { text, base: plan.base, at_next_start }).await
    }

    /// `restore.pools_stay`
    fn with_pools_of_now(&self, text: &str) -> Result<String, Failure> {
        let mut editor = Editor::of(text, &self.document.file)?;
        for pool in &self.document.config().pools {
            editor.set_pool_disks(&pool.name, &pool.disks);
        }
        Ok(editor.text())
    }

    async fn restore_from_replica(&self, asked: ConfigRestore) -> Result<ConfigApplied, Failure> {
        let ConfigRestore { number, from, secret, dry_run, .. } = asked;
        let name = from.unwrap_or_default();
        let secret = secret
            .ok_or_else(|| Failure::invalid("the record of a box beside its replica opens with its recovery key"))?;
        let secret = Arc::new(keyrings::secret_of(secret)?);
        let (pool, volume) = self.storage.find(&name).await?;
        let (sent, opened, skipped) = opened_beside(&pool, &volume, number, &secret).await?;
        let here = VolumeName { pool: pool.name.clone(), volume };
        let now =
            std::fs::read_to_string(&self.document.file).map_err(|e| Failure::io(self.document.file.display(), &e))?;
        let source = VolumeName::parse(&sent.volume).map_err(Failure::invalid)?;
        let (text, dropped) =
            Editor::of(&now, &self.document.file)?.becoming(opened.contents.config()?, &source, &here)?;
        let shown = opened.shown(self.folder.path(), Vec::new())?;
        let mut notes = vec![format!(
            "this machine becomes '{}' (version {}, of {}) with the users {}",
            shown.name,
            shown.number,
            larder_config::times::local_secs(i64::try_from(shown.written_secs).unwrap_or(0)),
            shown.users.join(", ")
        )];
        notes.extend(skipped);
        let runs = may_run::deeds(&text, self.folder.path());
        notes.extend(runs.iter().map(|deed| format!("it runs programs or reads files of this machine: {deed}")));
        notes.extend(dropped.into_iter().map(|share| format!("the share '{share}' is of a volume that is not here")));
        if !dry_run {
            let own = opened.next_life()?;
            opened.contents.with_config(text).stage(self.folder.path(), &self.document.file, Some(own))?;
            notes.push(format!("now make a volume of the replica: larder volume promote {here}; then restart larder"));
        }
        Ok(ConfigApplied { plan: ConfigPlan { file: self.document.file.clone(), ..ConfigPlan::default() }, notes })
    }
}
