//! `larder opens ...`: files that clients have open or locked.

use clap::{Args, Subcommand};
use larder_api::endpoints::{EndOpenFile, GetOpenFiles};
use larder_api::{Failure, OpenFile, OpenFiles, OpenUse};

use super::args::Global;
use super::reach::daemon;
use crate::render;

#[derive(Debug, Args)]
pub(crate) struct OpensArgs {
    #[command(subcommand)]
    command: Option<OpensCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OpensCommand {
    /// Who has which file open over SMB and NFSv4 [the same as without a word]
    List,
    /// Close an open and release its locks: the client loses what it has not saved
    End {
        /// As `larder opens` shows it
        id: String,
    },
}

pub(super) async fn run(global: &Global, args: OpensArgs) -> Result<(), Failure> {
    let (client, out) = (daemon(global).await?, global.out());
    match args.command.unwrap_or(OpensCommand::List) {
        OpensCommand::List => out.answer(&client.ask(GetOpenFiles).await?, shown),
        OpensCommand::End { id } => {
            let done = client.call(EndOpenFile, &id, &()).await?;
            out.answer(&done, |_| format!("{id} is closed"))
        }
    }
}

fn words(uses: &[OpenUse]) -> String {
    let words: Vec<&str> = uses.iter().map(|one| one.word()).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}

fn row(open: &OpenFile) -> Vec<String> {
    let place = open.share.as_deref().or(open.volume.as_deref()).unwrap_or("?");
    vec![
        open.id.clone(),
        open.user.clone().unwrap_or_else(|| "-".to_owned()),
        open.address.clone().unwrap_or_else(|| "away".to_owned()),
        format!("{place}:{}", open.path.as_deref().unwrap_or("?")),
        words(&open.does),
        words(&open.denies),
        open.locks.to_string(),
    ]
}

fn shown(all: &OpenFiles) -> String {
    if all.opens.is_empty() {
        return "nothing is open over SMB or NFSv4".to_owned();
    }
    let head = ["ID", "USER", "CLIENT", "FILE", "DOES", "DENIES", "LOCKS"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(all.opens.iter().map(row));
    let mut text = render::table(&rows, &[6]);
    if all.more > 0 {
        text.push_str(&format!("and {} older ones\n", all.more));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_list_do_not_steer_the_terminal() {
        let open = OpenFile {
            id: "smb-1".into(),
            door: "smb".into(),
            user: Some("ann".into()),
            address: None,
            client: None,
            share: Some("files".into()),
            volume: None,
            path: Some("/a\u{1b}[31m\nb".into()),
            directory: false,
            does: vec![OpenUse::Read, OpenUse::Write],
            denies: Vec::new(),
            locks: 2,
            caches: true,
        };
        let text = shown(&OpenFiles { opens: vec![open], more: 3 });
        assert!(text.lines().count() == 3 && !text.contains('\u{1b}') && text.contains("read, write"), "{text}");
    }
}
