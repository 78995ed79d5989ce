//! What makes load, seen from the runner: prepare, run, clean up.

use std::path::Path;

use super::client::{ClientError, RunLimits, ShareClient, copy};
use super::control::Control;
use super::error::BenchError;
use crate::Machine;
use crate::workload::{Kind, Repeat, Workload};

/// What a load gets to work with.
pub struct Scene<'a> {
    pub machine: &'a Machine,
    pub control: &'a Control,
    /// Where job files and the output of programs are kept, beside the result.
    pub keep: &'a Path,
    /// Of this run, for names of files in `keep`.
    pub run: usize,
    pub repeat: usize,
}

impl Scene<'_> {
    /// Err when the bench was stopped.
    pub fn go_on(&self) -> Result<(), BenchError> {
        if self.control.is_stopped() { Err(BenchError::Stopped) } else { Ok(()) }
    }
}

pub trait Load {
    /// How the storage is reached: `local`, `mount`, `tcp`, or a protocol.
    fn access(&self) -> String;

    /// The program behind workloads of this kind, with its version.
    fn with(&self, kind: Kind) -> String;

    /// Makes what the workload needs to be there.
    fn prepare(&mut self, workload: &Workload, scene: &Scene) -> Result<(), BenchError>;

    fn run(&mut self, workload: &Workload, limits: &RunLimits, scene: &Scene) -> Result<Repeat, BenchError>;

    /// Takes away what was made; called once at the end, however it ends.
    fn clean_up(&mut self) -> Result<(), BenchError>;
}

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
        // What the repeat before copied goes first: nothing is replaced.
        self.to.prepare_copy(workload, false, scene.control)?;
        Ok(copy(self.from.as_mut(), self.to.as_mut(), workload, scene.control)?)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        let (from, to) = (self.from.clean_up(), self.to.clean_up());
        Ok(from.and(to)?)
    }
}
