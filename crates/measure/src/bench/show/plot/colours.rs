//! The style sheet of plots: with variables for pages, which have a dark side; without for single files, which
//! programs open that know none.

/// Light and dark; in a page once.
pub(crate) const CSS: &str = include_str!("plot.css");

/// The light colours, each put where it is used.
pub(super) fn plain() -> String {
    let (variables, rest) = CSS.split_once("@media").unwrap_or((CSS, ""));
    let rules = rest.split_once("}}").map_or("", |(_, rules)| rules);
    let mut rules = format!("{}{rules}", fonts(variables));
    for (name, value) in declared(variables) {
        rules = rules.replace(&format!("var(--{name})"), value);
    }
    rules.trim().replace('\n', "")
}

/// `--ink:#1c2430;` and so on.
fn declared(block: &str) -> impl Iterator<Item = (&str, &str)> {
    block.split(['{', ';', '\n']).filter_map(|d| d.trim().strip_prefix("--")?.split_once(':'))
}

fn fonts(block: &str) -> String {
    let font = block.split([';', '\n']).find(|d| d.starts_with("font:")).unwrap_or_default();
    format!(".plot{{{}}}", font.trim_end_matches('}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_files_have_colours_without_variables() {
        let css = plain();
        assert!(!css.contains("var(") && !css.contains("@media") && !css.contains("--"), "{css}");
        assert!(css.contains(".plot .s0{fill:#0072b2}") && css.starts_with(".plot{font:12px"), "{css}");
    }

    #[test]
    fn light_and_dark_declare_the_same() {
        let (light, rest) = CSS.split_once("@media").unwrap();
        let dark = rest.split_once("}}").unwrap().0;
        let names = |block: &'static str| declared(block).map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(light), names(dark));
        assert_eq!(names(light).len(), 18);
    }
}
