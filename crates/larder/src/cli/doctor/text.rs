//! Verdict, evidence and fixes for people to read. Pure: values in, text out.

use larder_base::units::ByteSize;
use larder_measure::disk::Level;
use larder_measure::doctor::{
    Advice, Cause, Confidence, Diagnosis, Drive, Examination, Finding, Gain, Notice, Reading, bytes_words, rate_words,
};
use larder_measure::machine::ZfsPool;

use crate::render::table;

/// The verdict, the evidence, and what would help: the greatest gain first.
pub(super) fn diagnosis(found: &Diagnosis, colour: bool) -> String {
    let mut text = verdict(found, colour);
    text.push_str(&evidence(found, colour));
    text.push_str(&help(&found.advice));
    text
}

pub(super) fn examination(found: &Examination, colour: bool) -> String {
    let mut text = verdict(&found.diagnosis, colour);
    text.push_str(&evidence(&found.diagnosis, colour));
    text.push_str(&help(&found.diagnosis.advice));
    if let Some(reading) = &found.reading {
        text.push_str(&machine(reading));
    }
    if !found.notices.is_empty() {
        text.push_str("\nnoticed:\n");
    }
    text.extend(found.notices.iter().map(|n| notice(n, colour)));
    text
}

fn verdict(found: &Diagnosis, colour: bool) -> String {
    let name = if colour { format!("\x1b[1m{}\x1b[0m", found.name) } else { found.name.clone() };
    let mut text = format!("{name}: {}\n", found.verdict);
    if !found.questions.is_empty() {
        text.push_str("\nplease answer, by changing the description:\n");
    }
    text.extend(found.questions.iter().map(|q| format!("  {}\n", q.text)));
    text
}

fn evidence(found: &Diagnosis, colour: bool) -> String {
    let mut text = String::new();
    if !found.findings.is_empty() {
        let header = ["WAY", "MEASURED", "LIMIT", "ALLOWS", "REACHED", "SEEN", "SURE"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(found.findings.iter().map(row));
        let lines = table(&rows, &[1, 3, 4]);
        text.push_str("\nmeasured:\n");
        text.extend(lines.lines().map(|line| format!("  {}\n", sure(line, colour))));
    }
    let mut reasons: Vec<String> = Vec::new();
    for why in found.findings.iter().filter_map(reason) {
        if !reasons.contains(&why) {
            reasons.push(why);
        }
    }
    if !reasons.is_empty() || !found.remarks.is_empty() {
        text.push_str("\nwhy:\n");
    }
    text.extend(reasons.iter().chain(&found.remarks).map(|why| format!("  {why}\n")));
    text
}

fn row(finding: &Finding) -> Vec<String> {
    let m = &finding.measured;
    let (allows, reached) = match &finding.cause {
        Cause::Stage(stage) => {
            (rate_words(stage.capacity, m.what), format!("{:.0} %", m.rate / stage.capacity * 100.0))
        }
        _ => match finding.stages.first() {
            Some(lowest) => (rate_words(lowest.capacity, m.what), format!("{:.0} %", m.rate / lowest.capacity * 100.0)),
            None => ("-".to_owned(), "-".to_owned()),
        },
    };
    vec![
        finding.title.clone(),
        rate_words(m.rate, m.what),
        finding.cause.name(),
        allows,
        reached,
        seen(finding),
        finding.confidence.word().to_owned(),
    ]
}

/// Cores, disks and losses, as far as they were watched.
fn seen(finding: &Finding) -> String {
    const CORES_SHOWN: usize = 8;
    let m = &finding.measured;
    let mut words = Vec::new();
    if !m.cores_percent.is_empty() {
        let mut cores = m.cores_percent.clone();
        cores.sort_by(|a, b| b.total_cmp(a));
        let shown: Vec<String> = cores.iter().take(CORES_SHOWN).map(|c| format!("{c:.0}")).collect();
        let more = if cores.len() > CORES_SHOWN { " ..." } else { "" };
        words.push(format!("cores {}{more}", shown.join(" ")));
    }
    if let Some(busiest) = m.how.client_cores.iter().copied().reduce(f64::max) {
        words.push(format!("client's busiest core {busiest:.0}"));
    }
    if let Some(busy) = m.how.disk_busy_percent.filter(|b| *b >= 1.0) {
        words.push(format!("disk {busy:.0} %"));
    }
    if let Some(again) = m.how.retransmits_percent.filter(|r| *r >= 0.1) {
        words.push(format!("sent again {again:.1} %"));
    }
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}

/// Where the table's word is not enough.
fn reason(finding: &Finding) -> Option<String> {
    match &finding.cause {
        Cause::Suspected(_) | Cause::Misleading(_) | Cause::Unexplained => Some(finding.sentence.clone()),
        Cause::Stage(stage) => stage.why.as_ref().map(|why| format!("{}: {why}", stage.name)),
        Cause::Processor { .. } | Cause::Client { .. } | Cause::BothEnds { .. } | Cause::Asked(_) => None,
    }
}

fn sure(line: &str, colour: bool) -> String {
    if !colour {
        return line.to_owned();
    }
    let painted = |word: &str, code: &str| Some(format!("{}\x1b[{code}m{word}\x1b[0m", line.strip_suffix(word)?));
    let words = [(Confidence::Certain, "32"), (Confidence::Likely, "33"), (Confidence::Open, "31")];
    words.iter().find_map(|(sure, code)| painted(sure.word(), code)).unwrap_or_else(|| line.to_owned())
}

fn help(advice: &[Advice]) -> String {
    if advice.is_empty() {
        return String::new();
    }
    let mut text = "\nwould help, the most first:\n".to_owned();
    for (at, one) in advice.iter().enumerate() {
        text.push_str(&format!("  {}. {}\n     {}\n", at + 1, one.sentence, one.how));
    }
    text
}

fn machine(reading: &Reading) -> String {
    let (host, processor) = (&reading.host, &reading.processor);
    let memory = host.memory_bytes.map(|b| format!("{} of memory", ByteSize(b)));
    let kernel = host.kernel.as_ref().map(|k| format!("Linux {k}"));
    let cores = format!("{} cores", processor.cores);
    let aes = processor.aes.map(|aes| if aes { "AES".to_owned() } else { "no AES".to_owned() });
    let governor = processor.policies.first().map(|p| format!("governor {}", p.governor));
    let parts = [host.model.clone(), processor.model.clone(), Some(cores), aes, governor, memory, kernel];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let mut text = format!("\nmachine: {}\n", parts.join(", "));
    if !reading.drives.is_empty() {
        let mut rows =
            vec![["DISK", "KIND", "WAY TO THE PROCESSOR", "NARROWEST", "QUEUE", "TEMP"].map(str::to_owned).to_vec()];
        rows.extend(reading.drives.iter().map(drive));
        text.extend(table(&rows, &[3, 5]).lines().map(|line| format!("  {line}\n")));
    }
    text.extend(reading.zfs.iter().map(zfs));
    if let Some(arc) = reading.arc.as_ref().filter(|_| !reading.zfs.is_empty()) {
        let hits = arc.hit_percent.map_or(String::new(), |hits| format!(", {hits:.0} % of all reads answered by it"));
        text.push_str(&format!(
            "  ZFS cache: {} of at most {}{hits}\n",
            ByteSize(arc.size_bytes),
            ByteSize(arc.most_bytes)
        ));
    }
    if !reading.nics.is_empty() {
        let mut rows =
            vec![["NETWORK", "DRIVER", "SPEED", "DUPLEX", "MTU", "QUEUES", "ERRORS"].map(str::to_owned).to_vec()];
        let dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        rows.extend(reading.nics.iter().map(|nic| {
            vec![
                nic.name.clone(),
                dash(nic.driver.clone()),
                dash(nic.speed_mbits.map(|s| format!("{s} Mbit/s"))),
                dash(nic.duplex.clone()),
                dash(nic.mtu.map(|m| m.to_string())),
                nic.receive_queues.to_string(),
                nic.errors.to_string(),
            ]
        }));
        text.extend(table(&rows, &[]).lines().map(|line| format!("  {line}\n")));
    }
    text
}

fn zfs(pool: &ZfsPool) -> String {
    let full = pool.used_percent.map_or(String::new(), |used| format!(", {used} % full"));
    format!("  ZFS pool {}: {}, {}{full}\n", pool.name, pool.shape(), pool.state)
}

fn drive(drive: &Drive) -> Vec<String> {
    let mut way: Vec<String> = drive.hops.iter().map(|hop| format!("{} ({})", hop.now, hop.address)).collect();
    way.splice(0..0, drive.sata_now.iter().map(|s| format!("SATA {s}")));
    let way = if way.is_empty() { "-".to_owned() } else { way.join(" < ") };
    let kind = match (drive.shingled, drive.four_bits) {
        (true, _) => "SMR".to_owned(),
        (_, true) => "QLC".to_owned(),
        _ => format!("{} {}", drive.bus.word(), drive.medium.word()),
    };
    vec![
        drive.title.clone(),
        kind,
        way,
        drive.narrowest().map_or("-".to_owned(), |hop| bytes_words(hop.bytes_per_s)),
        drive.scheduler.clone().unwrap_or_else(|| "-".to_owned()),
        drive.temperature_c.map_or("-".to_owned(), |t| format!("{t} C")),
    ]
}

fn notice(notice: &Notice, colour: bool) -> String {
    let word = format!("{:<7}", notice.level.word());
    let code = match notice.level {
        Level::Ok => "32",
        Level::Note => "36",
        Level::Warning => "33",
        Level::Refuse => "31",
    };
    let word = if colour { format!("\x1b[{code}m{word}\x1b[0m") } else { word };
    let gain = notice.gain.map(gain).unwrap_or_default();
    let mut text = format!("  {word}  {}{gain}\n", notice.what);
    if !notice.why.is_empty() {
        text.push_str(&format!("           why: {}\n", notice.why));
    }
    text.extend(notice.action.iter().map(|action| format!("           action: {action}\n")));
    text
}

fn gain(gain: Gain) -> String {
    match gain.mb_per_s {
        Some(mb) => format!(" (up to +{}, +{:.0} %, by {})", bytes_words(mb * 1e6), gain.percent, gain.rests_on),
        None => format!(" (up to +{:.0} %, by {})", gain.percent, gain.rests_on),
    }
}
