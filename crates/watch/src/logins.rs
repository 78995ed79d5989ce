//! Logins and refusals: into the audit log, and as alerts where a user comes from a new place or an address guesses.

use larder_alerts::audit::{Record, RecordKind};
use larder_alerts::{Condition, EventKind};
use larder_doors::door::Passage;
use tokio::sync::mpsc;

use crate::places::{Seen, left_out};
use crate::state::Watch;

pub(crate) async fn run(watch: &Watch, passages: Option<mpsc::Receiver<Passage>>) {
    let Some(mut passages) = passages else { return };
    while let Some(passage) = passages.recv().await {
        let left_out = left_out();
        if left_out > 0 {
            tracing::warn!("{left_out} logins and refusals are not in the audit log: they came too fast");
        }
        take_in(watch, passage);
    }
}

fn take_in(watch: &Watch, passage: Passage) {
    let (door, _) = passage.text.split_once(": ").unwrap_or(("", ""));
    watch.record(Record {
        number: 0,
        at_ms: 0,
        kind: if passage.admitted { RecordKind::Login } else { RecordKind::Refusal },
        who: passage.user.clone().unwrap_or_default(),
        from: passage.address.to_string(),
        by: door.to_lowercase(),
        what: passage.text.clone(),
        target: String::new(),
        result: if passage.admitted { "done" } else { "refused" }.to_owned(),
    });
    if passage.locked_out {
        let subject = passage.address.to_string();
        watch.note_once(Condition::is(EventKind::LoginLockedOut, subject, passage.text.clone()));
    }
    let Some(user) = passage.user.clone().filter(|_| passage.admitted) else { return };
    let seen = {
        let mut kept = watch.kept.lock();
        let seen = kept.places.see(&user, passage.address);
        if seen != Seen::Known {
            watch.save(&kept);
        }
        seen
    };
    if seen == Seen::New {
        watch.note(Condition::is(EventKind::LoginNewPlace, user, passage.text));
    }
}
