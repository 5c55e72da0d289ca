//! Sources, rotation, and what is printed.

use std::time::Duration;

use super::*;

fn value(secret: &Secret) -> String {
    secret.reveal().expose_secret().to_owned()
}

/// Writes a file with a time of its own, as a later write would have.
fn write(path: &Path, text: &str, seconds: u64) {
    fs::write(path, text).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

#[test]
fn a_file_is_read_again_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    write(&path, "first-key\n", 1);
    let secret = Secret::from_file(&path).unwrap();
    let clone = secret.clone();
    assert_eq!(value(&secret), "first-key");
    assert!(!secret.was_padded());

    write(&path, "other-key\n", 2);
    assert_eq!(value(&secret), "other-key");
    assert_eq!(value(&clone), "other-key");
    let former: Vec<_> = secret.values().0.iter().map(|value| value.expose_secret().to_owned()).collect();
    assert_eq!(former, ["other-key", "first-key"]);

    write(&path, " \n", 3);
    assert_eq!(value(&secret), "other-key", "an empty file keeps the last good value");
    fs::remove_file(&path).unwrap();
    assert_eq!(value(&secret), "other-key", "a missing file keeps the last good value");
    write(&path, "  third-key  \n", 4);
    assert_eq!(value(&secret), "third-key");
    assert!(secret.was_padded());
}

#[test]
fn former_values_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    write(&path, "key-0", 1);
    let secret = Secret::from_file(&path).unwrap();
    for number in 1..100 {
        write(&path, &format!("key-{number}"), number + 1);
        assert_eq!(value(&secret), format!("key-{number}"));
    }
    assert_eq!(secret.values().0.len(), 1 + FORMER_VALUES_MAX);
}

#[test]
fn a_variable_is_trimmed() {
    let environment = |name: &str| match name {
        "KEY" => Ok(" sk-1 \n".to_owned()),
        "ENDED" => Ok("sk-1\n".to_owned()),
        "BLANK" => Ok(" ".to_owned()),
        _ => Err(VarError::NotPresent),
    };
    for name in ["KEY", "ENDED"] {
        let secret = Secret::from_variable(name, &environment).unwrap();
        assert_eq!(value(&secret), "sk-1");
        assert!(secret.was_padded());
    }
    let secret = Secret::from_variable("KEY", &environment).unwrap();
    assert!(!secret.is_literal());
    let error = |name| Secret::from_variable(name, &environment).unwrap_err().to_string();
    assert!(error("BLANK").contains("set but empty"), "{}", error("BLANK"));
    assert!(error("NONE").contains("NONE is not set"), "{}", error("NONE"));
}

#[test]
fn nothing_prints_the_value() {
    let secret = Secret::literal("sk-hunter2").unwrap();
    assert_eq!(
        format!("{secret} {secret:?} {:#?} {}", Some(&secret), secret.source()).matches("hunter2").count(),
        0
    );
}

#[test]
fn a_file_that_is_no_secret_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("big");
    fs::write(&path, vec![b'x'; 70_000]).unwrap();
    assert!(Secret::from_file(&path).unwrap_err().to_string().contains("holds more than"));
    fs::write(&path, [0xff]).unwrap();
    assert!(Secret::from_file(&path).unwrap_err().to_string().contains("cannot read"));
    assert!(Secret::from_file(directory.path()).is_err());
    // Whoever opens a pipe waits for somebody who writes.
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(Secret::from_file(&pipe).unwrap_err().to_string().contains("not a regular file"));
}
