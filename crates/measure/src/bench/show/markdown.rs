//! One table in Markdown, for a forum or an issue.

use super::{facts, units, view, words};
use crate::bench::before::DISTURBANCES;
use crate::bench::result::{BenchResult, Run};

const NOTES_MAX: usize = 8;

/// The result in one table: every run with its spread. What is misleading is marked.
pub fn markdown(result: &BenchResult) -> String {
    let head = ["", "layer", "subject", "workload", "median", "spread", "p99"];
    let rows: Vec<Vec<String>> = view::runs(result).iter().map(row).collect();
    let title = format!("{}: {}", words::clean(&result.title), view::headline(result));
    let method = format!("{}; larder {}", super::text::machine(&result.machine), super::text::method(result));
    // What disturbed the whole bench is part of every figure.
    let disturbed = |note: &&crate::bench::result::Note| DISTURBANCES.contains(&note.code.as_str());
    let notes = result.notes.iter().filter(disturbed).map(|note| format!("\n- {}", escaped(&note.text)));
    let notes: String = notes.take(NOTES_MAX).collect();
    let notes = if notes.is_empty() { notes } else { format!("{notes}\n") };
    format!("**{}**\n\n{}\n{}\n{notes}", escaped(&title), table(&head, 4, &rows), escaped(&method))
}

fn row(run: &Run) -> Vec<String> {
    let wrong = if view::misleading(run).is_some() { "misleading" } else { "" };
    let p99 = facts::latency(run, |latency| latency.p99_us).map_or(String::new(), units::latency);
    vec![
        wrong.to_owned(),
        words::layer(run.layer).to_owned(),
        words::subject(run),
        words::workload(&run.workload),
        run.median().map_or(units::UNKNOWN.to_owned(), |median| view::unit(run).show(median)),
        facts::spread(run),
        p99,
    ]
}

/// Figures from a column on are to the right. A column of nothing is left out, and so is a table of nothing.
pub(crate) fn table(head: &[&str], figures_from: usize, rows: &[Vec<String>]) -> String {
    let says = |column: &usize| rows.iter().any(|row| row.get(*column).is_some_and(|cell| !cell.is_empty()));
    let columns: Vec<usize> = (0..head.len()).filter(says).collect();
    if columns.is_empty() {
        return String::new();
    }
    let line = |cell: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = columns.iter().map(|column| cell(*column)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(&|column| head.get(column).map_or(String::new(), |name| (*name).to_owned()));
    text.push_str(&line(&|column| if column >= figures_from { "--:" } else { "---" }.to_owned()));
    for row in rows {
        text.push_str(&line(&|column| row.get(column).map_or(String::new(), |cell| escaped(cell))));
    }
    text
}

/// A name's characters are not marks of the text.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in words::clean(text).chars() {
        if matches!(c, '|' | '*' | '_' | '`' | '<' | '[' | ']' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::show::sample;

    /// Each line of the table has as many cells as its head, whatever names hold.
    #[test]
    fn a_result_is_one_table() {
        let mut result = sample::box_d();
        result.title = "disk *|*".to_owned();
        result.runs.iter_mut().for_each(|run| run.subject = "/mnt/a|b".to_owned());
        let text = markdown(&result);
        result.notes.push(crate::bench::result::Note {
            code: "machine-busy".into(),
            text: "other programs *ran*".into(),
            misleading: false,
        });
        assert!(markdown(&result).ends_with("\n- other programs \\*ran\\*\n"), "{}", markdown(&result));
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        let cells = |line: &str| line.replace("\\|", "").matches('|').count();
        assert_eq!(rows.len(), result.runs.len() + 2, "{text}");
        assert!(rows.iter().all(|line| cells(line) == cells(rows[0])), "{text}");
        assert!(text.starts_with("**disk \\*\\|\\*: ") && rows[1].ends_with("--: |"), "{text}");
    }
}
