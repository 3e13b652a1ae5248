//! The same of several machines at a time, on the one thread there is.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Waits for all; what each of them came to, in their order.
pub(super) async fn all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waits: Vec<(Pin<Box<_>>, Option<T>)> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, done) in waits.iter_mut().filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                *done = Some(value);
            }
        }
        if waits.iter().all(|(_, done)| done.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    waits.into_iter().filter_map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    /// Proves: N2
    #[tokio::test]
    async fn all_are_waited_for_in_any_order_and_after_a_failure() {
        let (ends, waits): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel::<Result<u8, &str>>()).unzip();
        let mut ends = ends.into_iter();
        let [first, second, third] = std::array::from_fn(|_| ends.next().unwrap());
        let waiting = all(waits.into_iter().map(|wait| async { wait.await.unwrap() }));
        let tell = async {
            third.send(Ok(3)).unwrap();
            tokio::task::yield_now().await;
            first.send(Err("lost")).unwrap();
            tokio::task::yield_now().await;
            second.send(Ok(2)).unwrap();
        };
        assert_eq!(tokio::join!(waiting, tell).0, [Err("lost"), Ok(2), Ok(3)]);
    }
}
