//! The service of a member: calls of the mirror go to its seat, those about the member to its place, others to the target while it orders.

use std::sync::{Arc, Weak};

use net::{Answer, Service};
use pair::Seat;
use types::{Code, Fault};
use wire::codec::Wire;
use wire::pair::{HandOver, MemberStat, Resync};
use wire::{Header, Request, unlogged_reply};

use super::Place;

pub struct Front {
    pub place: Weak<Place>,
    pub seat: Arc<Seat>,
    pub target: Option<Arc<dyn Service>>,
}

impl Service for Front {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        if Seat::is_served(head.call) {
            return self.seat.serve(head, body, bulk, answer);
        }
        let outcome = match (head.call, &self.target) {
            (MemberStat::CALL | HandOver::CALL | Resync::CALL, _) => {
                answer.check_role(head.call).and_then(|()| self.of_place(head.call, body))
            }
            (_, Some(target)) => return target.serve(head, body, bulk, answer),
            (_, None) => {
                let why =
                    "this member of the mirror serves no requests now; ask for the newest map and try again";
                Err(Fault::new(Code::Moved, why))
            }
        };
        answer.bulk.clear();
        answer.body = unlogged_reply(outcome);
    }
}

impl Front {
    fn of_place(&self, call: u16, body: &[u8]) -> Result<Vec<u8>, Fault> {
        let stopped = || Fault::new(Code::NotReady, "this target has stopped; ask the mirror's other member");
        let place = self.place.upgrade().ok_or_else(stopped)?;
        match call {
            MemberStat::CALL => {
                place.check_mirror(parse::<MemberStat>(body)?.mirror)?;
                Ok(place.member_stat().to_bytes())
            }
            Resync::CALL => {
                let request = parse::<Resync>(body)?;
                place.check_mirror(request.mirror)?;
                Ok(place.resync(&request.token, request.loses_damaged)?.to_bytes())
            }
            _ => {
                place.check_mirror(parse::<HandOver>(body)?.mirror)?;
                Ok(place.hand_over()?.to_bytes())
            }
        }
    }
}

pub fn parse<T: Wire>(body: &[u8]) -> Result<T, Fault> {
    T::from_bytes(body).map_err(|why| Fault::new(Code::BadRequest, why.to_string()))
}
