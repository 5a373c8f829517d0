use super::*;
use clap::CommandFactory;

fn parse(line: &str) -> Result<Command, clap::Error> {
    Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command)
}

#[test]
fn the_command_line_is_well_formed_and_every_command_has_an_example() {
    let mut root = Cli::command();
    root.clone().debug_assert();
    for command in root.get_subcommands_mut().filter(|c| c.get_name() != "help" && !c.is_hide_set()) {
        let help = command.render_long_help().to_string();
        assert!(help.contains("Example"), "stria {} --help shows no example", command.get_name());
    }
}

#[test]
fn letters_are_those_of_lfs() {
    for line in [
        "stria df -h -i /m",
        "stria setstripe -c -1 -S 4M -i 2 /m/dir",
        "stria setstripe -E 64M -c 1 -E 1G -c 4 -S 1M -E -1 -c -1 /m/f",
        "stria setstripe -d /m/dir",
        "stria getstripe -y -d /m/f /m/g",
        "stria getstripe -c /m/f",
        "stria getstripe -j -d /m/f",
        "stria mount 10.0.0.5@tcp:/stria /mnt -o ro,flock",
        "stria up --dir d --osts 4 --mdts 1 --ost-size 8G --mount m --fsname demo --foreground",
        "stria down --dir d --purge --force",
        "stria fsck --dir d -j",
        "stria damage clear --dir d",
        "stria status --dir d -j",
    ] {
        assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_code_2() {
    for line in [
        "stria",
        "stria frobnicate",
        "stria up",
        "stria up --dir d --ost-size 8X",
        "stria up --dir d --allow-other --no-allow-other",
        "stria setstripe -d -c 3 /m/f",
        "stria getstripe",
        "stria mount 10.0.0.5:/stria",
        "stria oss --unknown",
    ] {
        let refused = parse(line).expect_err(line);
        assert_eq!(refused.exit_code(), 2, "{line}");
    }
}

#[test]
fn the_mount_helpers_form_is_understood() {
    let helper =
        ["/sbin/mount.stria", "10.0.0.5:/stria", "/mnt", "-n", "-o", "rw"].map(OsString::from).to_vec();
    let ours: Vec<OsString> =
        ["stria", "mount", "10.0.0.5:/stria", "/mnt", "-o", "rw"].map(OsString::from).to_vec();
    let with = |more: &[&str]| [&ours[..], &more.iter().map(OsString::from).collect::<Vec<_>>()].concat();
    let added = |more: &[&str]| [&helper[..], &more.iter().map(OsString::from).collect::<Vec<_>>()].concat();
    assert_eq!(arguments(added(&[])), with(&["--helper", "--quiet"]));
    assert_eq!(arguments(added(&["-f", "-s"])), with(&["--fake", "--helper", "--quiet"]));
    assert_eq!(arguments(added(&["-v", "-t", "fuse.stria"])), with(&["--helper"]));
    let mut other = added(&[]);
    other[0] = "/usr/sbin/mount.fuse.stria".into();
    assert_eq!(arguments(other), with(&["--helper", "--quiet"]));
    let plain: Vec<OsString> = ["stria", "df", "-n"].map(OsString::from).to_vec();
    assert_eq!(arguments(plain.clone()), plain);
}

/// The words of each `stria` command in the indented lines of a page, split as by a shell.
fn commands_of(page: &str) -> Vec<Vec<String>> {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)).unwrap();
    let code = text.lines().filter(|l| l.starts_with("    ") && !l.trim_start().starts_with('#'));
    // Several commands may stand on one line. The output of a command in parentheses is a word of the outer one.
    let parts = code.flat_map(|l| l.split([';', '(', ')']).map(str::to_owned).collect::<Vec<_>>());
    parts.filter_map(|part| words_of(&part)).collect()
}

fn words_of(part: &str) -> Option<Vec<String>> {
    let part = part.split(" #").next()?.split(" > ").next()?.trim().trim_end_matches('&');
    let mut words = part.split_whitespace().map(|w| w.trim_matches(['"', '\'']).replace("$role", "mds"));
    let is_stria = |w: &String| w == "stria" || w == "target/release/stria";
    let program = words.by_ref().take_while(|w| w == "do" || is_stria(w)).find(is_stria)?;
    let mut all: Vec<String> = [program].into_iter().chain(words).collect();
    // Stands for `$(stria path2id …)`.
    if all.last().is_some_and(|w| w == "$") {
        all.pop();
        all.push("26".into());
    }
    Some(all)
}

#[test]
fn commands_that_the_documents_tell_people_to_type_parse() {
    for (page, least) in [("README.md", 3), ("docs/first-steps.md", 25), ("docs/operations.md", 4)] {
        let commands = commands_of(page);
        assert!(commands.len() >= least, "{page} has only {commands:?}");
        for command in commands {
            let parsed = Cli::try_parse_from(&command);
            assert!(parsed.is_ok(), "{page}: {}: {}", command.join(" "), parsed.unwrap_err());
        }
    }
}
