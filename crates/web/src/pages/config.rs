//! The configuration as one file: what an edit would change, and its application.
//!
//! - `config.diff_first`: the form that applies a file is on the page of its differences, and is for the state of the
//!   daemon's file that these were made for (`apply.as_planned`).

use askama::Template;
use larder_api::endpoints::{ApplyConfig, PlanConfig, ReadConfig};
use larder_api::{ConfigApply, ConfigDifference, ConfigHow, ConfigPlan, ConfigText, Failure};

use super::pools::Level;
use crate::note::Note;
use crate::visit::{Answer, Frame, Local, Visit, page as show};

pub struct DifferenceView {
    pub entry: String,
    pub how: &'static str,
    /// A key, before, and after.
    pub keys: Vec<(String, String, String)>,
    pub interrupts: Vec<String>,
    pub at_next_start: bool,
    pub refused: Option<Note>,
    pub level: Level,
}

impl DifferenceView {
    fn of(change: &ConfigDifference) -> Self {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "\u{2013}".to_owned());
        let disturbs = change.at_next_start || !change.interrupts.is_empty();
        Self {
            entry: change.entry.clone(),
            how: match change.how {
                ConfigHow::Added => "added",
                ConfigHow::Removed => "removed",
                ConfigHow::Changed => "changed",
            },
            keys: change.keys.iter().map(|key| (key.key.clone(), value(&key.before), value(&key.after))).collect(),
            interrupts: change.interrupts.clone(),
            at_next_start: change.at_next_start,
            refused: change.refused.clone().map(Note::from),
            level: match (&change.refused, disturbs) {
                (Some(_), _) => Level::Bad,
                (None, true) => Level::Warn,
                (None, false) => Level::Fine,
            },
        }
    }
}

pub struct PlanView {
    pub base: String,
    pub changes: Vec<DifferenceView>,
    pub notes: Vec<String>,
    pub may_apply: bool,
    /// Something waits for the next start.
    pub waits: bool,
}

impl PlanView {
    fn of(plan: &ConfigPlan) -> Self {
        Self {
            base: plan.base.clone(),
            changes: plan.changes.iter().map(DifferenceView::of).collect(),
            notes: plan.notes.clone(),
            may_apply: !plan.changes.is_empty() && plan.refused().next().is_none(),
            waits: plan.at_next_start().next().is_some(),
        }
    }
}

#[derive(Template)]
#[template(path = "config.html")]
struct ConfigPage {
    frame: Frame,
    file: String,
    /// For the owner alone.
    text: Option<String>,
    plan: Option<PlanView>,
    refusal: Option<Note>,
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let frame = visit.frame("care", "Configuration");
    let read = match frame.changes_configuration() {
        true => Some(visit.call(ReadConfig, (), &()).await?),
        false => None,
    };
    let file = read.as_ref().and_then(|read| read.name.as_ref()).map(|name| name.display().to_string());
    let text = read.map(|read| read.text);
    show(&ConfigPage { frame, file: file.unwrap_or_default(), text, plan: None, refusal: None })
}

/// Browsers end the lines of a field with two characters (WHATWG HTML 4.10.22.4).
fn text_of(visit: &Visit<'_>) -> String {
    visit.form.get("text").unwrap_or_default().replace("\r\n", "\n")
}

pub async fn plan(visit: &Visit<'_>) -> Answer {
    let text = text_of(visit);
    let planned = visit.call(PlanConfig, (), &ConfigText { text: text.clone(), name: None }).await;
    let (file, plan, refusal) = match planned {
        Ok(plan) => (plan.file.display().to_string(), Some(PlanView::of(&plan)), None),
        Err(failure) => (String::new(), None, Some(Note::from(failure))),
    };
    show(&ConfigPage { frame: visit.frame("care", "Configuration"), file, text: Some(text), plan, refusal })
}

pub async fn apply(visit: &Visit<'_>) -> Answer {
    let change = async {
        let base = visit.required("base", "the state of the file")?;
        let request = ConfigApply { text: text_of(visit), base, at_next_start: visit.form.is_checked("at_next_start") };
        let applied = visit.call(ApplyConfig, (), &request).await?;
        let next = applied.plan.at_next_start().map(|change| format!("At the next start: {}", change.entry));
        let lines = applied.notes.iter().cloned().chain(next).collect();
        Ok::<_, Failure>(Note::done("The configuration is applied.").with(lines))
    };
    visit.back(Local::of("/care/config"), change.await)
}
