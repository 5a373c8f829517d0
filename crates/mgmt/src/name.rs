//! Names of file systems.

use types::{Code, Fault};

/// Longest name in bytes, as in Lustre: it is part of target names (`name-OST0003`), mount sources and device labels.
pub const FS_NAME_MAX: usize = 8;

/// Accepts 1 to 8 ASCII letters, digits, `-` and `_`.
pub fn check_fs_name(name: &str) -> Result<(), Fault> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > FS_NAME_MAX {
        "it is longer than 8 characters"
    } else if !name.chars().all(is_fine) {
        "it has characters other than letters, digits, '-' and '_'"
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(40).collect();
    Err(Fault::new(Code::Invalid, format!("file system name {shown:?}: {why}; choose another name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["a", "scratch", "A-b_9", "12345678"] {
            assert_eq!(check_fs_name(name), Ok(()), "{name}");
        }
        for (name, why) in [
            ("", "empty"),
            ("123456789", "longer"),
            ("a b", "characters"),
            ("a/b", "characters"),
            ("é", "characters"),
            ("a.b", "characters"),
        ] {
            let fault = check_fs_name(name).expect_err(name);
            assert_eq!(fault.code, Code::Invalid);
            assert!(fault.detail.contains(why), "{name}: {fault}");
        }
    }
}
