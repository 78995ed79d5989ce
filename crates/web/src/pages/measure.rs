//! The doctor's verdict, and results of benches that are kept.

use askama::Template;
use larder_api::endpoints::{CompareBenches, GetBench, GetBenches, RunDoctor};
use larder_api::{BenchCompare, BenchKept, DoctorReport};

use crate::form::encoded;
use crate::text::{Moment, duration};
use crate::visit::{Answer, Frame, Visit, page as show};

#[derive(Template)]
#[template(path = "doctor.html")]
struct DoctorPage {
    frame: Frame,
    found: Option<DoctorReport>,
}

/// Runs when it is asked to: it watches the connections for a second.
pub async fn doctor(visit: &Visit<'_>) -> Answer {
    let found = match visit.query.is_checked("run") {
        true => Some(visit.ask(RunDoctor).await?),
        false => None,
    };
    show(&DoctorPage { frame: visit.frame("care", "Doctor"), found })
}

pub struct BenchView {
    pub id: String,
    pub href: String,
    pub title: String,
    pub at: Moment,
    pub took: String,
    pub runs: u64,
    pub preset: String,
    pub interrupted: bool,
}

impl BenchView {
    fn of(one: &BenchKept) -> Self {
        Self {
            id: one.id.clone(),
            href: format!("/+/care/bench?id={}", encoded(&one.id)),
            title: one.title.clone(),
            at: Moment::of_ms_unsigned(one.started_ms),
            took: duration(one.seconds.max(0.0) as u64),
            runs: one.runs,
            preset: one.preset.clone(),
            interrupted: one.interrupted,
        }
    }
}

#[derive(Template)]
#[template(path = "bench.html")]
struct BenchPage {
    frame: Frame,
    kept: Vec<BenchView>,
    title: String,
    report: Option<String>,
}

pub async fn bench(visit: &Visit<'_>) -> Answer {
    let kept = visit.ask(GetBenches).await?;
    let (id, a, b) = (visit.query.text("id"), visit.query.text("a"), visit.query.text("b"));
    let (title, report) = match (id, a, b) {
        ("", "", "") => (String::new(), None),
        ("", a, b) => {
            let request = BenchCompare { a: a.to_owned(), b: b.to_owned() };
            (format!("{a} beside {b}"), Some(visit.call(CompareBenches, (), &request).await?.text))
        }
        (id, ..) => (id.to_owned(), Some(visit.about(GetBench, id).await?.text)),
    };
    let kept = kept.iter().map(BenchView::of).collect();
    show(&BenchPage { frame: visit.frame("care", "Benches"), kept, title, report })
}
