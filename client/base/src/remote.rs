//! Is a directory on a file system that other machines may write to as well?
//!
//! Owns the list of such file systems. Must not know what is in the directory.

use std::path::Path;

/// The name of the network file system that a directory is on, if it is on one.
#[must_use]
pub fn file_system(dir: &Path) -> Option<&'static str> {
    of_number(number(dir)?)
}

#[cfg(target_os = "linux")]
fn number(dir: &Path) -> Option<u32> {
    let found = nix::sys::statfs::statfs(dir).ok()?;
    // The kernel's numbers have 32 bits, and its field is as wide as the machine's words.
    let number = i128::from(found.filesystem_type().0) & i128::from(u32::MAX);
    u32::try_from(number).ok()
}

#[cfg(not(target_os = "linux"))]
const fn number(_dir: &Path) -> Option<u32> {
    None
}

/// As they stand in `statfs(2)`.
const fn of_number(number: u32) -> Option<&'static str> {
    match number {
        0x6969 => Some("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
        0x0102_1997 => Some("9P"),
        0x5346_414f => Some("AFS"),
        0x00c3_6400 => Some("Ceph"),
        // sshfs and its like; there are local ones, too.
        0x6573_5546 => Some("FUSE"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_file_systems_are_told_from_local_ones() {
        // tmpfs, ext4, xfs, btrfs, overlay, zfs
        for local in [
            0x0102_1994,
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x794c_7630,
            0x2fc1_2fc1,
        ] {
            assert_eq!(of_number(local), None, "{local:x}");
        }
        assert_eq!(of_number(0x6969), Some("NFS"));
        assert_eq!(of_number(0xfe53_4d42), Some("SMB"));
        assert_eq!(of_number(0x6573_5546), Some("FUSE"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernel_is_asked() {
        // procfs
        assert_eq!(number(Path::new("/proc")), Some(0x9fa0));
        assert_eq!(number(Path::new("/nowhere/at/all")), None);
    }
}
