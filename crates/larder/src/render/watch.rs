//! Alerts, the audit log and the health of disks, as people read them. Pure: values in, text out.

use larder_api::{
    AlertReceiver, AlertStatus, AlertTested, AlertsStatus, AuditRecord, DamageKept, DiskHealth, UpsStatus,
};
use larder_base::units::ByteSize;

use super::{shown, table};
use larder_config::times;

/// No narrower than this, whatever the terminal says.
const WIDTH_MIN: usize = 40;
const INDENT: &str = "    ";

/// Open alerts, those that are over if `all`, and who is told.
pub(crate) fn alerts(status: &AlertsStatus, all: bool, now_ms: u64, width: usize) -> String {
    let mut text = match status.open.len() {
        0 => "All is well: no alert is open.\n".to_owned(),
        _ => String::new(),
    };
    for alert in &status.open {
        text.push_str(&one_alert(alert, now_ms, width));
    }
    if all && !status.past.is_empty() {
        let mut rows = vec![["OVER", "ID", "SEVERITY", "EVENT", "SUBJECT"].map(str::to_owned).to_vec()];
        for alert in &status.past {
            let ended = times::local(alert.ended_ms.unwrap_or(alert.since_ms));
            let (id, severity) = (alert.id.to_string(), alert.severity.clone());
            rows.push(vec![ended, id, severity, alert.event.clone(), alert.subject.clone()]);
        }
        text.push_str(&format!("\n{}", table(&rows, &[1])));
    }
    if !status.receivers.is_empty() {
        text.push_str("\nTold to:\n");
        status.receivers.iter().for_each(|one| text.push_str(&receiver(one, width)));
    } else if !status.open.is_empty() {
        text.push('\n');
        text.push_str(&wrapped("Nobody is told: larder.toml has no [[alert]] (docs/alerts.md).", "", width));
    }
    text
}

pub(crate) fn one_alert(alert: &AlertStatus, now_ms: u64, width: usize) -> String {
    let mut marks = vec![format!("#{}", alert.id), format!("since {}", times::local(alert.since_ms))];
    if alert.acknowledged {
        marks.push("acknowledged".to_owned());
    }
    if let Some(until) = alert.silent_until_ms.filter(|until| *until > now_ms) {
        marks.push(format!("silenced until {}", times::local(until)));
    }
    let head = format!("{} {}: {}", alert.severity.to_uppercase(), alert.event, shown(&alert.subject));
    let mut text = wrapped(&head, INDENT, width);
    text.push_str(&indented(&marks.join(", "), width));
    text.push_str(&indented(&alert.text, width));
    if alert.ended_ms.is_none() {
        text.push_str(&action(&alert.action, width));
    }
    text
}

/// What to do. A command has an unbroken line of its own, and can be typed as it stands.
fn action(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in format!("-> {text}").lines() {
        let (words, command) = match line.find(": larder ") {
            Some(at) => (&line[..at + 1], &line[at + 2..]),
            None if line.starts_with("larder ") => ("", line),
            None => (line, ""),
        };
        if !words.is_empty() {
            out.push_str(&indented(words, width));
        }
        if !command.is_empty() {
            out.push_str(&format!("{INDENT}    {}\n", shown(command)));
        }
    }
    out
}

fn receiver(one: &AlertReceiver, width: usize) -> String {
    let state = match (&one.fault, one.waiting) {
        (Some(fault), 0) => format!("the last try failed: {fault}"),
        (Some(fault), waiting) => format!("{waiting} waiting: {fault}"),
        (None, 0) => {
            one.delivered_ms.map_or_else(|| "nothing yet".to_owned(), |at| format!("last {}", times::local(at)))
        }
        (None, waiting) => format!("{waiting} waiting"),
    };
    let state = match one.given_up {
        0 => state,
        1 => format!("{state}; 1 message was dropped, as it refused it for good"),
        count => format!("{state}; {count} messages were dropped, as it refused them for good"),
    };
    let name = if one.name == one.kind { one.name.clone() } else { format!("{} ({})", one.name, one.kind) };
    wrapped(&format!("{INDENT}{name}: {state}"), "        ", width)
}

pub(crate) fn tested(tested: &[AlertTested]) -> String {
    let line = |one: &AlertTested| match &one.fault {
        None => format!("{}: delivered\n", one.name),
        Some(fault) => format!("{}: NOT delivered: {}\n", one.name, shown(fault)),
    };
    tested.iter().map(line).collect()
}

pub(crate) fn audit(records: &[AuditRecord]) -> String {
    if records.is_empty() {
        return "no records".to_owned();
    }
    let mut rows = vec![["AT", "WHO", "FROM", "BY", "WHAT", "RESULT"].map(str::to_owned).to_vec()];
    for record in records {
        let who = if record.who.is_empty() { "-" } else { &record.who };
        let what = match record.target.is_empty() {
            true => record.what.clone(),
            false => format!("{} {}", record.what, record.target),
        };
        rows.push(vec![
            times::local(record.at_ms),
            who.to_owned(),
            record.from.clone(),
            record.by.clone(),
            what,
            record.result.clone(),
        ]);
    }
    table(&rows, &[])
}

/// A record as syslog has it (RFC 5424): facility 13 (log audit), its kind as the message's, and itself as JSON, which escapes all
/// control characters.
pub(crate) fn syslog(record: &AuditRecord, host: &str) -> String {
    const AUDIT: u32 = 13 << 3;
    let severity = if record.kind == "refusal" { 4 } else { 6 };
    let at = i64::try_from(record.at_ms).ok().and_then(chrono::DateTime::from_timestamp_millis).unwrap_or_default();
    let at = at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let plain = |text: &str| -> String { text.chars().filter(char::is_ascii_graphic).take(255).collect() };
    let json = serde_json::to_string(record).unwrap_or_default();
    format!("<{}>1 {at} {} larder - {} - {json}", AUDIT | severity, plain(host), plain(&record.kind))
}

pub(crate) fn disk_health(disks: &[DiskHealth], width: usize) -> String {
    if disks.is_empty() {
        return "no disks that could have a report".to_owned();
    }
    let mut text = String::new();
    for disk in disks {
        let about = [
            disk.model.clone(),
            Some(format!("{} {}", ByteSize(disk.size_bytes), disk.medium)),
            disk.pool.as_ref().map(|pool| format!("pool {pool}")),
            disk.asleep.then(|| "asleep".to_owned()),
        ];
        let about: Vec<String> = about.into_iter().flatten().collect();
        text.push_str(&wrapped(&format!("{}: {}", disk.name, about.join(", ")), INDENT, width));
        text.push_str(&indented(&disk.text, width));
        if let (Some(low), Some(high)) =
            (disk.daily_temperatures_c.iter().min(), disk.daily_temperatures_c.iter().max())
            && disk.daily_temperatures_c.len() > 1
        {
            let days = disk.daily_temperatures_c.len();
            text.push_str(&indented(&format!("in {days} days at most {low} to {high} °C a day"), width));
        }
        if let Some(asked) = disk.asked_ms.filter(|_| disk.asleep) {
            text.push_str(&indented(&format!("as of {}", times::local(asked)), width));
        }
    }
    text
}

/// Each line of a text, indented.
fn indented(text: &str, width: usize) -> String {
    text.lines().map(|line| wrapped(&format!("{INDENT}{line}"), INDENT, width)).collect()
}

/// One line, in several where it is longer than that; those begin with `indent`. A word stays whole.
pub(super) fn wrapped(line: &str, indent: &str, width: usize) -> String {
    let width = width.max(WIDTH_MIN);
    let start: String = line.chars().take_while(|c| *c == ' ').collect();
    let (mut text, mut current) = (String::new(), start.clone());
    let mut begins = true;
    for word in line.split_whitespace() {
        if !begins && current.chars().count() + 1 + word.chars().count() > width {
            text.push_str(&format!("{current}\n"));
            current = indent.to_owned();
            begins = true;
        }
        if !begins {
            current.push(' ');
        }
        current.push_str(word);
        begins = false;
    }
    text + &current + "\n"
}

/// The files that lost data, newest first.
pub(crate) fn damage(kept: &DamageKept) -> String {
    if kept.entries.is_empty() {
        return "No file has lost data.\n".to_owned();
    }
    let mut text = String::new();
    for entry in &kept.entries {
        let name = entry.paths.first().unwrap_or(&entry.id);
        let more = match entry.paths.len() {
            0 | 1 => String::new(),
            n => format!(" and {} more names", n - 1),
        };
        let state = match entry.ended_ms {
            Some(at) => format!("restored or removed {}", times::local(at)),
            None => "lost".to_owned(),
        };
        text.push_str(&format!("{}: {}{more}\n", shown(&entry.place), shown(name)));
        text.push_str(&format!("    {} since {}, {state}\n", ByteSize(entry.bytes), times::local(entry.since_ms)));
    }
    if kept.left_out > 0 {
        text.push_str(&format!("{} older ones are not kept\n", kept.left_out));
    }
    text
}

/// The UPS, in a few lines.
pub(crate) fn ups(status: &UpsStatus) -> String {
    let model = status.model.as_ref().map_or_else(String::new, |model| format!(" ({model})"));
    let says = status.says.as_deref().unwrap_or("has not answered yet");
    let mut text = format!("{}{model}: {says}\n", status.name);
    if let Some(seconds) = status.on_battery_seconds {
        text.push_str(&format!("    on the battery for {seconds} s\n"));
    }
    if let Some(fault) = &status.fault {
        text.push_str(&format!("    it cannot be asked: {fault}\n"));
    }
    text.push_str(&format!("    {}\n", status.plan));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: &str = "larder pool replace tank /mnt/a-disk-with-a-very-long-name/and-a-folder-in-it NEW-DISK";

    fn alert() -> AlertStatus {
        AlertStatus {
            id: 12,
            event: "disk-missing".into(),
            subject: "tank: /mnt/disk2".into(),
            severity: "critical".into(),
            text: "The disk /mnt/disk2 of the pool tank is not there (No such file or directory). The pool serves \
                   everything, with less redundancy."
                .into(),
            action: format!("Reconnect it.\nThen: {COMMAND}"),
            since_ms: 0,
            ended_ms: None,
            acknowledged: true,
            silent_until_ms: Some(10),
        }
    }

    #[test]
    fn alerts_fit_into_80_columns() {
        let receiver = AlertReceiver {
            name: "phone".into(),
            kind: "ntfy".into(),
            waiting: 3,
            delivered_ms: None,
            fault: Some(
                "error sending request: client error (Connect): tcp connect error: Connection refused (os error 111)"
                    .into(),
            ),
            given_up: 2,
        };
        let status = AlertsStatus { open: vec![alert()], past: vec![alert()], receivers: vec![receiver] };
        let text = alerts(&status, true, 5, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80 || line.trim() == COMMAND), "{text}");
        for words in [
            "CRITICAL disk-missing: tank: /mnt/disk2",
            "acknowledged, silenced until",
            "-> Reconnect it.",
            "    Then:",
            "phone (ntfy): 3 waiting",
            "dropped, as it refused them for good",
        ] {
            assert!(text.contains(words), "{words} in\n{text}");
        }
        let nobody = AlertsStatus { open: vec![], past: vec![], receivers: vec![] };
        assert_eq!(alerts(&nobody, false, 5, 80), "All is well: no alert is open.\n");
    }

    #[test]
    fn names_do_not_steer_the_terminal() {
        let bad = AlertStatus { subject: "a\u{1b}[31m\nb".into(), ..alert() };
        assert!(!one_alert(&bad, 0, 80).contains('\u{1b}'));
    }
}
