//! The machine during a run: cores, disks, network, heat and power.

use super::figure::{Chapter, Figure, Grid, name};
use crate::bench::result::{CoreSeries, Run, Samples};
use crate::bench::show::plot::panels::COLOURS;
use crate::bench::show::plot::{Axis, Panel, Panels, Plot, Series};
use crate::bench::show::scale::{Scale, ScaleKind};
use crate::bench::show::text::{busy, mean};
use crate::bench::show::units::{self, Unit};

/// Six states, in the order in which they are stacked and coloured.
const STATES: [&str; 6] = ["user", "nice", "system", "iowait", "irq", "steal"];

/// `many`: other runs are shown as well, so each takes less room.
pub(super) fn of_run(n: usize, run: &Run, many: bool) -> Vec<Figure> {
    let start_ms = run.repeats.iter().map(|r| r.start_ms).min().unwrap_or(0);
    let mut found = of_samples(n, run, &run.samples, start_ms, "", many);
    if let Some(far) = &run.far_samples {
        found.extend(of_samples(n, run, far, start_ms, "far ", many));
    }
    found
}

/// One of the plots of lines: what it is called, its unit, and the series by name.
struct Told {
    id: &'static str,
    title: &'static str,
    unit: Unit,
    lines: Vec<(String, Vec<f64>)>,
}

fn of_samples(n: usize, run: &Run, samples: &Samples, start_ms: u64, end: &str, many: bool) -> Vec<Figure> {
    let seconds: Vec<f64> = samples.at_ms.iter().map(|at| at.saturating_sub(start_ms) as f64 / 1e3).collect();
    let head = |id: &str| format!("run-{}-{}{id}", n + 1, end.replace(' ', "-"));
    let whose = format!("{end}{}", name(run));
    let mut found: Vec<Figure> = cores(samples, &seconds, many).into_iter().collect();
    found.extend(lines(samples).into_iter().filter_map(|told| drawn(told, &seconds)));
    for figure in &mut found {
        figure.chapter = Chapter::Run(n);
        figure.id = head(&figure.id);
        if !end.is_empty() {
            figure.title = format!("{}, at the far end", figure.title);
        }
        figure.desc = format!("{} During: {whose}.", figure.desc);
    }
    found
}

fn lines(samples: &Samples) -> Vec<Told> {
    let named =
        |list: &[crate::bench::result::Series]| list.iter().map(|s| (s.name.clone(), s.values.clone())).collect();
    let disks = |of: fn(&crate::bench::result::DiskSeries) -> &Vec<f64>| {
        samples.disks.iter().map(|d| (d.disk.clone(), of(d).clone())).collect::<Vec<_>>()
    };
    let mut nets = Vec::new();
    let mut again = Vec::new();
    for net in &samples.nets {
        nets.push((format!("{} receives", net.interface), net.receive_bytes_per_s.clone()));
        nets.push((format!("{} sends", net.interface), net.send_bytes_per_s.clone()));
        again.push((net.interface.clone(), net.retransmits.clone()));
    }
    let told = |id, title, unit, lines| Told { id, title, unit, lines };
    vec![
        told("disk-busy", "Disks: busy", Unit::Percent, disks(|d| &d.busy)),
        told("disk-latency", "Disks: latency", Unit::Milliseconds, disks(|d| &d.latency_ms)),
        told("disk-read", "Disks: read", Unit::Rate, disks(|d| &d.read_bytes_per_s)),
        told("disk-write", "Disks: written", Unit::Rate, disks(|d| &d.write_bytes_per_s)),
        told("net", "Network", Unit::Rate, nets),
        told("retransmits", "TCP segments sent again", Unit::Count, again),
        told("temperature", "Temperature", Unit::Celsius, named(&samples.temperatures)),
        told("clock", "Clock", Unit::Megahertz, named(&samples.clocks)),
        told("watts", "Power", Unit::Watts, samples.watts.iter().map(|w| (w.name.clone(), w.values.clone())).collect()),
    ]
}

/// The largest lines; what was always zero says nothing and is left out, as are single points, which are no line.
fn drawn(told: Told, seconds: &[f64]) -> Option<Figure> {
    let told_of =
        |values: &[f64]| values.windows(2).any(|two| two.iter().all(|v| v.is_finite()) && two[0] + two[1] > 0.0);
    let mut lines: Vec<(String, Vec<f64>)> = told.lines.into_iter().filter(|(_, values)| told_of(values)).collect();
    let hidden = lines.len().saturating_sub(COLOURS);
    if hidden > 0 {
        lines.sort_by(|a, b| mean(&b.1).unwrap_or(0.0).total_cmp(&mean(&a.1).unwrap_or(0.0)));
        lines.truncate(COLOURS);
    }
    let unit = told.unit;
    let mut grid = Grid::new(&["of", "mean", "least", "most"]);
    for (name, values) in &lines {
        let edge = |of: fn(f64, f64) -> f64| values.iter().copied().filter(|v| v.is_finite()).reduce(of);
        let show = |v: Option<f64>| v.map_or(String::new(), |v| unit.show(v));
        grid.rows.push(vec![name.clone(), show(mean(values)), show(edge(f64::min)), show(edge(f64::max))]);
    }
    let all = || lines.iter().flat_map(|(_, values)| values.iter().copied());
    let scale = match unit {
        // Neither heat nor clocks nor idle power begin at zero.
        Unit::Celsius | Unit::Megahertz | Unit::Watts => Scale::around(all(), 5),
        Unit::Percent => Scale { low: 0.0, high: 100.0, kind: ScaleKind::Linear },
        _ => Scale::from_zero(all(), 5),
    };
    let series = lines.iter().enumerate().map(|(n, (_, y))| Series { n, x: seconds.to_vec(), y: y.clone() }).collect();
    let rest =
        if hidden > 0 { format!("The largest {COLOURS}; {hidden} more are in the JSON.") } else { String::new() };
    (!lines.is_empty()).then(|| Figure {
        chapter: Chapter::Overview,
        id: told.id.to_owned(),
        title: told.title.to_owned(),
        desc: rest,
        plot: Plot::Panels(Panels {
            x: time(seconds),
            y: Axis { scale, unit, name: unit.name().to_owned() },
            names: lines.iter().map(|(name, _)| name.clone()).collect(),
            palette: "s",
            panels: vec![Panel { series, ..Panel::default() }],
            stacked: false,
            dots: false,
        }),
        grid,
    })
}

fn time(seconds: &[f64]) -> Axis {
    let scale = Scale::exact([0.0].into_iter().chain(seconds.iter().copied()));
    Axis { scale, unit: Unit::Seconds, name: "seconds".to_owned() }
}

fn states(core: &CoreSeries) -> [&Vec<f64>; 6] {
    [&core.user, &core.nice, &core.system, &core.iowait, &core.irq, &core.steal]
}

fn cores(samples: &Samples, seconds: &[f64], many: bool) -> Option<Figure> {
    let shown_max = if many { 8 } else { 16 };
    let mut cores: Vec<&CoreSeries> = samples.cores.iter().collect();
    let load = |c: &CoreSeries| mean(&busy(c)).unwrap_or(0.0);
    let hidden = cores.len().saturating_sub(shown_max);
    if hidden > 0 {
        cores.sort_by(|a, b| load(b).total_cmp(&load(a)));
        cores.truncate(shown_max);
        cores.sort_by_key(|c| c.core);
    }
    let mut grid = Grid::new(&["core", "busy", "user", "nice", "system", "iowait", "irq", "steal"]);
    let mut panels = Vec::new();
    for core in &cores {
        let percent = |values: &[f64]| mean(values).map_or(String::new(), |m| units::percent(m / 100.0));
        let cells = [core.core.to_string(), percent(&busy(core))].into_iter();
        grid.rows.push(cells.chain(states(core).into_iter().map(|s| percent(s))).collect());
        let series = states(core).into_iter().enumerate().map(|(n, y)| Series { n, x: seconds.to_vec(), y: y.clone() });
        // A state that never occurred is no area.
        let series = series.filter(|s| s.y.iter().any(|v| v.is_finite() && *v > 0.0)).collect();
        panels.push(Panel { name: format!("core {}", core.core), series, marks: Vec::new() });
    }
    let rest =
        if hidden > 0 { format!(" The busiest {shown_max}; {hidden} more are in the JSON.") } else { String::new() };
    (!cores.is_empty()).then(|| Figure {
        chapter: Chapter::Overview,
        id: "cores".to_owned(),
        title: "Where the cores' time went".to_owned(),
        desc: format!("Percent of each core, stacked; iowait is idle time in which a disk was waited for.{rest}"),
        plot: Plot::Panels(Panels {
            x: time(seconds),
            y: Axis {
                scale: Scale { low: 0.0, high: 100.0, kind: ScaleKind::Linear },
                unit: Unit::Percent,
                name: "% of a core".to_owned(),
            },
            names: STATES.map(str::to_owned).to_vec(),
            palette: "c",
            panels,
            stacked: true,
            dots: false,
        }),
        grid,
    })
}
