//! `larder group ...`: through the daemon, or on the file when it is not running.

use std::path::Path;

use clap::Subcommand;
use larder_api::endpoints::{AddGroup, ChangeGroup, GetGroups, RemoveGroup};
use larder_api::{Failure, GroupAdd, GroupChange, GroupStatus};

use super::args::Global;
use super::people::People;
use crate::render;

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Make a group; shares name it as @NAME
    Add {
        name: String,
        /// Its number [default: one that nobody else has]
        #[arg(long)]
        gid: Option<u32>,
        /// A user of it [repeat for each]
        #[arg(long = "member", value_name = "USER")]
        members: Vec<String>,
        /// Even with root's number
        #[arg(long)]
        force: bool,
    },
    /// Take a group away, also from shares; files stay
    Remove { name: String },
    /// Groups, their users, and the shares that list them
    List,
    /// Add users to a group
    AddMember {
        group: String,
        #[arg(required = true, value_name = "USER")]
        users: Vec<String>,
    },
    /// Take users out of a group
    RemoveMember {
        group: String,
        #[arg(required = true, value_name = "USER")]
        users: Vec<String>,
    },
}

pub(super) async fn run(global: &Global, command: GroupCommand) -> Result<(), Failure> {
    let (people, out) = (People::of(global).await?, global.out());
    match command {
        GroupCommand::Add { name, gid, members, force } => {
            let made = people.call(AddGroup, (), GroupAdd { name, gid, members, force }).await?;
            out.answer(&made, |made| {
                let name = &made.name;
                format!("made the group '{name}' (gid {}) with{}\nshares name it as @{name}\n", made.gid, of(made))
            })
        }
        GroupCommand::Remove { name } => {
            let removed = people.call(RemoveGroup, &name, ()).await?;
            out.answer(&removed, |removed| {
                let gid = removed.gid;
                let mut text = format!("removed the group '{name}'; files with gid {gid} stay, and nobody new gets it\n");
                for share in &removed.shares_for_nobody {
                    let word = larder_base::shell::word(Path::new(share));
                    text.push_str(&format!(
                        "note: nobody may use the share '{share}' any more; let others in with: larder share set {word} \
                         --users NAMES\n"
                    ));
                }
                text
            })
        }
        GroupCommand::List => out.answer(&people.call(GetGroups, (), ()).await?, |groups| render::group_list(groups)),
        GroupCommand::AddMember { group, users } => {
            let changed = people.call(ChangeGroup, &group, GroupChange { add: users, remove: Vec::new() }).await?;
            out.answer(&changed, |changed| format!("the group '{group}' now has{}", of(changed)))
        }
        GroupCommand::RemoveMember { group, users } => {
            let changed = people.call(ChangeGroup, &group, GroupChange { add: Vec::new(), remove: users }).await?;
            out.answer(&changed, |changed| format!("the group '{group}' now has{}", of(changed)))
        }
    }
}

fn of(group: &GroupStatus) -> String {
    match group.members.as_slice() {
        [] => " no members".to_owned(),
        members => format!(" the members {}", members.join(", ")),
    }
}
