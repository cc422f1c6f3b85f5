//! Content digests of files.
//!
//! Owns reading a file to its end and hashing it. It does not say which files matter.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// What a file held when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDigest {
    /// Lowercase hex SHA-256 of the bytes read.
    pub sha256: String,
    /// How many bytes were read.
    pub bytes: u64,
}

/// Hashes a file to its end without holding it in memory; the first `head` bytes are handed back.
pub fn of_file(mut file: &File, head: usize) -> io::Result<(FileDigest, Vec<u8>)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 64 * 1024];
    let mut bytes = 0_u64;
    let mut first = Vec::with_capacity(head);
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..read]);
        first.extend_from_slice(&buffer[..read.min(head.saturating_sub(first.len()))]);
        bytes += read as u64;
    }
    Ok((FileDigest { sha256: hex(&hasher.finalize()), bytes }, first))
}

/// Hashes bytes that are already in memory.
pub fn of_bytes(bytes: &[u8]) -> FileDigest {
    FileDigest { sha256: hex(&Sha256::digest(bytes)), bytes: bytes.len() as u64 }
}

/// Lowercase hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_digest_of_its_bytes_and_its_head_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let (digest, head) = of_file(&File::open(&path).unwrap(), 70_000).unwrap();
        assert_eq!(digest, of_bytes(&bytes));
        assert_eq!(head, bytes[..70_000]);
    }

    #[test]
    fn the_digest_is_sha256_in_lowercase_hex() {
        assert_eq!(
            of_bytes(b"abc").sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
