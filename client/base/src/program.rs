//! The program's own pages in memory.
//!
//! Owns how the kernel is told that they are not needed now. Must not know when that is. On other
//! systems than Linux nothing is done.

use std::fs;

use nix::libc;

use crate::remote;

/// Has the kernel forget the pages of the program's file that are mapped and nobody changed.
pub fn forget() {
    let (Ok(file), Ok(maps)) = (
        fs::read_link("/proc/self/exe"),
        fs::read_to_string("/proc/self/smaps"),
    ) else {
        return;
    };
    // From a disk that may not answer they would not come back.
    let Some(file) = file
        .to_str()
        .filter(|_| remote::file_system(&file).is_none())
    else {
        return;
    };
    for (begin, end) in unchanged(&maps, file) {
        drop_pages(begin, end);
    }
}

/// The addresses of the parts of a file that can't be written, and of which no page is another
/// than in the file: what was relocated is.
fn unchanged<'a>(maps: &'a str, file: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
    let mut lines = maps.lines();
    std::iter::from_fn(move || {
        loop {
            let head = lines.by_ref().find(|line| line.ends_with(file))?;
            let changed = lines.by_ref().find(|line| line.starts_with("Anonymous:"))?;
            let mut words = head.split(' ');
            let (range, rights) = (words.next()?, words.next()?);
            let is_unchanged = changed.split_whitespace().nth(1) == Some("0");
            if rights.starts_with('r') && !rights.contains('w') && is_unchanged {
                let (begin, end) = range.split_once('-')?;
                let address = |hex| usize::from_str_radix(hex, 16).ok();
                return address(begin).zip(address(end));
            }
        }
    })
}

#[expect(unsafe_code, reason = "nix's madvise wants a pointer, too")]
fn drop_pages(begin: usize, end: usize) {
    let begin = std::ptr::without_provenance_mut(begin);
    // SAFETY: a mapping of the program's own file, made at its start and there until its end,
    // whose pages are as in the file: the kernel gives the same ones again when they are touched.
    let _kept = unsafe { libc::madvise(begin, end - begin.addr(), libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_program_is_given_back() {
        let file = fs::read_link("/proc/self/exe").unwrap();
        let file = file.to_str().unwrap();
        let resident = || -> u64 {
            let maps = fs::read_to_string("/proc/self/smaps").unwrap();
            let mut lines = maps.lines();
            let mut sum = 0;
            while lines.by_ref().any(|line| line.ends_with(file)) {
                let size = lines.by_ref().find(|line| line.starts_with("Rss:"));
                let size = size.unwrap().split_whitespace().nth(1).unwrap();
                sum += size.parse::<u64>().unwrap();
            }
            sum
        };
        // Other tests use it meanwhile.
        let less = (0..10).any(|_| {
            let before = resident();
            forget();
            resident() < before
        });
        assert!(less);
    }

    #[test]
    fn memory_that_was_relocated_is_kept() {
        let maps = "\
10-20 r-xp 00000000 fe:00 1 /a/agentd\nRss: 8 kB\nAnonymous:     0 kB\n\
20-30 r--p 00000000 fe:00 1 /a/agentd\nRss: 8 kB\nAnonymous:     4 kB\n\
30-40 rw-p 00000000 fe:00 1 /a/agentd\nRss: 8 kB\nAnonymous:     0 kB\n\
40-50 r-xp 00000000 fe:00 2 /a/libc.so\nRss: 8 kB\nAnonymous:     0 kB\n\
50-60 r--p 00000000 fe:00 1 /a/agentd\nRss: 8 kB\nAnonymous:     0 kB\n";
        let found: Vec<_> = unchanged(maps, "/a/agentd").collect();
        assert_eq!(found, [(0x10, 0x20), (0x50, 0x60)]);
    }
}
