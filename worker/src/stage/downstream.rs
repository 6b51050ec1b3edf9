//! The link to the next stage, with credit: a sender runs at most [`WINDOW`] frames ahead of
//! what the receiver has taken, so a slow stage fills no memory on its way.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use windlass_wire::frame::{FrameType, Header, RowEntry};

use crate::net::NetError;
use crate::net::link::{FrameReader, FrameWriter, Sent};

/// Frames that may be under way on a hop.
pub const WINDOW: u64 = 8;

#[derive(Default)]
struct Credit {
    left: u64,
    dead: bool,
}

/// The sending side of a hop.
pub struct Downstream {
    writer: FrameWriter,
    credit: Arc<(Mutex<Credit>, Condvar)>,
}

impl Downstream {
    /// Takes both halves of the link; `lost` is called once when the receiver is gone.
    pub fn new(
        mut reader: FrameReader,
        writer: FrameWriter,
        lost: impl FnOnce(NetError) + Send + 'static,
    ) -> Result<Self, NetError> {
        let credit = Arc::new((
            Mutex::new(Credit {
                left: WINDOW,
                dead: false,
            }),
            Condvar::new(),
        ));
        let theirs = credit.clone();
        std::thread::Builder::new()
            .name("credit".into())
            .spawn(move || {
                let why = loop {
                    match reader.read() {
                        Ok(frame) if frame.header.kind == FrameType::Credit => {
                            let (state, wake) = &*theirs;
                            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                            state.left = state.left.saturating_add(frame.header.step).min(WINDOW);
                            wake.notify_one();
                        }
                        Ok(frame) => {
                            break NetError::Unexpected {
                                expected: "credit",
                                got: format!("{:?}", frame.header.kind),
                            };
                        }
                        Err(error) => break error.into(),
                    }
                };
                let (state, wake) = &*theirs;
                state.lock().unwrap_or_else(PoisonError::into_inner).dead = true;
                wake.notify_all();
                lost(why);
            })
            .map_err(NetError::io("start a thread"))?;
        Ok(Self { writer, credit })
    }

    /// Counters of what was sent.
    pub fn sent(&self) -> Arc<Sent> {
        self.writer.sent()
    }

    /// Sends hidden states once the receiver has room.
    pub fn hidden(
        &mut self,
        header: Header,
        rows: &[RowEntry],
        hidden: &[f32],
    ) -> Result<(), NetError> {
        self.take_credit()?;
        self.writer.hidden(header, rows, hidden)
    }

    /// Sends any other frame once the receiver has room.
    pub fn send(
        &mut self,
        header: Header,
        rows: &[RowEntry],
        payload: &[u8],
    ) -> Result<(), NetError> {
        self.take_credit()?;
        self.writer.write(header, rows, payload)
    }

    fn take_credit(&self) -> Result<(), NetError> {
        let (state, wake) = &*self.credit;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.left == 0 && !state.dead {
            state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.dead {
            return Err(NetError::Closed);
        }
        state.left -= 1;
        Ok(())
    }
}

/// Tells the sender that a frame was taken.
pub fn give_credit(writer: &mut FrameWriter) -> Result<(), NetError> {
    writer.write(
        Header {
            step: 1,
            ..Header::new(FrameType::Credit, 0)
        },
        &[],
        &[],
    )
}
