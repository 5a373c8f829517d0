//! Plans by name: those in the program, and files.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::schema::Plan;

/// Name and text of the plans in the program, in the order in which they are listed.
pub const BUILT_IN: [(&str, &str); 8] = [
    ("quick", include_str!("../../plans/quick.toml")),
    ("pixstor-nvme", include_str!("../../plans/pixstor-nvme.toml")),
    ("vss2249p", include_str!("../../plans/vss2249p.toml")),
    ("fsx-lustre", include_str!("../../plans/fsx-lustre.toml")),
    ("ess-coral", include_str!("../../plans/ess-coral.toml")),
    ("lnet-routers", include_str!("../../plans/lnet-routers.toml")),
    ("ai-pipeline", include_str!("../../plans/ai-pipeline.toml")),
    ("truth", include_str!("../../plans/truth.toml")),
];

/// A plan of the program by its name, or one of a file by its path.
pub fn load(name: &str) -> Result<Plan> {
    toml::from_str(&text(name)?).with_context(|| format!("{name} is no plan"))
}

/// The text of the plan's file.
pub fn text(name: &str) -> Result<String> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return Ok((*text).to_string());
    }
    if !Path::new(name).is_file() {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        bail!("there is no plan {name}, nor a file: the plans are {}", names.join(", "));
    }
    std::fs::read_to_string(name).with_context(|| name.to_string())
}
