//! Every command that prints data can print it as documented JSON.
//!
//! cli-J1: a command has `-j, --json` and a schema in `docs/json`, or stands in `NO_DATA` with the reason.

use std::collections::BTreeSet;
use std::path::Path;

use clap::CommandFactory;

use super::Cli;

const SCHEMAS: &str = "docs/json";

/// Commands that print no data: they serve, act without output, or print input for another program.
const NO_DATA: &[(&str, &str)] = &[
    ("stria-mgs-rebuild", "it makes a map; `stria status -j` shows its targets"),
    ("stria-target-show", "it prints facts for `stria mgs rebuild`, as JSON only"),
    ("stria-mgs-move", "it copies the map; `stria status -j` shows its version"),
    ("stria-mds", "it serves; its configuration is TOML"),
    ("stria-oss", "it serves; its configuration is TOML"),
    ("stria-mount", "it mounts"),
    ("stria-dash", "it serves a page; /api/state.json has the figures"),
    ("stria-setstripe", "it sets; `stria getstripe -j` shows"),
    ("stria-changelog-deregister", "it removes a consumer; `stria changelog list -j` shows"),
    ("stria-changelog-ack", "it acknowledges; `stria changelog list -j` shows"),
    ("stria-cluster-init", "it makes a CA; `stria cluster list -j` shows"),
    ("stria-cluster-add-node", "it issues; `stria cluster list -j` shows"),
    ("stria-cluster-issue", "it issues; `stria cluster list -j` shows"),
    ("stria-cluster-revoke", "it revokes; `stria cluster list -j` shows"),
    ("stria-cluster-publish", "it sends the lists; `stria cluster list -j` shows them"),
    ("stria-cluster-rotate", "it rotates; `stria cluster list -j` shows"),
    ("stria-gateway-nfs-enable", "it sets up; `stria gateway nfs list -j` shows"),
    ("stria-gateway-nfs-disable", "it takes away; `stria gateway nfs list -j` shows"),
    ("stria-gateway-smb-enable", "it sets up; `stria gateway smb list -j` shows"),
    ("stria-gateway-smb-disable", "it takes away; `stria gateway smb list -j` shows"),
    ("stria-nodemap-add", "it adds; `stria nodemap list -j` shows"),
    ("stria-nodemap-modify", "it changes; `stria nodemap list -j` shows"),
    ("stria-nodemap-remove", "it removes; `stria nodemap list -j` shows"),
    ("stria-route-add", "it adds; `stria route list -j` shows"),
    ("stria-route-del", "it removes; `stria route list -j` shows"),
    ("stria-router-drain", "it begins a drain; `stria router stat -j` shows"),
    ("stria-router-resume", "it ends a drain; `stria router stat -j` shows"),
    ("stria-bundle", "it writes an archive"),
    ("stria-explain", "it prints paragraphs of the documents"),
    ("stria-index", "it starts `stria-index`; `stria index status -j` shows how far it is"),
    ("stria-lfs", "it prints what users of Lustre parse"),
    ("stria-mm-mmgetstate", "it prints what users of Storage Scale parse"),
    ("stria-mm-mmlsfs", "it prints what users of Storage Scale parse"),
    ("stria-completions", "it prints a script for a shell"),
];

/// Schemas of `stria-index`, which has a command line of its own. Its suite holds them against what it prints.
const OF_INDEX: [&str; 1] = ["stria-index-status.json"];

/// Commands without subcommands, by the names of their pages.
fn leaves(command: &clap::Command, found: &mut Vec<(String, clap::Command)>) {
    let below: Vec<_> =
        command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help").collect();
    if below.is_empty() {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        found.push((name, command.clone()));
    }
    below.into_iter().for_each(|c| leaves(c, found));
}

fn all() -> Vec<(String, clap::Command)> {
    let mut root = Cli::command();
    root.build();
    let mut found = Vec::new();
    leaves(&root, &mut found);
    found
}

fn has_json(command: &clap::Command) -> bool {
    let is_json = |a: &&clap::Arg| a.get_long() == Some("json") && !a.is_hide_set();
    command.get_arguments().find(is_json).is_some_and(|a| {
        assert_eq!(a.get_short(), Some('j'), "{}: --json has the letter j everywhere", command.get_name());
        matches!(a.get_action(), clap::ArgAction::SetTrue)
    })
}

#[test]
fn a_command_has_json_or_a_reason_why_not() {
    let silent: BTreeSet<&str> = NO_DATA.iter().map(|(name, _)| *name).collect();
    for (name, command) in all() {
        match (has_json(&command), silent.contains(name.as_str())) {
            (true, false) | (false, true) => {}
            (true, true) => panic!("{name} has -j and stands among those that print no data"),
            (false, false) => panic!(
                "{name} has no -j, --json: add it with a schema in {SCHEMAS} and a line in suite/json.rs, or name it in NO_DATA"
            ),
        }
    }
    let known: BTreeSet<String> = all().into_iter().map(|(name, _)| name).collect();
    let gone: Vec<&&str> = silent.iter().filter(|name| !known.contains(**name)).collect();
    assert!(gone.is_empty(), "no such commands any more: {gone:?}");
}

#[test]
fn a_command_with_json_has_a_schema_that_describes_each_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let with_json = all().into_iter().filter(|(_, command)| has_json(command));
    let own = with_json.map(|(name, _)| format!("{name}.json"));
    let want: BTreeSet<String> = own.chain(OF_INDEX.map(str::to_owned)).collect();
    let there = std::fs::read_dir(root.join(SCHEMAS)).unwrap();
    let names = there.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> = names.filter(|name| name.ends_with(".json")).collect();
    assert_eq!(there, want, "schemas in {SCHEMAS}, and commands with -j");
    let page = std::fs::read_to_string(root.join(SCHEMAS).join("README.md")).unwrap();
    for name in there {
        let text = std::fs::read_to_string(root.join(SCHEMAS).join(&name)).unwrap();
        let schema: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(schema["title"].as_str().is_some_and(|title| title.contains(" -j")), "{name} has no title");
        described(&schema, &name);
        assert!(page.contains(&format!("({name})")), "{SCHEMAS}/README.md does not name {name}");
    }
}

/// IOR documents its own output.
fn described(schema: &serde_json::Value, at: &str) {
    if !schema.is_object() || at.starts_with("stria-bench-ior") {
        return;
    }
    if let Some(fields) = schema["properties"].as_object() {
        for (name, field) in fields {
            let at = format!("{at}.{name}");
            assert!(field["description"].as_str().is_some_and(|d| d.ends_with('.')), "{at} is not described");
            described(field, &at);
        }
    }
    for below in [&schema["items"], &schema["additionalProperties"]] {
        described(below, at);
    }
    for one in schema["anyOf"].as_array().into_iter().flatten() {
        described(one, at);
    }
}
