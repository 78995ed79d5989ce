//! The kernel's account of one TCP connection: TCP_INFO of Linux (include/uapi/linux/tcp.h) and the bytes that wait in
//! its buffers. Older kernels know fewer fields: those read as zero.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

/// As far as later fields are of interest here.
const INFO_BYTES: usize = 232;

/// The sending side, unless a field says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpState {
    /// The last estimate of the rate was bounded by the server, which had no more to send.
    pub is_idle_sender: bool,
    pub mss: u32,
    /// Segments that were sent and not acknowledged.
    pub unacked: u32,
    /// Segments that the network takes at a time, as congestion control believes.
    pub congestion_window: u32,
    pub rtt: Duration,
    /// The least that was seen.
    pub rtt_min: Duration,
    /// Of the receiving side: between an acknowledgement and the bytes that it lets come.
    pub receiving_rtt: Duration,
    pub retransmitted: u32,
    pub data_segments_sent: u32,
    pub data_segments_received: u32,
    /// Of the receiving side: segments that came out of order, after one that was lost.
    pub out_of_order: u32,
    /// Written by the server and not sent.
    pub unsent_bytes: u32,
    pub acked_bytes: u64,
    pub received_bytes: u64,
    /// Since bytes came last, in steps of the kernel's clock (up to 10 ms).
    pub silent: Duration,
    /// Received and not read by the server.
    pub unread_bytes: u64,
    pub delivery_bytes_per_s: u64,
    /// Time in which there was something to send or to be acknowledged.
    pub busy: Duration,
    /// Of that: time in which the client's window was full.
    pub window_full: Duration,
    /// Of that: time in which the server's own buffer was full.
    pub buffer_full: Duration,
}

pub(super) fn state(fd: RawFd) -> Option<TcpState> {
    let mut info = [0; INFO_BYTES];
    let mut len = INFO_BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `info`, whatever `fd` is.
    let failed = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), std::ptr::from_mut(&mut len))
    };
    // SAFETY: the socket is open: the caller holds the lock under which `traffic.fd_outlived` takes the number away.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let unread_bytes = rustix::io::ioctl_fionread(socket).unwrap_or(0);
    (failed == 0).then(|| TcpState { unread_bytes, ..decode(&info) })
}

fn decode(info: &[u8; INFO_BYTES]) -> TcpState {
    let byte = |at: usize| info.get(at).copied().unwrap_or(0);
    let u32_at = |at: usize| u32::from_ne_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]);
    let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|n| byte(at + n)));
    let us = |us: u64| Duration::from_micros(us);
    // No sample: the largest number.
    let rtt_min = Some(u32_at(148)).filter(|us| *us != u32::MAX).unwrap_or(0);
    TcpState {
        is_idle_sender: byte(7) & 1 == 1,
        mss: u32_at(16),
        unacked: u32_at(24),
        congestion_window: u32_at(80),
        rtt: us(u32_at(68).into()),
        rtt_min: us(rtt_min.into()),
        receiving_rtt: us(u32_at(92).into()),
        retransmitted: u32_at(100),
        data_segments_sent: u32_at(156),
        data_segments_received: u32_at(152),
        out_of_order: u32_at(224),
        unsent_bytes: u32_at(144),
        acked_bytes: u64_at(120),
        received_bytes: u64_at(128),
        silent: Duration::from_millis(u32_at(52).into()),
        unread_bytes: 0,
        delivery_bytes_per_s: u64_at(160),
        busy: us(u64_at(168)),
        window_full: us(u64_at(176)),
        buffer_full: us(u64_at(184)),
    }
}
