//! The same service from the units of a package: the user adds to them, and hides none.

use super::home::{log_in, log_out};
use super::*;

const PACKAGED: [(&str, &str); 2] = [
    (
        "agentd.service",
        "[Service]\nType=notify\nExecStart=/run/agentd-programs/agentd\n\
         Environment=PATH=/usr/bin AGENTD_LOG=warn\n[Install]\nWantedBy=default.target\n",
    ),
    (
        "agentd.socket",
        "[Socket]\nListenStream=%t/of-the-package.sock\nSymlinks=/tmp/of-the-package.sock\n\
         FileDescriptorName=agentd\n\
         [Install]\nWantedBy=sockets.target\n",
    ),
];

#[test]
fn packaged_units_are_used_and_only_extended() {
    let Some(machine) = machine_with(
        "packaged::packaged_units_are_used_and_only_extended",
        &[],
        &PACKAGED,
    ) else {
        return;
    };
    let before = machine.files();
    let none = run("agentctl", &["service", "status"]);
    assert_eq!(none.code, Some(78), "it is nobody's yet: {none:?}");
    let looked = run("agentctl", &["doctor"]);
    assert!(looked.stdout.contains("not enabled"), "{looked:?}");

    // Units of the user's own, from before there was a package, don't hide it.
    fs::write(
        machine.units().join("agentd.service"),
        "# Written by `agentctl service install`\n[Service]\nExecStart=/nowhere/agentd\n\
         [Install]\nWantedBy=default.target\n",
    )
    .unwrap();
    systemctl(&["daemon-reload"]);
    systemctl(&["enable", "agentd.service"]);
    agentctl(&["service", "install"]);
    assert!(!machine.units().join("agentd.service").exists());
    for unit in ["agentd.service", "agentd.socket"] {
        let fragment = property(unit, "FragmentPath");
        assert_eq!(fragment, format!("/usr/lib/systemd/user/{unit}"));
        assert_eq!(property(unit, "UnitFileState"), "enabled");
    }
    assert_eq!(fs::read_link("/tmp/timmy.sock").unwrap(), machine.socket());
    assert!(!Path::new("/tmp/of-the-package.sock").exists());
    let environment = property("agentd.service", "Environment");
    assert!(
        environment.contains("PATH=/run/agentd-programs:"),
        "{environment}"
    );
    assert!(environment.contains("AGENTD_LOG=warn"), "{environment}");

    let pid = machine.pid();
    let again = agentctl(&["service", "install"]);
    assert!(
        again.contains("kept") && !again.contains("wrote"),
        "{again}"
    );
    assert_eq!(machine.pid(), pid);
    agentctl(&["service", "restart"]);
    assert_ne!(machine.pid(), pid);

    agentctl(&["service", "uninstall"]);
    assert_eq!(machine.files(), before);
    let none = run("agentctl", &["service", "status"]);
    assert_eq!(none.code, Some(78), "{none:?}");
    assert_eq!(property("agentd.socket", "UnitFileState"), "disabled");
}

#[test]
fn packaged_service_outlives_a_logout() {
    let Some(machine) = machine_with(
        "packaged::packaged_service_outlives_a_logout",
        &[],
        &PACKAGED,
    ) else {
        return;
    };
    let machine = machine.installed();
    agentctl(&["drain"]);
    let waiting = agentctl(&["dispatch", "after the night"]);
    log_out(&machine);
    let _manager = log_in();
    let pid = wait_for("it runs", || Some(machine.pid()).filter(|pid| *pid != 0));
    let collected = agentctl(&["collect", waiting.trim()]);
    assert!(collected.contains("after the night"), "{collected}");
    assert_eq!(machine.serving_pid(), u64::from(pid));
    assert_eq!(
        property("agentd.service", "FragmentPath"),
        "/usr/lib/systemd/user/agentd.service"
    );
}
