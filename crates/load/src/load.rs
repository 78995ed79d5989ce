//! A source of load, seen from the runner: prepare, run, clean up.

use std::path::Path;

use super::control::Control;
use super::error::BenchError;
use crate::Machine;
use crate::workload::{Kind, Repeat, RunLimits, Workload};

/// The surroundings of a load.
pub struct Scene<'a> {
    pub machine: &'a Machine,
    pub control: &'a Control,
    /// The folder for job files and the output of programs, beside the result.
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
