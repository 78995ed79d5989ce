//! Disks and the wire at the same time, not through one another: what a machine has left when both are busy.

use super::error::BenchError;
use super::iperf3::NetLoad;
use super::load::{Load, Scene};
use super::local::LocalLoad;
use crate::workload::{Kind, Repeat, RunLimits, Workload};

pub struct BothLoad<'a> {
    pub local: LocalLoad<'a>,
    pub net: NetLoad,
    pub wire: Workload,
    /// Of the wire, one for each repeat of the disks.
    pub side: Vec<Repeat>,
}

impl Load for BothLoad<'_> {
    fn access(&self) -> String {
        self.local.access()
    }

    fn with(&self, kind: Kind) -> String {
        self.local.with(kind)
    }

    fn prepare(&mut self, workload: &Workload, scene: &Scene) -> Result<(), BenchError> {
        self.local.prepare(workload, scene)
    }

    fn run(&mut self, workload: &Workload, limits: &RunLimits, scene: &Scene) -> Result<Repeat, BenchError> {
        let (local, net, wire) = (&mut self.local, &mut self.net, &self.wire);
        let (disks, beside) = std::thread::scope(|scope| {
            let beside = scope.spawn(move || net.run(wire, limits, scene));
            let disks = local.run(workload, limits, scene);
            let ended = || Err(BenchError::tool("larder", "the thread of the wire ended early"));
            (disks, beside.join().unwrap_or_else(|_| ended()))
        });
        let disks = disks?;
        self.side.push(beside?);
        Ok(disks)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        self.local.clean_up()
    }
}
