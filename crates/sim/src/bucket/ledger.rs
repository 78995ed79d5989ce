//! Every state of `registry.json`, judged when it is stored: a change is one of the seat that makes it.
//!
//! - `ledger.one_after_another`: each state follows from the one before it, so no change of anybody is overwritten.
//! - `ledger.own_entries`: a machine changes, adds and removes entries of its own seat alone. Of another seat's it accepts an offer to itself.
//! - `ledger.removed_when_doomed`: an entry goes when it was doomed, or is that of a clone that was not finished.
//! - `ledger.given_as_accepted`: an entry's seat changes to the one that has accepted the volume, by the seat that it names.

use std::collections::BTreeMap;

use larder_base::Seat;
use larder_volume::inspect::{RegistryEntry, RegistryState, registry_state};
use larder_volume::{Handover, HandoverStage};
use uuid::Uuid;

/// The registry as it is, and what became of its volumes.
#[derive(Default)]
pub struct Ledger {
    newest: Option<RegistryState>,
    /// How often each volume went to another seat.
    handovers: BTreeMap<Uuid, u64>,
    /// A volume that is on its way, from one seat to another.
    under_way: Option<(Seat, Seat)>,
    /// The first contradiction.
    wrong: Option<String>,
}

impl Ledger {
    /// A machine at this seat has stored the registry.
    pub fn stored(&mut self, bytes: &[u8], by: &Seat) {
        let judged = registry_state(bytes).map_err(|error| error.to_string()).and_then(|state| self.follow(state, by));
        if let Err(why) = judged {
            self.wrong.get_or_insert(format!("the registry, as the seat {by} has stored it: {why}"));
        }
    }

    pub fn take_wrong(&mut self) -> Option<String> {
        self.wrong.take()
    }

    /// The seat that has a volume, and how often it went to another one.
    pub fn whose(&self, name: &str) -> Option<(Seat, u64)> {
        let entries = &self.newest.as_ref()?.entries;
        let entry = entries.iter().find(|entry| entry.seated.info.name == name && !entry.doomed)?;
        Some((entry.seated.seat.clone(), self.handovers.get(&entry.seated.info.id).copied().unwrap_or(0)))
    }

    /// Whether a handover has come a step further since this was asked, and between which seats.
    pub fn take_under_way(&mut self) -> Option<(Seat, Seat)> {
        self.under_way.take()
    }

    /// All handovers of all volumes.
    pub fn handovers(&self) -> u64 {
        self.handovers.values().sum()
    }

    fn follow(&mut self, state: RegistryState, by: &Seat) -> Result<(), String> {
        let before = self.newest.replace(state.clone());
        let before = before.unwrap_or(RegistryState { changes: 0, entries: Vec::new() });
        if state.changes != before.changes + 1 {
            let (was, is) = (before.changes, state.changes);
            return Err(format!("it was changed {was} times, and says now that it was changed {is} times"));
        }
        for entry in &before.entries {
            match state.entries.iter().find(|other| other.seated.info.id == entry.seated.info.id) {
                Some(now) => self.judge_change(entry, now, by)?,
                None => judge_removal(entry, by)?,
            }
        }
        let is_new =
            |entry: &&RegistryEntry| before.entries.iter().all(|other| other.seated.info.id != entry.seated.info.id);
        match state.entries.iter().filter(is_new).find(|entry| entry.seated.seat != *by) {
            Some(entry) => Err(format!("{} is new, and another seat's", name(entry))),
            None => Ok(()),
        }
    }

    fn judge_change(&mut self, old: &RegistryEntry, new: &RegistryEntry, by: &Seat) -> Result<(), String> {
        let name = name(old);
        if let Some(handover) = new.seated.handover.as_ref().filter(|_| new.seated.handover != old.seated.handover) {
            self.under_way = Some((handover.from.clone(), handover.to.clone()));
        }
        if old.seated.seat == *by {
            if old.seated.seat == new.seated.seat {
                return Ok(());
            }
            *self.handovers.entry(old.seated.info.id).or_default() += 1;
            let accepted = old.seated.handover.as_ref();
            let accepted = accepted.filter(|handover| handover.stage == HandoverStage::Accepted);
            return match (accepted, &new.seated.handover) {
                (Some(accepted), Some(given))
                    if given.stage == HandoverStage::Given && accepted.to == new.seated.seat =>
                {
                    Ok(())
                }
                _ => Err(format!("{name} went to the seat {}, which had not accepted it", new.seated.seat)),
            };
        }
        if old == new {
            return Ok(());
        }
        let mut allowed = old.clone();
        if let Some(handover) = &mut allowed.seated.handover
            && (&handover.to, handover.stage) == (by, HandoverStage::Offered)
        {
            let told = new.seated.handover.as_ref().map(|handover| handover.told.clone()).unwrap_or_default();
            *handover = Handover { stage: HandoverStage::Accepted, told, ..handover.clone() };
        }
        match allowed == *new {
            true => Ok(()),
            false => Err(format!("{name} is of the seat {}, and was changed: {old:?} became {new:?}", old.seated.seat)),
        }
    }
}

fn name(entry: &RegistryEntry) -> String {
    format!("volume {} ({})", entry.seated.info.name, entry.seated.info.id)
}

fn judge_removal(entry: &RegistryEntry, by: &Seat) -> Result<(), String> {
    let is_over = entry.doomed || (entry.is_clone && !entry.formatted);
    match is_over && entry.seated.seat == *by {
        true => Ok(()),
        false => Err(format!("{} of the seat {} is lost", name(entry), entry.seated.seat)),
    }
}
