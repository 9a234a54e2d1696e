//! attacker: what a command could try that no shell can, for the catalogue in `tests/attacks`.
//!
//! Each run is one attempt. It prints `ok`, or the error's name, as `EPERM`, and before that what it
//! got hold of. It must not know what is expected: that is the catalogue's.
//!
//! | words | what is tried |
//! |---|---|
//! | `call NAME ARG…` | a system call: numbers, `s:TEXT`, `b:BYTES` of zeroes, `i:NUMBER` behind a pointer, `self` |
//! | `x32 NAME ARG…` · `int80 NUMBER ARG…` | the same by the second and the third ABI of x86-64 |
//! | `beneath DIR NAME` · `again PATH` | opens beside a directory that was opened for its path only; opens such a file again by its number |
//! | `handle PATH` | opens a file by the file system's own handle |
//! | `memory PID` · `peek PID` · `poke PID` | reads another's memory by its file, and by a system call; writes it |
//! | `steal PID NUMBER` · `pidfd PID SIGNAL` | takes another's open file; signals by a handle |
//! | `owner PID` | has another told by a signal that a pipe is ready |
//! | `unix PATH` · `abstract NAME` · `letter PATH` · `tcp ADDRESS` | connects, sends |
//! | `bound NAME` | gives an end of a pair of sockets an abstract name |
//! | `ask PATH LINE` · `named NAME PATH LINE` | says a line to a daemon, and prints its first answer; from a socket of that name |
//! | `gone PATH LINE` | says a line on a connection whose process is gone: another one connected, and died |
//! | `away WORDS…` | does the rest as a process that nobody knows: twice forked, a session of its own, an empty environment |
//! | `nothing PATH` | is itself, from memory, and reads a file |
//! | `landlock` | nothing: prints the version that the kernel has |
//! | `attribute PATH NAME` | reads an attribute of a file |

#[cfg(target_os = "linux")]
#[path = "attacker/calls.rs"]
mod calls;
#[cfg(target_os = "linux")]
#[path = "attacker/steps.rs"]
mod steps;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::io::Write as _;

    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (said, code) = match steps::run(&words) {
        Ok(()) => ("ok".to_owned(), std::process::ExitCode::SUCCESS),
        Err(error) => (steps::name(&error), std::process::ExitCode::FAILURE),
    };
    let _nobody_reads = writeln!(std::io::stdout(), "{said}");
    code
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}
