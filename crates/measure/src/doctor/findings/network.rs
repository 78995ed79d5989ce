//! Cards, queues, buffers.

use super::notice::{Gain, Noticed, Rule, noticed};
use larder_facts::disk::Level;
use larder_facts::reading::{Nic, Reading};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "nic-slow",
        level: Level::Warning,
        why: "card and cable could do more than was negotiated: a cable with two pairs, a bad plug, or a slow switch port",
        source: "IEEE 802.3 clause 28, auto-negotiation; ethtool",
        test: slow,
    },
    Rule {
        code: "half-duplex",
        level: Level::Warning,
        why: "half duplex on a switched network is a mismatch: collisions and loss at every burst",
        source: "IEEE 802.3 clause 28",
        test: half_duplex,
    },
    Rule {
        code: "nic-errors",
        level: Level::Warning,
        why: "damaged packets are lost, and TCP halves its pace for each",
        source: "kernel, Documentation/networking/statistics.rst; RFC 5681",
        test: errors,
    },
    Rule {
        code: "nic-drops",
        level: Level::Note,
        why: "the card had no room for what came: its ring is short, or the core that empties it is busy",
        source: "kernel, statistics.rst: rx_missed_errors",
        test: drops,
    },
    Rule {
        code: "nic-lane",
        level: Level::Warning,
        why: "the card's slot carries less than its cable",
        source: "PCI Express after coding and headers (Intel AN 829)",
        test: lane,
    },
    Rule {
        code: "offload-off",
        level: Level::Note,
        why: "without it the processor cuts and joins every packet itself, 80 thousand a second at a gigabit",
        source: "kernel, Documentation/networking/segmentation-offloads.rst",
        test: offloads,
    },
    Rule {
        code: "irq-one-core",
        level: Level::Warning,
        why: "interrupts of the card and what they bring all run on the core that everything else starts on",
        source: "kernel, Documentation/networking/scaling.rst; core-api/irq/irq-affinity.rst",
        test: irq_on_first,
    },
    Rule {
        code: "rps-off",
        level: Level::Note,
        why: "a card with one queue gives all its packets to one core; RPS hands them on to the others",
        source: "kernel, Documentation/networking/scaling.rst: RPS",
        test: rps,
    },
    Rule {
        code: "tcp-buffers",
        level: Level::Note,
        why: "a connection has at most one buffer of bytes under way: buffer / round trip is its rate",
        source: "RFC 7323; kernel, ip-sysctl.rst: tcp_rmem, tcp_wmem",
        test: buffers,
    },
    Rule {
        code: "window-scaling",
        level: Level::Warning,
        why: "without it a window is at most 64 KiB: 52 MB/s over 1.25 ms, whatever the wire",
        source: "RFC 7323; kernel, ip-sysctl.rst",
        test: window_scaling,
    },
    Rule {
        code: "backlog",
        level: Level::Note,
        why: "at 10 Gbit/s a thousand packets are less than a millisecond and a half",
        source: "kernel, Documentation/admin-guide/sysctl/net.rst: netdev_max_backlog",
        test: backlog,
    },
    Rule {
        code: "wireless",
        level: Level::Warning,
        why: "Wi-Fi gives about 60 % of the rate that is shown, shared with all neighbours, to one station at a time",
        source: "IEEE 802.11",
        test: wireless,
    },
];

fn up(reading: &Reading) -> impl Iterator<Item = &Nic> {
    reading.nics.iter().filter(|n| n.up)
}

fn payload(mbits: u64) -> f64 {
    // 1448 bytes of data in each 1538 on the line.
    mbits as f64 * 1e6 / 8.0 * 0.941
}

fn slow(reading: &Reading) -> Vec<Noticed> {
    let below = |nic: &Nic| {
        let now = nic.speed_mbits?;
        // Every wired card of the last fifteen years does a gigabit, also where ethtool is missing.
        let best = nic.speed_best_mbits.unwrap_or(if now == 100 { 1000 } else { now });
        (now < best).then_some(())?;
        let guess = if nic.speed_best_mbits.is_none() {
            " (ethtool is not installed: the card may be a 100 Mbit/s one)"
        } else {
            ""
        };
        let what = format!("{} runs at {now} Mbit/s and supports {best}{guess}", nic.name);
        let action =
            format!("another cable (all four pairs, Cat 5e or better) and switch port; then: ethtool {}", nic.name);
        Some(noticed(what, action).on(&nic.name).gain(Gain::between(payload(now), payload(best))))
    };
    up(reading).filter_map(below).collect()
}

fn half_duplex(reading: &Reading) -> Vec<Noticed> {
    let all = up(reading).filter(|n| n.duplex.as_deref() == Some("half"));
    all.map(|n| {
        let action =
            format!("auto-negotiation at both ends: ethtool -s {} autoneg on; and the same at the switch", n.name);
        noticed(format!("{} runs half duplex", n.name), action)
            .on(&n.name)
            .gain(Gain::by(100.0, "each direction waiting for the other"))
    })
    .collect()
}

fn errors(reading: &Reading) -> Vec<Noticed> {
    // One in a hundred thousand is far above what a good cable makes.
    let all = up(reading).filter(|n| n.errors > 10 && n.errors as f64 > n.packets as f64 * 1e-5);
    all.map(|n| {
        let what = format!("{} had {} errors in {} packets", n.name, n.errors, n.packets);
        noticed(what, format!("another cable and port; then: ethtool -S {} | grep -iE 'err|crc'", n.name)).on(&n.name)
    })
    .collect()
}

fn drops(reading: &Reading) -> Vec<Noticed> {
    let all = up(reading).filter(|n| n.dropped > 100 && n.dropped as f64 > n.packets as f64 * 1e-5);
    all.map(|n| {
        let what = format!("{} dropped {} packets for want of room", n.name, n.dropped);
        noticed(what, format!("ethtool -g {0}; ethtool -G {0} rx MAXIMUM", n.name)).on(&n.name)
    })
    .collect()
}

fn lane(reading: &Reading) -> Vec<Noticed> {
    let narrow = |nic: &Nic| {
        let wire = payload(nic.speed_mbits?);
        let hop =
            nic.hops.iter().min_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s)).filter(|h| h.bytes_per_s < wire)?;
        let what =
            format!("{} has {} Mbit/s on its cable and {} to the processor", nic.name, nic.speed_mbits?, hop.now);
        Some(
            noticed(what, "a slot with more lanes or of a newer generation")
                .on(&nic.name)
                .gain(Gain::between(hop.bytes_per_s, wire)),
        )
    };
    up(reading).filter_map(narrow).collect()
}

fn offloads(reading: &Reading) -> Vec<Noticed> {
    let mut found = Vec::new();
    for nic in up(reading) {
        let off: Vec<&str> = nic.offloads.iter().filter(|(_, on)| !**on).map(|(key, _)| key.as_str()).collect();
        if !off.is_empty() {
            let on: Vec<String> = off.iter().map(|key| format!("{key} on")).collect();
            let what = format!("{}: {} off", nic.name, off.join(", "));
            found.push(
                noticed(what, format!("ethtool -K {} {}", nic.name, on.join(" ")))
                    .on(&nic.name)
                    .gain(Gain::thumb(10.0)),
            );
        }
    }
    found
}

/// Fewer interrupts than this say nothing of where they go.
const INTERRUPTS_MIN: u64 = 100_000;

fn irq_on_first(reading: &Reading) -> Vec<Noticed> {
    let cores = reading.processor.cores;
    let mut found = Vec::new();
    for nic in up(reading).filter(|_| cores > 1) {
        let sum: u64 = nic.interrupts.iter().flat_map(|i| &i.on_cores).sum();
        let first: u64 = nic.interrupts.iter().filter_map(|i| i.on_cores.first()).sum();
        if sum < INTERRUPTS_MIN || (first as f64) < 0.9 * sum as f64 {
            continue;
        }
        let what =
            format!("{:.0} % of the interrupts of {} are on core 0", first as f64 / sum as f64 * 100.0, nic.name);
        let mut notice = noticed(what, "").on(&nic.name);
        let mut commands = Vec::new();
        for (at, interrupt) in nic.interrupts.iter().enumerate() {
            let core = 1 + at % (cores - 1);
            let file = format!("/proc/irq/{}/smp_affinity_list", interrupt.number);
            commands.push(format!("echo {core} > {file}"));
            notice = notice.write(file, core.to_string());
        }
        commands.truncate(2);
        notice.action = format!("{} (and stop irqbalance, which moves them back)", commands.join("; "));
        found.push(notice.gain(Gain::thumb(20.0)));
    }
    found
}

fn rps(reading: &Reading) -> Vec<Noticed> {
    let cores = reading.processor.cores.min(63);
    let mut found = Vec::new();
    let fast = |n: &&Nic| n.speed_mbits.is_some_and(|s| s >= 1000);
    for nic in up(reading).filter(|n| cores > 1 && n.receive_queues == 1).filter(fast) {
        let off = nic.rps.first().is_some_and(|mask| mask.chars().all(|c| matches!(c, '0' | ',')));
        if off {
            // All but the first core, which takes the interrupts.
            let mask = format!("{:x}", (1u64 << cores) - 2);
            let file = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", nic.name);
            let what = format!("{} has one receive queue and no RPS", nic.name);
            found.push(
                noticed(what, format!("echo {mask} > {file}")).on(&nic.name).gain(Gain::thumb(10.0)).write(file, mask),
            );
        }
    }
    found
}

/// A round trip through a home's switches with some load on them.
const ROUND_TRIP_S: f64 = 0.005;
const BUFFER_BYTES: u64 = 16 << 20;

fn buffers(reading: &Reading) -> Vec<Noticed> {
    let Some(mbits) = up(reading).filter_map(|n| n.speed_mbits).max() else { return Vec::new() };
    let needed = mbits as f64 * 1e6 / 8.0 * ROUND_TRIP_S;
    let tcp = &reading.tcp;
    let sides = [
        ("tcp_rmem", tcp.receive_max_bytes, &tcp.receive_buffers),
        ("tcp_wmem", tcp.send_max_bytes, &tcp.send_buffers),
    ];
    let short = sides.into_iter().filter_map(|(name, max, now)| {
        let max = max.filter(|m| (*m as f64) < needed && *m < BUFFER_BYTES)?;
        let mut words: Vec<String> = now.as_ref()?.split(' ').map(str::to_owned).collect();
        *words.last_mut()? = BUFFER_BYTES.to_string();
        let value = words.join(" ");
        let what =
            format!("{name} ends at {} KiB, and {mbits} Mbit/s over 5 ms need {:.0}", max / 1024, needed / 1024.0);
        let gain = Gain::by((needed / max as f64 - 1.0) * 100.0, "the window that its rate needs");
        Some(
            noticed(what, format!("sysctl -w net.ipv4.{name}='{value}'"))
                .gain(gain)
                .write(format!("/proc/sys/net/ipv4/{name}"), value),
        )
    });
    short.collect()
}

fn window_scaling(reading: &Reading) -> Vec<Noticed> {
    match reading.tcp.window_scaling {
        Some(false) => {
            let file = "/proc/sys/net/ipv4/tcp_window_scaling";
            vec![noticed("TCP window scaling is off", "sysctl -w net.ipv4.tcp_window_scaling=1").write(file, "1")]
        }
        _ => Vec::new(),
    }
}

fn backlog(reading: &Reading) -> Vec<Noticed> {
    let fast = up(reading).any(|n| n.speed_mbits.is_some_and(|s| s >= 10_000));
    match reading.tcp.backlog.filter(|b| fast && *b < 5000) {
        Some(now) => {
            let file = "/proc/sys/net/core/netdev_max_backlog";
            let what = format!("netdev_max_backlog is {now}");
            vec![noticed(what, "sysctl -w net.core.netdev_max_backlog=10000").write(file, "10000")]
        }
        None => Vec::new(),
    }
}

fn wireless(reading: &Reading) -> Vec<Noticed> {
    let wired = up(reading).any(|n| !n.wireless);
    let all = up(reading).filter(|n| n.wireless && !wired);
    all.map(|n| noticed(format!("{} is the only network, and it is wireless", n.name), "a cable").on(&n.name)).collect()
}
