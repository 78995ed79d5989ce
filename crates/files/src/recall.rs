//! Caches of other doors' clients, asked back before an access ([`larder_opens::Promise`]).

use std::sync::Arc;
use std::time::Duration;

use larder_base::boxed;
use larder_base::traffic::{self, Wait};
use larder_fs::{FsError, FsResult, Ino, NameMatch};
use larder_opens::{Caches, Table, Uses};

use crate::facts::{Act, Change, Duty, does};
use crate::{Files, InRecall, WITNESS_WAIT_MAX_OF_MOUNTS};

/// A client that does not answer loses what it holds after 35 s (MS-SMB2 3.3.2.5, as Windows has
/// it); a little longer.
const PATIENCE: Duration = Duration::from_secs(40);

impl Files {
    /// Waits until clients of other doors cache nothing of the file that an access needs
    /// (`promises.asked_first`), [`PATIENCE`] at most.
    pub async fn recall(&self, ino: Ino, what: Caches) {
        let opens = &self.shared.opens;
        if !opens.may_ask(what) {
            return;
        }
        // Before anybody is asked: what comes back must not wait for this mount.
        let _counted = (self.witness_wait_max == WITNESS_WAIT_MAX_OF_MOUNTS).then(|| InRecall::begin(&self.shared));
        if opens.ask_back(self.door, ino, what) {
            await_return(opens, self.door, ino, what).await;
        }
    }
}

/// Before a change: what its clients cache of the inodes that it touches comes back, and none may
/// have one open in a way that denies it (`files.opens_seen_by_all`).
pub(crate) async fn before(files: &Files, change: &Change<'_>) -> FsResult<()> {
    let opens = &files.shared.opens;
    let asked = match change.act {
        Act::Write { ino, .. }
        | Act::Append { ino, .. }
        | Act::Allocate { ino, .. }
        | Act::Attributes { ino, size: Some(_), .. } => [Some((ino, Caches::DATA)), None],
        Act::Attributes { ino, .. } | Act::Link { ino } => [Some((ino, Caches::ATTRIBUTES)), None],
        Act::Share { source, target, .. } => [Some((source.0, Caches::WRITES)), Some((target.0, Caches::DATA))],
        Act::Create { size: Some(_) } if opens.has_doors() => [named(files, change).await, None],
        Act::Relink { does, .. } => return taken(files, change, does).await,
        Act::Unlink | Act::Rmdir | Act::Rename => return taken(files, change, Uses::DELETE).await,
        // What is new is in no cache; a cache of the directory is a witness, or a door's own.
        Act::Create { .. } | Act::Unnamed | Act::Make => [None, None],
    };
    for (ino, what) in asked.into_iter().flatten() {
        does(Duty::Recall(what));
        traffic::waiting(Wait::Other, files.recall(ino, what)).await;
    }
    Ok(())
}

/// The file that has the name now, if any has.
#[boxed]
async fn named(files: &Files, change: &Change<'_>) -> Option<(Ino, Caches)> {
    let (dir, name) = &change.entries[0];
    let found = files.tree.lookup(change.cred, *dir, name, NameMatch::Exact).await.ok();
    found.map(|attr| (attr.id.ino, Caches::DATA))
}

/// Before names are taken from what has them: clients that keep it open for later close it.
#[boxed]
async fn taken(files: &Files, change: &Change<'_>, does_to_it: Uses) -> FsResult<()> {
    // A door without holders may deny as well: a lock over WebDAV is an open.
    if !files.shared.opens.has_doors() && !files.shared.opens.has_denials() {
        return Ok(());
    }
    for (dir, name) in change.entries.iter().filter(|(_, name)| !name.is_empty()) {
        if let Ok(attr) = files.tree.lookup(change.cred, *dir, name, NameMatch::Exact).await {
            does(Duty::Recall(Caches::HANDLES));
            files.recall(attr.id.ino, Caches::HANDLES).await;
            if files.denies_elsewhere(attr.id.ino, does_to_it) {
                return Err(FsError::Shared);
            }
        }
    }
    Ok(())
}

#[boxed]
async fn await_return(opens: &Arc<Table>, door: u32, ino: Ino, what: Caches) {
    if tokio::time::timeout(PATIENCE, opens.given_back(door, ino, what)).await.is_err() {
        tracing::warn!(
            ?ino,
            ?what,
            "a client was asked for what it caches and has not given it back: going on without"
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Weak;

    use futures::FutureExt;
    use larder_opens::{Door, Promise};
    use parking_lot::Mutex;

    use super::*;

    /// Door 1, with one client. It gives back what it was asked for, unless it is silent.
    #[derive(Default)]
    struct Client {
        promise: Mutex<Option<Promise>>,
        asked: Mutex<Vec<Caches>>,
        is_silent: bool,
    }

    impl Door for Client {
        fn ask_back(&self, _ino: Ino, what: Caches) {
            self.asked.lock().push(what);
            if let Some(promise) = self.promise.lock().take_if(|_| !self.is_silent) {
                larder_base::task::spawn(async move {
                    tokio::task::yield_now().await;
                    drop(promise);
                });
            }
        }
    }

    fn client(opens: &Arc<Table>, is_silent: bool) -> Arc<Client> {
        let promise = opens.promise(Ino(5), 1, Caches::WRITES);
        promise.grant(|_| Caches::DATA);
        let client = Arc::new(Client { promise: Mutex::new(Some(promise)), is_silent, ..Client::default() });
        let door: Weak<dyn Door> = Arc::downgrade(&(Arc::clone(&client) as Arc<dyn Door>));
        opens.add_door(1, door);
        client
    }

    #[tokio::test]
    async fn others_are_asked_and_waited_for_and_the_door_itself_is_not() {
        let opens = Arc::<Table>::default();
        let client = client(&opens, false);
        assert!(!opens.ask_back(1, Ino(5), Caches::DATA), "its own door");
        assert!(!opens.ask_back(2, Ino(7), Caches::DATA), "nothing is promised of it");
        assert!(client.asked.lock().is_empty());
        assert!(opens.ask_back(2, Ino(5), Caches::WRITES));
        await_return(&opens, 2, Ino(5), Caches::WRITES).await;
        assert_eq!(*client.asked.lock(), [Caches::WRITES], "once");
        assert!(await_return(&opens, 2, Ino(5), Caches::WRITES).now_or_never().is_some(), "given back");
        assert!(opens.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_never_answers_is_given_up() {
        let opens = Arc::<Table>::default();
        let client = client(&opens, true);
        let begun = tokio::time::Instant::now();
        await_return(&opens, 2, Ino(5), Caches::DATA).await;
        assert_eq!(begun.elapsed(), PATIENCE);
        assert_eq!(*client.asked.lock(), [Caches::DATA]);
    }
}
