//! The door as it is served: requests come on threads of the session, and some of their work goes on aside.

use std::ops::Deref;
use std::sync::Arc;

use crate::door::Door;

/// A door in service. Work that goes aside keeps it.
pub struct Served(Arc<Door>);

impl Served {
    pub fn new(door: Door) -> Served {
        Served(Arc::new(door))
    }
    pub(crate) fn door(&self) -> &Arc<Door> {
        &self.0
    }
    /// Before the first request: nobody else has it.
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
