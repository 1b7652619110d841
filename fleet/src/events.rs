//! What happens to the partitions of a member, as the program sees it.

use std::collections::BTreeSet;
use tokio::sync::mpsc;

/// What has happened to a partition. From [`Fleet::events`](crate::Fleet::events).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// This member owns the partition now, and hands out its keys. List what the partition's keys are about, and add them: adds that the
    /// former owner accepted are not here. Also told again of a partition that was about to be handed over and is not any more: adds were
    /// refused meanwhile.
    Acquired(u32),
    /// The partition was handed over: no handler of its keys runs here, and its keys were taken out of the queue.
    Released(u32),
    /// The member could not renew its record in time, and others have deleted it: they may own the partition already. Its keys were
    /// taken out of the queue; handlers that still run are told ([`lost`](crate::Permit::lost)).
    /// Or the table of owners was changed by hand.
    Lost(u32),
}

/// A stream of [`Event`]s, from [`Fleet::events`](crate::Fleet::events).
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::UnboundedReceiver<Event>,
}

impl Events {
    /// The next event, or `None` at the end: the member has left or was refused, or the fleet's handles are dropped.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }

    /// All events that have happened since, at least one; empty at the end. Many partitions move at once, and one listing of the program's
    /// objects can serve all of them: [`Fleet::add`](crate::Fleet::add) ignores the keys of others.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next_many(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.receiver.recv_many(&mut events, usize::MAX).await;
        events
    }
}

/// The listeners, and what a new one must be told first.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    owned: BTreeSet<u32>,
    listeners: Vec<mpsc::UnboundedSender<Event>>,
    ended: bool,
}

impl Hub {
    pub(crate) fn tell(&mut self, event: Event) {
        match event {
            Event::Acquired(partition) => _ = self.owned.insert(partition),
            Event::Released(partition) | Event::Lost(partition) => _ = self.owned.remove(&partition),
        }
        self.listeners.retain(|listener| listener.send(event).is_ok());
    }

    /// A new listener, which is told of what the member owns already.
    pub(crate) fn listen(&mut self) -> Events {
        let (sender, receiver) = mpsc::unbounded_channel();
        for &partition in &self.owned {
            sender.send(Event::Acquired(partition)).expect("the receiver is alive");
        }
        if !self.ended {
            self.listeners.push(sender);
        }
        Events { receiver }
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
        self.listeners.clear();
    }

    pub(crate) fn owned(&self) -> &BTreeSet<u32> {
        &self.owned
    }
}
