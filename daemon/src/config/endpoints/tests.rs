//! The file of endpoints: its form, its mode, which URL belongs to whom, and every spelling of an address.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use tempfile::TempDir;

fn add(file: &Path, url: &str, allow_private: bool) -> Secret {
    let change = EndpointChange::Add { allow_private };
    Endpoints::change(file, url, &change).unwrap().unwrap()
}

fn place() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join(FILE);
    (dir, file)
}

fn of(endpoints: &Endpoints, url: &str) -> Option<String> {
    let found = endpoints.of(&Url::parse(url).unwrap());
    found.map(|endpoint| endpoint.url.to_string())
}

#[test]
fn endpoint_that_is_added_has_a_private_secret() {
    let (_dir, file) = place();
    let first = add(&file, "https://a.example/hooks", false);
    let second = add(&file, "https://b.example/", false);
    assert!(first != second && first.bytes().len() == NEW_SECRET);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let all = Endpoints::load(&file).unwrap();
    assert_eq!((all.count(), &all.0[0].secrets), (2, &vec![first.clone()]));
    // Again is the same, and another reach is taken over.
    assert_eq!(add(&file, "https://a.example/hooks", true), first);
    assert!(Endpoints::load(&file).unwrap().0[0].allow_private);
    // To see the secret once more takes nothing away.
    assert_eq!(add(&file, "https://a.example/hooks", false), first);
    assert!(Endpoints::load(&file).unwrap().0[0].allow_private);
    let gone = Endpoints::change(&file, "https://b.example/", &EndpointChange::Remove);
    assert_eq!(gone.unwrap(), None);
    let again = Endpoints::change(&file, "https://b.example/", &EndpointChange::Remove);
    assert!(matches!(again, Err(EditError::Refused { .. })));
    assert_eq!(Endpoints::load(&file).unwrap().count(), 1);
    // Nothing says a secret by accident.
    let shown = format!("{:?} {all:?}", first);
    assert!(!shown.contains(&first.reveal()[PREFIX.len()..]), "{shown}");
}

#[test]
fn a_secret_is_rotated_in_two_steps() {
    let (_dir, file) = place();
    let url = "https://a.example/";
    let old = add(&file, url, false);
    let rotate = |change| Endpoints::change(&file, url, &change);
    let new = rotate(EndpointChange::Rotate).unwrap().unwrap();
    let secrets = || Endpoints::load(&file).unwrap().0[0].secrets.clone();
    assert_eq!(secrets(), [new.clone(), old]);
    assert!(matches!(
        rotate(EndpointChange::Rotate),
        Err(EditError::Refused { .. })
    ));
    assert_eq!(rotate(EndpointChange::Retire).unwrap(), Some(new.clone()));
    assert_eq!(secrets(), [new]);
}

#[test]
fn endpoints_file_that_is_unsafe_is_refused_discreetly() {
    let (_dir, file) = place();
    let secret = add(&file, "https://a.example/", false).reveal();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(
        Endpoints::load(&file),
        Err(ConfigError::Readable { .. })
    ));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    for broken in [
        text.replace("whsec_", "sec_"),
        text.replace(&secret, "whsec_c2hvcnQ="),
        text.replace("https:", "ftp:"),
        text.replace("\"secrets\"", "\"secret\""),
        text.replace('}', ""),
        text.replace("a.example/", "a.example/?x=1"),
    ] {
        std::fs::write(&file, &broken).unwrap();
        let error = Endpoints::load(&file).unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
        assert!(!error.contains(&secret[PREFIX.len()..]), "{error}");
    }
    std::fs::write(&file, "").unwrap();
    assert_eq!(Endpoints::load(&file).unwrap().count(), 0);
}

#[test]
fn endpoint_of_a_url_is_its_longest_beginning() {
    let (_dir, file) = place();
    for url in [
        "https://a.example/hooks",
        "https://a.example/hooks/deep/",
        "https://b.example",
        "http://a.example:8080/",
    ] {
        add(&file, url, false);
    }
    let all = Endpoints::load(&file).unwrap();
    let hooks = Some("https://a.example/hooks".to_owned());
    for url in [
        "https://a.example/hooks",
        "https://a.example/hooks/x",
        "https://a.example/hooks?x=1",
        "https://A.EXAMPLE:443/hooks",
        "https://a.example/x/../hooks",
        "https://a.example/hooks/deep",
    ] {
        assert_eq!(of(&all, url), hooks, "{url}");
    }
    let deep = Some("https://a.example/hooks/deep/".to_owned());
    assert_eq!(of(&all, "https://a.example/hooks/deep/x"), deep);
    assert_eq!(
        of(&all, "https://b.example/any/thing?at=all").as_deref(),
        Some("https://b.example/")
    );
    for url in [
        "https://a.example/",
        "https://a.example/hooksy",
        "https://a.example/hooks/../other",
        "https://a.example/hooks/%2e%2e/other",
        "https://a.example/hooks/..%2fother",
        "https://a.example/hooks/%2E.%2Fother",
        "https://a.example/hooks/..%5Cother",
        "https://a.example/hooks/..;/other",
        "https://a.example/hooks/..;a=b/other",
        "http://a.example/hooks",
        "https://a.example:444/hooks",
        "https://x.a.example/hooks",
        "https://a.example.evil.example/hooks",
        "https://b.example.:443/",
        "http://a.example:8081/",
    ] {
        assert_eq!(of(&all, url), None, "{url}");
    }
}

/// Every spelling of a place that nobody is to be sent to, and where each is refused: as a callback
/// of an endpoint that anybody may call at that host, with and without leave for private networks.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn address_in_no_spelling_gets_out_of_reach() {
    let never = [
        "http://169.254.169.254/latest/meta-data/",
        "http://169.254.169.254.nip/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://0251.0376.0251.0376/",
        "http://0xa9.0xfe.0xa9.0xfe/",
        "http://169.254.43518/",
        "http://[::ffff:169.254.169.254]/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::]/",
        "http://[fd00:ec2::254]/",
        "http://[fe80::1]/",
        "http://[fec0::1]/",
        "http://[ff02::1]/",
        "http://[::]/",
        "http://[2001:db8::1]/",
        "http://[2001::1]/",
        "http://[3fff::1]/",
        "http://[100::1]/",
        "http://0.0.0.0/",
        "http://0/",
        "http://0x0/",
        "http://0.1.2.3/",
        "http://100.100.100.200/",
        "http://192.0.0.192/",
        "http://192.0.2.1/",
        "http://198.18.0.1/",
        "http://198.51.100.7/",
        "http://203.0.113.9/",
        "http://224.0.0.251/",
        "http://240.0.0.1/",
        "http://255.255.255.255/",
        "http://4294967295/",
    ];
    let private = [
        "http://127.0.0.1:7878/v1/dispatch",
        "http://127.0.0.1./",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://0x7f.1/",
        "http://127.000.000.001/",
        "http://１２７.0.0.1/",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://10.0.0.1/",
        "http://012.0.0.1/",
        "http://10.255.255.255/",
        "http://100.64.0.1/",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.168.0.1/",
        "http://3232235521/",
        "http://[fc00::1]/",
        "http://[fd12:3456:789a::1]/",
    ];
    let check = |url: &str, allow_private: bool| {
        let base = Url::parse(url).unwrap().join("/").unwrap();
        let endpoint = Endpoint {
            url: base,
            allow_private,
            secrets: vec![Secret(vec![0; 32])],
        };
        Endpoints(vec![endpoint]).check(url)
    };
    for url in never {
        // A name may be anything; what it leads to is looked at when it is looked up.
        let is_name = url.contains(".nip");
        assert_eq!(check(url, false).is_ok(), is_name, "{url}");
        assert_eq!(check(url, true).is_ok(), is_name, "{url}, private allowed");
    }
    for url in private {
        let refused = check(url, false).unwrap_err();
        assert!(
            refused.error.contains("private network"),
            "{url}: {refused:?}"
        );
        assert_eq!(check(url, true), Ok(()), "{url}");
    }
    for url in [
        "https://1.1.1.1/",
        "https://[2606:4700::1111]/",
        "https://ci.example/",
    ] {
        assert_eq!(check(url, false), Ok(()), "{url}");
    }
    assert!(never.len() + private.len() >= 59);
    // Where nobody is configured nothing goes, whatever it is; and the whole URL isn't repeated.
    let refused = Endpoints::default().check("https://ci.example/path?token=hunter2");
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, Code::UnknownWebhook);
    assert!(refused.error.contains("https://ci.example`"), "{refused:?}");
    assert!(!format!("{refused:?}").contains("hunter2"), "{refused:?}");
}

#[test]
fn endpoint_that_is_out_of_reach_is_refused() {
    let (_dir, file) = place();
    for (url, why) in [
        ("http://127.0.0.1:8080/", "private network"),
        ("ftp://a.example/", "http or https"),
        ("https://user@a.example/", "user and password"),
        ("https://a.example/?x=1", "query"),
        ("https://a.example/#x", "query"),
        ("a.example", "URL is wrong"),
    ] {
        let change = EndpointChange::Add {
            allow_private: false,
        };
        let error = Endpoints::change(&file, url, &change)
            .unwrap_err()
            .to_string();
        assert!(error.contains(why), "{url}: {error}");
    }
    assert!(!file.exists());
}

#[test]
fn webhook_endpoints_where_nothing_is_delivered_are_refused() {
    let (_dir, file) = place();
    for url in [
        "http://169.254.169.254/",
        "http://0xa9fea9fe/latest/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
        "https://203.0.113.9/",
    ] {
        for allow_private in [false, true] {
            let change = EndpointChange::Add { allow_private };
            let error = Endpoints::change(&file, url, &change).unwrap_err();
            let EditError::Refused { what, hint } = error else {
                panic!("{url}: {error}");
            };
            assert!(what.contains("nothing is ever delivered"), "{url}: {what}");
            assert!(hint.contains("public internet"), "{url}: {hint}");
        }
    }
    assert!(!file.exists());
    add(&file, "http://10.0.0.1/", true);
}
