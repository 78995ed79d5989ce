//! A verdict in a sentence, and what would help.

use larder_base::traffic::Protocol;

use super::cause::Cause;
use super::seen::{Deed, Seen};
use crate::doctor::bytes_words;
use crate::reason::Remedy;

pub(super) fn of(seen: &Seen, cause: Cause) -> (String, Option<String>) {
    (sentence(seen, cause), help(seen, cause))
}

fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Nfs => "NFS",
        Protocol::Smb => "SMB",
        Protocol::Sftp => "SFTP",
        Protocol::WebDav => "WebDAV",
    }
}

fn sentence(seen: &Seen, cause: Cause) -> String {
    let (rate, who) = (bytes_words(seen.rate()), seen.address);
    let disk = seen.around.disk.as_deref().unwrap_or("the disk below");
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    match cause {
        Cause::Idle => "nothing is asked for".to_owned(),
        Cause::OneRequest => one_request(seen),
        Cause::SlowToTake => {
            format!("{who} is slow to take: its window was full for {} of the time, {rate}", percent(seen.window_full))
        }
        Cause::SlowToGive => {
            format!("{who} is slow to give: larder waits for its next bytes, {rate} come in bursts")
        }
        Cause::WireRate if seen.does == Deed::Write => format!("the wire from {who} is full at {rate}"),
        Cause::WireRate => format!("the wire to {who} is full at {rate}"),
        Cause::WireLoss if seen.does == Deed::Write => {
            format!("the wire from {who} loses {:.1} % of the packets: {rate}", seen.lost() * 100.0)
        }
        Cause::WireLoss => format!("the wire to {who} loses {:.1} % of the packets: {rate}", seen.lost() * 100.0),
        Cause::Quota => format!(
            "larder has used up its processor time in {} of the periods of its control group: {rate}",
            percent(seen.around.throttled)
        ),
        Cause::Cores => format!("the processor is full of {}'s own work: {rate}", work(seen)),
        Cause::OtherWork => {
            format!("larder waits longer for a core than it runs (other programs, or a quota of its container): {rate}")
        }
        Cause::DiskRead => format!("larder waits for {disk} in {} of the time: {rate}", percent(seen.time.disks)),
        Cause::DiskWrite if seen.rate() == 0.0 => format!("{disk} lets every write wait"),
        Cause::DiskWrite => format!("{disk} takes no more than {rate}"),
        Cause::Journal => {
            format!("each change waits until it is durable, {:.1} ms at a time: {rate}", seen.latency_s * 1000.0)
        }
        Cause::JournalFull => format!("the journal is full, and {disk} is slow to take what is in it: {rate}"),
        Cause::Lease => "another client has the file cached and is slow to give it back".to_owned(),
    }
}

/// The time of one request, and the most that one after another gives.
fn one_request(seen: &Seen) -> String {
    let (protocol, per_s) = (name(seen.protocol), seen.requests_per_s);
    let cycle_ms = if per_s > 0.0 { 1000.0 / per_s } else { 0.0 };
    // Without a queue on the wire a longer round trip contains the client's own work: it acknowledges with its next request.
    let wire_ms = if seen.is_queued() { seen.rtt_min_s } else { seen.rtt_s } * 1000.0;
    let over = match wire_ms >= cycle_ms * 0.5 {
        true => format!("over {wire_ms:.1} ms of wire"),
        false => format!("every {cycle_ms:.1} ms"),
    };
    match seen.request_bytes > 0.0 {
        true => format!(
            "{protocol} asks for {} at a time {over}: at most {}",
            size(seen.request_bytes),
            bytes_words(seen.request_bytes * per_s)
        ),
        false => format!("{protocol} asks one thing after another {over}: {per_s:.0} a second"),
    }
}

fn size(bytes: f64) -> String {
    match bytes {
        b if b >= 1_048_576.0 => format!("{:.0} MiB", b / 1_048_576.0),
        b if b >= 1024.0 => format!("{:.0} KiB", b / 1024.0),
        b => format!("{b:.0} bytes"),
    }
}

fn work(seen: &Seen) -> &'static str {
    match seen.protocol {
        Protocol::Sftp => "SSH",
        Protocol::WebDav => "HTTP",
        Protocol::Smb => "SMB",
        Protocol::Nfs => "NFS",
    }
}

fn help(seen: &Seen, cause: Cause) -> Option<String> {
    let own = |text: &str| Some(text.to_owned());
    let of = |remedy: Remedy| Some(remedy.how().to_owned());
    match cause {
        Cause::Idle => None,
        Cause::OneRequest => match (seen.protocol, seen.does) {
            (Protocol::Sftp, _) => own("SMB and NFS read ahead; with sftp: -R 128, with sshfs: -o max_conns=4"),
            (Protocol::Nfs, Deed::Read) => own("raise read_ahead_kb of the mount, or copy several files at once"),
            (_, Deed::List | Deed::Other) => own("several programs at once; NFS and SMB keep names cached"),
            _ => own("several files at once: rclone copy --transfers=4"),
        },
        Cause::SlowToTake => own("look at the client: its disk, its processor, the program that reads"),
        Cause::SlowToGive => own("look at the client: the disk it reads from, and its processor"),
        Cause::WireRate => own("ethtool IFACE says what was negotiated; Wi-Fi: a cable, or a place nearer to it"),
        Cause::WireLoss => {
            own("a cable in place of Wi-Fi; else another cable and port: ethtool -S IFACE counts errors")
        }
        Cause::Quota => own("raise the quota of larder's control group: systemctl set-property larder CPUQuota="),
        Cause::Cores => match seen.protocol {
            Protocol::Sftp => own("NFS or SMB need less of the processor than SSH's cipher"),
            _ => of(Remedy::SpreadWork),
        },
        Cause::OtherWork => own("top shows who has it; nice, or a control group, puts larder first"),
        Cause::DiskRead => of(Remedy::DisksAsFigure),
        Cause::DiskWrite => of(Remedy::MoreDisks),
        Cause::Journal => of(Remedy::PowerLossProtection),
        Cause::JournalFull => own("a faster disk, or a larger journal; writing goes on once there is room"),
        Cause::Lease => own("close the file there"),
    }
}
