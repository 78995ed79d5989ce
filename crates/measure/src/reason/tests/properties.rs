//! Properties that hold for every box.

use super::*;
use crate::describe::Path;

/// A verdict knows ids, so other names change nothing. Names have meaning only where a description is read.
#[test]
fn renaming_resources_changes_no_verdict() {
    for mut one in all() {
        let before: Vec<Verdict> = (0..one.table.rows.len()).map(|row| one.verdict(row)).collect();
        let new = |name: &str| format!("renamed {name} to something else");
        let d = &mut one.described;
        d.name = new(&d.name);
        let network = d.network.iter_mut().chain(&mut d.upgrades);
        let vias = d.disks.iter_mut().map(|disk| &mut disk.via).chain(d.links.iter_mut().map(|link| &mut link.via));
        let vias = vias.chain(network.map(|network| {
            network.name = new(&network.name);
            &mut network.via
        }));
        vias.flatten().for_each(|via| *via = new(via));
        d.links.iter_mut().for_each(|link| link.name = new(&link.name));
        d.disks.iter_mut().for_each(|disk| disk.name = new(&disk.name));
        d.clients.iter_mut().for_each(|client| client.name = new(&client.name));
        d.work.iter_mut().for_each(|work| work.name = new(&work.name));
        for measured in &mut d.measured {
            measured.disks.iter_mut().for_each(|(name, _)| *name = new(name));
            measured.how.client.iter_mut().for_each(|name| *name = new(name));
        }
        one.table = Table::of(&one.described);
        for (row, before) in before.into_iter().enumerate() {
            assert_eq!(one.verdict(row), before, "{} {row}", one.name);
        }
    }
}

/// A fix is what the changed chain allows, so its gain is real and its next limit is named.
#[test]
fn every_fix_gains_and_none_promises_more_than_its_next_limit() {
    for one in all() {
        for fix in one.fixes() {
            let told = format!("{}: {fix:?}", one.name);
            assert!(fix.gain() >= 1.05 && fix.rate_after.is_finite(), "{told}");
            assert!(!fix.remedy.how().is_empty(), "{told}");
        }
    }
}

#[test]
fn no_purchase_stands_before_a_free_change_of_like_gain() {
    for one in all() {
        let fixes = one.fixes();
        for (at, fix) in fixes.iter().enumerate().filter(|(_, fix)| fix.remedy.cost() == Cost::Money) {
            let free = fixes[at + 1..]
                .iter()
                .find(|other| other.remedy.cost() == Cost::Free && other.gain() * 1.05 >= fix.gain());
            assert!(free.is_none(), "{}: {fix:?} before {free:?}", one.name);
        }
    }
}

/// A network that is far from its limit may as well be faster.
#[test]
fn raising_a_limit_that_is_far_changes_nothing() {
    for mut one in all() {
        let far = |row: usize| {
            let verdict = one.verdict(row);
            let stage = verdict.stages.iter().find(|s| s.resource == ResourceId::Network && s.row.is_none());
            let far = stage.is_some_and(|s| s.limit > one.table.rows[row].rate * 4.0);
            // The bottleneck must be another thing: a slower mode of the network is a statement about it.
            let network = verdict.resource == Some(ResourceId::Network);
            (far && !network).then(|| (row, one.kind(row)))
        };
        let rows: Vec<(usize, &str)> = (0..one.table.rows.len()).filter_map(far).collect();
        if let Some(network) = one.described.network.as_mut() {
            network.bytes_per_s *= 1.5;
        }
        let beyond = one.table.rows.iter().any(|m| m.setup.layer == Path::Net);
        for (row, before) in rows.into_iter().filter(|_| !beyond) {
            assert_eq!(one.kind(row), before, "{} {row}", one.name);
        }
    }
}

/// A remedy has one row in the table of remedies.
#[test]
fn each_remedy_has_one_row() {
    for (at, (remedy, ..)) in REMEDIES.iter().enumerate() {
        assert!(!REMEDIES[..at].iter().any(|(other, ..)| other == remedy), "{remedy:?}");
    }
}
