//! `stria mgs`: where the cluster map is, in a directory or in etcd.

use mapstore::etcd::Reach;

use super::*;

/// The place of a management service's map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    Dir(PathBuf),
    Etcd(Reach),
}

impl Mgs {
    /// The place of the map, once `check` has passed.
    pub fn keeping(&self) -> Result<Keeping, String> {
        match (&self.dir, self.etcd.is_empty()) {
            (Some(dir), true) => Ok(Keeping::Dir(dir.clone())),
            (None, false) => {
                let prefix =
                    self.etcd_prefix.clone().ok_or("`etcd` needs `etcd_prefix`, such as \"/stria/home\"")?;
                let (ca, cert, key) = (self.etcd_ca.clone(), self.etcd_cert.clone(), self.etcd_key.clone());
                Ok(Keeping::Etcd(Reach { endpoints: self.etcd.clone(), prefix, ca, cert, key }))
            }
            (Some(_), false) => Err("the map is in `dir` or in `etcd`, not in both: take one out".to_owned()),
            (None, true) => Err("it needs `dir`, or `etcd` with `etcd_prefix`".to_owned()),
        }
    }

    fn etcd_keys(&self) -> String {
        let list = "Members of an etcd cluster (3.4 or later) that has the map instead of `dir`: several `stria mgs` then share it, and one of them leads.";
        let prefix = "Begins the keys of this cluster's map in etcd.";
        let ca = "PEM file with the CA of etcd's servers, for https.";
        let cert = "PEM files with the certificate for etcd and its key.";
        let path = |comment: &str, name: &str, value: &Option<PathBuf>| match value {
            Some(value) => key(comment, name, toml_of(value)),
            None => absent_key(comment, name, &format!("\"/etc/stria/etcd/{}.pem\"", &name[5..])),
        };
        let members = match self.etcd.is_empty() {
            false => key(list, "etcd", toml_of(&self.etcd)),
            true => absent_key(
                list,
                "etcd",
                "[\"https://10.0.0.5:2379\", \"https://10.0.0.6:2379\", \"https://10.0.0.7:2379\"]",
            ),
        };
        let prefix = match &self.etcd_prefix {
            Some(value) => key(prefix, "etcd_prefix", toml_of(value)),
            None => absent_key(prefix, "etcd_prefix", "\"/stria/home\""),
        };
        let files = [
            path(ca, "etcd_ca", &self.etcd_ca),
            path(cert, "etcd_cert", &self.etcd_cert),
            path("Its key.", "etcd_key", &self.etcd_key),
        ];
        [members, prefix, files.concat()].concat()
    }
}

fn is_loopback(url: &str) -> bool {
    let rest = url.trim_start_matches("http://");
    let host = rest.split('/').next().unwrap_or(rest);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Config for Mgs {
    fn example() -> Mgs {
        Mgs {
            listen: mgs_listen(),
            dir: Some("/var/lib/stria/mgs".into()),
            etcd: vec![],
            etcd_prefix: None,
            etcd_ca: None,
            etcd_cert: None,
            etcd_key: None,
            tls: None,
            metrics: None,
        }
    }
    fn print(&self) -> String {
        let head = "# stria mgs --config FILE: the management service, keeper of the cluster map.\n\n";
        let comment = "Directory of the cluster map; made if it does not exist. For one management service.";
        let dir = match &self.dir {
            Some(dir) => key(comment, "dir", toml_of(dir)),
            None => absent_key(comment, "dir", "\"/var/lib/stria/mgs\""),
        };
        let (tls, metrics) = (tls_key(&self.tls), metrics_key(&self.metrics));
        [head, &*listen_key(&self.listen), &dir, &self.etcd_keys(), &tls, &metrics].concat()
    }
    fn check(&self) -> Result<(), String> {
        check_listen(&self.listen)?;
        check_address(self.metrics.as_ref())?;
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if let Some(bad) = self.etcd.iter().find(|url| !is_url(url)) {
            return Err(format!(
                "`etcd`: {bad:?} is no URL; write \"https://HOST:2379\", or \"http://\" without TLS"
            ));
        }
        let is_open = |url: &&String| url.starts_with("http://") && !is_loopback(url);
        if let Some(open) = self.etcd.iter().find(is_open).filter(|_| self.tls.as_deref() != Some("off")) {
            return Err(format!(
                "`etcd`: {open} would carry the keys of all file systems in clear text; write https:// with `etcd_ca`, or `tls = \"off\"` on a net of your own"
            ));
        }
        if self.etcd.iter().any(|url| url.starts_with("https://")) && self.etcd_ca.is_none() {
            return Err("`etcd`: https needs `etcd_ca`".to_owned());
        }
        match &self.etcd_prefix {
            Some(prefix) if !prefix.starts_with('/') || prefix.trim_end_matches('/').is_empty() => {
                Err(format!("`etcd_prefix`: {prefix:?} does not begin with '/' and a name"))
            }
            _ => self.keeping().map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_in_a_directory_or_in_etcd() {
        let parse = |text: &str| {
            let config: Mgs = toml::from_str(text).map_err(|e| e.to_string())?;
            config.check().map(|()| config)
        };
        let etcd = "etcd = [\"http://127.0.0.1:2379\"]\netcd_prefix = \"/stria/a\"\n";
        let config = parse(etcd).unwrap();
        assert!(matches!(config.keeping(), Ok(Keeping::Etcd(reach)) if reach.prefix == "/stria/a"));
        assert_eq!(parse(&config.print()), Ok(config), "it prints what it reads");
        assert_eq!(parse("dir = \"/d\"\n").unwrap().keeping(), Ok(Keeping::Dir("/d".into())));
        for (text, why) in [
            (String::new(), "it needs `dir`"),
            (format!("dir = \"/d\"\n{etcd}"), "not in both"),
            ("etcd = [\"http://127.0.0.1:2379\"]\n".into(), "needs `etcd_prefix`"),
            ("etcd = [\"http://10.0.0.5:2379\"]\netcd_prefix = \"/a\"\n".into(), "in clear text"),
            ("etcd = [\"127.0.0.1:2379\"]\netcd_prefix = \"/a\"\n".into(), "is no URL"),
            ("etcd = [\"https://127.0.0.1:2379\"]\netcd_prefix = \"/a\"\n".into(), "needs `etcd_ca`"),
            ("etcd = [\"http://127.0.0.1:2379\"]\netcd_prefix = \"a\"\n".into(), "does not begin with '/'"),
        ] {
            let refused = parse(&text).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
