//! Events of a request on their way to a client that may read slowly.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::job::Event;

/// Sender of events that never blocks.
pub(crate) struct Outbox {
    sender: Sender<Event>,
    /// Events for which the channel had no room.
    held: VecDeque<Event>,
    /// Time of the first event that is held.
    since: Option<Instant>,
    /// Total time of earlier waits for the client.
    waited: Duration,
}

impl Outbox {
    /// Creates an outbox for a channel.
    pub(crate) fn new(sender: Sender<Event>) -> Self {
        Self { sender, held: VecDeque::new(), since: None, waited: Duration::ZERO }
    }

    /// Sends an event, or holds it while the channel has no room.
    pub(crate) fn send(&mut self, event: Event) {
        self.held.push_back(event);
        self.flush();
    }

    /// Sends held events. Returns true if none is left.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(event) = self.held.pop_front() {
            match self.sender.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Closed(_)) => self.held.clear(),
                Err(TrySendError::Full(event)) => {
                    self.held.push_front(event);
                    self.since.get_or_insert_with(Instant::now);
                    return false;
                }
            }
        }
        self.waited += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        true
    }

    /// True if events are held because the client does not read.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.held.is_empty()
    }

    /// True if the client is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Total time for which events were held.
    pub(crate) fn waited(&self) -> Duration {
        self.waited + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc;

    use super::Outbox;
    use crate::job::Event;

    fn text(text: &str) -> Event {
        Event::Text(text.to_owned(), Vec::new())
    }

    #[test]
    fn events_wait_for_a_client_and_keep_their_order() {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut outbox = Outbox::new(sender);
        outbox.send(text("a"));
        assert!(!outbox.is_blocked() && outbox.waited() == Duration::ZERO);
        outbox.send(text("b"));
        outbox.send(text("c"));
        assert!(outbox.is_blocked() && outbox.waited() > Duration::ZERO);
        for (wanted, last) in [("a", false), ("b", true), ("c", true)] {
            assert!(matches!(receiver.try_recv(), Ok(Event::Text(text, _)) if text == wanted));
            assert_eq!(outbox.flush(), last);
        }
        drop(receiver);
        outbox.send(text("d"));
        assert!(outbox.is_closed() && !outbox.is_blocked());
    }
}
