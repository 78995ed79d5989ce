//! The environment variable `LARDER_LOG`: the entries of the log that are written.
//!
//! Directives, separated by commas: a level alone for everything (`info`), `TARGET=LEVEL` for a crate or module
//! (`larder_pool=debug`), or a target alone for all of its entries. Levels are `error`, `warn`, `info`, `debug`,
//! `trace` and `off`. There are no entries at `trace`: those of libraries are left out of the program. The longest
//! target that matches an entry decides. Filters for spans and fields (`larder_pool[scrub{disk=1}]=debug`) are
//! refused: they would need a library of regular expressions.

use std::ffi::OsString;

use tracing_subscriber::filter::{LevelFilter, Targets};

pub(crate) const VARIABLE: &str = "LARDER_LOG";

/// The filter that the variable asks for. Without the variable, or with a text that is none, `usual`, and for the
/// latter a sentence for the log.
pub(crate) fn chosen(text: Option<OsString>, usual: &str) -> (Targets, Option<String>) {
    let Some(text) = text else { return (parse(usual).unwrap_or_default(), None) };
    match parse(&text.to_string_lossy()) {
        Ok(filter) => (filter, None),
        Err(reason) => {
            let refused = format!("{VARIABLE} is ignored: {reason}; write it like info,larder_pool=debug");
            (parse(usual).unwrap_or_default(), Some(refused))
        }
    }
}

fn parse(text: &str) -> Result<Targets, String> {
    let directives = || text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    if directives().next().is_none() {
        return Ok(Targets::new().with_default(LevelFilter::ERROR));
    }
    directives().try_fold(Targets::new(), with)
}

fn with(filter: Targets, directive: &str) -> Result<Targets, String> {
    if let Ok(level) = directive.parse::<LevelFilter>() {
        return Ok(filter.with_default(level));
    }
    let (target, level) = directive.split_once('=').unwrap_or((directive, ""));
    let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '-' | '.');
    if target.is_empty() || !target.chars().all(is_path) {
        return Err(format!("{target:?} is not the name of a crate or module"));
    }
    match level {
        "" => Ok(filter.with_target(target, LevelFilter::TRACE)),
        _ => match level.parse::<LevelFilter>() {
            Ok(level) => Ok(filter.with_target(target, level)),
            Err(_) => Err(format!("{level:?} in {directive:?} is not a level")),
        },
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_longest_matching_target_decides() {
        let filter = parse("info,larder_pool=debug, larder_smb=off,slatedb::db,h2=").unwrap();
        for (target, level, expected) in [
            ("larder", Level::INFO, true),
            ("larder", Level::DEBUG, false),
            ("larder_pool::scrub", Level::DEBUG, true),
            ("larder_pool", Level::TRACE, false),
            ("larder_smb::conn", Level::ERROR, false),
            ("slatedb::db", Level::TRACE, true),
            ("slatedb", Level::TRACE, false),
            ("h2", Level::TRACE, true),
        ] {
            assert_eq!(filter.would_enable(target, &level), expected, "{target} {level}");
        }
    }

    #[test]
    fn an_empty_text_leaves_errors_alone() {
        let filter = parse(" ,").unwrap();
        assert!(filter.would_enable("larder", &Level::ERROR) && !filter.would_enable("larder", &Level::WARN));
    }

    #[test]
    fn a_wrong_text_leaves_the_usual_filter_and_says_so() {
        for (text, reason) in [
            ("larder=loud", "\"loud\" in \"larder=loud\" is not a level"),
            ("info,=debug", "\"\" is not the name"),
            ("larder_pool[scrub{disk=1}]=debug", "\"larder_pool[scrub{disk\" is not the name"),
            ("info,[scrub]", "\"[scrub]\" is not the name"),
        ] {
            let (filter, refused) = chosen(Some(text.into()), "warn");
            assert!(filter.would_enable("larder", &Level::WARN) && !filter.would_enable("larder", &Level::INFO));
            let refused = refused.unwrap();
            assert!(refused.starts_with("LARDER_LOG is ignored: ") && refused.contains(reason), "{refused}");
        }
        assert!(chosen(None, "warn").1.is_none());
    }
}
