//! `larder generate`: manual pages and completions, from the declarations of the commands. For whoever packages larder.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use larder_api::Failure;

use super::command::Cli;

pub(super) fn run(dir: &Path) -> Result<(), Failure> {
    let failed = |e: &std::io::Error| Failure::io(format_args!("cannot write below {}", dir.display()), e);
    let (man, completions) = (dir.join("man"), dir.join("completions"));
    for folder in [&man, &completions] {
        std::fs::create_dir_all(folder).map_err(|e| failed(&e))?;
    }
    clap_mangen::generate_to(Cli::command(), &man).map_err(|e| failed(&e))?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), "larder", &completions).map_err(|e| failed(&e))?;
    }
    Ok(())
}
