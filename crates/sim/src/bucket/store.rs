//! A machine's client of the simulated bucket: each call is one request, as the client of S3 makes it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartId, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::net::Line;
use super::s3::{Got, S3, generic};
use crate::disk::Plant;

/// Keys of one bulk deletion.
const DELETES_MAX: usize = 1000;
const REGISTRY: &str = "registry.json";
/// In the registry while a volume is on its way.
const HANDOVER: &[u8] = b"\"handover\"";

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bucket of machine {}", self.host)
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line({})", self.host)
    }
}

fn whole(payload: &PutPayload) -> Bytes {
    Bytes::from(payload.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>())
}

#[async_trait]
impl ObjectStore for Line {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (at, bytes) = (at.clone(), whole(&payload));
        let what = format!("{:?} {at}", options.mode);
        let is_registry = at.as_ref() == REGISTRY;
        let is_blind = self.net.planted() == Some(Plant::BlindRegistry) && is_registry && !self.seat.is_first();
        let options = if is_blind { PutOptions { mode: PutMode::Overwrite, ..options } } else { options };
        if is_registry && bytes.windows(HANDOVER.len()).any(|part| part == HANDOVER) {
            self.may_meet_a_storm();
        }
        let seat = self.seat.clone();
        let effect = move |s3: &mut S3, now| {
            let put = s3.put(&at, bytes.clone(), &options, now)?;
            if is_registry {
                s3.ledger.stored(&bytes, &seat);
            }
            Ok(put)
        };
        self.ask(|| what, Arc::new(effect)).await
    }

    async fn put_multipart_opts(&self, _at: &Path, _options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotImplemented { operation: "put_multipart".into(), implementer: "the simulated bucket".into() })
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let at = at.clone();
        let Got { meta, range, body, attributes } = self
            .ask(|| format!("get {at}"), {
                let at = at.clone();
                Arc::new(move |s3, _| s3.get(&at, &options))
            })
            .await?;
        let mut parts = vec![Ok(body.clone())];
        if let Some(part) = self.breaks_off() {
            let cut = (body.len() as f64 * part) as usize;
            parts = vec![Ok(body.slice(..cut)), Err(generic("the answer broke off"))];
        }
        let payload = GetResultPayload::Stream(futures::stream::iter(parts).boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions: Default::default() })
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let line = self.clone();
        let chunks = paths.chunks(DELETES_MAX).then(move |chunk| {
            let line = line.clone();
            async move {
                let all: Vec<Path> = chunk.into_iter().filter_map(Result::ok).collect();
                let deleted = all.clone();
                let effect = move |s3: &mut S3, _| {
                    s3.delete(&deleted);
                    Ok(())
                };
                match line.ask(|| format!("delete {all:?}"), Arc::new(effect)).await {
                    Ok(()) => all.into_iter().map(Ok).collect(),
                    Err(error) => vec![Err(error)],
                }
            }
        });
        chunks.flat_map(futures::stream::iter::<Vec<Result<Path>>>).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        pages(self.clone(), prefix.cloned(), None)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        pages(self.clone(), prefix.cloned(), Some(offset.clone()))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut objects = self.list(prefix);
        let mut listed =
            ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Default::default() };
        let folder = prefix.cloned().unwrap_or_default();
        while let Some(object) = objects.next().await {
            let object = object?;
            let rest: Option<Vec<_>> = object.location.prefix_match(&folder).map(Iterator::collect);
            match rest.as_deref() {
                Some([_]) => listed.objects.push(object),
                Some([first, ..]) => {
                    let below = folder.clone().join(first.clone());
                    if listed.common_prefixes.last() != Some(&below) {
                        listed.common_prefixes.push(below);
                    }
                }
                _ => {}
            }
        }
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (from, to) = (from.clone(), to.clone());
        self.ask(|| "copy".to_owned(), Arc::new(move |s3, now| s3.copy(&from, &to, options.mode, now))).await
    }
}

/// A listing asks for one page after the other, and sees each as it is then.
fn pages(line: Line, folder: Option<Path>, after: Option<Path>) -> BoxStream<'static, Result<ObjectMeta>> {
    let pages = futures::stream::unfold(Some(after), move |after| {
        let (line, folder) = (line.clone(), folder.clone());
        async move {
            let after = after?;
            let page = line
                .ask(|| format!("list {folder:?} after {after:?}"), {
                    let (folder, after) = (folder.clone(), after.clone());
                    Arc::new(move |s3, _| Ok(s3.list(folder.as_ref(), after.as_ref())))
                })
                .await;
            Some(match page {
                Ok((page, has_more)) => {
                    let last = page.last().map(|object| object.location.clone()).filter(|_| has_more);
                    (page.into_iter().map(Ok).collect(), last.map(Some))
                }
                Err(error) => (vec![Err(error)], None),
            })
        }
    });
    pages.flat_map(futures::stream::iter::<Vec<Result<ObjectMeta>>>).boxed()
}

#[async_trait]
impl MultipartStore for Line {
    async fn create_multipart(&self, at: &Path) -> Result<MultipartId> {
        self.create_multipart_opts(at, PutMultipartOptions::default()).await
    }

    async fn create_multipart_opts(&self, at: &Path, options: PutMultipartOptions) -> Result<MultipartId> {
        let at = at.clone();
        self.ask(
            || "begin_upload".to_owned(),
            Arc::new(move |s3, _| Ok(s3.begin_upload(&at, options.attributes.clone()))),
        )
        .await
    }

    async fn put_part(&self, _at: &Path, id: &MultipartId, number: usize, data: PutPayload) -> Result<PartId> {
        let (id, bytes) = (id.clone(), whole(&data));
        let tag =
            self.ask(|| "put_part".to_owned(), Arc::new(move |s3, _| s3.put_part(&id, number, bytes.clone()))).await?;
        Ok(PartId { content_id: tag })
    }

    async fn complete_multipart(&self, _at: &Path, id: &MultipartId, _parts: Vec<PartId>) -> Result<PutResult> {
        let id = id.clone();
        self.ask(|| "complete".to_owned(), Arc::new(move |s3, now| s3.complete(&id, now))).await
    }

    async fn abort_multipart(&self, _at: &Path, id: &MultipartId) -> Result<()> {
        let id = id.clone();
        let effect = move |s3: &mut S3, _| {
            s3.abort(&id);
            Ok(())
        };
        self.ask(|| "abort".to_owned(), Arc::new(effect)).await
    }
}
