//! Sources of passwords: a file, a pipe, or a person typing unseen. Never an argument, which `ps` shows.

use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use larder_api::Failure;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use larder_document::{check_password, random_password};

/// A password file is one line; more than this is some other file.
const FILE_BYTES_MAX: u64 = 4096;
/// Bits of a mode by which its group and others read or write.
const OTHERS_MAY: u32 = 0o066;

/// The password for `user`: from the file, or from standard input.
pub(super) fn ask(user: &str, file: Option<&Path>) -> Result<String, Failure> {
    let password = match file {
        Some(file) => read(file)?,
        None if std::io::stdin().is_terminal() => typed_twice(user)?,
        None => first_line(std::io::stdin().lock()).map_err(|e| Failure::io("cannot read the password", &e))?,
    };
    check_password(&password)?;
    Ok(password)
}

/// The password in `file`; when there is no such file, it is made with a new one.
pub(super) fn read_or_make(file: &Path) -> Result<String, Failure> {
    if file.symlink_metadata().is_ok() {
        let password = read(file)?;
        check_password(&password).map_err(|e| Failure::invalid(format!("{}: {}", file.display(), e.message)))?;
        return Ok(password);
    }
    let password = random_password();
    let write = || -> std::io::Result<()> {
        let mut new = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
        writeln!(new, "{password}")?;
        new.sync_all()
    };
    write().map_err(|e| Failure::io(format_args!("cannot make the password file {}", file.display()), &e))?;
    Ok(password)
}

fn read(file: &Path) -> Result<String, Failure> {
    let failed = |e: &std::io::Error| Failure::io(format_args!("cannot read the password file {}", file.display()), e);
    let open = std::fs::File::open(file).map_err(|e| failed(&e))?;
    first_line(std::io::BufReader::new(open)).map_err(|e| failed(&e))
}

/// The first line of a file, or of a descriptor (`/dev/fd/3`), that nobody but its owner may read or write.
pub(super) fn passphrase_in(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let failed = |e: &std::io::Error| Failure::io(format_args!("cannot read the passphrase file {shown}"), e);
    let open = std::fs::File::open(file).map_err(|e| failed(&e))?;
    // Of the open file: the name may lead to another one by now.
    let metadata = open.metadata().map_err(|e| failed(&e))?;
    let mode = metadata.mode();
    if mode & OTHERS_MAY != 0 {
        return Err(Failure::denied(format!(
            "the passphrase file {shown} is open to others: its mode is {:04o}",
            mode & 0o7777
        ))
        .action(format!("close it with: chmod 600 {shown}")));
    }
    if ![0, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
        return Err(Failure::denied(format!(
            "the passphrase file {shown} belongs to user {}, who can change it",
            metadata.uid()
        ))
        .action("name a file of your own"));
    }
    let line = first_line(std::io::BufReader::new(open)).map_err(|e| failed(&e))?;
    match line.is_empty() {
        true => Err(Failure::invalid(format!("the first line of the passphrase file {shown} is empty"))),
        false => Ok(line),
    }
}

fn first_line(reader: impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    reader.take(FILE_BYTES_MAX).read_line(&mut line)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

fn typed_twice(user: &str) -> Result<String, Failure> {
    let failed = |e: std::io::Error| Failure::io("cannot read the password", &e);
    let first = typed(&format!("New password of {user}: ")).map_err(failed)?;
    let again = typed("The same again: ").map_err(failed)?;
    match first == again {
        true => Ok(first),
        false => Err(Failure::invalid("the two passwords differ: nothing was changed")),
    }
}

/// A secret that opens an encrypted volume: typed, or a line of standard input. A new passphrase is typed twice.
pub(super) fn secret_line(prompt: &str, twice: bool) -> Result<String, Failure> {
    let failed = |e: std::io::Error| Failure::io("cannot read it", &e);
    if !std::io::stdin().is_terminal() {
        return first_line(std::io::stdin().lock()).map_err(failed);
    }
    let first = typed(&format!("{prompt}: ")).map_err(failed)?;
    if twice && typed("The same again: ").map_err(failed)? != first {
        return Err(Failure::invalid("the two differ: nothing was changed"));
    }
    Ok(first)
}

/// Of something that has a password already. `None`: nobody is there to type.
pub(super) fn ask_person(what: &str) -> Option<String> {
    let there = std::io::stdin().is_terminal();
    there.then(|| typed(&format!("Password of {what}: ")).ok()).flatten().filter(|password| !password.is_empty())
}

/// One line without echo. The terminal gets its echo back whatever happens to the reading.
fn typed(prompt: &str) -> std::io::Result<String> {
    let stdin = std::io::stdin();
    eprint!("{prompt}");
    std::io::stderr().flush()?;
    let before = tcgetattr(&stdin)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
    let line = first_line(stdin.lock());
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    eprintln!();
    line
}
