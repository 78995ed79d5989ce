//! Shares and their doors.

use std::collections::BTreeMap;

use askama::Template;
use larder_api::endpoints::{AddShare, GetInfo, GetShares, GetVolumes, RemoveShare, SetShare};
use larder_api::setting::{Kind, Setting};
use larder_api::share::{GUEST, READ_ONLY, SETTINGS};
use larder_api::{DaemonInfo, Failure, ShareAdd, ShareChange, ShareChanged, ShareStatus, ShareUsers};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pools::Level;
use crate::edit::{Edit, shown, stamp};
use crate::form::Form;
use crate::note::Note;
use crate::shell_words::on_page;
use crate::visit::{Answer, Frame, Local, Visit, page as show};

pub struct DoorView {
    pub name: &'static str,
    pub field: FieldView,
    pub is_open: bool,
    /// The daemon answers there at all.
    pub is_served: bool,
}

/// A field of a form, as its setting is declared (`settings.declared_once`).
pub struct FieldView {
    pub name: &'static str,
    pub label: &'static str,
    pub hint: &'static str,
    /// Of a box.
    pub checked: Option<bool>,
    /// Of a number.
    pub most: Option<u32>,
    /// Of a choice.
    pub words: &'static [&'static str],
    pub value: String,
}

impl FieldView {
    fn of(setting: &Setting, value: &str) -> Self {
        let is_switch = is_switch(setting);
        Self {
            name: setting.name,
            label: setting.door.unwrap_or(setting.label),
            hint: match setting.kind {
                Kind::Days { .. } => "empty: none",
                Kind::Networks { none: "usual" } => "empty: the usual ones",
                Kind::Networks { .. } => "empty: no bound",
                _ => "",
            },
            checked: is_switch.then_some(value == "yes"),
            most: match setting.kind {
                Kind::Days { most, .. } => Some(most),
                Kind::Number => Some(u32::MAX),
                _ => None,
            },
            words: if let Kind::Word(words, _) = setting.kind { words } else { &[] },
            value: value.to_owned(),
        }
    }

    fn list(name: &'static str, label: &'static str, names: &[String]) -> Self {
        let value = names.join(", ");
        Self { name, label, hint: "empty: nobody", checked: None, most: None, words: &[], value }
    }
}

fn is_switch(setting: &Setting) -> bool {
    matches!(setting.kind, Kind::Switch | Kind::Pair(..))
}

/// The settings that have a field of their own.
fn with_fields(settings: &[&'static Setting]) -> Vec<&'static Setting> {
    settings.iter().copied().filter(|setting| setting.door.is_some() || !setting.label.is_empty()).collect()
}

pub struct ShareView {
    pub name: String,
    pub place: String,
    pub doors: Vec<DoorView>,
    pub fields: Vec<FieldView>,
    pub lists: [FieldView; 2],
    pub nfs_rule: String,
    pub smb_rule: String,
    pub options: Vec<String>,
    pub everybody: bool,
    /// The state that the form is about (`edit.only_changes_sent`).
    pub shown: String,
    /// The form was refused and waits for another answer.
    pub is_refused: bool,
    pub fault: Option<String>,
    pub action: Option<String>,
    pub level: Level,
}

/// The lists of people, which mean something together alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeopleFields {
    pub everybody: bool,
    /// Users and @groups who may write, unless the share is read-only.
    pub writers: Vec<String>,
    pub readers: Vec<String>,
}

impl PeopleFields {
    fn typed(form: &Form) -> Self {
        let (writers, readers) = (form.words("writers"), form.words("readers"));
        Self { everybody: form.is_checked("everybody"), writers, readers }
    }

    fn views(&self) -> [FieldView; 2] {
        [
            FieldView::list("writers", "Otherwise these users and @groups, who may write", &self.writers),
            FieldView::list("readers", "Users and @groups who may only read", &self.readers),
        ]
    }

    fn users(&self) -> ShareUsers {
        if self.everybody { ShareUsers::All } else { ShareUsers::Listed(self.writers.clone()) }
    }

    /// Refuses a name whose two entries contradict each other.
    fn check(&self) -> Result<(), Failure> {
        let Some(name) = self.readers.iter().find(|name| !self.everybody && self.writers.contains(name)) else {
            return Ok(());
        };
        let failure =
            Failure::invalid(format!("{name} is in both lists: of those who write and of those who only read"));
        Err(failure.action(format!("Take {name} out of one of them")))
    }
}

/// The fields of the form that changes a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareForm {
    people: PeopleFields,
    /// As typed, by the names of their settings.
    #[serde(flatten)]
    fields: BTreeMap<String, String>,
}

impl ShareForm {
    fn of(share: &ShareStatus) -> Self {
        let people = &share.people;
        let [writers, readers] = people.lists();
        Self {
            people: PeopleFields { everybody: people.everybody, writers, readers },
            fields: fields_of(&with_fields(&SETTINGS), |setting| share.value(setting)),
        }
    }

    fn typed(form: &Form) -> Result<Self, Failure> {
        let Self { fields, .. } = shown(form)?;
        Ok(Self { people: PeopleFields::typed(form), fields: typed(&with_fields(&SETTINGS), form, fields) })
    }
}

fn fields_of(settings: &[&'static Setting], value: impl Fn(&Setting) -> Value) -> BTreeMap<String, String> {
    let text = |setting: &Setting| match value(setting) {
        Value::Null if is_switch(setting) => "no".to_owned(),
        value => setting.text(&value),
    };
    settings.iter().map(|setting| (setting.name.to_owned(), text(setting))).collect()
}

/// The form has all boxes, so an absent one was unchecked. Other fields that it lacks stay as they were shown.
fn typed(settings: &[&Setting], form: &Form, mut fields: BTreeMap<String, String>) -> BTreeMap<String, String> {
    for setting in settings {
        let value = match setting.kind {
            Kind::Switch | Kind::Pair(..) => if form.is_checked(setting.name) { "yes" } else { "no" }.to_owned(),
            _ if !form.has(setting.name) => continue,
            Kind::Networks { .. } => form.words(setting.name).join(", "),
            _ => form.text(setting.name).to_owned(),
        };
        fields.insert(setting.name.to_owned(), value);
    }
    fields
}

/// Asks for what was typed in a field.
fn ask(change: &mut ShareChange, setting: &Setting, text: &str) -> Result<(), Failure> {
    let value = match setting.kind {
        Kind::Networks { .. } if text.is_empty() => Ok(Value::Null),
        _ => setting.typed(text),
    };
    change.set(setting, value.map_err(Failure::invalid)?);
    Ok(())
}

impl ShareView {
    fn of(share: &ShareStatus, info: &DaemonInfo, refused: Option<ShareForm>) -> Self {
        let place = match (share.volume.is_empty(), share.folder.is_empty()) {
            (true, _) => format!("folder {} of this machine", share.folder),
            (false, true) => share.volume.clone(),
            (false, false) => format!("{}/{}", share.volume, share.folder),
        };
        let now = ShareForm::of(share);
        let shown = stamp(&now);
        let is_refused = refused.is_some();
        let form = refused.unwrap_or(now);
        let field = |setting: &&'static Setting| {
            FieldView::of(setting, form.fields.get(setting.name).map_or("", String::as_str))
        };
        let (doors, others): (Vec<_>, Vec<_>) =
            with_fields(&SETTINGS).into_iter().partition(|setting| setting.door.is_some());
        let door = |setting: &&'static Setting| DoorView {
            name: setting.door.unwrap_or_default(),
            field: field(setting),
            is_open: share.is_on(setting),
            is_served: setting.door.is_some_and(|door| info.serves(door)),
        };
        Self {
            name: share.name.clone(),
            place,
            doors: doors.iter().map(door).collect(),
            fields: others.iter().map(field).collect(),
            lists: form.people.views(),
            nfs_rule: share.nfs_rule.clone(),
            smb_rule: share.smb_rule.clone(),
            options: share.options.clone(),
            everybody: form.people.everybody,
            shown,
            is_refused,
            level: match (&share.fault, share.locked || share.rests) {
                (None, _) => Level::Fine,
                (Some(_), true) => Level::Warn,
                (Some(_), false) => Level::Bad,
            },
            fault: share.fault.as_deref().map(on_page),
            action: share.action.as_deref().map(on_page),
        }
    }
}

#[derive(Template)]
#[template(path = "sharing.html")]
struct SharingPage {
    frame: Frame,
    shares: Vec<ShareView>,
    volumes: Vec<String>,
    /// Of a new share.
    fields: [FieldView; 3],
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    show(&sharing_page(visit, None).await?)
}

/// The page, with the entries of a form of one share that was refused.
async fn sharing_page(visit: &Visit<'_>, mut refused: Option<(String, ShareForm)>) -> Result<SharingPage, Failure> {
    let info = visit.ask(GetInfo).await?;
    let shares = visit.ask(GetShares).await?;
    let volumes = visit.ask(GetVolumes).await?;
    let mut view = |share: &ShareStatus| {
        let form = refused.take_if(|(name, _)| *name == share.name).map(|(_, form)| form);
        ShareView::of(share, &info, form)
    };
    let [writers, readers] = PeopleFields::default().views();
    let fields = [FieldView::of(&READ_ONLY, "no"), writers, readers];
    Ok(SharingPage {
        frame: visit.frame("sharing", "Shares"),
        shares: shares.iter().map(&mut view).collect(),
        fields,
        volumes: volumes.iter().map(|volume| format!("{}/{}", volume.pool, volume.name)).collect(),
    })
}

fn told(changed: ShareChanged, done: &str) -> Note {
    Note::done(format!("The share {} {done}.", changed.share.name)).with(changed.notes)
}

pub async fn add(visit: &Visit<'_>) -> Answer {
    let change = async {
        let people = PeopleFields::typed(&visit.form);
        people.check()?;
        let users = people.users();
        let mut change = ShareChange::of_people(Some(users), Some(people.readers).filter(|names| !names.is_empty()));
        if visit.form.is_checked(READ_ONLY.name) {
            change.set(&READ_ONLY, true.into());
        }
        let request = ShareAdd {
            name: visit.required("name", "the name of the share")?,
            volume: visit.form.filled("volume"),
            folder: visit.form.filled("folder"),
            change,
        };
        Ok(told(visit.call(AddShare, (), &request).await?, "is there"))
    };
    visit.back(Local::of("/sharing"), change.await)
}

/// What a form asks for (`edit.only_changes_sent`).
fn wishes(edit: &Edit<ShareForm>) -> Result<ShareChange, Failure> {
    let people = edit.changed(|form| form.people.clone());
    people.as_ref().map_or(Ok(()), PeopleFields::check)?;
    let writers = edit.changed(|form| form.people.users());
    let users = people.as_ref().filter(|people| writers.is_some() || !people.everybody).map(PeopleFields::users);
    let mut change = ShareChange::of_people(users, people.map(|people| people.readers));
    // Guests are everybody, too.
    if edit.changed(|form| form.people.everybody) == Some(false) {
        change.set(&GUEST, false.into());
    }
    for setting in with_fields(&SETTINGS) {
        if let Some(Some(text)) = edit.changed(|form| form.fields.get(setting.name).cloned()) {
            ask(&mut change, setting, &text)?;
        }
    }
    Ok(change)
}

pub async fn set(visit: &Visit<'_>) -> Answer {
    let read = async {
        let name = visit.required("share", "the share")?;
        let shares = visit.ask(GetShares).await?;
        let now = shares.iter().find(|share| share.name == name).map(ShareForm::of);
        let now = now.ok_or_else(|| Failure::not_found(format!("there is no share {name}")))?;
        Ok((Edit::of(&visit.form, ShareForm::typed(&visit.form)?, now)?, name))
    };
    let (edit, name) = match read.await {
        Ok(read) => read,
        Err(failure) => return visit.back(Local::of("/sharing"), Err(failure)),
    };
    let change = async {
        edit.check(&format!("the share {name}"))?;
        visit.call(SetShare, &name, &wishes(&edit)?).await
    };
    match change.await {
        Ok(changed) => visit.back(Local::of("/sharing"), Ok(told(changed, "is changed"))),
        Err(failure) => {
            let mut page = sharing_page(visit, Some((name, edit.merged()))).await?;
            page.frame.note = Some(Note::from(failure));
            show(&page)
        }
    }
}

pub async fn remove(visit: &Visit<'_>) -> Answer {
    let change = async {
        let name = visit.required("share", "the share")?;
        visit.typed(&name)?;
        visit.about(RemoveShare, &name).await?;
        Ok(Note::done(format!("The share {name} has ended. Its files stay.")))
    };
    visit.back(Local::of("/sharing"), change.await)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_api::setting::EXAMPLE;

    use super::*;

    /// `settings.declared_once`: what one declaration brings to the page.
    #[test]
    fn a_declared_setting_is_a_field() {
        let settings = with_fields(&[&EXAMPLE]);
        let shown = fields_of(&settings, Setting::default);
        let view = FieldView::of(settings[0], &shown["waiting_tune"]);
        assert_eq!((view.name, view.label), ("waiting_tune", EXAMPLE.label));
        assert_eq!((view.value.as_str(), view.words), ("none", &["none", "harp"][..]));
        let form = Form::read(b"waiting_tune=harp").unwrap();
        let typed = typed(&settings, &form, shown);
        let mut change = ShareChange::default();
        ask(&mut change, settings[0], &typed["waiting_tune"]).unwrap();
        assert_eq!(change.settings["waiting_tune"], "harp");
    }
}
