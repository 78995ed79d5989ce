//! Live connections, and transfers of the last days, as people read them. Pure: values in, text out.

use larder_api::{Top, TopConnection, TopLimit, TopWorst};
use larder_measure::doctor::bytes_words;

use super::watch::wrapped;
use super::{duration, shown, table};
use larder_config::times;

const INDENT: &str = "  ";

/// One line for each connection, and below it the sentence of what limits it.
pub(crate) fn top(top: &Top, all: bool, width: usize) -> String {
    let is_shown = |one: &&TopConnection| all || one.limited_by != TopLimit::Nothing;
    let connections: Vec<&TopConnection> = top.connections.iter().filter(is_shown).collect();
    let idle = top.connections.len() - connections.len();
    let mut text = String::new();
    if connections.is_empty() {
        text.push_str("Nothing is transferred.\n");
    } else {
        let mut rows = vec![["CLIENT", "USER", "DOOR", "DOES", "RATE", "LIMITED BY"].map(str::to_owned).to_vec()];
        rows.extend(connections.iter().map(|one| row(one)));
        let lines = table(&rows, &[4]);
        let mut lines = lines.lines();
        text.push_str(lines.next().unwrap_or_default());
        text.push('\n');
        for (line, one) in lines.zip(&connections) {
            text.push_str(line.trim_end());
            text.push('\n');
            text.push_str(&said(&one.sentence, one.help.as_deref(), width));
        }
    }
    match idle {
        0 => {}
        1 => text.push_str("1 connection is idle.\n"),
        n => text.push_str(&format!("{n} connections are idle.\n")),
    }
    text
}

fn row(one: &TopConnection) -> Vec<String> {
    let user = one.user.as_deref().map_or("-".to_owned(), |user| shown(user).into_owned());
    let bytes = (one.read_bytes_per_s + one.written_bytes_per_s) as f64;
    let rate = match bytes > 0.0 {
        true => bytes_words(bytes),
        false => format!("{:.0} requests/s", one.requests_per_s),
    };
    vec![one.address.clone(), user, one.door.clone(), one.does.clone(), rate, one.limited_by.word().to_owned()]
}

fn said(sentence: &str, help: Option<&str>, width: usize) -> String {
    let mut text = wrapped(&format!("{INDENT}{}", shown(sentence)), INDENT, width);
    if let Some(help) = help {
        text.push_str(&wrapped(&format!("{INDENT}-> {help}"), "     ", width));
    }
    text
}

/// The transfers that are kept, the last first.
pub(crate) fn worst(worst: &[TopWorst], width: usize) -> String {
    if worst.is_empty() {
        return "No transfer since yesterday was long enough to be kept.\n".to_owned();
    }
    let mut text = String::new();
    for one in worst {
        let lost = if one.lost_percent >= 0.5 { format!(", {} % lost", one.lost_percent) } else { String::new() };
        let user = one.user.as_deref().map_or(String::new(), |user| format!(" ({})", shown(user)));
        let head = format!(
            "The {} of {} from {}{user} over {} was limited by {}, {}{lost}, for {}.",
            one.does,
            times::local(one.at_ms),
            one.address,
            one.door,
            whose(one.limited_by),
            bytes_words(one.bytes_per_s as f64),
            duration(one.lasted_ms / 1000)
        );
        text.push_str(&wrapped(&head, INDENT, width));
        text.push_str(&said(&one.sentence, one.help.as_deref(), width));
    }
    text
}

fn whose(limit: TopLimit) -> &'static str {
    match limit {
        TopLimit::Nothing => "nothing",
        TopLimit::Client => "its client",
        TopLimit::Wire => "its wire",
        TopLimit::Processor => "the processor",
        TopLimit::Disks => "the disks",
        TopLimit::Durability => "the journal",
        TopLimit::OtherClient => "another client",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_api::{TopConfidence, TopFigures, TopTime};

    use super::*;

    fn connection() -> TopConnection {
        TopConnection {
            id: 1,
            door: "sftp".to_owned(),
            user: Some("ann".to_owned()),
            address: "192.168.1.7".to_owned(),
            port: 50_000,
            since_ms: 0,
            does: "read".to_owned(),
            read_bytes_per_s: 8_000_000,
            written_bytes_per_s: 0,
            requests_per_s: 244.0,
            request_bytes: 32 << 10,
            latency_us: 120,
            under_way: 0.03,
            rtt_us: 4000,
            lost_percent: 0.0,
            limited_by: TopLimit::Client,
            cause: "one-request".to_owned(),
            confidence: TopConfidence::Certain,
            sentence: "SFTP asks for 32 KiB at a time over 4.0 ms of wire: at most 8.0 MB/s".to_owned(),
            help: Some("SMB and NFS read ahead; with sftp: -R 128, with sshfs: -o max_conns=4".to_owned()),
            time: TopTime::default(),
            figures: TopFigures::default(),
        }
    }

    #[test]
    fn eighty_columns_hold_it() {
        let mut long = connection();
        long.address = "2001:db8:1234:5678:9abc:def0:1234:5678".to_owned();
        let idle = TopConnection { limited_by: TopLimit::Nothing, ..connection() };
        let seen = Top { at_ms: 0, window_ms: 1000, connections: vec![connection(), idle] };
        let text = top(&seen, false, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("192.168.1.7") && text.contains("1 connection is idle."), "{text}");
        assert_eq!(text.matches("192.168.1.7").count(), 1, "{text}");
        let text = top(&Top { connections: vec![long], ..seen }, false, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_kept_transfer_is_one_sentence() {
        let kept = TopWorst {
            at_ms: 0,
            lasted_ms: 90_000,
            looks: 3,
            door: "smb".to_owned(),
            user: None,
            address: "192.168.1.7".to_owned(),
            does: "write".to_owned(),
            bytes_per_s: 31_000_000,
            lost_percent: 2.0,
            limited_by: TopLimit::Wire,
            cause: "loss".to_owned(),
            sentence: "the wire from 192.168.1.7 loses 2.0 % of the packets: 31 MB/s".to_owned(),
            help: None,
        };
        let text = worst(&[kept], 200);
        assert!(text.contains("from 192.168.1.7 over smb was limited by its wire, 31 MB/s, 2 % lost, for"), "{text}");
    }
}
