//! Random operations against a model: a map from paths to what they should be.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::charge;

#[derive(Clone, Debug)]
enum Op {
    Create(u8, u8),
    Mkdir(u8, u8),
    Unlink(u8, u8),
    Rmdir(u8, u8),
    Link(u8, u8, u8, u8),
    Rename(u8, u8, u8, u8),
    Write(u8, u8, u8),
    Attribute(u8, u8, u8),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let d = 0..4u8;
    let n = 0..5u8;
    prop_oneof![
        4 => (d.clone(), n.clone()).prop_map(|(d, n)| Op::Create(d, n)),
        2 => (d.clone(), n.clone()).prop_map(|(d, n)| Op::Mkdir(d, n)),
        2 => (d.clone(), n.clone()).prop_map(|(d, n)| Op::Unlink(d, n)),
        2 => (d.clone(), n.clone()).prop_map(|(d, n)| Op::Rmdir(d, n)),
        2 => (d.clone(), n.clone(), d.clone(), n.clone()).prop_map(|(a, b, c, d)| Op::Link(a, b, c, d)),
        3 => (d.clone(), n.clone(), d.clone(), n.clone()).prop_map(|(a, b, c, d)| Op::Rename(a, b, c, d)),
        2 => (d.clone(), n.clone(), 0..200u8).prop_map(|(d, n, v)| Op::Write(d, n, v)),
        2 => (d, n, 0..200u8).prop_map(|(d, n, v)| Op::Attribute(d, n, v)),
        1 => Just(Op::Reopen),
    ]
}

/// Files by number: content and links. Directories by number: names.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    File(Vec<u8>),
    Dir(BTreeMap<u8, u64>),
}

struct Model {
    nodes: BTreeMap<u64, Node>,
    /// The directories that operations name by 0 to 3, while they exist.
    dirs: Vec<u64>,
    /// The values of the attribute [`ATTRIBUTE`].
    attributes: BTreeMap<u64, Vec<u8>>,
}

const ATTRIBUTE: &[u8] = b"user.model";

impl Model {
    fn names(&mut self, dir: u64) -> Option<&mut BTreeMap<u8, u64>> {
        match self.nodes.get_mut(&dir) {
            Some(Node::Dir(names)) => Some(names),
            _ => None,
        }
    }

    fn is_within(&self, dir: u64, ancestor: u64) -> bool {
        if dir == ancestor {
            return true;
        }
        let parent =
            self.nodes.iter().find(|(_, node)| matches!(node, Node::Dir(names) if names.values().any(|&n| n == dir)));
        parent.is_some_and(|(&parent, _)| self.is_within(parent, ancestor))
    }

    fn forget_unlinked(&mut self, ino: u64) {
        let linked =
            self.nodes.values().any(|node| matches!(node, Node::Dir(names) if names.values().any(|&n| n == ino)));
        if !linked {
            self.nodes.remove(&ino);
            self.attributes.remove(&ino);
            self.dirs.retain(|&dir| dir != ino);
        }
    }
}

impl Model {
    /// The bytes and inodes that quotas count beside data, beyond those of an empty volume.
    fn counted(&self) -> (u64, u64) {
        let names = self.nodes.values().filter_map(|node| match node {
            Node::Dir(names) => Some(names.len() as u64),
            Node::File(_) => None,
        });
        let attributes =
            self.attributes.values().map(|value| charge::ATTRIBUTE_BYTES + (ATTRIBUTE.len() + value.len()) as u64);
        let inodes = self.nodes.len() as u64 - 1;
        let bytes = attributes.sum::<u64>() + names.sum::<u64>() * charge::NAME_BYTES;
        (bytes + inodes * charge::INODE_BYTES, inodes)
    }
}

/// All bytes and inodes that quotas count, beside data: everything is root's.
async fn counted(volume: &Volume, model: &Model) -> (u64, u64) {
    let owners = volume.owners().await.unwrap();
    let root = owners.iter().find(|owner| !owner.is_group && owner.id == 0).unwrap();
    assert_eq!(owners.len(), 2, "{owners:?}");
    let mut data = 0;
    for &ino in model.nodes.keys() {
        data += volume.getattr(Ino(ino)).await.unwrap().allocated;
    }
    (root.used_bytes.saturating_sub(data), root.inodes)
}

/// The count is that of the model (`charge.from_the_record`), once removed files are gone.
async fn compare_counts(volume: &Volume, model: &Model, empty: (u64, u64)) {
    let wanted = model.counted();
    let wanted = (wanted.0 + empty.0, wanted.1 + empty.1);
    for _ in 0..200 {
        if counted(volume, model).await == wanted {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(counted(volume, model).await, wanted);
}

fn name(n: u8) -> Vec<u8> {
    [&b"aAbB\xc3"[usize::from(n)..][..1], b"x"].concat()
}

async fn run(ops: Vec<Op>) {
    let place = Box_::new();
    let (mut registry, mut volume) = place.open().await;
    let mut model =
        Model { nodes: BTreeMap::from([(1, Node::Dir(BTreeMap::new()))]), dirs: vec![1], attributes: BTreeMap::new() };
    let empty = counted(&volume, &model).await;
    let r = root();
    for op in ops {
        let dir_of = |model: &Model, d: u8| model.dirs[usize::from(d) % model.dirs.len()];
        match op {
            Op::Create(d, n) | Op::Mkdir(d, n) => {
                let is_dir = matches!(op, Op::Mkdir(..));
                let dir = dir_of(&model, d);
                let set = SetAttr::default();
                let made = if is_dir {
                    volume.mkdir(&r, Ino(dir), &name(n), set).await.map(|(attr, _)| attr)
                } else {
                    volume.create(&r, Ino(dir), &name(n), CreateMode::Guarded, set).await.map(|(attr, _, _)| attr)
                };
                if model.names(dir).unwrap().contains_key(&n) {
                    assert_eq!(err(made), "file exists");
                    continue;
                }
                let ino = made.unwrap().id.ino.0;
                model.names(dir).unwrap().insert(n, ino);
                model.nodes.insert(ino, if is_dir { Node::Dir(BTreeMap::new()) } else { Node::File(Vec::new()) });
                if is_dir {
                    model.dirs.push(ino);
                }
            }
            Op::Unlink(d, n) => {
                let dir = dir_of(&model, d);
                let result = err(volume.unlink(&r, Ino(dir), &name(n)).await);
                let target = model.names(dir).unwrap().get(&n).copied();
                match target.map(|ino| (ino, &model.nodes[&ino])) {
                    None => assert_eq!(result, "no such file or directory"),
                    Some((_, Node::Dir(_))) => assert_eq!(result, "is a directory"),
                    Some((ino, Node::File(_))) => {
                        assert_eq!(result, "ok");
                        model.names(dir).unwrap().remove(&n);
                        model.forget_unlinked(ino);
                    }
                }
            }
            Op::Rmdir(d, n) => {
                let dir = dir_of(&model, d);
                let result = err(volume.rmdir(&r, Ino(dir), &name(n)).await);
                let target = model.names(dir).unwrap().get(&n).copied();
                match target.map(|ino| (ino, &model.nodes[&ino])) {
                    None => assert_eq!(result, "no such file or directory"),
                    Some((_, Node::File(_))) => assert_eq!(result, "not a directory"),
                    Some((_, Node::Dir(names))) if !names.is_empty() => assert_eq!(result, "directory not empty"),
                    Some((ino, Node::Dir(_))) => {
                        assert_eq!(result, "ok");
                        model.names(dir).unwrap().remove(&n);
                        model.forget_unlinked(ino);
                    }
                }
            }
            Op::Link(d, n, d2, n2) => {
                let (from, to) = (dir_of(&model, d), dir_of(&model, d2));
                let Some(&ino) = model.names(from).unwrap().get(&n) else { continue };
                let result = err(volume.link(&r, Ino(ino), Ino(to), &name(n2)).await);
                if model.names(to).unwrap().contains_key(&n2) {
                    assert_eq!(result, "file exists");
                } else if matches!(model.nodes[&ino], Node::Dir(_)) {
                    assert_eq!(result, "operation not permitted");
                } else {
                    assert_eq!(result, "ok");
                    model.names(to).unwrap().insert(n2, ino);
                }
            }
            Op::Rename(d, n, d2, n2) => {
                let (from, to) = (dir_of(&model, d), dir_of(&model, d2));
                let result = err(volume.rename(&r, Ino(from), &name(n), Ino(to), &name(n2), RenameMode::Replace).await);
                rename(&mut model, from, n, to, n2, &result);
            }
            Op::Write(d, n, v) => {
                let dir = dir_of(&model, d);
                let Some(&ino) = model.names(dir).unwrap().get(&n) else { continue };
                let content = vec![v; usize::from(v) * 40];
                let wrote = volume.write(&r, Ino(ino), 0, vec![content.clone().into()], Stability::FileSync).await;
                match model.nodes.get_mut(&ino) {
                    Some(Node::File(old)) => {
                        wrote.unwrap();
                        let kept = old.split_off(content.len().min(old.len()));
                        *old = [content, kept].concat();
                    }
                    _ => assert_eq!(err(wrote), "is a directory"),
                }
            }
            Op::Attribute(d, n, v) => {
                let dir = dir_of(&model, d);
                let Some(&ino) = model.names(dir).unwrap().get(&n) else { continue };
                let value = vec![v; usize::from(v)];
                if v % 4 > 0 {
                    volume.setxattr(&r, Ino(ino), ATTRIBUTE, &value, XattrMode::Set).await.unwrap();
                    model.attributes.insert(ino, value);
                } else {
                    let removed = volume.removexattr(&r, Ino(ino), ATTRIBUTE).await;
                    assert_eq!(removed.is_ok(), model.attributes.remove(&ino).is_some());
                }
            }
            Op::Reopen => {
                compare_counts(&volume, &model, empty).await;
                drop((registry, volume));
                (registry, volume) = place.open().await;
                compare_counts(&volume, &model, empty).await;
            }
        }
    }
    compare(&volume, &model).await;
    compare_counts(&volume, &model, empty).await;
    tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    check_clean(&registry).await;
}

fn rename(model: &mut Model, from: u64, n: u8, to: u64, n2: u8, result: &str) {
    let Some(&source) = model.names(from).unwrap().get(&n) else {
        return assert_eq!(result, "no such file or directory");
    };
    let target = model.names(to).unwrap().get(&n2).copied();
    let is_dir = |model: &Model, ino: u64| matches!(model.nodes[&ino], Node::Dir(_));
    if from != to && is_dir(model, source) && model.is_within(to, source) {
        return assert!(result.starts_with("invalid"), "{result}");
    }
    if let Some(target) = target {
        if target == source {
            return assert_eq!(result, "ok");
        }
        match (is_dir(model, source), is_dir(model, target)) {
            (true, false) => return assert_eq!(result, "not a directory"),
            (false, true) => return assert_eq!(result, "is a directory"),
            (true, true) if model.names(target).is_some_and(|names| !names.is_empty()) => {
                return assert_eq!(result, "directory not empty");
            }
            _ => {}
        }
    }
    assert_eq!(result, "ok");
    model.names(from).unwrap().remove(&n);
    model.names(to).unwrap().insert(n2, source);
    if let Some(target) = target {
        model.forget_unlinked(target);
    }
}

async fn compare(volume: &Volume, model: &Model) {
    for (&ino, node) in &model.nodes {
        let attr = volume.getattr(Ino(ino)).await.unwrap();
        match node {
            Node::File(content) => {
                let links: usize = model
                    .nodes
                    .values()
                    .map(|node| match node {
                        Node::Dir(names) => names.values().filter(|&&n| n == ino).count(),
                        Node::File(_) => 0,
                    })
                    .sum();
                assert_eq!((attr.nlink as usize, attr.size as usize), (links, content.len()));
                assert_eq!(read_all(volume, Ino(ino)).await, *content);
            }
            Node::Dir(names) => {
                let mut listed = Vec::new();
                for entry in volume.readdir(&root(), Ino(ino), 0, 100, false).await.unwrap().entries {
                    listed.push((entry.name.to_vec(), entry.ino.0));
                }
                listed.sort();
                let mut expected: Vec<_> = names.iter().map(|(&n, &ino)| (name(n), ino)).collect();
                expected.sort();
                assert_eq!(listed, expected);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn random_operations(ops in proptest::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(run(ops));
    }
}
