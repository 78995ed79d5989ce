//! Watts and money for people to read. Pure: values in, text out. Units come last, and what is estimated is called so.

use std::time::Duration;

use larder_base::units::ByteSize;
use larder_facts::machine::Medium;
use larder_facts::power::{AwakeReport, Basis, Comparison, PowerReport, Readout, WakeUp, WhatIf};

use crate::power_words::{Answer, Watched};
use larder_base::printed::table;

pub fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "measured",
        Basis::Typed => "typed in",
        Basis::Estimated => "estimated",
    }
}

fn row<const N: usize>(cells: [String; N]) -> Vec<String> {
    cells.into()
}

fn header<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Less is no money.
const CENT: f64 = 0.01;

fn estimated(yes: bool) -> &'static str {
    if yes { " (estimated)" } else { "" }
}

pub fn readout(answer: &Answer<Readout>) -> String {
    let found = &answer.found;
    let mut rows = vec![header(["SOURCE", "OF", "BASIS", "WATTS"])];
    for reading in &found.readings {
        let watts = format!("{:.1} W", reading.watts);
        rows.push(row([reading.source.clone(), reading.of.clone(), basis(reading.basis).to_owned(), watts]));
    }
    let mut text = if found.readings.is_empty() { String::new() } else { table(&rows, &[3]) + "\n" };
    match &found.total {
        Some(total) => {
            text.push_str(&format!(
                "the whole machine: {:.1} W, {} ({})\n",
                total.watts,
                basis(total.basis),
                total.source
            ));
        }
        None => text.push_str(
            "the whole machine: not known; a plug with a meter or a UPS tells: [[power.source]] in docs/config.md\n",
        ),
    }
    for fault in &found.faults {
        text.push_str(&format!("fault: {fault}\n"));
        text.extend(fault.action.iter().map(|action| format!("action: {action}\n")));
    }
    text
}

pub fn moment(at: Duration, source: &str, watts: Option<f64>, guess: bool, readout: &Readout) -> String {
    let watts = watts.map_or(format!("{:>8}  ", "-"), |watts| format!("{watts:>8.1} W"));
    let faults: String = readout.faults.iter().map(|fault| format!("  ({fault})")).collect();
    format!("{:>8.1} s  {watts}  {source}{}{faults}", at.as_secs_f64(), estimated(guess))
}

pub fn watched(answer: &Answer<Watched>) -> String {
    let found = &answer.found;
    let Some(s) = &found.summary else { return "nothing was measured".to_owned() };
    let mut rows = vec![
        row(["time".to_owned(), format!("{:.1}", s.seconds), "s".to_owned()]),
        row(["mean".to_owned(), format!("{:.1}", s.mean_watts), "W".to_owned()]),
        row(["lowest".to_owned(), format!("{:.1}", s.min_watts), "W".to_owned()]),
        row(["highest".to_owned(), format!("{:.1}", s.max_watts), "W".to_owned()]),
        row(["idle (a tenth was below)".to_owned(), format!("{:.1}", s.idle_watts), "W".to_owned()]),
        row(["load (a tenth was above)".to_owned(), format!("{:.1}", s.load_watts), "W".to_owned()]),
        row(["energy".to_owned(), format!("{:.6}", s.kwh), "kWh".to_owned()]),
    ];
    let moved = ByteSize(found.moved_bytes).to_string();
    let (number, unit) = moved.split_once(' ').unwrap_or((&moved, ""));
    rows.push(row(["moved by disks".to_owned(), number.to_owned(), unit.to_owned()]));
    if found.missed > 0 {
        rows.push(row(["readings without an answer".to_owned(), found.missed.to_string(), String::new()]));
    }
    if let Some(joules) = found.joules_per_gib {
        rows.push(row(["energy per data moved".to_owned(), format!("{joules:.1}"), "J/GiB".to_owned()]));
    }
    format!(
        "\n{}{}",
        table(&rows, &[1]),
        if found.estimated { "all of this is estimated: nothing measures the whole machine\n" } else { "" }
    )
}

pub fn report(answer: &Answer<PowerReport>) -> String {
    let r = &answer.found;
    let year = |name: &str, watts: f64, kwh: f64, cost: f64| {
        row([name.to_owned(), format!("{watts:.1} W"), format!("{kwh:.2} kWh"), format!("{cost:.2} {}", r.currency)])
    };
    let rows = vec![
        header(["", "POWER", "A YEAR", "COST"]),
        year("idle", r.year.idle_watts, r.idle_kwh, r.year.idle_cost),
        year("load", r.year.load_watts, r.load_kwh, r.year.load_cost),
        year(&format!("{} h/day of load", r.load_hours_per_day), r.year.mean_watts, r.mean_kwh, r.year.mean_cost),
    ];
    let mut text = table(&rows, &[1, 2, 3]);
    text.push_str(&format!("\nwatts: {}; price: {:.4} {} per kWh\n", answer.basis, r.price_per_kwh, r.currency));
    let estimated = estimated(r.estimated);
    if let (Some(watts), Some(cost)) = (r.watts_per_tb, r.cost_per_tb) {
        text.push_str(&format!(
            "idle, per usable TB: {watts:.2} W{estimated}; a year: {cost:.2} {}{estimated}\n",
            r.currency
        ));
    }
    if let Some(joules) = r.joules_per_gib {
        text.push_str(&format!("under load, per GiB moved: {joules:.1} J{estimated}\n"));
    }
    if r.estimated {
        text.push_str("all of this is estimated: nothing measures the whole machine\n");
    }
    text
}

pub fn comparison(answer: &Answer<Comparison>) -> String {
    let c = &answer.found;
    let money = |value: f64| format!("{value:.2} {}", c.currency);
    let line = |name: &str, this: f64, other: f64, show: &dyn Fn(f64) -> String| {
        row([name.to_owned(), show(this), show(other), show(other - this)])
    };
    let watts = |value: f64| format!("{value:.1} W");
    let (a, b) = (&c.this, &c.other);
    let rows = vec![
        header(["", "THIS BOX", "THE OTHER", "SAVED"]),
        line("idle", a.idle_watts, b.idle_watts, &watts),
        line("load", a.load_watts, b.load_watts, &watts),
        line("a year idle", a.idle_cost, b.idle_cost, &money),
        line("a year under load", a.load_cost, b.load_cost, &money),
        line("a year as used", a.mean_cost, b.mean_cost, &money),
    ];
    let verdict = match c.payback_years {
        Some(years) if c.invested > 0.0 => format!("{} are paid back in {years:.1} years", money(c.invested)),
        Some(_) => format!("it saves {} a year", money(c.saved_per_year)),
        None if c.saved_per_year.abs() < CENT / 2.0 => "both cost the same".to_owned(),
        None => format!("it never pays back: it costs {} a year more", money(-c.saved_per_year)),
    };
    format!("{}\nwatts of this box: {}\n{verdict}{}\n", table(&rows, &[1, 2, 3]), answer.basis, estimated(c.estimated))
}

pub fn what_if(answer: &Answer<WhatIf>) -> String {
    let found = &answer.found;
    let sized = found.choices.iter().any(|c| c.bytes_per_s.is_some());
    let money = |value: Option<f64>, places: usize| {
        let currency = found.currency.as_deref().unwrap_or_default();
        value.map_or(String::new(), |value| format!("{value:.places$} {currency}"))
    };
    let mut first = header(["SETTING", "POWER", "TIME", "JOB", "WITH IDLE", "ONCE", "A YEAR"]);
    if sized {
        first.extend(header(["RATE", "PER GiB"]));
    }
    let mut rows = vec![first];
    for choice in &found.choices {
        let s = &choice.setting;
        let mut cells = row([
            s.name.clone(),
            format!("{:.1} W", s.watts),
            format!("{:.1} min", s.seconds / 60.0),
            format!("{:.2} Wh", choice.job_wh),
            format!("{:.2} Wh", choice.total_wh),
            money(choice.cost, 4),
            money(choice.cost_per_year, 2),
        ]);
        if sized {
            cells.push(choice.bytes_per_s.map_or(String::new(), |rate| format!("{}/s", ByteSize(rate as u64))));
            cells.push(choice.joules_per_gib.map_or(String::new(), |joules| format!("{joules:.2} J")));
        }
        rows.push(cells);
    }
    let mut text = format!("{}\n{}\n", table(&rows, &[1, 2, 3, 4, 5, 6, 7, 8]), found.verdict);
    if !found.savings.is_empty() {
        text.push_str(&format!("\n{}\n", savings(found)));
    }
    if found.idle_watts == 0.0 {
        text.push_str("what the box draws while it waits is not counted: add --idle WATTS\n");
    }
    if found.currency.is_none() {
        text.push_str("money is not counted: add --price, of a kWh\n");
    }
    text.extend(found.cheapest_start.iter().map(|at| format!("cheapest from {at} on\n")));
    text
}

/// One change a row: the cheapest instead of each other setting.
fn savings(found: &WhatIf) -> String {
    let currency = found.currency.as_deref().unwrap_or_default();
    let mut rows = vec![header(["SAVES INSTEAD OF", "POWER", "EACH TIME", "A YEAR", "TAKES LONGER"])];
    rows.extend(found.savings.iter().map(|saving| {
        row([
            saving.instead_of.clone(),
            format!("{:.1} W", saving.watts),
            format!("{:.2} Wh", saving.wh),
            saving.per_year.map_or(String::new(), |money| format!("{money:.2} {currency}")),
            format!("{:.1} min", saving.seconds_longer / 60.0),
        ])
    }));
    table(&rows, &[1, 2, 3, 4])
}

pub fn awake(answer: &Answer<AwakeReport>) -> String {
    let found = &answer.found;
    let mut text = format!("in {:.1} s:\n\n", found.seconds);
    let mut rows = vec![header(["DISK", "KIND", "READS", "WRITES", "FLUSHES", "READ", "WRITTEN", "KEPT AWAKE BY"])];
    for disk in &found.disks {
        let by = match (disk.quiet, disk.suspects.is_empty()) {
            (true, _) if disk.medium == Medium::HardDisk => "nobody: it could sleep".to_owned(),
            (true, _) => "nobody".to_owned(),
            (false, false) => disk.suspects.join(", "),
            (false, true) => {
                "not known: nobody with files open on it did I/O (the kernel's own, or a process that has ended)"
                    .to_owned()
            }
        };
        let count = |n: u64| n.to_string();
        rows.push(row([
            disk.name.clone(),
            disk.medium.word().to_owned(),
            count(disk.reads),
            count(disk.writes),
            count(disk.flushes),
            ByteSize(disk.read_bytes).to_string(),
            ByteSize(disk.written_bytes).to_string(),
            by,
        ]));
    }
    text.push_str(&table(&rows, &[2, 3, 4, 5, 6]));
    if !found.processes.is_empty() {
        let mut rows = vec![header(["PROCESS", "PID", "READ", "WRITTEN"])];
        for p in &found.processes {
            let (read, written) = (ByteSize(p.read_bytes).to_string(), ByteSize(p.written_bytes).to_string());
            rows.push(row([p.name.clone(), p.pid.to_string(), read, written]));
        }
        text.push_str(&format!("\n{}", table(&rows, &[1, 2, 3])));
    }
    text.push_str(&wake_table("WOKEN PROCESS", &found.wakeups));
    text.push_str(&wake_table("INTERRUPT", &found.interrupts));
    text.extend(found.unknown.iter().map(|what| format!("\nunknown: {what}\n")));
    text
}

fn wake_table(title: &str, list: &[WakeUp]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let mut rows = vec![header([title, "RATE"])];
    rows.extend(list.iter().map(|w| row([w.who.clone(), format!("{:.1} /s", w.per_s)])));
    format!("\n{}", table(&rows, &[1]))
}
