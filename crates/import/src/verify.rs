//! A second reading of everything, compared with what the volume has.

use std::os::fd::{AsFd, OwnedFd};

use larder_fs::{Attr, FileKind, Ino};

use crate::directory::{Directory, Job};
use crate::dress::{self, Trouble};
use crate::source::{self, Stat};
use crate::state::Import;
use crate::{copy, doubles, marker::Marker};

const MISSING: &str = "it is not in the volume";
const LATER: &str = "it changed after it was copied; run the import again";

pub(crate) fn verify(import: &Import, job: &Job) {
    let path = job.path();
    match compare(import, job) {
        Ok(None) => import.progress.verified_files.add(1),
        Ok(Some(why)) => import.fault(&path, why),
        Err(error) => dress::fault(import, &path, Err(error)),
    }
}

fn compare(import: &Import, job: &Job) -> Result<Option<&'static str>, Trouble> {
    let stat = &job.stat;
    let Some(attr) = import.lookup(job.dir.dest, job.bytes())? else { return Ok(Some(MISSING)) };
    let ino = attr.id.ino;
    if dress::marker(import, ino)?.is_some_and(|marker| marker != Marker::of(stat)) {
        return Ok(Some(LATER));
    }
    match stat.kind {
        FileKind::File => {
            let file = source::open(&job.dir.fd, &job.name, stat.kind)?;
            let differs = attributes(import, &attr, stat, Some(&file))?;
            if differs.is_some() {
                return Ok(differs);
            }
            let same = copy::equal(import, &file, stat, ino, &|bytes| import.progress.verified_bytes.add(bytes))?;
            source::drop_cache(&file);
            Ok((!same).then_some("its contents differ"))
        }
        FileKind::Symlink => {
            let target = import.on(import.files.readlink(ino))?;
            let same = target[..] == source::read_link(&job.dir.fd, &job.name)?;
            Ok(if same { attributes(import, &attr, stat, None)? } else { Some("its target differs") })
        }
        _ => attributes(import, &attr, stat, None),
    }
}

fn attributes(
    import: &Import,
    attr: &Attr,
    stat: &Stat,
    file: Option<&OwnedFd>,
) -> Result<Option<&'static str>, Trouble> {
    let ino = attr.id.ino;
    let (_, list) = import.on(import.files.acl(ino))?;
    if let Some(why) = dress::difference(attr, stat, list.is_some()) {
        return Ok(Some(why));
    }
    let Some(file) = file else { return Ok(None) };
    let wanted = source::xattrs(file.as_fd())?;
    if dress::xattrs_there(import, ino)? != wanted.copied {
        return Ok(Some("its extended attributes differ"));
    }
    if !dress::has_kept(import, attr, &wanted)? {
        return Ok(Some("its streams or DOS attributes differ"));
    }
    let same = dress::acl(&wanted, stat)?.as_ref() == list.as_deref();
    Ok((!same).then_some("its access control list differs"))
}

pub(crate) fn directory(import: &Import, dir: &Directory) {
    doubles::each(import, dir, doubles::Do::Compare);
    let Some(ino) = dir.dest.filter(|ino| *ino != Ino::ROOT) else { return };
    let compared = (|| {
        let attr = import.on(import.files.getattr(ino))?;
        attributes(import, &attr, &dir.stat, Some(&dir.fd))
    })();
    match compared {
        Ok(None) => {}
        Ok(Some(why)) => import.fault(&dir.path, why),
        Err(error) => dress::fault(import, &dir.path, Err(error)),
    }
}
