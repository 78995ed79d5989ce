//! The wire alone, in both directions.

use super::super::result::Layer;
use super::super::runner::{Runner, Spec};
use super::{Bench, Host};
use larder_load::BenchError;
use larder_load::NetLoad;

impl Bench<'_> {
    pub(super) fn wire(&self, runner: &mut Runner, host: &Host) -> Result<(), BenchError> {
        let plan = self.wire_plan();
        let mut load = NetLoad::new(self.machine, &host.name, host.port)?;
        for shape in &plan.shapes {
            runner.measure(
                &mut load,
                Spec {
                    layer: Layer::Net,
                    subject: host.name.clone(),
                    variant: self.request.labels.clone(),
                    workload: plan.workload(shape),
                    limits: plan.limits(),
                    repeats: plan.repeats,
                    notes: Vec::new(),
                    far: true,
                },
            )?;
        }
        Ok(())
    }
}
