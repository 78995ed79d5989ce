//! A copy from one place to another: any two of folder and URL.

use larder_load::{BenchError, CopyLoad, Load, client};

use super::super::ground::Ground;
use super::super::plan::Plan;
use super::super::result::{Caches, Layer, Note};
use super::super::runner::{Runner, Spec};
use super::shares::room;
use super::{Bench, ShareTarget};

/// One end, ready to be used.
struct End {
    client: Box<dyn client::ShareClient>,
    /// As much data as it has room for.
    data_bytes: u64,
    notes: Vec<Note>,
}

impl Bench<'_> {
    pub(super) fn copy(&self, runner: &mut Runner, from: &ShareTarget, to: &ShareTarget) -> Result<(), BenchError> {
        let plan = self.copy_plan();
        let (source, target) = (self.copy_end(from, &plan)?, self.copy_end(to, &plan)?);
        let data_bytes = source.data_bytes.min(target.data_bytes);
        let plan = Plan { data_bytes, ..plan };
        let mut notes = [source.notes, target.notes].concat();
        notes.dedup();
        if let ShareTarget::Url(url) = from {
            let text = format!(
                "{} was given its files just before and may have them in memory: the copy shows its disks with more data than that memory, as in --size 64G",
                client::shown_url(url)
            );
            notes.push(Note { code: "server-memory".to_owned(), text, misleading: false });
        }
        let subject = format!("{} to {}", from.show(), to.show());
        let mut load = CopyLoad::new(source.client, target.client);
        let mut measured = Ok(());
        for shape in &plan.shapes {
            let spec = Spec {
                layer: Layer::Copy,
                subject: subject.clone(),
                variant: self.request.labels.clone(),
                workload: super::super::result::Workload { caches: Caches::Unknown, ..plan.workload(shape) },
                limits: plan.limits(),
                repeats: plan.repeats,
                notes: notes.clone(),
                far: false,
            };
            measured = runner.measure(&mut load, spec);
            if measured.is_err() {
                break;
            }
        }
        let cleaned = load.clean_up();
        if cleaned.is_err() && matches!(measured, Err(BenchError::Stopped)) {
            let text = format!("what was written to {subject} may still be there: the next bench there removes it");
            runner.note(Note { code: "left-behind".to_owned(), text, misleading: false });
        }
        measured.and(cleaned)
    }

    fn copy_end(&self, target: &ShareTarget, plan: &Plan) -> Result<End, BenchError> {
        match target {
            ShareTarget::Url(url) => {
                let client = self.client(url)?;
                let (data_bytes, less) = room(plan.data_bytes, client.free_bytes(), self.size_given())?;
                let reached = Note { code: "reached".to_owned(), text: client.describe(), misleading: false };
                Ok(End { client, data_bytes, notes: [reached].into_iter().chain(less).collect() })
            }
            ShareTarget::Mount(folder) => {
                let ground = Ground::of(self.machine, folder)?;
                let (data_bytes, less) = ground.room(plan.data_bytes, self.size_given(), 2)?;
                let client = client::open_folder(&ground.folder)?;
                Ok(End { client, data_bytes, notes: ground.notes().into_iter().chain(less).collect() })
            }
        }
    }
}
