//! What the box draws and costs, what keeps it awake, and the battery behind it.

use askama::Template;
use larder_api::endpoints::{GetAwake, GetPower, GetUps, WhatIfPower};
use larder_api::{PowerCost, PowerFault, PowerReading, PowerStatus, PowerYear, UpsStatus, WhatIfRequest};

use super::pools::Level;
use super::storage::size_of;
use crate::shell_words::on_page;
use crate::text::duration;
use crate::visit::{Answer, Frame, Visit, page as show};

pub struct ReadingView {
    pub source: String,
    pub of: String,
    pub basis: String,
    pub watts: String,
}

impl ReadingView {
    fn of(reading: &PowerReading) -> Self {
        Self {
            source: reading.source.clone(),
            of: reading.of.clone(),
            basis: reading.basis.clone(),
            watts: format!("{:.1} W", reading.watts),
        }
    }
}

pub struct CostView {
    pub name: String,
    pub watts: String,
    pub kwh: String,
    pub cost: String,
}

pub struct YearView {
    pub rows: Vec<CostView>,
    pub basis: String,
}

impl YearView {
    fn of(year: &PowerYear) -> Self {
        let row = |name: String, cost: PowerCost| CostView {
            name,
            watts: format!("{:.1} W", cost.watts),
            kwh: format!("{:.0} kWh", cost.kwh),
            cost: format!("{:.2} {}", cost.cost, year.currency),
        };
        let used = format!("with {} h of load a day", year.load_hours_per_day);
        let per_tb = year.watts_per_tb.map(|watts| format!("; {watts:.2} W for each usable TB")).unwrap_or_default();
        let guess = if year.estimated { ", estimated" } else { "" };
        Self {
            rows: vec![
                row("idle".to_owned(), year.idle),
                row("under load".to_owned(), year.load),
                row(used, year.used),
            ],
            basis: format!("Watts {}{guess}; {:.4} {} a kWh{per_tb}.", year.basis, year.price_per_kwh, year.currency),
        }
    }
}

pub struct UpsView {
    pub name: String,
    pub level: Level,
    pub state: &'static str,
    pub facts: Vec<(&'static str, String)>,
    pub plan: String,
    pub fault: Option<String>,
}

impl UpsView {
    fn of(ups: &UpsStatus) -> Self {
        let (level, state) = match (&ups.fault, ups.on_battery) {
            (Some(_), _) => (Level::Warn, "does not answer"),
            (None, true) => (Level::Bad, "on battery"),
            (None, false) => (Level::Fine, "on mains"),
        };
        let facts = [
            ("Model", ups.model.clone()),
            ("Says", ups.says.clone()),
            ("Charge", ups.charge_percent.map(|percent| format!("{percent} %"))),
            ("Lasts for", ups.runtime_seconds.map(duration)),
            ("On battery for", ups.on_battery_seconds.map(duration)),
        ];
        Self {
            name: ups.name.clone(),
            level,
            state,
            facts: facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
            plan: ups.plan.clone(),
            fault: ups.fault.clone(),
        }
    }
}

#[derive(Template)]
#[template(path = "power.html")]
struct PowerPage {
    frame: Frame,
    total: Option<ReadingView>,
    readings: Vec<ReadingView>,
    faults: Vec<PowerFault>,
    year: Option<YearView>,
    ups: Option<UpsView>,
    /// Why there is none.
    no_ups: String,
    settings: String,
    size: String,
    what_if: Option<String>,
    what_if_fault: Option<String>,
    awake: Option<String>,
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let PowerStatus { total, readings, mut faults, year, year_fault } = visit.ask(GetPower).await?;
    faults.extend(year_fault);
    for fault in &mut faults {
        fault.text = on_page(&fault.text);
        fault.action = fault.action.as_deref().map(on_page);
    }
    let (ups, no_ups) = match visit.ask(GetUps).await {
        Ok(ups) => (Some(UpsView::of(&ups)), String::new()),
        Err(failure) => (None, failure.message),
    };
    let (what_if, what_if_fault) = what_if(visit).await;
    let awake = match visit.query.is_checked("awake") {
        true => Some(visit.ask(GetAwake).await?.text),
        false => None,
    };
    show(&PowerPage {
        frame: visit.frame("care", "Power"),
        total: total.as_ref().map(ReadingView::of),
        readings: readings.iter().map(ReadingView::of).collect(),
        faults,
        year: year.as_ref().map(YearView::of),
        ups,
        no_ups,
        settings: visit.query.text("settings").to_owned(),
        size: visit.query.text("size").to_owned(),
        what_if,
        what_if_fault,
        awake,
    })
}

/// The answer to the form, or why there is none.
async fn what_if(visit: &Visit<'_>) -> (Option<String>, Option<String>) {
    let settings = visit.query.words("settings");
    if settings.is_empty() {
        return (None, None);
    }
    let asked = async {
        let size_bytes = size_of(visit.query.text("size"))?;
        visit.call(WhatIfPower, (), &WhatIfRequest { settings, size_bytes, per_year: None }).await
    };
    match asked.await {
        Ok(report) => (Some(report.text), None),
        Err(failure) => (None, Some(failure.message)),
    }
}
