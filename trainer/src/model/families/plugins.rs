//! Families from outside, beside the built-in ones.

use std::sync::OnceLock;

use super::family::{FAMILIES, Family};
use crate::plugin_error::PluginError;

/// Set once by [`install_families`]; empty in a program that brings none.
static INSTALLED: OnceLock<Vec<Family>> = OnceLock::new();

/// Puts families beside the built-in ones, for the life of the process.
///
/// # Errors
/// When a `model_type` is taken, or families are installed already.
pub fn install_families(added: Vec<Family>) -> Result<(), PluginError> {
    check(&added)?;
    INSTALLED.set(added).map_err(|_| PluginError::Again)
}

fn check(added: &[Family]) -> Result<(), PluginError> {
    for (place, family) in added.iter().enumerate() {
        let name = family.model_type;
        let mut others = FAMILIES.into_iter().chain(&added[..place]);
        if others.any(|other| other.model_type == name) {
            let kind = "model family";
            return Err(PluginError::Taken { kind, name });
        }
    }
    Ok(())
}

/// The families from outside.
pub(super) fn installed() -> impl Iterator<Item = &'static Family> {
    INSTALLED.get().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_types_are_taken_once() {
        let own = |name| Family::new(name, "Own");
        assert_eq!(check(&[own("mine"), own("other")]), Ok(()));
        for (families, name) in [
            (vec![own("llama")], "llama"),
            (vec![own("mine"), own("mine")], "mine"),
        ] {
            let error = check(&families).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("model family `{name}`")),
                "{error}"
            );
        }
    }
}
