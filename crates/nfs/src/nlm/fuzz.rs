//! Input of NLM and NSM: a procedure's number, and its arguments behind it.

use super::super::xdr::{Reader, Writer};
use super::wire::{LockAnswer, LockStat, MonitorRequest, OBJECT_BYTES_MAX, Request, decode_granted};

/// Calls. An answer is as long as its call allows.
pub fn lock_call(data: &[u8]) {
    let mut args = Reader::new(data);
    let Ok(procedure) = args.u32() else { return };
    let _ = MonitorRequest::decode(procedure, args);
    let Ok(Some(request)) = Request::decode(procedure, args) else { return };
    assert!(request.handle().is_none_or(|handle| handle.len() <= OBJECT_BYTES_MAX));
    if let Request::Lock(call) = request {
        let mut w = Writer::default();
        LockAnswer::Stat(LockStat::Granted).encode(&mut w, &call.cookie);
        assert!(w.position() <= OBJECT_BYTES_MAX + 8);
        if let Ok(range) = call.lock.range() {
            assert!(range.start <= range.last);
        }
    }
}

/// Answers of clients, of their port mappers and their locks.
pub fn lock_answer(data: &[u8]) {
    let _ = decode_granted(data);
    let _ = super::call_out::port_in(data, false);
    let _ = super::call_out::port_in(data, true);
}
