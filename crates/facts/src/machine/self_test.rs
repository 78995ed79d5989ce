//! A disk's tests of itself: the log of them as `smartctl -l selftest` has it, and starting one.

use serde::Serialize;
use serde_json::Value;

use super::{BlockDevice, Bus, Machine};

/// Entries of a log that are read: ATA keeps 21.
const ENTRIES_MAX: usize = 32;
/// ATA's log has the hours in 16 bits.
const HOURS_WRAP: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TestLength {
    /// Minutes: electronics, heads, a few sectors.
    Short,
    /// Hours: each sector is read.
    Long,
}

impl TestLength {
    pub fn word(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TestOutcome {
    Passed,
    Failed,
    /// By a reset, a power cut or a command.
    Interrupted,
    Running,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelfTest {
    pub length: TestLength,
    pub outcome: TestOutcome,
    /// As smartctl says it.
    pub text: String,
    /// When it ended, in hours that the disk had run.
    pub hours: Option<u64>,
}

impl SelfTest {
    /// How long ago it ended, in hours that the disk has run since.
    pub fn age_hours(&self, power_on_hours: u64) -> Option<u64> {
        let hours = self.hours?;
        Some(power_on_hours.wrapping_sub(hours) % HOURS_WRAP)
    }
}

/// The entries, the newest first.
pub(super) fn parse(answer: &Value) -> Vec<SelfTest> {
    let ata = &answer["ata_smart_self_test_log"];
    let tables = [&ata["extended"]["table"], &ata["standard"]["table"]];
    if let Some(table) = tables.into_iter().find_map(Value::as_array) {
        return table.iter().take(ENTRIES_MAX).filter_map(of_ata).collect();
    }
    let nvme = &answer["nvme_self_test_log"];
    if nvme.is_object() {
        let ended = nvme["table"].as_array().map(Vec::as_slice).unwrap_or_default();
        return nvme_running(nvme).into_iter().chain(ended.iter().take(ENTRIES_MAX).filter_map(of_nvme)).collect();
    }
    (0..ENTRIES_MAX).map_while(|n| of_scsi(&answer[format!("scsi_self_test_{n}")])).collect()
}

fn length(text: &str) -> Option<TestLength> {
    let text = text.to_lowercase();
    match text {
        text if text.contains("short") => Some(TestLength::Short),
        text if text.contains("extended") || text.contains("long") => Some(TestLength::Long),
        // Conveyance, selective, vendor's.
        _ => None,
    }
}

/// ATA ACS-3, A.14.4.3: the upper four bits of the status.
fn of_ata(entry: &Value) -> Option<SelfTest> {
    let status = &entry["status"];
    let outcome = match (status["value"].as_u64()? >> 4, status["passed"].as_bool()) {
        (0, _) => TestOutcome::Passed,
        (1 | 2, _) => TestOutcome::Interrupted,
        (15, _) => TestOutcome::Running,
        (3..=8, _) | (_, Some(false)) => TestOutcome::Failed,
        _ => return None,
    };
    Some(SelfTest {
        length: length(entry["type"]["string"].as_str()?)?,
        outcome,
        text: status["string"].as_str().unwrap_or_default().to_owned(),
        hours: entry["lifetime_hours"].as_u64(),
    })
}

/// NVM Express Base Specification 2.0, figure 206.
fn of_nvme(entry: &Value) -> Option<SelfTest> {
    let result = &entry["self_test_result"];
    let outcome = match result["value"].as_u64()? {
        0 => TestOutcome::Passed,
        1..=4 | 8 | 9 => TestOutcome::Interrupted,
        5..=7 => TestOutcome::Failed,
        _ => return None,
    };
    Some(SelfTest {
        length: length(entry["self_test_code"]["string"].as_str()?)?,
        outcome,
        text: result["string"].as_str().unwrap_or_default().to_owned(),
        hours: entry["power_on_hours"].as_u64(),
    })
}

/// The test that is under way is not in the log's table.
fn nvme_running(log: &Value) -> Option<SelfTest> {
    let operation = &log["current_self_test_operation"];
    let length = match operation["value"].as_u64()? {
        0 => return None,
        1 => TestLength::Short,
        _ => TestLength::Long,
    };
    let text = operation["string"].as_str().unwrap_or_default().to_owned();
    Some(SelfTest { length, outcome: TestOutcome::Running, text, hours: None })
}

/// SPC-4, 7.3.21: the result's code; older smartctl writes its words alone.
fn of_scsi(entry: &Value) -> Option<SelfTest> {
    let result = &entry["result"];
    let text = result["string"].as_str().unwrap_or_default().to_owned();
    let says = |words: &[&str]| words.iter().any(|word| text.starts_with(word));
    let outcome = match result["value"].as_u64() {
        Some(0) => TestOutcome::Passed,
        Some(1 | 2) => TestOutcome::Interrupted,
        Some(3..=7) => TestOutcome::Failed,
        Some(15) => TestOutcome::Running,
        None if entry["self_test_in_progress"] == true || says(&["Self test in progress"]) => TestOutcome::Running,
        None if text == "Completed" => TestOutcome::Passed,
        None if says(&["Completed, segment failed", "Failed in", "Unknown error"]) => TestOutcome::Failed,
        None if says(&["Aborted"]) => TestOutcome::Interrupted,
        _ => return None,
    };
    Some(SelfTest {
        length: length(entry["code"]["string"].as_str()?)?,
        outcome,
        text,
        hours: entry["power_on_time"]["hours"].as_u64(),
    })
}

impl Machine {
    /// Has a disk begin a test of itself, which it interrupts for each command and goes on with afterwards. A sleeping disk is left
    /// alone. `Err` says why it did not begin.
    pub fn start_self_test(&self, device: &BlockDevice, length: TestLength) -> Result<(), String> {
        if self.is_suspended(device) {
            return Err("the kernel has stopped it".to_owned());
        }
        let path = device.path.to_string_lossy();
        let mut args = vec!["--json", "-t", length.word()];
        if device.bus != Bus::Nvme {
            args.extend(["-n", "standby"]);
        }
        if device.bus == Bus::Usb {
            args.extend(["-d", "sat"]);
        }
        args.push(&path);
        let said = self.run("smartctl", &args, &device.name).map_err(|error| error.to_string())?;
        // Bits 0 to 2: the command line, the opening of the device, a command that failed. A sleeping disk ends with 2.
        match said.code {
            Some(code) if code & 7 == 0 => Ok(()),
            code => Err(format!("smartctl ended with {}", code.map_or("a signal".to_owned(), |code| code.to_string()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &str, expected: &[&str]) {
        let tests = parse(&serde_json::from_str(answer).unwrap());
        let line = |one: &SelfTest| format!("{:?} {:?} {:?} {}", one.length, one.outcome, one.hours, one.text);
        assert_eq!(tests.iter().map(line).collect::<Vec<_>>(), expected, "{answer}");
    }

    #[test]
    fn logs_of_all_kinds_of_disks() {
        check(
            r#"{"ata_smart_self_test_log":{"standard":{"table":[
                {"type":{"value":1,"string":"Short offline"},"status":{"value":0,"string":"Completed without error","passed":true},"lifetime_hours":1234},
                {"type":{"value":2,"string":"Extended offline"},"status":{"value":121,"string":"Completed: read failure","remaining_percent":90,"passed":false},"lifetime_hours":1200,"lba":77},
                {"type":{"value":2,"string":"Extended offline"},"status":{"value":41,"string":"Interrupted (host reset)"},"lifetime_hours":1100},
                {"type":{"value":1,"string":"Short offline"},"status":{"value":249,"string":"Self-test routine in progress"},"lifetime_hours":1000},
                {"type":{"value":4,"string":"Selective offline"},"status":{"value":0,"string":"Completed without error"},"lifetime_hours":900},
                {"type":"?"},7,null]}}}"#,
            &[
                "Short Passed Some(1234) Completed without error",
                "Long Failed Some(1200) Completed: read failure",
                "Long Interrupted Some(1100) Interrupted (host reset)",
                "Short Running Some(1000) Self-test routine in progress",
            ],
        );
        check(
            r#"{"nvme_self_test_log":{"current_self_test_operation":{"value":0},"table":[
                {"self_test_code":{"value":2,"string":"Extended"},"self_test_result":{"value":7,"string":"Completed: unknown failed segment"},"power_on_hours":300},
                {"self_test_code":{"value":1,"string":"Short"},"self_test_result":{"value":0,"string":"Completed without error"},"power_on_hours":200},
                {"self_test_code":{"value":1,"string":"Short"},"self_test_result":{"value":1,"string":"Aborted: Self-test command"},"power_on_hours":100}]}}"#,
            &[
                "Long Failed Some(300) Completed: unknown failed segment",
                "Short Passed Some(200) Completed without error",
                "Short Interrupted Some(100) Aborted: Self-test command",
            ],
        );
        check(
            r#"{"scsi_self_test_0":{"code":{"value":1,"string":"Background short"},"result":{"value":4,"string":"Self test completed, failed segment"},"power_on_time":{"hours":5}},
                "scsi_self_test_1":{"code":{"string":"Background long"},"result":{"string":"Completed"},"power_on_time":{"hours":4}}}"#,
            &["Short Failed Some(5) Self test completed, failed segment", "Long Passed Some(4) Completed"],
        );
        check(
            r#"{"nvme_self_test_log":{"nsid":-1,"current_self_test_operation":{"value":2,"string":"Extended self-test in progress"},"current_self_test_completion_percent":42}}"#,
            &["Long Running None Extended self-test in progress"],
        );
        // smartctl 7.2 and before.
        check(
            r#"{"scsi_self_test_0":{"code":{"string":"Background long"},"result":{"string":"Self test in progress ..."},"self_test_in_progress":true},
                "scsi_self_test_1":{"code":{"string":"Background short"},"result":{"string":"Completed, segment failed"},"power_on_time":{"hours":3943}},
                "scsi_self_test_2":{"code":{"string":"Background short"},"result":{"string":"Aborted (by user command)"},"power_on_time":{"hours":3940}}}"#,
            &[
                "Long Running None Self test in progress ...",
                "Short Failed Some(3943) Completed, segment failed",
                "Short Interrupted Some(3940) Aborted (by user command)",
            ],
        );
        check(r#"{"ata_smart_self_test_log":{"standard":{"revision":1,"count":0}}}"#, &[]);
        check("{}", &[]);
    }

    #[test]
    fn an_age_goes_past_the_end_of_the_log_s_hours() {
        let test = |hours| SelfTest {
            length: TestLength::Short,
            outcome: TestOutcome::Passed,
            text: String::new(),
            hours: Some(hours),
        };
        assert_eq!(test(100).age_hours(150), Some(50));
        assert_eq!(test(65_500).age_hours(65_546), Some(46));
        assert_eq!(test(10).age_hours(65_546), Some(0), "after the wrap");
    }
}
