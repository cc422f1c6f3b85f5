//! The child: exactly the frozen command.
//!
//! Owns the last steps from a verified command to a process: the sealed copy of a script, the directory by its inode,
//! the environment and nothing else, the terminal. Whether it may run was decided before; how it is signalled is in
//! `signals`.
//!
//! A path can be given another file between the check and the moment the kernel or a shell opens it. For a shell
//! script the gap is closed: the shell reads a sealed in-memory copy of the approved bytes, through
//! `/proc/self/fd/N`. That changes what the script means only if it asks for its own path, so a script that does is
//! left on its path, as is everything that no shell reads. `docs/decisions/0003-script-bytes.md` has the reasons.

use std::os::unix::process::{CommandExt, ExitStatusExt};
#[cfg(target_os = "linux")]
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};

use super::freeze::{Frozen, Invocation};
#[cfg(target_os = "linux")]
use super::{freeze::Pin, operand::Operand, script};

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;

/// A child that is ready to start. While it exists, so does the sealed copy that it reads.
pub struct Prepared {
    command: Command,
    #[cfg(target_os = "linux")]
    _script: Option<rustix::fd::OwnedFd>,
    _frozen: Frozen,
}

/// Builds the child of a command that was just verified.
pub fn prepare(invocation: &Invocation, frozen: Frozen) -> Result<Prepared> {
    #[cfg(target_os = "linux")]
    let (mut command, script) = pinned(invocation, &frozen)?;
    #[cfg(not(target_os = "linux"))]
    let mut command = plain(invocation, &frozen);
    command.env_clear().envs(invocation.environment.variables());
    enter(&mut command, &frozen)?;
    Ok(Prepared {
        command,
        #[cfg(target_os = "linux")]
        _script: script,
        _frozen: frozen,
    })
}

impl Prepared {
    /// Starts it, on our own input, output and terminal.
    pub fn spawn(self) -> Result<tokio::process::Child> {
        let program = self.command.get_program().display().to_string();
        tokio::process::Command::from(self.command).spawn().with_context(|| format!("cannot start {program}"))
    }
}

/// The command as it stands, by its path.
fn plain(invocation: &Invocation, frozen: &Frozen) -> Command {
    let mut command = Command::new(&frozen.program);
    command.arg0(&invocation.argv[0]).args(&invocation.argv[1..]);
    command
}

/// The command, with a script that is to be read from a copy replaced by that copy.
#[cfg(target_os = "linux")]
fn pinned(invocation: &Invocation, frozen: &Frozen) -> Result<(Command, Option<rustix::fd::OwnedFd>)> {
    match &frozen.pin {
        None => Ok((plain(invocation, frozen), None)),
        Some(Pin::Operand(at)) => {
            let operand = frozen
                .content
                .operands
                .iter()
                .find(|operand| operand.place() == (*at, &invocation.argv[*at]));
            let Some(Operand::Hashed { path, sha256, .. }) = operand else {
                anyhow::bail!("argument {at} is to be read from a copy but was not digested");
            };
            let (fd, copy) = sealed(&script::read(path.as_ref(), sha256, &frozen.directory)?)?;
            let mut command = Command::new(&frozen.program);
            command.arg0(&invocation.argv[0]).args(&invocation.argv[1..*at]).arg(copy);
            command.args(&invocation.argv[at + 1..]);
            Ok((command, Some(fd)))
        }
        Some(Pin::Executable(shebang)) => {
            let sha256 = &frozen.content.executable.sha256;
            let (fd, copy) = sealed(&script::read(&frozen.program, sha256, &frozen.directory)?)?;
            // What the kernel would do with the script's own path. It searches no PATH for a bare name.
            let mut command = Command::new(Path::new(".").join(&shebang.interpreter));
            command.arg0(&shebang.interpreter).args(&shebang.argument).arg(copy).args(&invocation.argv[1..]);
            Ok((command, Some(fd)))
        }
    }
}

/// The lowest number for the copy's descriptor: scripts use small ones for themselves, shells those from 10 on.
#[cfg(target_os = "linux")]
const COPY_FD: i32 = 200;

/// Puts bytes in memory that nobody can change any more, not even who holds them open. The descriptor is inherited
/// by the child, which opens it by the path returned.
#[cfg(target_os = "linux")]
fn sealed(bytes: &[u8]) -> Result<(rustix::fd::OwnedFd, String)> {
    use rustix::fs::{MemfdFlags, SealFlags};
    use rustix::io::FdFlags;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    let say = "cannot make a sealed copy of the script";
    let fd = rustix::fs::memfd_create("holdgate-script", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .context(say)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes).context(say)?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )
    .context(say)?;
    // Where so many descriptors are not allowed, any number will do.
    let fd = rustix::io::fcntl_dupfd_cloexec(&file, COPY_FD)
        .or_else(|_| rustix::io::fcntl_dupfd_cloexec(&file, 3));
    let fd = fd.context(say)?;
    rustix::io::fcntl_setfd(&fd, FdFlags::empty()).context(say)?;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok((fd, path))
}

/// Makes the child start in the directory that was verified, whatever its path says by now.
#[cfg(target_os = "linux")]
fn enter(command: &mut Command, frozen: &Frozen) -> Result<()> {
    use rustix::fd::AsFd as _;
    use std::os::fd::AsRawFd as _;

    // The descriptor is closed on exec, after the child has changed its directory.
    command.current_dir(format!("/proc/self/fd/{}", frozen.directory.as_fd().as_raw_fd()));
    Ok(())
}

/// Without `/proc`, this process goes there itself and the child inherits the place.
#[cfg(not(target_os = "linux"))]
fn enter(_: &mut Command, frozen: &Frozen) -> Result<()> {
    rustix::process::fchdir(&frozen.directory).context("cannot enter the command's directory")
}

/// A child's end as our own exit code: its status, or 128 and the signal that ended it.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// A child's end in words, for the receipt.
pub fn outcome(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}
