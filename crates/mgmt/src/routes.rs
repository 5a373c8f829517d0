//! Routes in the map: added and removed by administrators.

use types::{Code, Fault};
use wire::map::{ClusterMap, Route};
use wire::mgmt::ChangeRoutes;

use crate::register::check_size;

/// Most routes: some routers for each pair of a few tens of nets.
pub const ROUTES_MAX: usize = 4096;
/// Longest gateway in bytes, the limit of a NID.
const GATEWAY_MAX: usize = 192;

/// The map after a change of its routes. A route is the same as another one if net and router are.
///
/// A route that is there already is `Exists`, one that is not there is `NotFound`, and one that leads nowhere is `Invalid`. Nothing is
/// changed then.
pub fn change_routes(map: &ClusterMap, change: &ChangeRoutes) -> Result<ClusterMap, Fault> {
    let mut next = map.clone();
    let is_same = |a: &Route, b: &Route| (&a.to, &a.gateway) == (&b.to, &b.gateway);
    for route in &change.remove {
        let at = next.routes.iter().position(|other| is_same(other, route)).ok_or_else(|| {
            let why = format!(
                "there is no route to {} by {}; `stria route list` shows them",
                route.to, route.gateway
            );
            Fault::new(Code::NotFound, why)
        })?;
        next.routes.remove(at);
    }
    for route in &change.add {
        check(route)?;
        if next.routes.iter().any(|other| is_same(other, route)) {
            let why = format!("the route to {} by {} is there already", route.to, route.gateway);
            return Err(Fault::new(Code::Exists, format!("{why}; remove it first to change its priority")));
        }
        next.routes.push(route.clone());
    }
    if next.routes.len() > ROUTES_MAX {
        return Err(Fault::new(Code::NoSpace, format!("the map would have more than {ROUTES_MAX} routes")));
    }
    next.version += 1;
    check_size(&next)?;
    Ok(next)
}

fn check(route: &Route) -> Result<(), Fault> {
    let is_net = |net: &str| {
        net.strip_prefix("tcp")
            .is_some_and(|n| !n.is_empty() && n.len() <= 9 && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let invalid = |why: String| Err(Fault::new(Code::Invalid, why));
    let from = route.gateway.rsplit_once('@').map_or("", |(_, net)| net);
    if !is_net(&route.to) || !is_net(from) || route.gateway.len() > GATEWAY_MAX {
        return invalid("a route is a net and the NID of a router: tcp1 via 10.0.0.9:7020@tcp0".into());
    }
    if route.to == from {
        return invalid(format!("the router's NID is on {from} too; give its NID on the near net"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(to: &str, gateway: &str) -> Route {
        Route { to: to.into(), gateway: gateway.into(), priority: 0 }
    }
    fn after(map: &ClusterMap, remove: &[Route], add: &[Route]) -> Result<ClusterMap, Code> {
        let change = ChangeRoutes { remove: remove.to_vec(), add: add.to_vec() };
        change_routes(map, &change).map_err(|fault| fault.code)
    }

    #[test]
    fn routes_come_and_go_once_each() {
        let a = route("tcp1", "r1:7020@tcp0");
        let one = after(&ClusterMap::empty(), &[], std::slice::from_ref(&a)).expect("a new route");
        assert_eq!((one.version, &one.routes), (1, &vec![a.clone()]));
        assert_eq!(after(&one, &[], &[Route { priority: 9, ..a.clone() }]), Err(Code::Exists));
        let changed = Route { priority: 9, ..a.clone() };
        let two =
            after(&one, std::slice::from_ref(&a), std::slice::from_ref(&changed)).expect("another priority");
        assert_eq!(two.routes, [changed]);
        assert_eq!(after(&two, &[route("tcp2", "r1:7020@tcp0")], &[]), Err(Code::NotFound));
        assert_eq!(after(&two, &[a], &[]).expect("the last one").routes, []);
    }

    #[test]
    fn routes_that_lead_nowhere_are_refused() {
        for (to, gateway) in [
            ("tcp1", "r1:7020@tcp1"),
            ("o2ib", "r1:7020@tcp0"),
            ("tcp", "r1:7020@tcp0"),
            ("tcp1", "r1:7020"),
            ("tcp1", "r1:7020@local0"),
        ] {
            assert_eq!(
                after(&ClusterMap::empty(), &[], &[route(to, gateway)]),
                Err(Code::Invalid),
                "{gateway}"
            );
        }
    }
}
