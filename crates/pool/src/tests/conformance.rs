//! object_store's own suite, on every layout, whole and degraded.
//!
//! Not run are the parts for two traits of remote stores, which a pool does not have (`store.rs`
//! says why): `multipart`, `multipart_with_opts` and `multipart_put_part_out_of_order`
//! (`MultipartStore`), `list_paginated` (`PaginatedListStore`).

use object_store::integration::*;

use crate::Layout;
use crate::testing::Bench;

async fn check(layout: Layout, lose: usize) {
    let bench = Bench::new(layout.disks_min() + 1);
    let pool = bench.create(layout).await;
    for disk in 0..lose {
        bench.faults(disk).write_error.store(true, std::sync::atomic::Ordering::SeqCst);
        bench.faults(disk).read_error.store(true, std::sync::atomic::Ordering::SeqCst);
    }
    let store = pool.store();
    put_get_delete_list(&store).await;
    list_with_offset_exclusivity(&store).await;
    get_opts(&store).await;
    list_uses_directories_correctly(&store).await;
    list_with_delimiter(&store).await;
    rename_and_copy(&store).await;
    copy_if_not_exists(&store).await;
    copy_rename_nonexistent_object(&store).await;
    stream_get(&store).await;
    put_opts(&store, true).await;
    put_get_attributes(&store).await;
    multipart_race_condition(&store, true).await;
    multipart_out_of_order(&store).await;
    let lost = pool.status().disks.iter().filter(|disk| disk.state != crate::DiskState::Online).count();
    assert_eq!(lost, lose);
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stripe() {
    check(Layout::Stripe, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror() {
    check(Layout::Mirror2, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raidz1() {
    check(Layout::Raidz1, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raidz2_degraded() {
    check(Layout::Raidz2, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raidz3_degraded() {
    check(Layout::Raidz3, 1).await;
}
