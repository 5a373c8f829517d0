//! A layout as `getstripe` shows it: the format of `lfs getstripe`, YAML or JSON.
//!
//! A file with objects shows its objects. A directory or an inline file has none. It shows the striping that its data will get: as set,
//! or the default.

use std::fmt::Write;

use types::layout::STRIPE_SIZE;
use types::{Component, Fid, Layout, MirrorId};
use wire::meta::{StripeComponent, StripeSpec};

use crate::stripe::{ALL, print};

/// A file or directory with its layout.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    pub path: &'a str,
    pub fid: Fid,
    pub is_dir: bool,
    /// `None`: the file or directory has no objects.
    pub layout: Option<&'a Layout>,
    /// The striping that a user set, on this file or on the directory in which it was made.
    pub spec: Option<&'a StripeSpec>,
    /// Size in bytes up to which a file of this directory stays inline.
    pub inline_max: u32,
    /// The indexes of all OSTs.
    pub osts: &'a [u32],
    /// The OST index of a mirror.
    pub index_of: &'a dyn Fn(MirrorId) -> Option<u32>,
}

/// As `lfs getstripe` prints it.
pub fn text(shown: Shown<'_>) -> String {
    let mut out = format!("{}\n", shown.path);
    let Some(layout) = shown.layout else {
        if !shown.is_dir {
            line(&mut out, 0, "lmm_pattern", "inline");
        }
        line(&mut out, 0, "lmm_inline_max", shown.inline_max);
        planned_text(&mut out, shown);
        return out;
    };
    if let [only] = layout.components.as_slice() {
        line(&mut out, 0, "lmm_stripe_count", only.mirrors.len());
        line(&mut out, 0, "lmm_stripe_size", only.stripe_size);
        line(&mut out, 0, "lmm_pattern", "raid0");
        line(&mut out, 0, "lmm_layout_gen", layout.generation.0);
        line(&mut out, 0, "lmm_stripe_offset", index(shown, only.mirrors[0]));
        // An object has a number in Lustre; here it is named by its file, and YAML has the whole name.
        out.push_str("\tobdidx\t\t objid\t\t objid\t\t group\n");
        for mirror in &only.mirrors {
            let (ost, file) = (index(shown, *mirror), shown.fid.0);
            put(&mut out, format_args!("\t{ost:>6}\t{file:>14}\t{file:>#13x}\t{:>14}\n", 0));
        }
        return out;
    }
    line(&mut out, 2, "lcm_layout_gen", layout.generation.0);
    line(&mut out, 2, "lcm_mirror_count", 1);
    line(&mut out, 2, "lcm_entry_count", not_empty(layout).count());
    for (c, comp) in not_empty(layout) {
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

/// The lines in which `lfs getstripe -d` shows the striping of new files.
fn planned_text(out: &mut String, shown: Shown<'_>) {
    let set = shown.spec.map(print).filter(|words| !words.is_empty());
    line(out, 0, "set", set.as_deref().unwrap_or("nothing (the default)"));
    let components = planned(shown);
    let is_one = components.len() == 1;
    if !is_one {
        line(out, 2, "lcm_entry_count", components.len());
    }
    let mut start = 0;
    for c in &components {
        if !is_one {
            line(out, 4, "lcme_extent.e_start", start);
            line(out, 4, "lcme_extent.e_end", end(c.end));
        }
        start = c.end;
        let (indent, count, offset) = (if is_one { 0 } else { 6 }, signed(c.stripe_count), signed(c.start));
        put(
            out,
            format_args!(
                "{:indent$}stripe_count:  {count} stripe_size:   {} pattern:       raid0 stripe_offset: {offset}{}\n",
                "",
                c.stripe_size,
                fewer(c.stripe_count, shown.osts.len())
            ),
        );
    }
}

/// A note for a stripe count that exceeds the number of OSTs.
fn fewer(count: u16, osts: usize) -> String {
    match usize::from(count) > osts && count != ALL {
        true => format!(" (there are {osts} OSTs)"),
        false => String::new(),
    }
}

/// The striping that a file gets when its data moves to objects: as set, or the default with at most one stripe per OST. Default sizes
/// and counts are filled in.
fn planned(shown: Shown<'_>) -> Vec<StripeComponent> {
    let set = shown.spec.map(|spec| spec.components.clone()).filter(|c| !c.is_empty());
    let mut components = set.unwrap_or_else(|| {
        let mut default = StripeComponent::progressive();
        default.iter_mut().for_each(|c| c.stripe_count = c.stripe_count.min(shown.osts.len().max(1) as u16));
        default
    });
    for c in &mut components {
        c.stripe_size = if c.stripe_size == 0 { STRIPE_SIZE } else { c.stripe_size };
        c.stripe_count = c.stripe_count.max(1);
    }
    components
}

fn signed(n: u16) -> i32 {
    if n == ALL { -1 } else { n.into() }
}

/// JSON for `getstripe`. An object is `[OST, name, written]`: a layout of 2000 stripes must fit an attribute's 64 KiB.
pub fn json(shown: Shown<'_>) -> String {
    let mut out = String::new();
    let Shown { fid, is_dir, inline_max, osts, .. } = shown;
    put(
        &mut out,
        format_args!(
            "{{\"fid\":\"{fid}\",\"is_dir\":{is_dir},\"inline_max\":{inline_max},\"osts\":{}",
            osts.len()
        ),
    );
    // A file's answer may be full of objects.
    if is_dir {
        let all: Vec<String> = osts.iter().map(u32::to_string).collect();
        put(&mut out, format_args!(",\"ost_indexes\":[{}]", all.join(",")));
    }
    // The words are letters, digits, signs and spaces, so nothing needs an escape.
    if let Some(words) = shown.spec.map(print).filter(|words| !words.is_empty()) {
        put(&mut out, format_args!(",\"set\":\"{words}\""));
    }
    if let Some(layout) = shown.layout {
        put(&mut out, format_args!(",\"generation\":{}", layout.generation.0));
    }
    out.push_str(",\"components\":[");
    let mut start = 0;
    let mut component = |out: &mut String, c: usize, end: u64, size: u32, count: i32, first: &str| {
        let comma = if c == 0 { "" } else { "," };
        let end_text = if end == u64::MAX { "null".into() } else { end.to_string() };
        put(
            out,
            format_args!(
                "{comma}{{\"start\":{start},\"end\":{end_text},\"stripe_count\":{count},\"stripe_size\":{size},\
                 \"stripe_index\":{first},\"objects\":["
            ),
        );
        start = end;
    };
    match shown.layout {
        None => {
            for (c, p) in planned(shown).iter().enumerate() {
                let first = signed(p.start).to_string();
                component(&mut out, c, p.end, p.stripe_size, signed(p.stripe_count), &first);
                out.push_str("]}");
            }
        }
        Some(layout) => {
            for (n, (c, comp)) in not_empty(layout).enumerate() {
                let (first, count) = (ost_json(shown, comp.mirrors[0]), comp.mirrors.len() as i32);
                component(&mut out, n, comp.end, comp.stripe_size, count, &first);
                for (stripe, mirror) in comp.mirrors.iter().enumerate() {
                    let object = layout.object(fid, c as u16, stripe as u16);
                    let (ost, written) = (ost_json(shown, *mirror), comp.is_written(stripe as u16));
                    let comma = if stripe == 0 { "" } else { "," };
                    put(&mut out, format_args!("{comma}[{ost},\"{object}\",{written}]"));
                }
                out.push_str("]}");
            }
        }
    }
    out + "]}"
}

/// `null` if the cluster map no longer has the OST.
fn ost_json(shown: Shown<'_>, mirror: MirrorId) -> String {
    (shown.index_of)(mirror).map_or_else(|| "null".into(), |i| i.to_string())
}

/// Components with their index, without the empty ones. A tail that moved to other OSTs leaves empty components behind.
fn not_empty(layout: &Layout) -> impl Iterator<Item = (usize, &Component)> {
    layout.components.iter().enumerate().filter(|(c, comp)| layout.start_of(*c) < comp.end)
}

/// As YAML, for programs.
pub fn yaml(shown: Shown<'_>) -> String {
    let mut out = String::new();
    put(&mut out, format_args!("path: {}\nfid: \"{}\"\n", quoted(shown.path), shown.fid));
    let Some(layout) = shown.layout else {
        if !shown.is_dir {
            out.push_str("pattern: inline\n");
        }
        put(&mut out, format_args!("inline_max: {}\n", shown.inline_max));
        planned_yaml(&mut out, shown);
        return out;
    };
    put(&mut out, format_args!("pattern: raid0\ninline_max: {}\n", shown.inline_max));
    put(&mut out, format_args!("generation: {}\ncomponents:\n", layout.generation.0));
    for (c, comp) in not_empty(layout) {
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

fn planned_yaml(out: &mut String, shown: Shown<'_>) {
    let set = shown.spec.map(print).unwrap_or_default();
    put(out, format_args!("set: {}\nplanned:\n", quoted(&set)));
    let mut start = 0;
    for c in planned(shown) {
        put(out, format_args!("  - start: {start}\n    end: {}\n", end(c.end)));
        let (count, index) = (signed(c.stripe_count), signed(c.start));
        put(
            out,
            format_args!(
                "    stripe_count: {count}\n    stripe_size: {}\n    stripe_index: {index}\n",
                c.stripe_size
            ),
        );
        start = c.end;
    }
}

fn line(out: &mut String, indent: usize, name: &str, value: impl std::fmt::Display) {
    // The columns in which lfs prints its values.
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
    use types::Generation;

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
        render(Shown { layout, index_of: &index_of, ..bare() })
    }
    fn bare() -> Shown<'static> {
        Shown {
            path: "d/\"f\"",
            fid: Fid(0x20),
            is_dir: false,
            layout: None,
            spec: None,
            inline_max: 65536,
            osts: &[0, 1, 2],
            index_of: &|_| None,
        }
    }

    #[test]
    fn one_component_reads_as_lfs() {
        let layout = Layout { generation: Generation(4), components: vec![comp(u64::MAX, 2, 1)] };
        let want = "d/\"f\"\nlmm_stripe_count:  2\nlmm_stripe_size:   1048576\nlmm_pattern:       raid0\n\
                    lmm_layout_gen:    4\nlmm_stripe_offset: 0\n\
                    \tobdidx\t\t objid\t\t objid\t\t group\n\
                    \t     0\t            32\t         0x20\t             0\n\
                    \t     1\t            32\t         0x20\t             0\n";
        assert_eq!(show(Some(&layout), text), want);
    }

    #[test]
    fn components_show_their_extents_and_unknown_osts() {
        let layout = Layout {
            generation: Generation(4),
            // The second is empty.
            components: vec![comp(64 << 20, 1, 1), comp(64 << 20, 1, 0), comp(u64::MAX, 4, 0)],
        };
        let got = show(Some(&layout), text);
        for want in [
            "lcm_entry_count:   2",
            "lcme_id:             3",
            "lcme_extent.e_end:   67108864",
            "lcme_extent.e_end:   EOF",
            "l_ost_idx: unknown(13)",
        ] {
            assert!(got.contains(want), "{want} in\n{got}");
        }
    }

    #[test]
    fn what_was_set_is_shown_before_there_are_objects() {
        let spec = crate::stripe::parse("-c 9 -S 4M -i 2").unwrap();
        let dir = Shown { is_dir: true, spec: Some(&spec), ..bare() };
        let set = "set:               -c 9 -S 4M -i 2\n\
                   stripe_count:  9 stripe_size:   4194304 pattern:       raid0 stripe_offset: 2 (there are 3 OSTs)\n";
        assert_eq!(text(dir), format!("d/\"f\"\nlmm_inline_max:    65536\n{set}"));
        let file = Shown { is_dir: false, ..dir };
        assert!(text(file).contains("inline\n") && text(file).ends_with(set), "{}", text(file));
        assert!(yaml(file).ends_with("    stripe_count: 9\n    stripe_size: 4194304\n    stripe_index: 2\n"));
        let json = json(dir);
        assert!(
            json.contains(r#""set":"-c 9 -S 4M -i 2""#) && json.contains(r#""stripe_count":9"#),
            "{json}"
        );
        let all = crate::stripe::parse("-c -1").unwrap();
        let all = Shown { spec: Some(&all), ..dir };
        assert!(text(all).contains("stripe_count:  -1 ") && !text(all).contains("OSTs"), "{}", text(all));
    }

    #[test]
    fn the_default_is_shown_with_the_osts_that_there_are() {
        let counts = |osts: u32| {
            let all: Vec<u32> = (0..osts).collect();
            let shown = Shown { is_dir: true, osts: &all, ..bare() };
            planned(shown).iter().map(|c| c.stripe_count).collect::<Vec<_>>()
        };
        assert_eq!([counts(3), counts(200), counts(0)], [vec![1, 3, 3], vec![1, 4, 160], vec![1, 1, 1]]);
        let default = text(Shown { is_dir: true, ..bare() });
        // OSTs that were removed leave gaps.
        let shown = json(Shown { is_dir: true, osts: &[0, 3], ..bare() });
        assert!(shown.contains("\"osts\":2,\"ost_indexes\":[0,3]"), "{shown}");
        assert!(
            default.contains("nothing (the default)") && default.contains("e_end:   67108864"),
            "{default}"
        );
    }

    #[test]
    fn json_has_what_the_text_has() {
        let layout =
            Layout { generation: Generation(4), components: vec![comp(1 << 26, 1, 1), comp(u64::MAX, 4, 0)] };
        let want = r#"{"fid":"0x20","is_dir":false,"inline_max":65536,"osts":3,"generation":4,"components":[{"start":0,"end":67108864,"stripe_count":1,"stripe_size":1048576,"stripe_index":0,"objects":[[0,"20.4.0.0",true]]},{"start":67108864,"end":null,"stripe_count":4,"stripe_size":1048576,"stripe_index":0,"objects":[[0,"20.4.1.0",false],[1,"20.4.1.1",false],[2,"20.4.1.2",false],[null,"20.4.1.3",false]]}]}"#;
        assert_eq!(show(Some(&layout), json), want);
    }

    #[test]
    fn yaml_and_inline() {
        assert!(show(None, text).contains("lmm_pattern:       inline\n"));
        assert!(show(None, yaml).starts_with("path: \"d/\\\"f\\\"\"\nfid: \"0x20\"\npattern: inline\n"));
        let layout = Layout { generation: Generation(4), components: vec![comp(u64::MAX, 1, 1)] };
        assert!(show(Some(&layout), yaml).contains("- { ost: 0, object: \"20.4.0.0\", written: true }"));
    }
}
