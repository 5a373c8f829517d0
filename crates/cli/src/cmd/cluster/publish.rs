//! `stria cluster publish`: the CA directory's revocation lists, into the cluster map.

use std::time::SystemTime;

use clap::Args;
use pki::{Authority, Role};
use wire::codec::Bytes;
use wire::mgmt::PublishCrl;

use super::{At, told};
use crate::exit::{Exit, Failure, unless_said};
use crate::reach::Service;

/// Put the revocation lists of the CA directory into the cluster map: all servers, routers and mounts take them at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria cluster publish --mgs 10.0.0.5@tcp
It needs an administrator's certificate (STRIA_TLS, or /etc/stria/admin). The list may have been published before; then nothing changes.
If a server's or an administrator's certificate was revoked, the keys of all file systems change too: mounts go on with new capabilities.")]
pub struct Publish {
    /// The management service: NID[,NID...].
    #[arg(long, value_name = "NID", value_parser = Service::parse)]
    mgs: Service,
    #[command(flatten)]
    at: At,
}

impl Publish {
    pub fn run(self, now: SystemTime) -> anyhow::Result<Exit> {
        run(&self.at.open()?, &self.mgs, now)
    }
}

pub fn run(authority: &Authority, service: &Service, now: SystemTime) -> anyhow::Result<Exit> {
    let met = service.manage()?;
    let crls = authority.lists().map_err(super::failure)?;
    // 1. Servers and administrators know the keys of file systems.
    let (before, now_in) = (pki::serials(&met.map.crls), pki::serials(&crls));
    let rotate_keys = authority.list(now).into_iter().map(|listed| listed.record).any(|r| {
        let is_new = now_in.contains(&r.serial) && !before.contains(&r.serial);
        is_new && matches!(r.role, Role::Server | Role::Admin)
    });
    // 2. The management service verifies the lists.
    let reply = met.ask(&PublishCrl { crls: Bytes(crls), rotate_keys }).map_err(|e| {
        let next = format!(
            "the cluster judges by its list of before; put that right, and run `stria cluster publish --mgs NID{}`",
            told::dir_option(authority.dir())
        );
        let why = format!("{e:#}");
        unless_said(e, || Failure::failed("cluster publish", why, next))
    })?;
    match reply.is_new {
        true => outln!(
            "published revocation list {} in version {} of the cluster map",
            reply.number,
            reply.version
        ),
        false => outln!("the cluster map has revocation list {} already", reply.number),
    }
    if reply.is_new && rotate_keys {
        outln!(
            "  the keys of all file systems were changed, since a server's or administrator's certificate is revoked"
        );
    }
    Ok(Exit::Done)
}
