//! The frame of a part: things by name, what the configuration wants of each, and what was made of
//! it.
//!
//! - `parts.unchanged_untouched`: a thing that is well and wanted as before is not made again.
//! - `parts.unwell_tried_again`: each reconciliation tries those that are not well.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use larder_config::Config;

use crate::standing::{Kind, Standing, Standings};
use crate::{Secrets, Tokens};

/// What parts are reconciled with: the configuration that runs, and the people of this box.
pub struct Source<'a> {
    pub config: &'a Config,
    pub secrets: &'a Secrets,
    pub tokens: &'a Tokens,
}

/// How much is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Changes of the configuration and of people, and what is not well.
    Changes,
    /// All shares: volumes came or went.
    Shares,
    /// All volumes and shares.
    All,
}

/// The parts that make a configuration true.
pub trait Reconcile: Send + Sync {
    /// Brings the parts in line with what is wanted.
    fn reconcile<'a>(&'a mut self, source: &'a Source<'a>, look: Look) -> BoxFuture<'a, ()>;
}

/// A kind of things that the configuration names.
pub trait Part: Send {
    /// What is wanted of one thing.
    type Wanted: PartialEq + Send + Sync;
    const KIND: Kind;

    /// All things that are wanted, in the order of the file.
    fn wants(source: &Source<'_>) -> Vec<(String, Self::Wanted)>;

    /// Makes a thing, or makes it anew, so that it is as wanted.
    fn make(&mut self, name: &str, wanted: &Self::Wanted) -> impl Future<Output = Standing> + Send;

    fn take_away(&mut self, name: &str);
}

/// A part with what was made of its things.
pub struct Things<P: Part> {
    pub part: P,
    made: BTreeMap<String, P::Wanted>,
    standings: Standings,
}

impl<P: Part> Things<P> {
    pub fn new(part: P, standings: &Standings) -> Self {
        Self { part, made: BTreeMap::new(), standings: standings.clone() }
    }

    /// Takes away what nobody wants any more. Whether there was any.
    pub fn take_away(&mut self, wanted: &[(String, P::Wanted)]) -> bool {
        let wanted: BTreeSet<&String> = wanted.iter().map(|(name, _)| name).collect();
        let gone: Vec<String> = self.made.keys().filter(|name| !wanted.contains(name)).cloned().collect();
        for name in &gone {
            self.part.take_away(name);
            self.made.remove(name);
            self.standings.remove(P::KIND, name);
        }
        !gone.is_empty()
    }

    /// Makes what is new, changed or not well (`parts.unchanged_untouched`); with `again` looks at
    /// all.
    pub async fn make(&mut self, wanted: Vec<(String, P::Wanted)>, again: bool) {
        for (name, wanted) in wanted {
            let is_as_before = self.made.get(&name) == Some(&wanted) && self.standings.of(P::KIND, &name).is_ok();
            if again || !is_as_before {
                let standing = self.part.make(&name, &wanted).await;
                self.standings.set(P::KIND, &name, standing);
                self.made.insert(name, wanted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_api::Failure;

    use super::*;

    /// Makes numbers; one that is odd fails.
    #[derive(Default)]
    struct Numbers {
        made: Vec<String>,
        gone: Vec<String>,
    }

    impl Part for Numbers {
        type Wanted = u32;
        const KIND: Kind = Kind::Volume;

        fn wants(_source: &Source<'_>) -> Vec<(String, u32)> {
            Vec::new()
        }

        async fn make(&mut self, name: &str, wanted: &u32) -> Standing {
            self.made.push(name.to_owned());
            if wanted.is_multiple_of(2) { Standing::Ok } else { Standing::Failed(Failure::invalid("odd")) }
        }

        fn take_away(&mut self, name: &str) {
            self.gone.push(name.to_owned());
        }
    }

    #[tokio::test]
    async fn what_is_well_and_wanted_as_before_is_left_alone() {
        let standings = Standings::default();
        let mut numbers = Things::new(Numbers::default(), &standings);
        let wanted = |list: &[(&str, u32)]| list.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
        let made = |numbers: &mut Things<Numbers>| std::mem::take(&mut numbers.part.made);
        numbers.make(wanted(&[("a", 2), ("b", 4), ("c", 5)]), false).await;
        assert_eq!(made(&mut numbers), ["a", "b", "c"]);
        assert_eq!(standings.unserved(Kind::Volume).len(), 1);
        numbers.make(wanted(&[("a", 2), ("b", 6), ("c", 5)]), false).await;
        assert_eq!(made(&mut numbers), ["b", "c"], "the one that changed, and the one that failed");
        numbers.make(wanted(&[("a", 2), ("b", 6), ("c", 8)]), false).await;
        assert_eq!(made(&mut numbers), ["c"]);
        assert!(standings.unserved(Kind::Volume).is_empty());
        numbers.make(wanted(&[("a", 2), ("b", 6), ("c", 8)]), true).await;
        assert_eq!(made(&mut numbers).len(), 3);
        assert!(numbers.take_away(&wanted(&[("a", 2), ("c", 8)])));
        assert_eq!(numbers.part.gone, ["b"]);
        assert!(!numbers.take_away(&wanted(&[("a", 2), ("c", 8)])));
    }
}
