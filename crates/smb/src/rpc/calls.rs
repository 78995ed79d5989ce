//! Writes to a named pipe: each PDU runs, and each call is answered from the server's shares.

use tracing::{debug, warn};

use super::pipe::{Pipe, Read, State};
use super::srvsvc;
use crate::state::ServerState;
use larder_smb_wire::ntstatus;
use larder_smb_wire::rpc::association::Step;
use larder_smb_wire::rpc::pdu::Header;

impl Pipe {
    /// Writes `data` to the server end. Every reply it causes is queued
    /// before this returns. Fails with STATUS_PIPE_DISCONNECTED once the
    /// association has ended, and with STATUS_INSUFFICIENT_RESOURCES while
    /// the pipe has `MAX_OUTBOX` reply bytes unread or the connection's
    /// pipes hold `MAX_CONNECTION_BYTES`; nothing is written then. A
    /// write that reaches either limit ends the association: the request
    /// that found no room is answered with a fault, and the bytes after it
    /// are dropped. Calls see the shares of `server`.
    pub(crate) async fn write(&self, server: &ServerState, data: &[u8]) -> Result<(), u32> {
        let mut state = self.state.lock().await;
        self.feed(server, &mut state, data).await
    }

    /// Writes `data` and reads up to `len` bytes, as one operation
    /// (FSCTL_PIPE_TRANSCEIVE). Fails with STATUS_PIPE_BUSY while a reply is
    /// unread (MS-FSCC 2.3.48), and as [`Pipe::write`] does. The read part
    /// finds nothing while another reader waits before it.
    pub(crate) async fn transceive(&self, server: &ServerState, data: &[u8], len: usize) -> Result<Read, u32> {
        let turn = self.readers.try_lock();
        let mut state = self.state.lock().await;
        if !state.outbox.is_empty() {
            return Err(ntstatus::STATUS_PIPE_BUSY);
        }
        self.feed(server, &mut state, data).await?;
        Ok(match turn {
            Ok(_) => state.take(len),
            Err(_) => Read::Empty,
        })
    }

    /// Runs the PDUs in `data`. The share list a call answers from is
    /// read with the pipe locked, so calls on one pipe run in order.
    async fn feed(&self, server: &ServerState, state: &mut State, data: &[u8]) -> Result<(), u32> {
        if state.assoc.is_closed() {
            return Err(ntstatus::STATUS_PIPE_DISCONNECTED);
        }
        if state.full() {
            return Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES);
        }
        let was_empty = state.outbox.is_empty();
        let mut rest = data;
        while let Some(step) = state.assoc.next_step(&mut rest) {
            if state.full() && !state.assoc.is_closed() {
                let call_id = match &step {
                    Step::Call(call) => call.call_id,
                    Step::Send(pdu) => Header::read(pdu).map_or(0, |h| h.call_id),
                };
                warn!(queued = state.queued, "pipe replies past their limit");
                let fault = state.assoc.abort(call_id);
                state.push(fault);
                break;
            }
            match step {
                Step::Send(pdu) => state.push(pdu),
                Step::Call(call) => {
                    let result = srvsvc::serve(server, &self.caller, call.opnum, &call.stub).await;
                    debug!(opnum = call.opnum, ok = result.is_ok(), "rpc call");
                    for reply in state.assoc.reply(&call, result) {
                        state.push(reply);
                    }
                }
            }
        }
        state.recharge();
        if was_empty && !state.outbox.is_empty() {
            self.readable.notify_waiters();
        }
        Ok(())
    }
}
