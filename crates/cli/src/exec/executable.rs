//! Which file a command's first word runs.
//!
//! Owns the search that `execvp` would make and the `#!` line, so that everything the kernel would load by name
//! is found, digested and shown. It runs nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::digest;
use super::directory::{Directory, is_regular};
use super::environment::Environment;

/// What `execvp` searches when the environment has no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// As much of a file's beginning as the kernel looks at.
const HEAD_BYTES: usize = 256;
/// How many `#!` lines the kernel follows.
const MAX_INTERPRETERS: usize = 4;

/// The file that a command's first word runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Executable {
    /// Absolute path, links kept.
    pub path: String,
    /// Lowercase hex SHA-256 of its content.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// The child reads the bytes digested here, not the file at the path.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// For a script: what its `#!` line runs, in the order in which they start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interpreters: Vec<Interpreter>,
}

/// A file that runs a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interpreter {
    /// Absolute path, links kept.
    pub path: String,
    /// Lowercase hex SHA-256 of its content.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
}

/// An executable that was found, with what is needed to run it.
pub struct Found {
    /// How it is named in a frozen action.
    pub shown: Executable,
    /// What `execve` gets: relative to the command's directory if the search came to a relative path.
    pub program: PathBuf,
    /// Its `#!` line.
    pub shebang: Option<Shebang>,
}

/// A `#!` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shebang {
    /// The interpreter, as written.
    pub interpreter: PathBuf,
    /// The one argument that the kernel passes on: the rest of the line.
    pub argument: Option<String>,
}

/// Finds and digests what `word` runs.
pub fn find(word: &str, environment: &Environment, directory: &Directory) -> Result<Found> {
    let program = search(word, environment, directory)?;
    let (file, head) = read(&program, directory)?;
    let shebang = parse_shebang(&head).with_context(|| format!("{} cannot be run", program.display()))?;
    if shebang.is_none() && !head.contains(&0) {
        bail!(
            "{} is neither a program nor a script with a `#!` line: name what should run it",
            program.display()
        );
    }
    let interpreters = match &shebang {
        Some(shebang) => interpreters(shebang, environment, directory)?,
        None => Vec::new(),
    };
    let Interpreter { path, sha256, bytes } = file;
    Ok(Found { shown: Executable { path, sha256, bytes, pinned: false, interpreters }, program, shebang })
}

/// What `execvp` would hand to `execve`. A path that the search makes is never without a slash.
fn search(word: &str, environment: &Environment, directory: &Directory) -> Result<PathBuf> {
    ensure!(!word.is_empty(), "the command is an empty word");
    if word.contains('/') {
        let path = PathBuf::from(word);
        if let Some(why) = not_runnable(&path, directory) {
            bail!("{word} {why} (looked for in {})", directory.path.display());
        }
        return Ok(path);
    }
    let path = environment.get("PATH").unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut passed_over = Vec::new();
    for entry in path.as_bytes().split(|byte| *byte == b':') {
        // An empty entry means the current directory.
        let entry = if entry.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(entry)) };
        let candidate = entry.join(word);
        match not_runnable(&candidate, directory) {
            None => return Ok(candidate),
            Some("does not exist") => {}
            Some(why) => passed_over.push(format!("{} {why}", candidate.display())),
        }
    }
    let also = if passed_over.is_empty() { String::new() } else { format!(" ({})", passed_over.join("; ")) };
    bail!("{word} is no executable file in any directory of PATH: looked in {}{also}", path.display());
}

/// Why a path cannot be executed.
fn not_runnable(path: &Path, directory: &Directory) -> Option<&'static str> {
    match directory.stat(path) {
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Some("does not exist"),
        Err(rustix::io::Errno::ACCESS) => Some("cannot be reached: permission denied"),
        Err(_) => Some("cannot be reached"),
        Ok(stat) if !is_regular(&stat) => Some("is not a regular file"),
        Ok(_) if !directory.may_execute(path) => Some("is not executable"),
        Ok(_) => None,
    }
}

/// Digests a file that will be loaded by its path, and returns its first bytes.
fn read(path: &Path, directory: &Directory) -> Result<(Interpreter, Vec<u8>)> {
    let say = || format!("cannot read {}, so what it would run cannot be shown", path.display());
    let (file, _) = directory.open_regular(path).with_context(say)?.with_context(say)?;
    let (digest, head) = digest::of_file(&file, HEAD_BYTES).with_context(say)?;
    let absolute = directory.path.join(path);
    let shown = absolute.to_str().with_context(|| format!("the path {} is not UTF-8", absolute.display()))?;
    Ok((Interpreter { path: shown.to_owned(), sha256: digest.sha256, bytes: digest.bytes }, head))
}

/// Follows `#!` lines: what each starts, also through `env`, and every file that its argument names.
fn interpreters(
    first: &Shebang,
    environment: &Environment,
    directory: &Directory,
) -> Result<Vec<Interpreter>> {
    let mut found = Vec::new();
    let mut next = Some(first.clone());
    let mut lines = 0;
    while let Some(shebang) = next {
        ensure!(lines < MAX_INTERPRETERS, "too many `#!` lines lead from one to the next");
        lines += 1;
        let path = &shebang.interpreter;
        if let Some(why) = not_runnable(path, directory) {
            bail!("the interpreter {} {why}", path.display());
        }
        let (interpreter, head) = read(path, directory)?;
        found.push(interpreter);
        next = parse_shebang(&head)?;
        let Started { program, arguments } = shebang.starts()?;
        if let Some(word) = program {
            let path = search(word, environment, directory)?;
            let (interpreter, head) = read(&path, directory)?;
            found.push(interpreter);
            next = parse_shebang(&head)?;
        }
        for name in arguments {
            if directory.stat(Path::new(name)).is_ok_and(|stat| is_regular(&stat)) {
                found.push(read(Path::new(name), directory)?.0);
            }
        }
    }
    Ok(found)
}

/// What a `#!` line starts beyond its interpreter.
struct Started<'a> {
    /// The word that `env` looks up.
    program: Option<&'a str>,
    /// What may name a file.
    arguments: Vec<&'a str>,
}

impl Shebang {
    /// `NAME` of a line `#!/usr/bin/env NAME`.
    pub fn started_by_env(&self) -> Option<&str> {
        let word = self.argument.as_deref()?;
        let plain = !word.starts_with('-') && !word.contains(['=', ' ', '\t']);
        (self.is_env() && plain).then_some(word)
    }

    fn is_env(&self) -> bool {
        self.interpreter.file_name() == Some(OsStr::new("env"))
    }

    /// The kernel passes the argument as one; `env -S` splits it. Both readings are bound.
    fn starts(&self) -> Result<Started<'_>> {
        let Some(argument) = self.argument.as_deref() else {
            return Ok(Started { program: None, arguments: Vec::new() });
        };
        if !self.is_env() {
            let words = argument.split([' ', '\t']).filter(|word| !word.is_empty() && *word != argument);
            return Ok(Started {
                program: None,
                arguments: std::iter::once(argument).chain(words).collect(),
            });
        }
        if let Some(word) = self.started_by_env() {
            return Ok(Started { program: Some(word), arguments: Vec::new() });
        }
        let split = argument.strip_prefix("-S").or_else(|| argument.strip_prefix("--split-string="));
        let mut words = split.unwrap_or_default().split([' ', '\t']).filter(|word| !word.is_empty());
        // Quotes, escapes, variables, options and assignments are a language of their own.
        let is_plain = split.is_some_and(|text| !text.contains(['\'', '"', '\\', '$', '#']));
        match words.next().filter(|word| is_plain && !word.starts_with('-') && !word.contains('=')) {
            Some(program) => Ok(Started { program: Some(program), arguments: words.collect() }),
            None => bail!("its `#!` line uses `env` in a way that cannot be followed: name the interpreter"),
        }
    }
}

/// Reads a `#!` line as Linux does: the interpreter ends at a blank, the rest of the line is one argument.
fn parse_shebang(head: &[u8]) -> Result<Option<Shebang>> {
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
    let end = line.iter().position(|byte| *byte == b'\n');
    // A cut line would be run cut; nobody means that.
    ensure!(end.is_some() || head.len() < HEAD_BYTES, "its `#!` line is longer than {HEAD_BYTES} bytes");
    let line =
        std::str::from_utf8(&line[..end.unwrap_or(line.len())]).context("its `#!` line is not UTF-8")?;
    let line = line.trim_matches([' ', '\t']);
    let (interpreter, argument) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    ensure!(!interpreter.is_empty(), "its `#!` line names no interpreter");
    let argument = argument.trim_start_matches([' ', '\t']);
    let argument = (!argument.is_empty()).then(|| argument.to_owned());
    Ok(Some(Shebang { interpreter: interpreter.into(), argument }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn path_of(entries: &str) -> Environment {
        Environment::for_child([("PATH".into(), entries.into())])
    }

    fn failure(result: Result<Found>) -> String {
        format!("{:#}", result.err().expect("it should be refused"))
    }

    #[test]
    fn the_search_takes_the_first_executable_regular_file_of_path() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        for entry in ["plain", "folder", "right", "later"] {
            std::fs::create_dir(home.path().join(entry)).unwrap();
        }
        std::fs::create_dir(home.path().join("folder/tool")).unwrap();
        script(&home.path().join("plain/tool"), "#!/bin/sh\n", 0o644);
        script(&home.path().join("right/tool"), "#!/bin/sh\necho right\n", 0o755);
        script(&home.path().join("later/tool"), "#!/bin/sh\n", 0o755);
        let root = home.path().display();
        let path = path_of(&format!("/nowhere:{root}/plain:{root}/folder:{root}/right:{root}/later"));
        let found = find("tool", &path, &directory).unwrap();
        assert_eq!(found.program, home.path().join("right/tool"));
        let failed = failure(find("tool", &path_of(&format!("/nowhere:{root}/plain")), &directory));
        assert!(failed.contains(&format!("looked in /nowhere:{root}/plain")), "{failed}");
        assert!(failed.contains("plain/tool is not executable"), "{failed}");
    }

    #[test]
    fn relative_and_empty_path_entries_are_seen_from_the_commands_directory() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        script(&home.path().join("tool"), "#!/bin/sh\n", 0o755);
        for path in ["", "/nowhere:", ":/nowhere", "."] {
            let found = find("tool", &path_of(path), &directory).unwrap();
            assert_eq!(found.program, Path::new("./tool"), "PATH={path}");
            assert!(found.shown.path.starts_with(home.path().to_str().unwrap()));
        }
        assert_eq!(find("./tool", &path_of("/bin"), &directory).unwrap().program, Path::new("./tool"));
    }

    #[test]
    fn without_path_the_usual_directories_are_searched() {
        let directory = Directory::open(Path::new("/")).unwrap();
        let found = find("sh", &Environment::for_child([]), &directory).unwrap();
        assert_eq!(found.program, Path::new("/bin/sh"));
    }

    #[test]
    fn a_word_with_a_trailing_space_is_another_file() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        script(&home.path().join("run"), "#!/bin/sh\n", 0o755);
        let failed = failure(find("./run ", &path_of("/bin"), &directory));
        assert!(failed.contains("./run  does not exist"), "{failed}");
        script(&home.path().join("run "), "#!/bin/sh\n", 0o755);
        let found = find("./run ", &path_of("/bin"), &directory).unwrap();
        assert!(found.shown.path.ends_with("run "));
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_the_reason() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        script(&home.path().join("text"), "echo hello\n", 0o755);
        script(&home.path().join("lost"), "#!/no/such/interpreter\n", 0o755);
        script(&home.path().join("bare"), "#!\n", 0o755);
        script(&home.path().join("long"), &format!("#!/bin/sh {}\n", "x".repeat(300)), 0o755);
        for (word, why) in [
            ("", "empty word"),
            ("./text", "neither a program nor a script"),
            ("./lost", "the interpreter /no/such/interpreter does not exist"),
            ("./bare", "names no interpreter"),
            ("./long", "longer than 256 bytes"),
            ("./", "is not a regular file"),
        ] {
            let failed = failure(find(word, &path_of("/bin"), &directory));
            assert!(failed.contains(why), "{word}: {failed}");
        }
    }

    #[test]
    fn the_interpreters_of_a_script_are_found_through_env() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        script(&home.path().join("direct"), "#! /bin/sh  -e \n", 0o755);
        script(&home.path().join("env"), "#!/usr/bin/env sh\n", 0o755);
        let paths = |word: &str| {
            let found = find(word, &path_of("/bin"), &directory).unwrap();
            (
                found.shown.interpreters.into_iter().map(|one| one.path).collect::<Vec<_>>(),
                found.shebang.unwrap(),
            )
        };
        let (direct, shebang) = paths("./direct");
        assert_eq!(direct, ["/bin/sh"]);
        assert_eq!(shebang, Shebang { interpreter: "/bin/sh".into(), argument: Some("-e".into()) });
        assert_eq!(paths("./env").0, ["/usr/bin/env", "/bin/sh"]);
    }

    #[test]
    fn every_file_that_a_script_line_names_is_found() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        let at = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        script(&home.path().join("real.sh"), "echo real\n", 0o644);
        script(&home.path().join("tool"), "#!/bin/sh ./real.sh\n", 0o755);
        let names = |line: &str| -> Vec<String> {
            script(&home.path().join("s"), &format!("#!{line}\n"), 0o755);
            let found = find("./s", &path_of("/usr/bin:/bin"), &directory).unwrap();
            found.shown.interpreters.into_iter().map(|one| one.path.replace("/./", "/")).collect()
        };
        assert_eq!(names("/bin/sh ./real.sh"), ["/bin/sh".to_owned(), at("real.sh")]);
        assert_eq!(names("/bin/sh -e ./real.sh"), ["/bin/sh".to_owned(), at("real.sh")]);
        assert_eq!(names("./tool"), [at("tool"), "/bin/sh".to_owned(), at("real.sh")]);
        assert_eq!(names("/usr/bin/env -S sh -e ./real.sh"), ["/usr/bin/env", "/usr/bin/sh", &at("real.sh")]);
        let nested = ["/usr/bin/env".to_owned(), at("tool"), "/bin/sh".to_owned(), at("real.sh")];
        assert_eq!(names("/usr/bin/env -S ./tool"), nested);
        for line in [
            "/usr/bin/env -i sh",
            "/usr/bin/env A=1 sh",
            "/usr/bin/env -S A=1 sh",
            "/usr/bin/env -S 'sh'",
            "/usr/bin/env -S",
        ] {
            script(&home.path().join("s"), &format!("#!{line}\n"), 0o755);
            let failed = failure(find("./s", &path_of("/usr/bin:/bin"), &directory));
            assert!(failed.contains("cannot be followed"), "{line}: {failed}");
        }
    }
}
