//! Load on shares by URL, and copies between them.

use super::client::{ClientError, ShareClient, copy};
use super::error::BenchError;
use super::load::{Load, Scene};
use crate::workload::{Kind, Repeat, RunLimits, Workload};

/// A client of a URL as a load.
pub struct ClientLoad {
    client: Box<dyn ShareClient>,
    /// Why its server is not asked again: it would be waited for anew in each workload.
    gone: Option<ClientError>,
}

impl ClientLoad {
    pub fn new(client: Box<dyn ShareClient>) -> Self {
        Self { client, gone: None }
    }

    fn ask<R>(
        &mut self,
        scene: &Scene,
        ask: impl FnOnce(&mut dyn ShareClient) -> Result<R, ClientError>,
    ) -> Result<R, BenchError> {
        if let Some(gone) = &self.gone {
            return Err(gone.clone().into());
        }
        let answer = ask(self.client.as_mut());
        // Whatever it says after it was stopped, it says because of that.
        scene.go_on()?;
        self.gone = answer.as_ref().err().filter(|error| error.is_final()).cloned();
        Ok(answer?)
    }
}

impl Load for ClientLoad {
    fn access(&self) -> String {
        self.client.access().to_owned()
    }

    fn with(&self, _kind: Kind) -> String {
        format!("larder {}", env!("CARGO_PKG_VERSION"))
    }

    fn prepare(&mut self, workload: &Workload, scene: &Scene) -> Result<(), BenchError> {
        self.ask(scene, |client| client.prepare(workload, scene.control))
    }

    fn run(&mut self, workload: &Workload, limits: &RunLimits, scene: &Scene) -> Result<Repeat, BenchError> {
        self.ask(scene, |client| client.run(workload, limits, scene.control))
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        Ok(self.client.clean_up()?)
    }
}

/// A copy between two clients as a load.
pub struct CopyLoad {
    from: Box<dyn ShareClient>,
    to: Box<dyn ShareClient>,
}

impl CopyLoad {
    pub fn new(from: Box<dyn ShareClient>, to: Box<dyn ShareClient>) -> Self {
        Self { from, to }
    }
}

impl Load for CopyLoad {
    fn access(&self) -> String {
        format!("{} to {}", self.from.access(), self.to.access())
    }

    fn with(&self, _kind: Kind) -> String {
        format!("larder {}", env!("CARGO_PKG_VERSION"))
    }

    fn prepare(&mut self, workload: &Workload, scene: &Scene) -> Result<(), BenchError> {
        self.from.prepare_copy(workload, true, scene.control)?;
        Ok(self.to.prepare_copy(workload, false, scene.control)?)
    }

    fn run(&mut self, workload: &Workload, _limits: &RunLimits, scene: &Scene) -> Result<Repeat, BenchError> {
        // The files of the repeat before go first, so that nothing is replaced.
        self.to.prepare_copy(workload, false, scene.control)?;
        Ok(copy(self.from.as_mut(), self.to.as_mut(), workload, scene.control)?)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        let (from, to) = (self.from.clean_up(), self.to.clean_up());
        Ok(from.and(to)?)
    }
}
