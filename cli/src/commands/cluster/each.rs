//! The same of several machines at a time, on the one thread there is.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Waits for all, or for the first that fails.
pub(super) async fn all<T, E>(futures: impl Iterator<Item = impl Future<Output = Result<T, E>>>) -> Result<Vec<T>, E> {
    let mut waits: Vec<(Pin<Box<_>>, Option<T>)> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, done) in waits.iter_mut().filter(|(_, done)| done.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(Ok(value)) => *done = Some(value),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
        }
        if waits.iter().all(|(_, done)| done.is_some()) { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await?;
    Ok(waits.into_iter().filter_map(|(_, done)| done).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn all_are_waited_for_in_whatever_order_they_end_and_the_first_failure_ends_it() {
        let (ends, waits): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel::<Result<u8, &str>>()).unzip();
        let mut ends = ends.into_iter();
        let [first, second, third] = std::array::from_fn(|_| ends.next().unwrap());
        let waiting = all(waits.into_iter().map(|wait| async { wait.await.unwrap() }));
        let tell = async {
            third.send(Ok(3)).unwrap();
            tokio::task::yield_now().await;
            first.send(Ok(1)).unwrap();
            tokio::task::yield_now().await;
            second.send(Ok(2)).unwrap();
        };
        assert_eq!(tokio::join!(waiting, tell).0, Ok(vec![1, 2, 3]));

        let (fails, wait) = oneshot::channel::<Result<u8, &str>>();
        let (_never, other) = oneshot::channel();
        fails.send(Err("lost")).unwrap();
        assert_eq!(all([other, wait].into_iter().map(|wait| async { wait.await.unwrap() })).await, Err("lost"));
    }
}
