//! Both ends of a measurement, looked at while its repeats run.

use super::far::{FarError, Visit};
use super::result::Samples;
use larder_facts::sampler::Sampler;

/// A failure at the other end ends nothing here (`far.absence_is_a_note`).
pub(super) struct Ends {
    near: Sampler,
    far: Option<Visit>,
    lost: Option<FarError>,
}

/// The samples of both ends.
pub(super) struct Seen {
    pub(super) near: Samples,
    pub(super) far: Option<Samples>,
    /// Why the other end was not watched until the end.
    pub(super) lost: Option<FarError>,
}

impl Ends {
    pub(super) fn new(near: Sampler) -> Self {
        Self { near, far: None, lost: None }
    }

    pub(super) fn watch_too(&mut self, far: Option<Visit>) {
        self.far = far;
    }

    pub(super) fn look(&mut self) {
        self.ask(Visit::look);
        self.near.look();
    }

    pub(super) fn rest(&mut self) {
        self.near.rest();
        self.ask(Visit::rest);
    }

    fn ask(&mut self, what: fn(&mut Visit) -> Result<(), FarError>) {
        if let Some(Err(error)) = self.far.as_mut().map(what) {
            (self.far, self.lost) = (None, Some(error));
        }
    }

    /// `at_ms`: now, since the bench began.
    pub(super) fn end(self, at_ms: u64) -> Seen {
        let near = self.near.end();
        match self.far.map(|far| far.end(at_ms)) {
            Some(Ok(far)) => Seen { near, far: Some(far).filter(|s| !s.at_ms.is_empty()), lost: self.lost },
            Some(Err(error)) => Seen { near, far: None, lost: Some(error) },
            None => Seen { near, far: None, lost: self.lost },
        }
    }
}
