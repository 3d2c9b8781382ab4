//! Digest of a fixed list of questions.

use forage_contracts::Task;

/// BLAKE3 (hexadecimal) of the set of `(data_source, id)`, whatever its order.
///
/// Two runs compared question by question must show the same digest.
pub fn digest_ids(tasks: &[Task]) -> String {
    let mut keys: Vec<(String, String)> = tasks.iter().map(Task::key).collect();
    keys.sort_unstable();
    let mut hasher = blake3::Hasher::new();
    for part in keys.iter().flat_map(|(source, id)| [source, id]) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}
