//! Operations on the files of audited shares, on their way into the audit log.
//!
//! - `fileaudits.in_batches`: an operation waits up to a second for company. It has written to a disk itself, so its line wakes none; without
//!   operations nothing is written.
//! - `fileaudits.bounded`: [`WAITING_MAX`] operations wait. Those beyond are counted, and a record says how many there were.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use larder_alerts::audit::{Record, RecordKind};
use larder_api::share::AUDIT;
use larder_files::Files;
use larder_files::audit::{FileAct, FileActs, FileAudit, FileOperation};
use larder_fs::Ino;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::now_ms;
use larder_config::ShareConfig;
use larder_servers::doors::door_word;

/// About 5 MB, and seconds of the quickest client.
const WAITING_MAX: usize = 16 << 10;
const BATCH_WAIT: Duration = Duration::from_secs(1);

struct Waiting {
    at_ms: u64,
    share: Arc<str>,
    operation: FileOperation,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    left_out: u64,
}

/// The audit of each share, which outlives changes of the configuration.
#[derive(Default)]
pub struct FileAudits {
    audits: Mutex<BTreeMap<String, (uuid::Uuid, Arc<FileAudit>)>>,
    queue: Arc<Mutex<Queue>>,
    news: Arc<Notify>,
}

impl FileAudits {
    /// The audit of a share with the folder `top`, which tells of what the share says.
    pub fn of(&self, share: &ShareConfig, files: &Files, top: Ino) -> Arc<FileAudit> {
        let mut audits = self.audits.lock();
        let known = audits.get(&share.name).filter(|(tree, audit)| *tree == files.id() && audit.top() == top);
        let audit = match known {
            Some((_, audit)) => Arc::clone(audit),
            None => {
                let audit = self.begin(&share.name, top);
                audits.insert(share.name.clone(), (files.id(), Arc::clone(&audit)));
                audit
            }
        };
        let words = share.words(&AUDIT);
        let is_meant = |act: &FileAct| words == "all" || words.split(',').any(|word| word == act.word());
        audit.set_acts(FileActs::of(FileAct::ALL.into_iter().filter(is_meant)));
        audit
    }

    fn begin(&self, share: &str, top: Ino) -> Arc<FileAudit> {
        let (share, queue, news) = (Arc::<str>::from(share), Arc::clone(&self.queue), Arc::clone(&self.news));
        FileAudit::new(top, move |operation| {
            let mut queue = queue.lock();
            if queue.waiting.len() >= WAITING_MAX {
                queue.left_out += 1;
                return;
            }
            queue.waiting.push_back(Waiting { at_ms: now_ms(), share: Arc::clone(&share), operation });
            news.notify_one();
        })
    }

    /// Until a batch is there to be written.
    pub(crate) async fn batch(&self) {
        self.news.notified().await;
        tokio::time::sleep(BATCH_WAIT).await;
    }

    /// The records of what waits.
    pub(crate) fn take(&self) -> Vec<Record> {
        let Queue { waiting, left_out } = std::mem::take(&mut *self.queue.lock());
        let mut records = Vec::with_capacity(waiting.len());
        let mut made: Option<Waiting> = None;
        for one in waiting {
            // A new file gets its rights by a call of its own at some doors.
            let belongs = |made: &Waiting| {
                made.share == one.share
                    && (&made.operation.user, made.operation.address) == (&one.operation.user, one.operation.address)
                    && made.operation.path == one.operation.path
            };
            if one.operation.act == FileAct::Permissions && made.as_ref().is_some_and(belongs) {
                continue;
            }
            records.push(record(&one));
            made = (one.operation.act == FileAct::Created).then_some(one);
        }
        if left_out > 0 {
            let what = format!("{left_out} operations on files are not here: they came too fast");
            tracing::warn!("the audit log: {what}");
            let at_ms = records.last().map_or_else(now_ms, |last| last.at_ms);
            records.push(Record { what, at_ms, kind: RecordKind::File, by: "larder".to_owned(), ..Record::default() });
        }
        records
    }
}

fn record(one: &Waiting) -> Record {
    let Waiting { at_ms, share, operation } = one;
    let path = format!("{share}/{}", operation.path);
    Record {
        number: 0,
        at_ms: *at_ms,
        kind: RecordKind::File,
        who: operation.user.clone(),
        from: operation.address.map_or_else(|| "local".to_owned(), |address| address.to_string()),
        by: door_word(operation.door).to_owned(),
        what: operation.act.word().to_owned(),
        target: match &operation.to {
            Some(to) => format!("{path} -> {share}/{to}"),
            None => path,
        },
        result: "done".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(act: FileAct, user: &str, path: &str) -> FileOperation {
        let (address, to) = (Some([192, 168, 1, 7].into()), (act == FileAct::Renamed).then(|| "b".to_owned()));
        FileOperation { act, user: user.to_owned(), address, door: 1, path: path.to_owned(), to }
    }

    fn waiting(audits: &FileAudits, operations: &[FileOperation]) {
        let one = |operation: &FileOperation| Waiting { at_ms: 5, share: "docs".into(), operation: operation.clone() };
        audits.queue.lock().waiting.extend(operations.iter().map(one));
    }

    #[test]
    fn rights_of_a_new_file_belong_to_its_making() {
        let audits = FileAudits::default();
        waiting(
            &audits,
            &[
                operation(FileAct::Created, "ann", "a"),
                operation(FileAct::Permissions, "ann", "a"),
                operation(FileAct::Created, "ann", "a"),
                operation(FileAct::Permissions, "bob", "a"),
                operation(FileAct::Renamed, "ann", "a"),
            ],
        );
        let records = audits.take();
        let said: Vec<_> = records.iter().map(|one| format!("{} {} {}", one.who, one.what, one.target)).collect();
        let expected =
            ["ann created docs/a", "ann created docs/a", "bob permissions docs/a", "ann renamed docs/a -> docs/b"];
        assert_eq!(said, expected);
        assert_eq!((records[0].from.as_str(), records[0].by.as_str()), ("192.168.1.7", "nfs"));
        assert!(audits.take().is_empty());
    }
}
