//! Work on a thread of its own within the runtime: for futures that must stay on one thread.

use std::future::Future;

use tokio::sync::{oneshot, watch};

/// Such work. Dropping it drops the future where it stands, soon: see [`Apart::end`].
pub struct Apart {
    cancel: Option<oneshot::Sender<()>>,
    ended: watch::Receiver<()>,
}

/// Begins. Must be called within the runtime.
///
/// # Errors
/// When the system gives no thread.
pub fn apart<F, Fut>(name: &str, work: F) -> std::io::Result<Apart>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    let (cancel, cancelled) = oneshot::channel::<()>();
    let (ends, ended) = watch::channel(());
    let runtime = tokio::runtime::Handle::current();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    // Its other side is gone.
                    _ = cancelled => {}
                    () = work() => {}
                }
            });
            drop(ends);
        })?;
    Ok(Apart {
        cancel: Some(cancel),
        ended,
    })
}

impl Apart {
    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.ended.has_changed().is_err()
    }

    /// Drops the future where it stands and waits until that is done. To be called before the runtime
    /// ends: a timer that is polled afterwards panics.
    pub async fn end(mut self) {
        self.cancel = None;
        self.finished().await;
    }

    /// Waits until it has.
    pub async fn finished(&mut self) {
        while self.ended.changed().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn dropping_the_handle_drops_the_work_where_it_stands() {
        struct Told(Option<oneshot::Sender<()>>);
        impl Drop for Told {
            fn drop(&mut self) {
                let _ = self.0.take().unwrap().send(());
            }
        }
        let (tell, told) = oneshot::channel();
        let (begin, began) = oneshot::channel();
        let work = apart("test", move || async move {
            let _told = Told(Some(tell));
            let _ = begin.send(());
            std::future::pending().await
        })
        .unwrap();
        began.await.unwrap();
        assert!(!work.is_finished());
        drop(work);
        told.await.unwrap();
    }

    #[test]
    fn work_that_was_ended_is_not_gone_on_with_while_the_runtime_ends() {
        struct Told(std::sync::mpsc::Sender<bool>);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.send(std::thread::panicking()).unwrap();
            }
        }
        for _ in 0..200 {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let (tell, told) = std::sync::mpsc::channel();
            let (begin, began) = oneshot::channel();
            runtime.block_on(async {
                let work = apart("test", move || async move {
                    let _told = Told(tell);
                    let _ = begin.send(());
                    loop {
                        tokio::time::sleep(std::time::Duration::from_micros(1)).await;
                    }
                })
                .unwrap();
                began.await.unwrap();
                work.end().await;
            });
            drop(runtime);
            assert!(!told.recv().unwrap(), "it panicked");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_end_of_the_work_is_seen() {
        let mut work = apart("test", || async {}).unwrap();
        work.finished().await;
        assert!(work.is_finished());
    }
}
