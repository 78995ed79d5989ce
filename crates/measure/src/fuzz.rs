//! Answers of other machines, fed with anything. Driven by the test below, and with coverage by `fuzz/`.

/// What the far end of a measurement answers.
pub fn far_samples(data: &[u8]) {
    crate::bench::fuzz_samples(data);
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;
    use crate::bench::result::{CoreSeries, Samples};

    #[test]
    fn fuzz_far_samples() {
        let even = vec![1.0; 3];
        let core = CoreSeries {
            core: 0,
            user: even.clone(),
            nice: even.clone(),
            system: even.clone(),
            iowait: even.clone(),
            irq: even.clone(),
            steal: even.clone(),
            others: even.clone(),
            waited: even,
        };
        let samples = Samples { at_ms: vec![1, 500, 900], cores: vec![core], ..Samples::default() };
        let facts = br#"{"host":"nas","model":"m","processor":"p","cores":1,"memory_bytes":2,"kernel":"k"}"#;
        let seeds = [serde_json::to_vec(&samples).unwrap_or_default(), facts.to_vec()];
        drive("far_samples", &seeds, super::far_samples);
    }
}
