//! Requests that are answered after their service returned.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::Engine;
use crate::Line;
use crate::connection::{Connection, UnderWay};
use crate::known::{Endpoint, Known, Sender};
use crate::later::{Deliver, Parking};
use crate::limits::Share;
use crate::line::Answered;

/// A request's connection, its memory and its place among those under way, until it is answered.
pub(super) type Place = (Arc<Connection>, Share, UnderWay);

/// A request at the worker that serves it, until it is parked.
pub(super) struct AtWorker<'a> {
    engine: &'a Engine,
    place: RefCell<Option<Place>>,
}

/// A request that waits for its answer without a worker. Dropped without an answer, it ends its connection: then its client knows.
struct Parked {
    engine: Weak<Engine>,
    place: Option<Place>,
}

impl<'a> AtWorker<'a> {
    pub fn new(engine: &'a Engine, place: Place) -> AtWorker<'a> {
        AtWorker { engine, place: RefCell::new(Some(place)) }
    }
    /// The place of a request that was not parked.
    pub fn take(self) -> Option<Place> {
        self.place.into_inner()
    }
}

impl Parking for AtWorker<'_> {
    fn park(&self) -> Option<Deliver> {
        let mut place = self.place.borrow_mut().take()?;
        // It holds no memory for bulk bytes while it waits: requests that would end its wait may need that.
        let (connection, share, _) = &mut place;
        if let Some(small) = connection.seat.take(0) {
            *share = small;
        }
        let mut parked = Parked { engine: self.engine.me.clone(), place: Some(place) };
        Some(Box::new(move |head, body, mut bulk| {
            let Some(engine) = parked.engine.upgrade() else { return };
            if let Some(place) = parked.place.take() {
                // The thread that answers answers others too.
                engine.finish(place, head, body, &mut bulk, false);
            }
        }))
    }

    fn sender(&self) -> Option<Sender> {
        self.place.borrow().as_ref()?.0.channel.sender()
    }
    fn with_known(&self, look: &mut dyn FnMut(&Known)) {
        let place = self.place.borrow();
        place.as_ref().and_then(|(connection, ..)| connection.channel.known()).into_iter().for_each(look);
    }

    fn endpoint(&self) -> Endpoint {
        self.place
            .borrow()
            .as_ref()
            .map_or_else(Endpoint::local, |(connection, ..)| connection.endpoint.clone())
    }
    fn line(&self, answered: Answered) -> Option<Line> {
        let place = self.place.borrow();
        self.engine.line(&place.as_ref()?.0, answered)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if let (Some(engine), Some((connection, ..))) = (self.engine.upgrade(), self.place.take()) {
            engine.close(&connection);
        }
    }
}
