//! Who is woken, how often, and that nobody sleeps on.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream;
use futures_core::future::FusedFuture;

use super::*;

/// Counts its wake-ups.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Task {
    counter: Arc<Counter>,
    waker: Waker,
}

impl Task {
    fn new() -> Self {
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(Arc::clone(&counter));
        Self { counter, waker }
    }

    fn poll<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&self.waker))
    }

    fn woken(&self) -> usize {
        self.counter.0.load(Ordering::SeqCst)
    }
}

#[test]
fn one_wake_up_for_a_burst_and_none_for_who_is_awake() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    let task = Task::new();
    let mut recv = pin!(queue.recv_batch(64));
    assert!(task.poll(recv.as_mut()).is_pending());
    assert!(task.poll(recv.as_mut()).is_pending()); // asks twice, is in the list once
    let _ = queue.push_burst(&mut (0..64).map(|name| sized(name, 1)).collect());
    for name in 64..128 {
        queue.push(sized(name, 1)).unwrap();
    }
    assert_eq!((task.woken(), queue.wakeups()), (1, 1));
    let Poll::Ready(Ok(batch)) = task.poll(recv.as_mut()) else { panic!("woken for nothing") };
    assert_eq!((batch.len(), recv.is_terminated()), (64, true));
    // One burst after the other to a reader that sleeps each time: one wake-up for each.
    assert_eq!(queue.try_recv_batch(64).unwrap().len(), 64);
    for round in 0..10 {
        let mut recv = pin!(queue.recv_batch(64));
        assert!(task.poll(recv.as_mut()).is_pending());
        let _ = queue.push_burst(&mut (0..32).map(|name| sized(name, 1)).collect());
        assert!(task.poll(recv.as_mut()).is_ready());
        assert_eq!(queue.wakeups(), 2 + round);
    }
}

#[test]
fn readers_are_woken_one_for_each_push_the_oldest_first() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    let tasks: Vec<_> = (0..3).map(|_| Task::new()).collect();
    let mut futures: Vec<_> = tasks.iter().map(|_| Box::pin(queue.recv())).collect();
    for (task, future) in tasks.iter().zip(&mut futures) {
        assert!(task.poll(future.as_mut()).is_pending());
    }
    let woken = || tasks.iter().map(Task::woken).collect::<Vec<_>>();
    queue.push(sized(0, 1)).unwrap();
    assert_eq!(woken(), [1, 0, 0]);
    queue.push(sized(1, 1)).unwrap();
    assert_eq!(woken(), [1, 1, 0]);
    assert!(tasks[1].poll(futures[1].as_mut()).is_ready());
    assert!(tasks[0].poll(futures[0].as_mut()).is_ready());
    assert!(tasks[2].poll(futures[2].as_mut()).is_pending());
}

#[test]
fn who_leaves_datagrams_wakes_the_next() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    let (one, two) = (Task::new(), Task::new());
    let mut first = pin!(queue.recv_batch(2));
    let mut second = pin!(queue.recv());
    assert!(one.poll(first.as_mut()).is_pending());
    assert!(two.poll(second.as_mut()).is_pending());
    let _ = queue.push_burst(&mut (0..3).map(|name| sized(name, 1)).collect());
    assert_eq!((one.woken(), two.woken()), (1, 0));
    assert!(one.poll(first.as_mut()).is_ready());
    assert_eq!(two.woken(), 1);
    assert!(two.poll(second.as_mut()).is_ready());
}

#[test]
fn who_was_woken_and_gives_up_wakes_the_next() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    let (one, two) = (Task::new(), Task::new());
    let mut first = Box::pin(queue.recv());
    let mut second = Box::pin(queue.recv());
    assert!(one.poll(first.as_mut()).is_pending());
    assert!(two.poll(second.as_mut()).is_pending());
    queue.push(sized(7, 1)).unwrap();
    assert_eq!((one.woken(), two.woken()), (1, 0));
    drop(first);
    assert_eq!(two.woken(), 1);
    let Poll::Ready(Ok(datagram)) = two.poll(second.as_mut()) else { panic!("lost") };
    assert_eq!(datagram.timestamp_ns, 7);
    // Who gives up before it is woken takes nobody's turn.
    let mut first = Box::pin(queue.recv());
    let mut second = Box::pin(queue.recv());
    assert!(one.poll(first.as_mut()).is_pending());
    assert!(two.poll(second.as_mut()).is_pending());
    drop(first);
    queue.push(sized(8, 1)).unwrap();
    assert_eq!((one.woken(), two.woken()), (1, 2));
    drop(second);
    assert_eq!(queue.try_recv().unwrap().timestamp_ns, 8);
}

#[test]
fn who_got_its_datagram_unasked_is_out_of_the_list() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    let (one, two) = (Task::new(), Task::new());
    let mut incoming = pin!(queue.incoming());
    let next = |stream: Pin<&mut Incoming<'_, Simulated>>| {
        stream.poll_next(&mut Context::from_waker(&one.waker))
    };
    assert!(next(incoming.as_mut()).is_pending());
    queue.push(sized(0, 1)).unwrap();
    assert_eq!(one.woken(), 1);
    let Poll::Ready(Some(_)) = next(incoming.as_mut()) else { panic!("lost") };
    // The stream is alive but does not wait: the wake-up belongs to the other.
    let mut recv = pin!(queue.recv());
    assert!(two.poll(recv.as_mut()).is_pending());
    queue.push(sized(1, 1)).unwrap();
    assert_eq!((one.woken(), two.woken()), (1, 1));
}

#[test]
fn the_last_waker_counts() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    let (one, two) = (Task::new(), Task::new());
    let mut recv = pin!(queue.recv());
    assert!(one.poll(recv.as_mut()).is_pending());
    assert!(two.poll(recv.as_mut()).is_pending());
    queue.push(sized(0, 1)).unwrap();
    assert_eq!((one.woken(), two.woken()), (0, 1));
}

#[test]
fn all_watchers_are_told_and_nothing_is_taken() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    let tasks: Vec<_> = (0..3).map(|_| Task::new()).collect();
    let mut watches: Vec<_> = tasks.iter().map(|_| queue.watch()).collect();
    let ready = |task: &Task, watch: &mut Watch<'_, Simulated>| {
        watch.poll_ready(&mut Context::from_waker(&task.waker))
    };
    for (task, watch) in tasks.iter().zip(&mut watches) {
        assert!(ready(task, watch).is_pending());
    }
    drop(watches.pop());
    let reader = Task::new();
    let mut recv = pin!(queue.recv());
    assert!(reader.poll(recv.as_mut()).is_pending());
    queue.push(sized(0, 1)).unwrap();
    assert_eq!(tasks.iter().map(Task::woken).collect::<Vec<_>>(), [1, 1, 0]);
    assert_eq!(reader.woken(), 1);
    for _ in 0..2 {
        assert_eq!(ready(&tasks[0], &mut watches[0]), Poll::Ready(Readiness::Readable));
    }
    assert!(reader.poll(recv.as_mut()).is_ready());
    assert!(ready(&tasks[0], &mut watches[0]).is_pending());
    queue.close();
    assert_eq!(tasks[0].woken(), 2);
    assert_eq!(ready(&tasks[0], &mut watches[0]), Poll::Ready(Readiness::Closed));
}

#[test]
fn closing_wakes_all_and_ends_streams() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    let (one, two) = (Task::new(), Task::new());
    let mut recv = pin!(queue.recv());
    let mut incoming = pin!(queue.incoming());
    assert!(one.poll(recv.as_mut()).is_pending());
    let mut cx = Context::from_waker(&two.waker);
    assert!(incoming.as_mut().poll_next(&mut cx).is_pending());
    queue.close();
    assert_eq!((one.woken(), two.woken()), (1, 1));
    assert!(matches!(one.poll(recv.as_mut()), Poll::Ready(Err(RecvError::Closed))));
    assert!(matches!(incoming.as_mut().poll_next(&mut cx), Poll::Ready(None)));
}

#[test]
fn a_blocked_thread_is_woken_by_a_datagram_and_by_its_time() {
    let context = context();
    let queue = queue(&context, 1 << 20);
    let short = Duration::from_millis(20);
    let begin = Instant::now();
    assert_eq!(queue.recv_timeout(Some(short)).unwrap_err(), RecvError::TimedOut);
    assert!(begin.elapsed() >= short);
    let zero = queue.recv_batch_timeout(5, Some(Duration::ZERO));
    assert_eq!(zero.unwrap_err(), RecvError::TimedOut);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| queue.recv_timeout(Some(Duration::MAX)));
        std::thread::sleep(Duration::from_millis(5));
        queue.push(sized(3, 1)).unwrap();
        assert_eq!(reader.join().unwrap().unwrap().timestamp_ns, 3);
        let reader = scope.spawn(|| queue.recv_batch_timeout(5, None).map(names));
        std::thread::sleep(Duration::from_millis(5));
        queue.close();
        assert_eq!(reader.join().unwrap(), Err(RecvError::Closed));
    });
    assert!(queue.wakeups() <= 1);
}
