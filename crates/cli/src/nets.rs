//! The nets that this host is on, and the routes to others: from a configuration, from mount options, or from the environment.

use net::Fabric;
use net::routes::{check_net, net_of, parse_route};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wire::map::Route;

use crate::exit::Failure;

/// For processes whose configuration says nothing: nets with commas, routes with semicolons between them.
pub const NETS: &str = "STRIA_NETS";
pub const ROUTES: &str = "STRIA_ROUTES";

/// Nets and routes of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nets {
    pub own: Vec<String>,
    pub routes: Vec<Route>,
}

impl Nets {
    /// From the keys `nets` and `routes`. Empty lists leave the choice to the environment.
    pub fn of(nets: &[String], routes: &[String]) -> Result<Nets, String> {
        nets.iter().try_for_each(|net| check_net(net)).map_err(|why| format!("`nets`: {why}"))?;
        let routes = routes.iter().map(|text| parse_route(text)).collect::<Result<_, _>>();
        Ok(Nets { own: nets.to_vec(), routes: routes.map_err(|why| format!("`routes`: {why}"))? })
    }

    /// From the environment.
    pub fn of_environment() -> Result<Nets, Failure> {
        let list = |name: &str, separator: char| -> Vec<String> {
            let value = std::env::var(name).unwrap_or_default();
            value.split(separator).map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect()
        };
        Nets::of(&list(NETS, ','), &list(ROUTES, ';')).map_err(|why| {
            Failure::unusable(format!("{NETS} and {ROUTES}"), why, "correct the variable, or unset it")
        })
    }

    /// These, where they say something; else those of the environment.
    pub fn or_environment(self) -> Result<Nets, Failure> {
        let other = Nets::of_environment()?;
        let own = if self.own.is_empty() { other.own } else { self.own };
        let routes = if self.routes.is_empty() { other.routes } else { self.routes };
        Ok(Nets { own, routes })
    }

    /// For a server: with routes, the nets of its own NIDs are its nets.
    pub fn with_nids(mut self, nids: &[String]) -> Nets {
        if self.own.is_empty() && !self.routes.is_empty() {
            self.own = nids.iter().map(|nid| net_of(nid).to_owned()).collect();
        }
        self
    }

    pub fn apply(self, fabric: &Fabric) {
        fabric.set_nets(self.own, self.routes);
    }
}

/// The value of `listen`: one address, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen(pub Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Listen, D::Error> {
        Ok(match OneOrMany::deserialize(from)? {
            OneOrMany::One(address) => Listen(vec![address]),
            OneOrMany::Many(addresses) => Listen(addresses),
        })
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(to),
            many => many.serialize(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nets_of_a_server_with_routes_follow_from_its_nids() {
        let routes = ["tcp1 via 10.0.0.9:7020@tcp0".to_owned()];
        let nids = ["10.0.0.5:7011@tcp0".to_owned(), "10.2.0.5:7011@tcp2".to_owned()];
        let nets = Nets::of(&[], &routes).expect("good routes");
        assert_eq!(nets.with_nids(&nids).own, ["tcp0", "tcp2"]);
        assert!(Nets::default().with_nids(&nids).own.is_empty(), "without routes every net is tried");
        assert!(Nets::of(&["o2ib".into()], &[]).expect_err("refused").starts_with("`nets`"));
        assert!(Nets::of(&[], &["tcp1".into()]).expect_err("refused").starts_with("`routes`"));
    }
}
