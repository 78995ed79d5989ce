//! Groups of users: with a daemon and without one alike.

use std::sync::Arc;

use larder_api::{Failure, GroupAdd, GroupChange, GroupRemoved, GroupStatus};

use super::people::UserAdmin;
use larder_config::edit::Editor;
use larder_config::group::GROUP_SIGN;
use larder_config::membership::{new_group, objection};
use larder_config::user::Accounts;
use larder_config::{Config, GroupConfig, check_user_name};
use larder_document::known::{no_such_group, no_such_user};

pub fn status(group: &GroupConfig, config: &Config) -> GroupStatus {
    let entry = format!("{GROUP_SIGN}{}", group.name);
    GroupStatus {
        name: group.name.clone(),
        gid: group.gid,
        members: config.members(group),
        shares: config.shares.iter().filter(|share| share.lists(&entry)).map(|share| share.name.clone()).collect(),
    }
}

pub fn add(editor: &mut Editor, config: &Config, request: &GroupAdd) -> Result<(), Failure> {
    let name = &request.name;
    check_user_name(name).map_err(|e| Failure::invalid(e.replacen("user name", "group name", 1)))?;
    if config.groups.iter().any(|group| group.name.eq_ignore_ascii_case(name)) {
        return Err(Failure::exists(format!("there is a group '{name}' already"))
            .action(format!("to add users to it: larder group add-member {name} USER")));
    }
    request.members.iter().try_for_each(|member| no_such_user(config, member))?;
    let group = GroupConfig {
        members: request.members.clone(),
        ..new_group(name, request.gid, config, &Accounts::of_machine())
    };
    match objection(&group).filter(|_| !request.force) {
        Some((message, action)) => return Err(Failure::invalid(message).action(action)),
        None => editor.add_group(&group),
    }
    Ok(())
}

pub fn change(editor: &mut Editor, config: &Config, name: &str, what: &GroupChange) -> Result<(), Failure> {
    no_such_group(config, name)?;
    let group = config.group(name).into_iter().flat_map(|group| group.members.clone());
    let mut members: Vec<String> = group.collect();
    for user in &what.add {
        no_such_user(config, user)?;
        if !members.contains(user) {
            members.push(user.clone());
        }
    }
    for user in &what.remove {
        if !members.contains(user) {
            return Err(not_listed(config, name, user));
        }
        members.retain(|member| member != user);
    }
    editor.set_members(name, &members);
    Ok(())
}

fn not_listed(config: &Config, name: &str, user: &str) -> Failure {
    let by_number =
        config.user(user).zip(config.group(name)).is_some_and(|(user, group)| Config::is_member(user, group));
    match by_number {
        true => {
            Failure::invalid(format!("'{user}' is in the group '{name}' by the number of the user's gid or groups"))
                .action(format!("take the number out of [[user]] '{user}' in larder.toml, then: larder reload"))
        }
        false => Failure::not_found(format!("'{user}' is not in the group '{name}'"))
            .action("see who is in it with: larder group list"),
    }
}

pub fn remove(editor: &mut Editor, config: &Config, name: &str) -> Result<(), Failure> {
    no_such_group(config, name)?;
    editor.remove_group(name);
    Ok(())
}

pub fn removed(name: &str, before: &Config, after: &Config) -> GroupRemoved {
    let had = |share: &str| before.shares.iter().any(|s| s.name == share && !s.is_for_nobody());
    let lost = after.shares.iter().filter(|share| share.is_for_nobody() && had(&share.name));
    GroupRemoved {
        gid: before.group(name).map_or(0, |group| group.gid),
        shares_for_nobody: lost.map(|share| share.name.clone()).collect(),
    }
}

/// The group that a change was about, as it is now.
pub fn changed(config: &Config, name: &str) -> Result<GroupStatus, Failure> {
    no_such_group(config, name)?;
    config.group(name).map(|group| status(group, config)).ok_or_else(|| Failure::not_found("the group is gone"))
}

impl UserAdmin {
    pub fn groups(&self) -> Vec<GroupStatus> {
        let config = self.document.config();
        config.groups.iter().map(|group| status(group, &config)).collect()
    }

    pub async fn group_add(&self, request: GroupAdd) -> Result<GroupStatus, Failure> {
        let mut state = self.document.lock().await;
        let config = Arc::clone(&state.config);
        self.document.try_edit(&mut state, |editor| add(editor, &config, &request)).await?;
        changed(&state.config, &request.name)
    }

    pub async fn group_change(&self, name: &str, what: GroupChange) -> Result<GroupStatus, Failure> {
        let mut state = self.document.lock().await;
        let config = Arc::clone(&state.config);
        self.document.try_edit(&mut state, |editor| change(editor, &config, name, &what)).await?;
        changed(&state.config, name)
    }

    pub async fn group_remove(&self, name: &str) -> Result<GroupRemoved, Failure> {
        let mut state = self.document.lock().await;
        let before = Arc::clone(&state.config);
        self.document.try_edit(&mut state, |editor| remove(editor, &before, name)).await?;
        Ok(removed(name, &before, &state.config))
    }
}
