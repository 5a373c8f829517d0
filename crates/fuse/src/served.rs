//! The door while it is served: session threads read the requests, and some of the work runs aside.

use std::ops::Deref;
use std::sync::Arc;

use crate::door::Door;

/// A door in service. Work that runs aside keeps it alive.
pub struct Served(Arc<Door>);

impl Served {
    pub fn new(door: Door) -> Served {
        Served(Arc::new(door))
    }
    pub(crate) fn door(&self) -> &Arc<Door> {
        &self.0
    }
    /// Exclusive access, before the first request.
    pub(crate) fn own(&mut self) -> &mut Door {
        Arc::get_mut(&mut self.0).expect("work goes aside for requests only")
    }
}

impl Deref for Served {
    type Target = Door;
    fn deref(&self) -> &Door {
        &self.0
    }
}
