//! GGUF model files: read, size, cut into pieces, write. Knows nothing of hosts, networks or inference.
