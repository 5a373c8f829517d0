//! A file's layout as `getstripe` shows it: the words of `lfs getstripe`, or YAML.

use std::fmt::Write;

use types::{Fid, Layout, MirrorId};

/// A file with its layout; `None` = content is in the MDT.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    pub path: &'a str,
    pub fid: Fid,
    pub layout: Option<&'a Layout>,
    /// Bytes up to which a file of this directory stays inline.
    pub inline_max: u32,
    /// The OST index of a mirror.
    pub index_of: &'a dyn Fn(MirrorId) -> Option<u32>,
}

/// As `lfs getstripe` prints it.
pub fn text(shown: Shown<'_>) -> String {
    let mut out = format!("{}\n", shown.path);
    let Some(layout) = shown.layout else {
        line(&mut out, 0, "lmm_pattern", "inline");
        line(&mut out, 0, "lmm_inline_max", shown.inline_max);
        return out;
    };
    if let [only] = layout.components.as_slice() {
        line(&mut out, 0, "lmm_stripe_count", only.mirrors.len());
        line(&mut out, 0, "lmm_stripe_size", only.stripe_size);
        line(&mut out, 0, "lmm_pattern", "raid0");
        line(&mut out, 0, "lmm_layout_gen", layout.generation.0);
        line(&mut out, 0, "lmm_stripe_offset", index(shown, only.mirrors[0]));
        out.push_str("\tobdidx\t\t objid\n");
        for (stripe, mirror) in only.mirrors.iter().enumerate() {
            put(
                &mut out,
                format_args!(
                    "\t{:>6}\t\t {}\n",
                    index(shown, *mirror),
                    layout.object(shown.fid, 0, stripe as u16)
                ),
            );
        }
        return out;
    }
    line(&mut out, 2, "lcm_layout_gen", layout.generation.0);
    line(&mut out, 2, "lcm_mirror_count", 1);
    line(&mut out, 2, "lcm_entry_count", layout.components.len());
    for (c, comp) in layout.components.iter().enumerate() {
        let is_written = comp.written.iter().any(|w| *w != 0);
        line(&mut out, 4, "lcme_id", c + 1);
        line(&mut out, 4, "lcme_flags", if is_written { "init" } else { "0" });
        line(&mut out, 4, "lcme_extent.e_start", layout.start_of(c));
        line(&mut out, 4, "lcme_extent.e_end", end(comp.end));
        line(&mut out, 6, "lmm_stripe_count", comp.mirrors.len());
        line(&mut out, 6, "lmm_stripe_size", comp.stripe_size);
        line(&mut out, 6, "lmm_pattern", "raid0");
        line(&mut out, 6, "lmm_stripe_offset", index(shown, comp.mirrors[0]));
        out.push_str("      lmm_objects:\n");
        for (stripe, mirror) in comp.mirrors.iter().enumerate() {
            let object = layout.object(shown.fid, c as u16, stripe as u16);
            put(
                &mut out,
                format_args!(
                    "      - {stripe}: {{ l_ost_idx: {}, l_fid: {object} }}\n",
                    index(shown, *mirror)
                ),
            );
        }
    }
    out
}

/// As YAML, for programs.
pub fn yaml(shown: Shown<'_>) -> String {
    let mut out = String::new();
    put(&mut out, format_args!("path: {}\nfid: \"{}\"\n", quoted(shown.path), shown.fid));
    let Some(layout) = shown.layout else {
        put(&mut out, format_args!("pattern: inline\ninline_max: {}\n", shown.inline_max));
        return out;
    };
    put(&mut out, format_args!("pattern: raid0\ninline_max: {}\n", shown.inline_max));
    put(&mut out, format_args!("generation: {}\ncomponents:\n", layout.generation.0));
    for (c, comp) in layout.components.iter().enumerate() {
        put(&mut out, format_args!("  - start: {}\n    end: {}\n", layout.start_of(c), end(comp.end)));
        put(
            &mut out,
            format_args!("    stripe_count: {}\n    stripe_size: {}\n", comp.mirrors.len(), comp.stripe_size),
        );
        out.push_str("    objects:\n");
        for (stripe, mirror) in comp.mirrors.iter().enumerate() {
            let object = layout.object(shown.fid, c as u16, stripe as u16);
            let (ost, written) = (index(shown, *mirror), comp.is_written(stripe as u16));
            put(
                &mut out,
                format_args!("      - {{ ost: {ost}, object: \"{object}\", written: {written} }}\n"),
            );
        }
    }
    out
}

fn line(out: &mut String, indent: usize, name: &str, value: impl std::fmt::Display) {
    // The columns where lfs puts its values.
    let width = if name.starts_with("lcme") { 21 } else { 19 };
    put(out, format_args!("{:indent$}{:<width$}{value}\n", "", format!("{name}:")));
}

fn put(out: &mut String, args: std::fmt::Arguments<'_>) {
    out.write_fmt(args).expect("a String takes any text")
}

fn end(end: u64) -> String {
    if end == u64::MAX { "EOF".into() } else { end.to_string() }
}

fn index(shown: Shown<'_>, mirror: MirrorId) -> String {
    (shown.index_of)(mirror).map_or_else(|| format!("unknown({mirror})"), |i| i.to_string())
}

/// A YAML double-quoted string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => put(&mut out, format_args!("\\U{:08x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Component, Generation};

    fn comp(end: u64, n: u32, written: u64) -> Component {
        Component {
            end,
            stripe_size: 1 << 20,
            mirrors: (10..10 + n).map(MirrorId).collect(),
            written: vec![written],
        }
    }
    fn show(layout: Option<&Layout>, render: fn(Shown<'_>) -> String) -> String {
        let index_of = |m: MirrorId| m.0.checked_sub(10).filter(|i| *i < 3);
        render(Shown { path: "d/\"f\"", fid: Fid(0x20), layout, inline_max: 65536, index_of: &index_of })
    }

    #[test]
    fn one_component_reads_as_lfs() {
        let layout = Layout { generation: Generation(4), components: vec![comp(u64::MAX, 2, 1)] };
        let want = "d/\"f\"\nlmm_stripe_count:  2\nlmm_stripe_size:   1048576\nlmm_pattern:       raid0\n\
                    lmm_layout_gen:    4\nlmm_stripe_offset: 0\n\tobdidx\t\t objid\n\t     0\t\t 20.4.0.0\n\t     1\t\t 20.4.0.1\n";
        assert_eq!(show(Some(&layout), text), want);
    }

    #[test]
    fn components_show_their_extents_and_unknown_osts() {
        let layout = Layout {
            generation: Generation(4),
            components: vec![comp(64 << 20, 1, 1), comp(u64::MAX, 4, 0)],
        };
        let got = show(Some(&layout), text);
        for want in [
            "lcm_entry_count:   2",
            "lcme_extent.e_end:   67108864",
            "lcme_extent.e_end:   EOF",
            "l_ost_idx: unknown(13)",
        ] {
            assert!(got.contains(want), "{want} in\n{got}");
        }
    }

    #[test]
    fn yaml_and_inline() {
        assert!(show(None, text).contains("lmm_pattern:       inline\n"));
        assert!(show(None, yaml).starts_with("path: \"d/\\\"f\\\"\"\nfid: \"0x20\"\npattern: inline\n"));
        let layout = Layout { generation: Generation(4), components: vec![comp(u64::MAX, 1, 1)] };
        assert!(show(Some(&layout), yaml).contains("- { ost: 0, object: \"20.4.0.0\", written: true }"));
    }
}
