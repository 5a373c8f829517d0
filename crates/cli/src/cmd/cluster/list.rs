//! `stria cluster list`.

use std::time::{SystemTime, UNIX_EPOCH};

use pki::{Authority, Listed, State};
use serde::Serialize;

use crate::exit::Exit;

const DAY_SEC: u64 = 86_400;
/// A month to renew a node's certificate.
const NODE_WARNING_SEC: u64 = 30 * DAY_SEC;
/// A year to rotate the CA, so that nodes' certificates do not become short before.
const CA_WARNING_SEC: u64 = 365 * DAY_SEC;

#[derive(Debug, Serialize)]
struct Output {
    cluster: String,
    generation: u32,
    rotating: bool,
    ca_expires_sec: u64,
    revocation_list: u64,
    certificates: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    role: &'static str,
    node: String,
    serial: String,
    generation: u32,
    issued_sec: u64,
    expires_sec: u64,
    state: &'static str,
    newest: bool,
    reason: Option<&'static str>,
    revoked_sec: Option<u64>,
}

impl From<&Listed> for Line {
    fn from(listed: &Listed) -> Line {
        let record = &listed.record;
        Line {
            role: record.role.as_str(),
            node: record.node.to_string(),
            serial: record.serial.to_string(),
            generation: record.generation,
            issued_sec: record.issued_sec,
            expires_sec: record.not_after,
            state: listed.state.as_str(),
            newest: listed.is_newest,
            reason: record.revoked.map(|revoked| revoked.reason.as_str()),
            revoked_sec: record.revoked.map(|revoked| revoked.sec),
        }
    }
}

pub fn run(authority: &Authority, json: bool, now: SystemTime) -> anyhow::Result<Exit> {
    let listed = authority.list(now);
    match json {
        true => {
            let output = Output {
                cluster: authority.cluster().to_string(),
                generation: authority.generation(),
                rotating: authority.is_rotating(),
                ca_expires_sec: authority.ca_not_after(),
                revocation_list: authority.list_number(),
                certificates: listed.iter().map(Line::from).collect(),
            };
            outln!("{}", serde_json::to_string_pretty(&output)?);
        }
        false => table(authority, &listed),
    }
    Ok(warn(authority, &listed, now))
}

fn table(authority: &Authority, listed: &[Listed]) {
    let rotating = if authority.is_rotating() { ", rotation under way" } else { "" };
    outln!(
        "cluster {}: CA {} until {}{rotating}, revocation list {}",
        authority.cluster(),
        authority.generation(),
        pki::day(authority.ca_not_after()),
        authority.list_number()
    );
    outln!("{:<8}{:<12}{:<5}{:<12}{:<9}NODE", "ROLE", "SERIAL", "CA", "EXPIRES", "STATE");
    for Listed { record, state, .. } in listed {
        outln!(
            "{:<8}{:<12}{:<5}{:<12}{:<9}{}",
            record.role,
            record.serial.short(),
            record.generation,
            pki::day(record.not_after),
            state.as_str(),
            record.node
        );
    }
}

/// Warns of what expires soon. A certificate with a newer one of its node and role may expire.
fn warn(authority: &Authority, listed: &[Listed], now: SystemTime) -> Exit {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut exit = Exit::Done;
    let option = super::told::dir_option(authority.dir());
    for Listed { record, state, is_newest } in listed {
        if *state == State::Valid && *is_newest && record.not_after < now + NODE_WARNING_SEC {
            let (day, role, node) = (pki::day(record.not_after), record.role, &record.node);
            eprintln!(
                "stria: the {role} certificate of {node} expires on {day}; `stria cluster issue {node} --role {role}{option}`"
            );
            exit = Exit::Findings;
        }
    }
    if authority.ca_not_after() < now + CA_WARNING_SEC {
        let day = pki::day(authority.ca_not_after());
        eprintln!("stria: the CA expires on {day}; `stria cluster rotate{option}`");
        exit = Exit::Findings;
    }
    exit
}
