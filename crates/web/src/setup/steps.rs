//! The steps, one after the other. Each GET shows one, each POST takes it and goes on, or shows it again with the reason.

use std::path::{Path, PathBuf};

use hyper::{Method, StatusCode};
use larder_api::endpoints::{GetDisks, PreviewLayouts};
use larder_api::{DisksFound, Failure, PoolOnDisks, SetupImport, SetupProgress};

use super::draft::Draft;
use super::outcome::{Answer, Outcome};
use super::ways::host_of;
use super::{Step, views};
use crate::ask;
use crate::note::Note;
use crate::visit::Frame;

impl Step<'_> {
    pub(super) async fn run(&self, method: &Method) -> Answer {
        let progress = self.inner.task.progress();
        match (method.as_str(), self.path) {
            ("GET", "/progress") => self.progress(progress),
            ("GET", "/done") => self.done(&progress),
            ("POST", "/leave") => self.leave(&progress),
            ("GET" | "POST", _) if progress.served.is_some() => Ok(Outcome::Go("/done")),
            ("GET" | "POST", _) if is_working(&progress) => Ok(Outcome::Go("/progress")),
            ("GET", "/disks") => self.disks().await,
            ("POST", "/disks") => self.choose_disks().await,
            ("POST", "/add-folder") => self.add_folder().await,
            ("POST", "/trial") => self.trial().await,
            ("POST", "/go-on") => self.go_on().await,
            ("POST", "/import") => self.import().await,
            ("GET", "/layout") => self.layouts().await,
            ("POST", "/layout") => self.choose_layout().await,
            ("GET", "/names") => self.names(),
            ("POST", "/names") => self.choose_names(),
            ("GET", "/review") => self.review(None).await,
            ("POST", "/review") => self.confirm().await,
            _ => Ok(Outcome::Go("/disks")),
        }
    }

    fn draft(&self) -> Draft {
        self.inner.draft.lock().clone()
    }

    fn keep(&self, draft: Draft) {
        *self.inner.draft.lock() = draft;
    }

    fn frame(&self, title: &str) -> Frame {
        let note = self.inner.note.lock().take();
        Frame { note, ..self.inner.frame(self.nonce, title, &self.csrf) }
    }

    /// Back to a step, with the reason.
    fn back(&self, to: &'static str, failure: Failure) -> Answer {
        *self.inner.note.lock() = Some(Note::from(failure));
        Ok(Outcome::Go(to))
    }

    pub(super) fn failed(&self, failure: Failure) -> Outcome {
        let note = Note::from(failure);
        let action = note.action.join("; ");
        views::closed(self.frame("That did not work"), StatusCode::INTERNAL_SERVER_ERROR, &note.text, &action)
    }

    async fn found(&self) -> Result<DisksFound, Failure> {
        let mut found = ask::call(&*self.inner.task, None, GetDisks, (), None).await?;
        let named = self.inner.named_pools.lock();
        let is_new = |pool: &&PoolOnDisks| found.pools.iter().all(|known| known.folders != pool.folders);
        let named: Vec<PoolOnDisks> = named.iter().filter(is_new).cloned().collect();
        found.pools.extend(named);
        Ok(found)
    }

    async fn disks(&self) -> Answer {
        let found = self.found().await?;
        let draft = self.draft();
        let mut named = Vec::new();
        for path in draft.named.iter().filter(|path| found.folders.iter().all(|one| one.path != **path)) {
            named.push(self.inner.task.folder(path.clone()).await?);
        }
        let unfinished = self.inner.task.unfinished();
        let task = &*self.inner.task;
        views::disks(self.frame("Disks"), &draft, &found, &named, unfinished.as_ref(), &|dirs| task.import_line(dirs))
    }

    async fn choose_disks(&self) -> Answer {
        // A folder that was written and not yet added is meant, too.
        if !self.form.text("path").is_empty() {
            return self.add_folder().await;
        }
        let found = self.found().await?;
        let mut draft = self.draft();
        draft.choose(&self.form, &found);
        let (is_empty, request) = (draft.folders.is_empty() && draft.devices.is_empty(), draft.request());
        self.keep(draft);
        if is_empty {
            let failure = Failure::invalid("no disk was chosen");
            return self.back("/disks", failure.action("Choose one at least, or name a folder"));
        }
        // Refused here, where it can be mended.
        match ask::call(&*self.inner.task, None, PreviewLayouts, (), Some(&request)).await {
            Ok(_) => Ok(Outcome::Go("/layout")),
            Err(failure) => self.back("/disks", failure),
        }
    }

    async fn add_folder(&self) -> Answer {
        let text = self.form.text("path");
        let mut draft = self.draft();
        // The boxes come with the name.
        draft.choose(&self.form, &self.found().await?);
        self.keep(draft.clone());
        if text.is_empty() {
            return self.back(
                "/disks",
                Failure::invalid("no folder was named").action("Write its whole path, such as /mnt/disk1/larder"),
            );
        }
        let found = self.inner.task.folder(PathBuf::from(text)).await?;
        if let Some(why) = found.refused {
            let shown = found.path.display();
            let failure = Failure::invalid(format!("{shown} cannot be a disk of a new pool: {why}"));
            return self.back(
                "/disks",
                match found.pool {
                    // What is there comes back by its own form, or by another command.
                    Some(pool) => {
                        let line = self.inner.task.import_line(&pool.folders);
                        let mut named = self.inner.named_pools.lock();
                        named.retain(|known| known.name != pool.name);
                        named.push(pool);
                        failure.action(line)
                    }
                    None => failure,
                },
            );
        }
        match draft.name(found.path) {
            Ok(()) => {
                self.keep(draft);
                Ok(Outcome::Go("/disks"))
            }
            Err(failure) => self.back("/disks", failure),
        }
    }

    async fn trial(&self) -> Answer {
        let mut draft = Draft { has_chosen: true, ..self.draft() };
        (draft.folders, draft.devices) = (Vec::new(), Vec::new());
        for folder in self.inner.task.trial() {
            draft.name(folder)?;
        }
        self.keep(draft);
        Ok(Outcome::Go("/layout"))
    }

    async fn go_on(&self) -> Answer {
        let Some(plan) = self.inner.task.unfinished() else { return Ok(Outcome::Go("/disks")) };
        self.keep(Draft { goes_on: true, ..Draft::of_unfinished(plan) });
        Ok(Outcome::Go("/names"))
    }

    /// These disks hold a larder, which comes back with its users and shares.
    async fn import(&self) -> Answer {
        let (name, secret) = (self.form.text("pool"), self.form.text("secret").to_owned());
        let found = self.found().await?.pools.into_iter().find(|pool| pool.name == name);
        let Some(pool) = found else {
            return self.back("/disks", Failure::not_found("these disks are not there any more"));
        };
        if secret.is_empty() {
            let failure = Failure::invalid("the box opens with the password of one of its owners, or its recovery key");
            return self.back("/disks", failure.action("Type one of them"));
        }
        let import = SetupImport { folders: pool.folders, secret, force: self.form.is_checked("force") };
        match self.inner.task.import(import, self.peer.addr) {
            Ok(()) => Ok(Outcome::Go("/progress")),
            Err(failure) => self.back("/disks", failure),
        }
    }

    async fn layouts(&self) -> Answer {
        let draft = self.draft();
        if draft.goes_on || draft.folders.is_empty() && draft.devices.is_empty() {
            return Ok(Outcome::Go("/disks"));
        }
        match ask::call(&*self.inner.task, None, PreviewLayouts, (), Some(&draft.request())).await {
            Ok(preview) => views::layouts(self.frame("Layout"), &draft, &preview),
            Err(failure) => self.back("/disks", failure),
        }
    }

    async fn choose_layout(&self) -> Answer {
        let mut draft = self.draft();
        let chosen = self.form.text("layout").to_owned();
        let preview = match ask::call(&*self.inner.task, None, PreviewLayouts, (), Some(&draft.request())).await {
            Ok(preview) => preview,
            Err(failure) => return self.back("/disks", failure),
        };
        let Some(layout) = preview.layouts.iter().find(|one| one.layout == chosen) else {
            return self.back("/layout", Failure::invalid("no layout was chosen").action("Choose one"));
        };
        if let Some(why) = &layout.refused {
            return self.back("/layout", Failure::invalid(format!("{chosen} is not possible: {why}")));
        }
        draft.layout = chosen;
        self.keep(draft);
        Ok(Outcome::Go("/names"))
    }

    fn names(&self) -> Answer {
        let draft = self.draft();
        if draft.layout.is_empty() {
            return Ok(Outcome::Go("/layout"));
        }
        views::names(self.frame("Names"), &draft, self.peer.addr)
    }

    fn choose_names(&self) -> Answer {
        let mut draft = self.draft();
        draft.take_names(&self.form, self.peer.addr);
        let checked = self.inner.task.check_names(&draft.plan(|_| None)).and_then(|()| draft.take_password(&self.form));
        self.keep(draft);
        match checked {
            Ok(()) => Ok(Outcome::Go("/review")),
            Err(failure) => self.back("/names", failure),
        }
    }

    async fn review(&self, note: Option<Note>) -> Answer {
        let draft = self.draft();
        if draft.layout.is_empty() {
            return Ok(Outcome::Go("/layout"));
        }
        if draft.password.is_empty() {
            return Ok(Outcome::Go("/names"));
        }
        match self.inner.task.check(draft.plan(|_| None)).await {
            Ok(check) => {
                let mut frame = self.frame("Confirm");
                frame.note = note.or(frame.note);
                views::review(frame, &draft, &check)
            }
            Err(failure) => self.back("/disks", failure),
        }
    }

    /// `setup.erased_by_name`
    async fn confirm(&self) -> Answer {
        let draft = self.draft();
        if draft.password.is_empty() {
            return Ok(Outcome::Go("/names"));
        }
        let check = match self.inner.task.check(draft.plan(|_| None)).await {
            Ok(check) => check,
            Err(failure) => return self.back("/disks", failure),
        };
        for (at, erased) in check.erased.iter().enumerate().filter(|(_, erased)| !erased.holds.is_empty()) {
            if self.form.text(&format!("typed{at}")) != erased.token {
                let text = format!("nothing was erased: what was typed for {} is not {}", erased.title, erased.token);
                return self.review(Some(Note::from(Failure::invalid(text)))).await;
            }
        }
        let typed = |path: &Path| {
            let at = check.erased.iter().position(|erased| erased.device == path)?;
            self.form.filled(&format!("typed{at}"))
        };
        match self.inner.task.begin(draft.plan(typed), self.peer.addr) {
            Ok(()) => Ok(Outcome::Go("/progress")),
            Err(failure) => self.back("/review", failure),
        }
    }

    fn progress(&self, progress: SetupProgress) -> Answer {
        if progress.served.is_some() {
            self.inner.draft.lock().password.clear();
            return Ok(Outcome::Go("/done"));
        }
        if let Some(failed) = progress.failure {
            self.inner.task.forget_failure();
            let mut draft = self.draft();
            draft.password.clear();
            // Disks that were made ready are folders now.
            if let Some(plan) = self.inner.task.unfinished() {
                draft.remain(plan);
            }
            self.keep(draft);
            let to = match failed.step.as_str() {
                "disks" => "/disks",
                _ => "/names",
            };
            return self.back(to, failed.failure);
        }
        if progress.steps.is_empty() {
            return Ok(Outcome::Go("/review"));
        }
        views::progress(self.frame("Working"), &progress)
    }

    fn done(&self, progress: &SetupProgress) -> Answer {
        let Some(served) = &progress.served else { return Ok(Outcome::Go("/progress")) };
        let host = host_of(self.host).unwrap_or_else(|| served.host.clone());
        views::done(self.frame("Done"), served, &host, self.agent, self.peer.addr.is_loopback())
    }

    fn leave(&self, progress: &SetupProgress) -> Answer {
        let Some(served) = &progress.served else { return Ok(Outcome::Go("/progress")) };
        let host = host_of(self.host).unwrap_or_else(|| served.host.clone());
        self.inner.task.leave();
        views::left(self.frame("Set up"), served, &host)
    }
}

fn is_working(progress: &SetupProgress) -> bool {
    !progress.steps.is_empty() && progress.failure.is_none()
}
