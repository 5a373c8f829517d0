//! Options of the limits that a run measures first.

use std::path::PathBuf;

use bench::limits::Wanted;
use clap::Args;

#[derive(Clone, Debug, Default, Args)]
pub struct LimitArgs {
    /// A directory on the device that holds the data, to measure the device's limit; for mounts that do not tell their device.
    #[arg(long, value_name = "DIR", conflicts_with = "no_limits")]
    device_dir: Option<PathBuf>,
    /// Do not measure the limits of device, processors and network first. The report then has no percentages of them.
    #[arg(long)]
    no_limits: bool,
}

impl LimitArgs {
    /// `None`: limits are not measured.
    pub fn wanted(&self) -> anyhow::Result<Option<Wanted>> {
        if let Some(dir) = self.device_dir.as_ref().filter(|dir| !dir.is_dir()) {
            anyhow::bail!("--device-dir {}: it is no directory", dir.display());
        }
        Ok((!self.no_limits).then(|| Wanted { device_dir: self.device_dir.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_measured_unless_they_are_declined() {
        assert_eq!(LimitArgs::default().wanted().unwrap(), Some(Wanted::default()));
        assert_eq!(LimitArgs { no_limits: true, ..LimitArgs::default() }.wanted().unwrap(), None);
        let given = |dir: &str| LimitArgs { device_dir: Some(dir.into()), no_limits: false }.wanted();
        assert_eq!(given("/").unwrap().unwrap().device_dir, Some("/".into()));
        assert!(given("/no/such").unwrap_err().to_string().contains("--device-dir /no/such"));
    }
}
