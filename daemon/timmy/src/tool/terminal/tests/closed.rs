//! What is closed to a command wherever it is, and what no path leads to.

use super::*;

#[tokio::test]
async fn a_home_and_agentds_own_files_are_closed_wherever_they_are() {
    if !has_sandbox() {
        return;
    }
    let mut terminal = Terminal::new();
    terminal.rules.private.push("/etc/passwd".into());
    terminal.rules.home = Some("/usr/share".into());
    let look = "cat /etc/group > /dev/null && ls /usr/lib > /dev/null && echo fine; \
        cat /etc/passwd; ls /usr/share/.";
    let done = terminal.bash(look).await;
    assert!(done.output.starts_with("fine\n"), "{}", done.output);
    let denied = done.output.matches("Permission denied").count();
    assert!(
        denied == 2 && !done.output.contains("root:"),
        "{}",
        done.output
    );
}

#[tokio::test]
async fn what_others_have_besides_files_is_out_of_reach() {
    if !has_sandbox() {
        return;
    }
    let terminal = Terminal::new();
    terminal.place.write("outside/file", "");
    let probe = "import ctypes, os, resource, errno\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         def call(name, *arguments):\n\
         \x20if getattr(libc, name)(*arguments) == -1: raise OSError(ctypes.get_errno(), '')\n\
         def t(name, f):\n\
         \x20try: f(); print(name, 'yes')\n\
         \x20except OSError as e: print(name, errno.errorcode[e.errno])\n\
         core = resource.RLIMIT_CORE\n\
         own = resource.getrlimit(core)\n\
         t('own limit', lambda: resource.setrlimit(core, own))\n\
         t('limit', lambda: resource.prlimit(os.getppid(), core, own))\n\
         t('own priority', lambda: os.setpriority(os.PRIO_PROCESS, 0, 19))\n\
         t('priority', lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19))\n\
         t('attribute', lambda: os.setxattr('../outside/file', 'user.x', b'x'))\n\
         t('no attribute', lambda: os.removexattr('../outside/file', 'user.x'))\n\
         t('memory', lambda: call('shmget', 0, 4096, 0o1600))\n\
         t('words', lambda: call('msgget', 0, 0o1600))\n\
         t('flags', lambda: call('semget', 0, 1, 0o1600))\n\
         t('queue', lambda: call('mq_open', b'/timmy-test', os.O_RDWR))\n";
    terminal.place.write("ws/probe.py", probe);
    // Of the system: one in a home may be a script that needs more of it.
    let rules = Rules {
        environment: [].into(),
        ..terminal.rules.clone()
    };
    let Some(python) = sandbox::found("python3", &rules) else {
        eprintln!("skipped: needs python3");
        return;
    };
    let done = terminal
        .bash(&format!("{} probe.py", python.display()))
        .await;
    assert_eq!(
        said(&done),
        "own limit yes\nlimit EPERM\nown priority yes\npriority EPERM\n\
         attribute ENOTSUP\nno attribute ENOTSUP\nmemory EPERM\nwords EPERM\n\
         flags EPERM\nqueue EPERM\n",
        "{}",
        done.output
    );
}
