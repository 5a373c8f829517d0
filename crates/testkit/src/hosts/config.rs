//! The configuration files of a site's processes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::plan::{Part, Plan};

/// Added to the port of a server that came from another host.
const GUEST_PORT: u16 = 50;

/// The configuration of a part that is no router. `dir` is for its files; `tls` is the folder of its certificate, if it has one.
pub fn text(plan: &Plan, part: &Part, dir: &Path, tls: Option<&Path>) -> Result<String> {
    moved_text(plan, (part, part), dir, tls)
}

/// As `text`, for a server that runs in the place of `at`, beside its own server there.
pub fn moved_text(plan: &Plan, (part, at): (&Part, &Part), dir: &Path, tls: Option<&Path>) -> Result<String> {
    let host = plan.host_of(at)?;
    let tls = match tls {
        Some(folder) => format!("tls = {}\n", quoted(folder)),
        // The machine may have certificates of its own.
        None => "tls = \"off\"\n".into(),
    };
    let source = |with_address: bool| -> Result<String> {
        let (Some(cluster), Some(name)) = part.place() else { return Ok(String::new()) };
        let mgs = plan.mgs_nids(cluster, host)?;
        let address = if with_address { addresses(plan, part, at)? } else { String::new() };
        Ok(format!("mgs = {mgs:?}\nfsname = \"{name}\"\n{address}"))
    };
    let stem = part.file_stem();
    let body = match part {
        Part::Router { .. } => bail!("{part}: `router_text` has its configuration"),
        Part::Mgs { .. } => format!("{}dir = {}\n", addresses(plan, part, at)?, quoted(&dir.join(&stem))),
        Part::Mds { second, .. } => {
            let (device, second) = (
                quoted(&images(plan, part, dir)?.join(format!("{stem}.img"))),
                if *second { "second = true\n" } else { "" },
            );
            format!("{}device = {device}\nsize = \"4G\"\n{second}", source(true)?)
        }
        Part::Oss { second, .. } => {
            let devices: Vec<String> = devices(plan, part, dir)?.iter().map(|path| quoted(path)).collect();
            let (devices, size) = (devices.join(", "), plan.ost_size());
            let devices = match second {
                true => format!("devices = []\nsecond_devices = [{devices}]"),
                false => format!("devices = [{devices}]"),
            };
            format!("{}{devices}\nsize = \"{size}\"\n", source(true)?)
        }
        Part::Mount { .. } => format!("{}mountpoint = {}\n", source(false)?, quoted(&mount_point(part, dir))),
    };
    Ok(format!("{body}{tls}{}", plan.more_of(part)))
}

/// The configuration of a router that lets the hosts of all clusters pass. `certificate` gives the folder of its certificate of a cluster.
pub fn router_text(
    plan: &Plan,
    host: &str,
    dir: &Path,
    certificate: impl Fn(&str) -> Option<PathBuf>,
) -> Result<String> {
    let listen = plan.nids(&Part::router(host))?;
    let own = plan.nets_of(host);
    let others: Vec<String> = plan
        .routes()?
        .into_iter()
        .filter(|route| route.router != host && !own.contains(&&*route.to))
        .map(|route| route.to_string())
        .collect();
    let dir = quoted(&dir.join("router"));
    let mut text = format!("listen = {listen:?}\ndir = {dir}\nroutes = {others:?}\n");
    for (cluster, _) in plan.clusters() {
        let tls = certificate(cluster).map_or("\"off\"".into(), |folder| quoted(&folder));
        text += &format!("[[cluster]]\nmgs = {:?}\ntls = {tls}\n", plan.mgs_nids(cluster, host)?);
    }
    Ok(text)
}

/// Where a part of the kind `Mount` mounts.
pub fn mount_point(part: &Part, dir: &Path) -> std::path::PathBuf {
    let (cluster, name) = part.place();
    dir.join(format!("{}-{}", cluster.unwrap_or_default(), name.unwrap_or_default()))
}

/// The devices of an object server.
pub fn devices(plan: &Plan, part: &Part, dir: &Path) -> Result<Vec<PathBuf>> {
    let (stem, folder) = (part.file_stem(), images(plan, part, dir)?);
    Ok((0..plan.osts_per_server()).map(|n| folder.join(format!("{stem}.{n}.img"))).collect())
}

/// The directory of a server's images. They stay there if it moves.
fn images(plan: &Plan, part: &Part, dir: &Path) -> Result<PathBuf> {
    Ok(dir.join(plan.image_folder(plan.host_of(part)?)))
}

/// A server listens at the address of its host on each net. A guest's port is one that its host's own servers leave free.
fn addresses(plan: &Plan, part: &Part, at: &Part) -> Result<String> {
    let own = plan.port(at)?.with_context(|| format!("{at} has no port"))?;
    let port = if part == at { own } else { own + GUEST_PORT };
    let host = plan.host_of(at)?;
    let nids = plan.nets_of(host).into_iter().map(|net| Ok(plan.spec().nid(host, net, port)?));
    Ok(format!("listen = {:?}\n", nids.collect::<Result<Vec<_>>>()?))
}

/// A path as TOML.
fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_listens_at_the_addresses_of_its_host_and_a_mount_asks_the_service_on_its_net() {
        let plan = Plan::new()
            .host("c0", &["tcp1"])
            .host("s0", &["tcp0", "tcp1"])
            .cluster("alpha", "s0")
            .fs("alpha/work", "s0", &["s0"])
            .mount("alpha/work", "c0")
            .osts(2, "1G")
            .more(Part::mount("alpha/work", "c0"), "op_timeout_sec = 20");
        let of = |part: Part| text(&plan, &part, Path::new("/d"), Some(Path::new("/t"))).unwrap();
        assert_eq!(
            of(Part::mgs("alpha")),
            "listen = [\"10.0.0.2:7010@tcp0\", \"10.1.0.2:7010@tcp1\"]\ndir = \"/d/mgs-alpha\"\ntls = \"/t\"\n"
        );
        assert_eq!(
            of(Part::oss("alpha/work", "s0")),
            "mgs = [\"10.0.0.2:7010@tcp0\", \"10.1.0.2:7010@tcp1\"]\nfsname = \"work\"\n\
             listen = [\"10.0.0.2:7300@tcp0\", \"10.1.0.2:7300@tcp1\"]\n\
             devices = [\"/d/oss-alpha-work.0.img\", \"/d/oss-alpha-work.1.img\"]\nsize = \"1G\"\ntls = \"/t\"\n"
        );
        assert_eq!(
            of(Part::mount("alpha/work", "c0")),
            "mgs = [\"10.1.0.2:7010@tcp1\"]\nfsname = \"work\"\nmountpoint = \"/d/alpha-work\"\ntls = \"/t\"\n\
             op_timeout_sec = 20\n"
        );
    }
}
